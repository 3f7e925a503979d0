"""Snapshot ensembles (Huang et al. 2017): one run, a cyclical learning rate, the weights at the end of every cycle.

The optimizer is that of plain training, under a cosine schedule with warm restarts; M trained members give
M x cycles members of the ensemble.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from murmuration.core.dynamics.base import Dynamics, Streams, WeightPath, refuse_early_stopping
from murmuration.core.dynamics.schedules import TrainTime
from murmuration.core.population import Population
from murmuration.system.errors import Misuse


@dataclass(frozen=True)
class Snapshot(Dynamics):
    """Plain training that collects the weights at the end of every learning-rate cycle.

    Attributes:
        name: Name of the dynamics.
        cycles: Number of cycles.
    """

    name: ClassVar[str] = "snapshot"

    cycles: int = 5

    def __post_init__(self) -> None:
        if self.cycles < 1:
            raise Misuse(f"cycles={self.cycles}: need at least 1")

    def check(self, *, total: TrainTime, stochastic: bool, schedule: str | None, own_rule: bool, early: bool) -> None:
        refuse_early_stopping(self.name, early)
        if schedule is not None and schedule != self.schedule():
            problem = f"its cycles are the schedule {self.schedule()}; leave it out"
            raise Misuse(f"schedule {schedule} with dynamics {self.name}: {problem}")
        if self.copies(total) > total.step:
            cycles = f"cycles={self.copies(total)} of dynamics {self.name}"
            raise Misuse(f"{cycles} in {total.step} steps: train longer, or write fewer cycles")

    def schedule(self) -> str:
        return f"cyclic:{self.cycles}"

    def keep(self, time: TrainTime) -> bool:
        return time.step in cycle_ends(self.cycles, time)

    def copies(self, total: TrainTime) -> int:
        return self.cycles

    def collect(self, path: WeightPath, population: Population, rows: Tensor) -> None:
        """Collect a copy of the members at these rows as one more point."""
        name = str(len(path.points))
        path.points[name] = population.clone()
        path.counts[name] = torch.zeros(population.members, dtype=torch.int64).index_fill(0, rows, 1)

    def finish(self, path: WeightPath, population: Population, streams: Streams) -> tuple[Population, Tensor]:
        """Return all collected points as members, in order; a member that was never collected has its last weights."""
        counts = [path.counts[name] for name in path.points]
        never = (torch.stack(counts).sum(0) if counts else torch.zeros(population.members)) == 0
        rows = [count.nonzero().flatten() for count in (*counts, never)]
        points = zip((*path.points.values(), population), rows, strict=True)
        parts = [point.with_own_copies().take(members) for point, members in points if len(members)]
        return Population.concatenate(parts), torch.cat(rows)


def cycle_ends(cycles: int, time: TrainTime) -> list[int]:
    """Return the steps after which a cycle of the learning rate ends.

    >>> cycle_ends(3, TrainTime(0, 5, 2))
    [4, 7, 10]
    """
    total = time.steps_per_epoch * time.epochs
    return [-(-total * (cycle + 1) // cycles) for cycle in range(cycles)]
