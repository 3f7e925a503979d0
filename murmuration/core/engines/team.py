"""The engines, and a team of worker threads that runs groups of members.

An engine is two numbers: how many members form a group (one, or many stacked in one batched computation), and how many
workers run groups in parallel (none: the calling thread, with all cores inside each operator; else one core each).
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn

from murmuration.core.engines.captures import Captures, StepInputs
from murmuration.core.engines.ranks import ALONE, Ranks
from murmuration.core.weights import Structure
from murmuration.system.workers import single_core_threads

Item = TypeVar("Item")


@dataclass(frozen=True)
class Engine:
    """How members are grouped and how many workers run the groups.

    >>> Engine("threads-stacked", workers=2, stacked=True).groups(5)
    [slice(0, 3, None), slice(3, 5, None)]
    """

    name: str
    workers: int = 0  # 0: the calling thread
    stacked: bool = False  # several members per group, in one batched computation
    direct: bool = False  # stacked without vmap, for networks whose operators accept a member axis

    def groups(self, members: int) -> list[slice]:
        """The members of each group."""
        count = min(max(self.workers, 1), members) if self.stacked else members
        edges = [-(-members * i // count) for i in range(count + 1)]
        return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def engine(name: str, direct: bool = False, cores: int | None = None) -> Engine:
    """The engine of this name: loop, stacked, threads or threads-stacked; on all cores unless told how many."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = cores or max(1, found or 1)
    return {
        "loop": Engine("loop"),
        "stacked": Engine("stacked", stacked=True, direct=direct),
        "threads": Engine("threads", workers=workers),
        "threads-stacked": Engine("threads-stacked", workers=workers, stacked=True, direct=direct),
    }[name]


class Task(Protocol[Item]):
    """A computation that runs the same operators at every step, as a function of tensors and random bits alone."""

    @property
    def packed(self) -> slice:
        """The results that a replay packs into one buffer."""

    def inputs(self) -> StepInputs | None:
        """Return what the results depend on; None if the operators may change."""

    def run(self, inputs: StepInputs | None) -> Item:
        """Compute the result."""

    def compute(self, inputs: StepInputs) -> list[Tensor]:
        """Compute the tensors of the result from `inputs` alone; this is what a capture records."""

    def pack(self, result: Item) -> list[Tensor]:
        """Return the tensors of a result."""

    def unpack(self, tensors: list[Tensor]) -> Item | None:
        """Return the result of these tensors; None if it must be computed again."""


class Team:
    """A pool of workers for one network; every thread has its own copy of the network's structure.

    `ranks` are the processes that members are divided among. Their collectives run in the calling thread alone.
    """

    def __init__(
        self, engine: Engine, module: nn.Module, pool: ThreadPoolExecutor | None, ranks: Ranks = ALONE
    ) -> None:
        self.engine = engine
        self.ranks = ranks
        self.captures = Captures(module)
        self._original = module
        self._pool = pool
        self._local = threading.local()

    def structure(self, training: bool) -> Structure:
        """This thread's copy of the network's structure, in training or evaluation mode."""
        if not hasattr(self._local, "structure"):
            self._local.structure = Structure(self._original)
        structure: Structure = self._local.structure
        return structure.train(training)

    def call(self, task: Task[Item]) -> Item:
        """Return the result of a task, replayed where its operators were captured at earlier steps."""
        inputs = task.inputs() if self.captures.possible else None
        if inputs is None:
            return task.run(None)
        tensors = self.captures.replay(inputs)
        if tensors is not None:
            result = task.unpack(tensors)
            if result is not None:
                return result
            for noise in inputs.noise:
                noise.rewind()
        result = task.run(inputs)
        self.captures.learn(inputs, lambda: task.compute(inputs), task.pack(result), packed=task.packed)
        return result

    def run(
        self, gradients: Callable[[slice], Any], move: Callable[[Any], Item], groups: Sequence[slice], fraction: float
    ) -> list[Item]:
        """Move groups of members along their gradients.

        If processes split a batch (this one has a `fraction` of it), losses and gradients are summed over them first.
        """
        if self.ranks.parts == 1:  # a group's graph is freed before the next is built
            return self.map(lambda group: move(gradients(group)), groups)
        results = self.map(gradients, groups)
        tensors = [fraction * tensor for result in results for tensor in result.tensors()]
        total = iter(self.ranks.sum_parts(tensors))
        return [move(result.with_tensors([next(total) for _ in result.tensors()])) for result in results]

    def map(self, work: Callable[..., Item], *arguments: Sequence[Any]) -> list[Item]:
        """`work` applied to corresponding arguments, in parallel if there are workers; results in order."""
        run = map if self._pool is None else self._pool.map
        return list(run(work, *arguments))


@contextmanager
def assemble(engine: Engine, module: nn.Module, ranks: Ranks = ALONE) -> Iterator[Team]:
    """A team whose workers live as long as the `with` block."""
    if not engine.workers:
        yield Team(engine, module, None, ranks)
        return
    with single_core_threads(engine.workers) as pool:
        yield Team(engine, module, pool, ranks)
