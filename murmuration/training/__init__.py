"""Training: the specification of a run, the batches, one step for every method, the loop, the choice of an engine."""

from murmuration.training.engine_choice import choose_engine
from murmuration.training.loop import Progress, Watcher, begin, train
from murmuration.training.spec import TrainSpec

__all__ = ["Progress", "TrainSpec", "Watcher", "begin", "choose_engine", "train"]
