"""SWAG (Maddox et al. 2019): a Gaussian fitted to the weights that SWA averages, and members drawn from it.

With the mean m and the variance v (ddof 0) of the collected weights, and the last K deviations from the running mean as
columns of D, a draw is

    w = m + sqrt(scale) (sqrt(v) * z1 + D z2 / sqrt(K - 1)),      z1 ~ N(0, I_P), z2 ~ N(0, I_K), one z2 for all tensors

`scale` multiplies the covariance. Published: 1/2 with both terms, 1 for the diagonal alone (`rank=0`). The divisor is
K - 1 even if fewer than K columns were collected, and columns are deviations from the running mean (the first is 0), so
D D^T / (K - 1) is not the sample covariance; both are as in the released code. Multi-SWAG (Wilson and Izmailov 2020) is
this with several members.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from murmuration.core.dynamics.base import Streams, WeightPath
from murmuration.core.dynamics.schedules import TrainTime
from murmuration.core.dynamics.swa import MEAN, Swa, add_to_mean, mean_weights, per_member
from murmuration.core.population import Named, Population
from murmuration.system.errors import Misuse
from murmuration.system.streams import Noise, many_normals

SQUARES = "squares"  # sums of squared deviations from the mean


@dataclass(frozen=True)
class Swag(Swa):
    """Draws from a Gaussian with diagonal plus low-rank covariance around the SWA mean.

    Attributes:
        start: Fraction of the run after which weights are collected.
        collections: Number of collections, at equal intervals; the last is the end of the run.
        lr_ratio: Learning rate during collection, relative to its first value.
        rank: Number K of deviations stored for the low-rank term; 0 for a diagonal covariance.
        scale: Factor of the covariance; None for the published one, 0.5, or 1 if `rank` is 0.
        draws: Members drawn for each trained one.
    """

    name: ClassVar[str] = "swag"

    rank: int = 20
    scale: float | None = None
    draws: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank < 0 or self.rank == 1:
            raise Misuse(f"rank={self.rank}: need 0 (diagonal) or at least 2")
        if self.draws < 1:
            raise Misuse(f"draws={self.draws}: need at least 1")
        if self.scale is not None and not 0 <= self.scale < math.inf:
            raise Misuse(f"scale={self.scale}: need a number that is not negative, such as 0.5; 0 is SWA")

    def check(self, *, total: TrainTime, stochastic: bool, schedule: str | None, own_rule: bool, early: bool) -> None:
        super().check(total=total, stochastic=stochastic, schedule=schedule, own_rule=own_rule, early=early)
        if stochastic:
            raise Misuse("dynamics swag with random weights: it makes point weights random itself; write weights point")

    def copies(self, total: TrainTime) -> int:
        return 2 + self.rank

    def collect(self, path: WeightPath, population: Population, rows: Tensor) -> None:
        before = add_to_mean(path, population, rows)
        mean = path.points[MEAN]
        if SQUARES not in path.points:
            path.points[SQUARES] = deviation(population, population, rows)  # zeros
            path.counts[SQUARES] = torch.zeros(population.members, dtype=torch.int64)
        collected = int(path.counts[SQUARES].max())  # collections so far
        path.counts[SQUARES] = path.counts[SQUARES].index_add(0, rows, torch.ones_like(rows))
        squares = path.points[SQUARES]
        for name, tensor in squares.own.items():  # Welford: n v grows by (w - mean before) (w - mean after)
            weights = population.own[name][rows]
            tensor[rows] += (weights - before.own[name][rows]) * (weights - mean.own[name][rows])
        for name, tensor in squares.shared.items():
            weights = population.shared[name]
            tensor += (weights - before.shared[name]) * (weights - mean.shared[name])
        if self.rank:
            key = f"deviation/{collected % self.rank}"
            path.points[key] = deviation(population, mean, rows, path.points.get(key))
            path.counts[key] = torch.zeros(population.members, dtype=torch.int64).index_fill(0, rows, 1)

    def finish(self, path: WeightPath, population: Population, streams: Streams) -> tuple[Population, Tensor]:
        mean = mean_weights(path, population).with_own_copies()
        if MEAN not in path.points:
            return mean, torch.arange(population.members)
        counts, shared = path.counts[MEAN].clamp_min(1), path.points[SQUARES].shared
        times = {name: counts.max().expand(population.members) if name in shared else counts for name in mean.own}
        squares = path.points[SQUARES].with_own_copies()
        columns = [path.points[key].with_own_copies() for key in path.points if key.startswith("deviation/")]
        stds = {name: (t / per_member(times[name], t)).clamp_min(0).sqrt() for name, t in squares.own.items()}
        published = 0.5 if self.rank else 1.0
        scale = published if self.scale is None else self.scale
        draws = [
            draw_member(mean, stds, columns, row, streams(row, draw), scale=scale, rank=self.rank)
            for draw in range(self.draws)
            for row in range(population.members)
        ]
        return Population.concatenate(draws), torch.arange(population.members).repeat(self.draws)


def draw_member(
    mean: Population, stds: Named, columns: list[Population], row: int, noise: Noise, *, scale: float, rank: int
) -> Population:
    """Draw one member (1, ...) from the Gaussian of a row; all tensors are drawn jointly."""
    member = mean.take(torch.tensor([row]))
    names = sorted(stds)
    likes = [member.own[names[0]].new_empty(1, max(len(columns), 1)), *(member.own[name] for name in names)]
    low_rank, *diagonal = many_normals([noise], likes)
    for name, eps in zip(names, diagonal, strict=True):
        step = stds[name][row : row + 1] * eps
        for z, column in zip(low_rank[0].tolist(), columns, strict=False):
            step = step + column.own[name][row : row + 1] * (z / math.sqrt(rank - 1))
        member.own[name] = member.own[name] + math.sqrt(scale) * step
    return member


def deviation(population: Population, mean: Population, rows: Tensor, before: Population | None = None) -> Population:
    """Return the deviations of the members at these rows from their mean; for others those of `before`, or zero."""
    own = {}
    for name, tensor in population.own.items():
        own[name] = torch.zeros_like(tensor) if before is None else before.own[name].clone()
        own[name][rows] = tensor[rows] - mean.own[name][rows]
    shared = {name: tensor - mean.shared[name] for name, tensor in population.shared.items()}
    return replace(population, own=own, shared=shared, buffers={})
