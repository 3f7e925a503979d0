"""Stochastic weight averaging (SWA, Izmailov et al. 2018): the mean of weights collected late in training.

Training runs at a constant, fairly high learning rate in its last part, and weights collected there at equal intervals
are averaged. Each trained member gives one member of the ensemble, at its average, with new batch-norm statistics.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from murmuration.core.dynamics.base import Dynamics, Streams, WeightPath, keep_times, refuse_early_stopping
from murmuration.core.dynamics.schedules import TrainTime
from murmuration.core.population import Population
from murmuration.system.errors import Misuse

MEAN = "mean"


@dataclass(frozen=True)
class Swa(Dynamics):
    """The average of weights collected late in training.

    Attributes:
        name: Name of the dynamics.
        start: Fraction of the run after which weights are collected.
        collections: Number of collections, at equal intervals; the last is the end of the run.
        lr_ratio: Learning rate during collection, relative to its first value.
    """

    refreshes_statistics: ClassVar[bool] = True
    name: ClassVar[str] = "swa"

    start: float = 0.75
    collections: int = 20
    lr_ratio: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.start < 1:
            raise Misuse(f"start={self.start}: need a fraction of the run from 0 to below 1, such as 0.75")
        if self.collections < 2:
            raise Misuse(f"collections={self.collections}: need at least 2")
        if not 0 < self.lr_ratio < math.inf:
            raise Misuse(f"lr_ratio={self.lr_ratio}: need a positive factor of the learning rate, such as 0.5")

    def check(self, *, total: TrainTime, stochastic: bool, schedule: str | None, own_rule: bool, early: bool) -> None:
        refuse_early_stopping(self.name, early)
        count = len(keep_times(self, total))
        if count < 2:
            problem = f"would collect weights {count} times in {total.step} steps, and needs 2 at least"
            raise Misuse(f"dynamics {self.name} {problem}: train longer, or write a smaller start")

    def schedule(self) -> str:
        return f"swa:{self.start or 1:g},{self.lr_ratio:g}"

    def keep(self, time: TrainTime) -> bool:
        total = time.steps_per_epoch * time.epochs
        first = round(self.start * total)
        before, now = (
            (step - first) * self.collections // max(total - first, 1) for step in (time.step - 1, time.step)
        )
        return time.step > first and now > before

    def copies(self, total: TrainTime) -> int:
        return 1

    def collect(self, path: WeightPath, population: Population, rows: Tensor) -> None:
        add_to_mean(path, population, rows)

    def finish(self, path: WeightPath, population: Population, streams: Streams) -> tuple[Population, Tensor]:
        return mean_weights(path, population), torch.arange(population.members)


def add_to_mean(path: WeightPath, population: Population, rows: Tensor) -> Population:
    """Move the mean of the members at these rows towards their weights: mean + (weights - mean) / n.

    Exact for equal weights. Shared tensors are averaged over all collections. Return the mean before the update.
    """
    if MEAN not in path.points:
        path.points[MEAN] = population.clone()
        path.counts[MEAN] = torch.zeros(population.members, dtype=torch.int64).index_fill(0, rows, 1)
        return path.points[MEAN].clone()
    mean, counts = path.points[MEAN], path.counts[MEAN]
    before = mean.clone()
    path.counts[MEAN] = counts.index_add(0, rows, torch.ones_like(rows))
    collected = path.counts[MEAN][rows]  # (m,)
    for name, tensor in mean.own.items():
        count = per_member(collected, tensor)
        now = population.own[name][rows]
        tensor[rows] = torch.where(count == 1, now, torch.lerp(tensor[rows], now, count.reciprocal()))
    for name, tensor in mean.shared.items():
        tensor.lerp_(population.shared[name], 1 / max(1, int(path.counts[MEAN].max())))
    return before


def per_member(values: Tensor, like: Tensor) -> Tensor:
    """Reshape values (M,) so that they broadcast to a tensor (M, ...)."""
    return values.to(like).view(-1, *(1,) * (like.dim() - 1))


def mean_weights(path: WeightPath, population: Population) -> Population:
    """Return the members at their mean weights, or their last if never collected; buffers are the last ones."""
    result = population.clone()
    if MEAN not in path.points:
        return result
    mean, collected = path.points[MEAN], path.counts[MEAN].nonzero().flatten()
    for name, tensor in result.own.items():
        tensor[collected] = mean.own[name][collected]
    if len(collected):
        result.copy_shared(mean)
    return result
