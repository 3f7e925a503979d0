"""Snapshot ensembles (Huang et al. 2017): one run, a cyclical learning rate, the weights at the end of every cycle.

The optimizer is that of plain training, under a cosine schedule with warm restarts; M trained members give
M x cycles members of the ensemble.
"""

from dataclasses import dataclass

from torch import Tensor

from murmuration.core.dynamics.base import (
    Dynamics,
    Streams,
    WeightPath,
    append_point,
    join_points,
    refuse_early_stopping,
)
from murmuration.core.dynamics.schedules import TrainTime
from murmuration.core.population import Population
from murmuration.system.errors import Misuse


@dataclass(frozen=True)
class Snapshot(Dynamics):
    """Plain training that collects the weights at the end of every learning-rate cycle.

    Attributes:
        cycles: Number of cycles.
    """

    cycles: int = 5

    def __post_init__(self) -> None:
        if self.cycles < 1:
            raise Misuse(f"cycles={self.cycles}: need at least 1")

    def check(self, *, total: TrainTime, stochastic: bool, schedule: str | None, own_rule: bool, early: bool) -> None:
        refuse_early_stopping("snapshot", early)
        refuse_other_schedule("snapshot", schedule, self.schedule())
        refuse_short_cycles("snapshot", self.cycles, total)

    def schedule(self) -> str:
        return f"cyclic:{self.cycles}"

    def keep(self, time: TrainTime) -> bool:
        return time.step in cycle_ends(self.cycles, time)

    def copies(self, total: TrainTime) -> int:
        return self.cycles

    def collect(self, path: WeightPath, population: Population, rows: Tensor) -> None:
        append_point(path, population, rows)

    def finish(self, path: WeightPath, population: Population, streams: Streams) -> tuple[Population, Tensor]:
        return join_points(path, population)


def cycle_ends(cycles: int, time: TrainTime) -> list[int]:
    """Return the steps after which a cycle of the learning rate ends.

    >>> cycle_ends(3, TrainTime(0, 5, 2))
    [4, 7, 10]
    """
    total = time.steps_per_epoch * time.epochs
    return [-(-total * (cycle + 1) // cycles) for cycle in range(cycles)]


def refuse_other_schedule(name: str, requested: str | None, own: str) -> None:
    """Refuse a learning-rate schedule that would replace the cycles of the dynamics."""
    if requested is not None and requested != own:
        raise Misuse(f"schedule {requested} with dynamics {name}: its cycles are the schedule {own}; leave it out")


def refuse_short_cycles(name: str, cycles: int, total: TrainTime) -> None:
    """Refuse more cycles than there are steps."""
    if cycles > total.step:
        raise Misuse(f"cycles={cycles} of dynamics {name} in {total.step} steps: train longer, or write fewer cycles")
