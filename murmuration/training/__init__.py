"""Training: the specification of a run, the batches, one step for every method, the loop, the choice of an engine."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murmuration.training.engine_choice import choose_engine
    from murmuration.training.loop import Progress, Watcher, begin, train
    from murmuration.training.spec import TrainSpec

_MODULES = {"choose_engine": "engine_choice", "TrainSpec": "spec"}  # of the other names: loop

__all__ = ["Progress", "TrainSpec", "Watcher", "begin", "choose_engine", "train"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: the command line reads `plan` without torch, which takes seconds."""
    if name not in __all__:
        raise AttributeError(f"module 'murmuration.training' has no attribute '{name}'")
    return getattr(import_module(f"murmuration.training.{_MODULES.get(name, 'loop')}"), name)
