"""Training: the batches members see, one step for every method, the only loop, and the choice of an engine."""

from murmuration.training.choice import choose_engine
from murmuration.training.loop import Job, Progress, Watcher, begin, train

__all__ = ["Job", "Progress", "Watcher", "begin", "choose_engine", "train"]
