"""Numbers: the whole predictive distribution stretched around its mean, or each member's noise on its own."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from murmuration.calibration.losses import better_of, chunks
from murmuration.calibration.minimising import least_near
from murmuration.calibration.records import check_count, check_task, damaged, numbers, span
from murmuration.predictive import Predictive

LOWEST, HIGHEST = 1e-4, 1e4  # of a factor: without errors among the examples it would go to 0


@dataclass(frozen=True)
class Stretch:
    """Every deviation from the predictive mean, of members and of noise, multiplied by one factor a target.

    The mean stays; standard deviations, quantiles' distances from the mean and both uncertainties' roots grow alike.
    """

    factors: tuple[float, ...]  # (K,)
    name: ClassVar[str] = "temperature"
    task: ClassVar[str] = "regression"

    @property
    def about(self) -> str:
        return f"the predictive distribution stretched {span(self.factors)} times around its mean"

    def __call__(self, pred: Predictive) -> Predictive:
        check_task(self, pred)
        check_count(self, "targets", fitted=len(self.factors), got=pred.mean.shape[-1])
        factors = pred.mean.new_tensor(self.factors)
        means = pred.mean + factors * (pred.member_mean - pred.mean)
        return Predictive.from_moments(means, factors * pred.member_var.sqrt(), pred.weights)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "task": self.task, "factors": list(self.factors)}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Stretch":
        return Stretch(numbers(record.get("factors"), "factors", low=1e-9, high=1e9))


@dataclass(frozen=True)
class MemberNoise:
    """Each member's noise multiplied by factors of its own; its mean stays, and with it what members disagree on."""

    factors: tuple[tuple[float, ...], ...]  # (S, K)
    name: ClassVar[str] = "member_temperature"
    task: ClassVar[str] = "regression"

    @property
    def about(self) -> str:
        every = [factor for member in self.factors for factor in member]
        return f"the noise of each member multiplied by a factor of its own, {span(every)}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_task(self, pred)
        check_count(self, "members", fitted=len(self.factors), got=len(pred.outputs))
        check_count(self, "targets", fitted=len(self.factors[0]), got=pred.mean.shape[-1])
        factors = pred.mean.new_tensor(self.factors)[:, None, :]
        return Predictive.from_moments(pred.member_mean, factors * pred.member_var.sqrt(), pred.weights)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "task": self.task, "factors": [list(member) for member in self.factors]}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "MemberNoise":
        rows = record.get("factors")
        if not isinstance(rows, list) or not rows:
            raise damaged("factors", rows, "a list of numbers for each member")
        factors = tuple(numbers(row, f"factors[{s}]", low=1e-9, high=1e9) for s, row in enumerate(rows))
        if len({len(row) for row in factors}) != 1:
            raise damaged("factors", rows, "as many numbers for each member")
        return MemberNoise(factors)


def fit_stretch(pred: Predictive, y: Tensor) -> Stretch:
    """The factor of each target with which the mixture has the least loss on targets y (N, K).

    The search starts where the squared errors have the size that the total variance says, factor^2 = mean of
    (y - mean)^2 / total_var; with one member that is the answer, and the search rests at once.
    """
    ratios = [((target - part.mean).square() / part.total_var).sum(0) for part, target in chunks(pred, y)]
    start = bounded_root(torch.stack(ratios).sum(0) / len(y)).log()
    low, high = math.log(LOWEST), math.log(HIGHEST)
    found = least_near(lambda point: stretch_loss(pred, y, point), start, low=low, high=high)
    return better_of(pred, y, Stretch(tuple(found.exp().tolist())), Stretch((1.0,) * len(start)))


def stretch_loss(pred: Predictive, y: Tensor, log_factors: Tensor) -> tuple[float, Tensor]:
    """The mean loss of the stretched mixture, without its constant, and the slope (K,) by the logarithms of factors.

    A member's standardised error is z = (y - m) / (f std) - (m_s - m) / std, with factor f and predictive mean m.
    """
    value, slope = 0.0, torch.zeros_like(log_factors)
    for part, target in chunks(pred, y):
        std = part.member_var.sqrt()  # (S, n, K)
        errors = (target - part.mean) / (std * log_factors.exp())
        z = errors - (part.member_mean - part.mean) / std
        members = -(0.5 * z.square() + std.log() + log_factors).sum(-1)  # (S, n)
        weighted = part.member_weights.log()[:, None] + members
        value -= weighted.logsumexp(0).sum().item()
        slope = slope + (weighted.softmax(0)[..., None] * (1 - z * errors)).sum((0, 1))
    return value / len(y), slope / len(y)


def fit_member_noise(pred: Predictive, y: Tensor) -> MemberNoise:
    """The factor of each member's noise and target with the least loss of this member alone on targets y (N, K).

    In closed form: factor^2 = mean of ((y - mean_s) / std_s)^2. What members disagree on then counts twice, in each
    one's noise and in their spread, so that the mixture can come out too wide; `temperature` fits the mixture itself.
    """
    ratios = [((target - part.member_mean).square() / part.member_var).sum(1) for part, target in chunks(pred, y)]
    factors = bounded_root(torch.stack(ratios).sum(0) / len(y))  # (S, K)
    return MemberNoise(tuple(tuple(row) for row in factors.tolist()))


def bounded_root(squares: Tensor) -> Tensor:
    """The square roots (...), kept within the range of a factor."""
    return squares.sqrt().clamp(LOWEST, HIGHEST)
