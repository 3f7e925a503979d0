"""The public names of this room and where they are defined: `__init__.py` imports them from here."""

from murmuration.training.engine_choice import choose_engine as choose_engine
from murmuration.training.loop import Progress as Progress, Watcher as Watcher, begin as begin, train as train
from murmuration.training.spec import TrainSpec as TrainSpec
