"""Inputs outside of the training range: how many, and how much of their prediction is the one without any input.

A network extrapolates as it likes. With weight w a prediction is therefore that of an unknown function: one that gives
a class, or a number, drawn from the held-out targets. Nothing but the function is uncertain there, so that its part of
the variance and entropy is epistemic. With the distance d of `Ranges.outside`,

    w = d^4 / (d^4 + SCALE^4),

0 within the training range and its margin, a half where all inputs are half a range width beyond, near 1 far away. The
share 1 - w of the members vanishes faster than 1 / d^2, so that of members that extrapolate linearly, and whose spread
grows as d^2, nothing is left far away.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import murmuration.likelihoods.mixtures as mixtures
from murmuration.data.numpy_arrays import as_array
from murmuration.data.ranges import Ranges
from murmuration.likelihoods import CLASSIFICATION, REGRESSION
from murmuration.system.errors import Misuse

SCALE = 0.5  # distance at which half of a prediction is the baseline
MOST_BASELINE = 0.5  # share of the baseline above which an input is not answered


@dataclass(frozen=True, eq=False)
class Outside:
    """What is known of N inputs by the ranges of training.

    Attributes:
        count: Values of each input (N,) that lie beyond the training range, are unknown categories, or are missing
            where training had no missing value.
        weight: Share (N,) of each prediction that is the baseline.
    """

    count: Tensor
    weight: Tensor

    def at(self, rows: Any) -> "Outside":
        """Select inputs."""
        return Outside(self.count[rows], self.weight[rows])

    def plus(self, counts: Any) -> "Outside":
        """Add counts (N,) that prepared inputs do not show."""
        return replace(self, count=self.count + torch.as_tensor(as_array(counts)))


def outside_of(ranges: Ranges, x: Tensor) -> Outside:
    """Return what the ranges of training say about prepared inputs (N, ...)."""
    count, distance = ranges.outside(x)
    power = distance.square().square()
    return Outside(count, torch.where(power.isinf(), 1.0, power / (power + SCALE**4)))


def with_imputed(far: Outside | None, imputed: np.ndarray | None) -> Outside | None:
    """Return what is known of inputs, of which `imputed` (N,) values were filled in besides; None if nothing is."""
    return far if far is None or imputed is None else far.plus(imputed)


def joined(parts: Sequence[Outside | None]) -> Outside | None:
    """Concatenate the inputs of parts; None if one is not known."""
    records = [part for part in parts if part is not None]
    if len(records) < len(parts):
        return None
    return Outside(torch.cat([part.count for part in records]), torch.cat([part.weight for part in records]))


@dataclass(frozen=True)
class Baseline:
    """The prediction without any input.

    Attributes:
        mean: Frequencies (K,) of classes or labels, or means of the targets.
        var: Variances (K,) of the targets; of a class or label, p (1 - p).
    """

    mean: tuple[float, ...]
    var: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.var) or not self.mean or min(self.var) <= 0:
            raise Misuse(f"a baseline of {len(self.mean)} means and variances {self.var}: expected positive ones")

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance (K,) in float64."""
        return torch.tensor(self.mean, dtype=torch.float64), torch.tensor(self.var, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Blend:
    """Predictions of which a part is the baseline; inputs of weight 0 keep the results of the members, bit for bit.

    Attributes:
        weight: Share (N,) of the baseline.
        mean: Mean (K,) of the baseline.
        var: Its variance (K,).
    """

    weight: Tensor
    mean: Tensor
    var: Tensor

    def mix(self, values: Tensor, unknown: Any) -> Tensor:
        """Average values (N, ...) of the members with those of the baseline."""
        weight = self.weight.view(-1, *[1] * (values.ndim - 1))
        return torch.where(weight > 0, (1 - weight) * values + weight * unknown, values)

    @property
    def density(self) -> mixtures.Normals:
        """Return the baseline of a regression as one Gaussian (1, 1, K)."""
        return mixtures.Normals(self.mean[None, None], self.var[None, None])

    def class_covariance(self, mean: Tensor) -> Tensor:
        """Return the covariance (N, K, K) of the classes of the baseline around other probabilities (N, K)."""
        apart = self.mean - mean
        return torch.diag(self.mean) - self.mean[:, None] * self.mean + apart[:, :, None] * apart[:, None, :]

    def log_mix(self, members: Tensor, y: Tensor, task: str) -> Tensor:
        """Compute the log-likelihood (N,) of checked targets from that under the members."""
        if task == REGRESSION:
            unknown = self.density.log_prob(y)[0].sum(-1)
        elif task == CLASSIFICATION:
            unknown = self.mean.log()[y]
        else:
            unknown = torch.where(y > 0.5, self.mean, 1 - self.mean).log().sum(-1)
        mixed = torch.logaddexp((1 - self.weight).log() + members, self.weight.log() + unknown)
        return torch.where(self.weight > 0, mixed, members)

    def quantile(self, level: float, members: Tensor, components: mixtures.Components, weights: Tensor) -> Tensor:
        """Compute a quantile (N, K) from that of the members' mixture, by bisection as there.

        It lies between the smallest and the largest quantile of members and baseline. It also lies between the
        baseline's quantiles at the levels that are left if all of the members' share is below it, or none: of members
        that are far off, whose share is small, these bounds are the narrow ones.
        """
        ends, baseline = components.quantile(level), self.density.quantile(level)[0]
        weight = self.weight[:, None]
        least, most = (level - (1 - weight)) / weight, level / weight
        lowest, highest = (self.mean + self.var.sqrt() * torch.special.ndtri(p.clamp(0, 1)) for p in (least, most))
        low = torch.minimum(ends.amin(0), baseline).maximum(lowest)
        high = torch.maximum(ends.amax(0), baseline).minimum(highest)
        for _ in range(mixtures.HALVINGS):
            middle = (low + high) / 2
            below = self.mix(mixtures.mixture_cdf(middle, components, weights), self.density.cdf(middle)[0]) < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return torch.where(weight > 0, (low + high) / 2, members)


def fit_baseline(y: Tensor, task: str, classes: int) -> Baseline:
    """Fit the baseline to held-out labels (N,) or targets (N, K); every class and label counts once more than it is."""
    if task == REGRESSION:
        mean, var = y.double().mean(0), y.double().var(0, correction=0)
        var = torch.where(var > 0, var, 1.0)
    else:
        shown = torch.nn.functional.one_hot(y, classes).double() if task == CLASSIFICATION else y.double()
        extra = classes if task == CLASSIFICATION else 2
        mean = (shown.sum(0) + 1) / (len(y) + extra)
        var = mean * (1 - mean)
    return Baseline(tuple(mean.tolist()), tuple(var.tolist()))
