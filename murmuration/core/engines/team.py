"""The engines, and a team of worker threads that runs groups of members.

An engine is two numbers: how many members form a group (one, or many stacked in one batched computation), and how many
workers run groups in parallel (none: the calling thread, with all cores inside each operator; else one core each).
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from murmuration.core.engines.captures import Captures
from murmuration.core.engines.ranks import ALONE, Ranks, available_cores
from murmuration.core.weights import Structure
from murmuration.system.streams import global_stream
from murmuration.system.workers import single_core_pool

if TYPE_CHECKING:
    from murmuration.core.gradients import GroupResult
    from murmuration.core.group_step import GroupStep

Item = TypeVar("Item")
# Name -> whether worker threads run groups, and whether members are stacked.
ENGINES = {"loop": (False, False), "stacked": (False, True), "threads": (True, False), "threads-stacked": (True, True)}


@dataclass(frozen=True)
class Engine:
    """How members are grouped and how many workers run the groups.

    >>> Engine("threads-stacked", workers=2, stacked=True).groups(5)
    [slice(0, 3, None), slice(3, 5, None)]

    Attributes:
        name: "loop", "stacked", "threads" or "threads-stacked".
        workers: Number of worker threads; 0 for the calling thread.
        stacked: Whether a group has several members, in one batched computation.
        direct: Whether stacked members run without vmap, for networks whose operators accept a member axis.
    """

    name: str
    workers: int = 0
    stacked: bool = False
    direct: bool = False

    def groups(self, members: int) -> list[slice]:
        """Return the indices of the members of each group, for this number of members."""
        count = min(max(self.workers, 1), members) if self.stacked else members
        edges = [-(-members * i // count) for i in range(count + 1)]
        return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def engine(name: str, direct: bool = False, cores: int | None = None) -> Engine:
    """Return the engine of this name.

    Args:
        name: "loop", "stacked", "threads" or "threads-stacked".
        direct: Whether stacked members run without vmap.
        cores: Number of worker threads; None for one per available core.

    Returns:
        The engine.
    """
    threads, stacked = ENGINES[name]
    return Engine(name, (cores or len(available_cores())) if threads else 0, stacked, direct and stacked)


class Team:
    """A pool of workers for one network; every thread has its own copy of the network's structure.

    Attributes:
        engine: How members are grouped.
        ranks: Processes that members are divided among; collectives run in the calling thread only.
        captures: Captured steps of the training run.
        may_draw: Whether the network may draw from torch's global generators, which engine loop redirects.
    """

    def __init__(
        self, engine: Engine, module: nn.Module, pool: ThreadPoolExecutor | None, ranks: Ranks = ALONE
    ) -> None:
        self.engine, self.ranks, self.captures = engine, ranks, Captures(module)
        self.may_draw = engine.name == "loop"
        self._original, self._pool, self._local = module, pool, threading.local()

    def structure(self, training: bool) -> Structure:
        """Return the network's structure for this thread.

        Args:
            training: Whether it is in training mode, not in evaluation mode.

        Returns:
            The thread's own copy.
        """
        if not hasattr(self._local, "structure"):
            self._local.structure = Structure(self._original)
        structure: Structure = self._local.structure
        return structure.train(training)

    @contextmanager
    def noise_stream(
        self, seed: int, member: int, step: int, device: torch.device, repeats: bool = True
    ) -> Iterator[None]:
        """Redirect torch's global generators to the noise of a member, where its network may draw from them.

        Several threads cannot redirect them at once, so a built-in network is watched in its first pass, and left alone
        if it drew nothing.

        Args:
            seed: Seed of the noise.
            member: The member whose noise it is.
            step: Time of the stream.
            device: Where the network runs.
            repeats: Whether all objects besides the network do the same in every pass.
        """
        with global_stream(seed, "noise", member, step, self.may_draw, device) as has_drawn:
            yield
            if self.may_draw and repeats and self.captures.built_in:
                self.may_draw = has_drawn()

    def call(self, task: "GroupStep") -> "GroupResult":
        """Run a task, or replay it if its operators were captured at earlier steps.

        Args:
            task: Losses and gradients of a group, by the same operators at every step.

        Returns:
            Its result; the tensors of a replay are overwritten by the next one.
        """
        inputs = task.inputs() if self.captures.possible else None
        if inputs is None:
            return task.run(None)
        if (tensors := self.captures.replay(inputs)) is not None:
            if (result := task.unpack(tensors)) is not None:
                return result
            for noise in inputs.noise:
                noise.rewind()
        result = task.run(inputs)
        self.captures.learn(inputs, lambda: task.compute(inputs), result.tensors(), packed=task.packed)
        return result

    def run(
        self, gradients: Callable[[slice], Any], move: Callable[[Any], Item], groups: Sequence[slice], fraction: float
    ) -> list[Item]:
        """Move groups of members along their gradients.

        If processes split a batch, losses and gradients are summed over them first.

        Args:
            gradients: Computes losses and gradients of a group.
            move: Moves a group along its gradients.
            groups: Members of each group.
            fraction: Fraction of the batch that this process has.

        Returns:
            The results of `move`, one per group.
        """
        if self.ranks.parts == 1:  # a group's graph is freed before the next is built
            return self.map(lambda group: move(gradients(group)), groups)
        results = self.map(gradients, groups)
        total = iter(self.ranks.sum_parts([fraction * tensor for result in results for tensor in result.tensors()]))
        return [move(result.with_tensors([next(total) for _ in result.tensors()])) for result in results]

    def map(self, work: Callable[..., Item], *arguments: Sequence[Any]) -> list[Item]:
        """Apply a function to corresponding arguments, in parallel if there are workers.

        Args:
            work: The function.
            *arguments: Sequences of one length.

        Returns:
            The results, in order.
        """
        run = map if self._pool is None else self._pool.map
        return list(run(work, *arguments))


@contextmanager
def assemble(engine: Engine, module: nn.Module, ranks: Ranks = ALONE) -> Iterator[Team]:
    """Yield a team whose workers live as long as the `with` block.

    Args:
        engine: How members are grouped.
        module: The network.
        ranks: Processes that members are divided among.

    Yields:
        The team.
    """
    with single_core_pool(engine.workers) if engine.workers else nullcontext() as pool:
        yield Team(engine, module, pool, ranks)
