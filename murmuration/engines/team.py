"""Where members run: a team of workers, each with groups of members.

An engine answers two questions: how many members run as one group (one alone, or many stacked), and how many workers
run groups side by side (none: the caller itself, with all cores inside each operator; otherwise one core a worker).
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

from murmuration.weights import Structure
from murmuration.workers import single_core_threads

Item = TypeVar("Item")


@dataclass(frozen=True)
class Engine:
    """How members are grouped and how many workers run the groups.

    >>> Engine("threads-stacked", workers=2, stacked=True).groups(5)
    [slice(0, 3, None), slice(3, 5, None)]
    """

    name: str
    workers: int = 0  # 0: the caller's own thread
    stacked: bool = False  # several members a group, in one batched computation
    direct: bool = False  # stacked without vmap: every operator is known to take a member axis

    def groups(self, members: int) -> list[slice]:
        count = min(max(self.workers, 1), members) if self.stacked else members
        edges = [-(-members * i // count) for i in range(count + 1)]
        return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def engine(name: str, direct: bool = False) -> Engine:
    """One of the four local engines by name."""
    workers = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return {
        "loop": Engine("loop"),
        "stacked": Engine("stacked", stacked=True, direct=direct),
        "threads": Engine("threads", workers=workers),
        "threads-stacked": Engine("threads-stacked", workers=workers, stacked=True, direct=direct),
    }[name]


class Team:
    """Workers at hand: `map` runs work for every group, and each thread has a structure of its own."""

    def __init__(self, engine: Engine, module: nn.Module, pool: ThreadPoolExecutor | None) -> None:
        self.engine = engine
        self._original = module
        self._pool = pool
        self._local = threading.local()

    def structure(self, training: bool) -> Structure:
        """This thread's copy of the network's structure, in the wanted mode."""
        if not hasattr(self._local, "structure"):
            self._local.structure = Structure(self._original)
        structure: Structure = self._local.structure
        return structure.train(training)

    def map(self, work: Callable[..., Item], *arguments: Sequence[Any]) -> list[Item]:
        """`work` applied to corresponding arguments, results in order; side by side where there are workers."""
        run = map if self._pool is None else self._pool.map
        return list(run(work, *arguments))


@contextmanager
def assemble(engine: Engine, module: nn.Module) -> Iterator[Team]:
    """A team for the time of a `with` block."""
    if not engine.workers:
        yield Team(engine, module, None)
        return
    with single_core_threads(engine.workers) as pool:
        yield Team(engine, module, pool)
