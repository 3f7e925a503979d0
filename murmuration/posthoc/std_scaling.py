"""Calibrators of regressions: the predictive distribution stretched around its mean, or the noise of each member."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

import murmuration.posthoc.losses as losses
from murmuration.likelihoods import Quantiles
from murmuration.posthoc.calibrator import Calibrator, check_predictive, span
from murmuration.posthoc.serialization import damaged
from murmuration.predictive import Predictive

FACTORS = 1e-4, 1e4  # range of a fitted std factor: without errors among the examples the optimum is 0


@dataclass(frozen=True)
class StdScaling(Calibrator):
    """Every deviation from the predictive mean, of members' means and of noise, multiplied by one factor per target.

    The mean stays; aleatoric, epistemic and total standard deviation and the quantiles' distances scale alike.
    """

    factors: tuple[float, ...]  # (K,)
    name: ClassVar[str] = "temperature"
    task: ClassVar[str] = "regression"

    @property
    def about(self) -> str:
        return f"the predictive distribution stretched {span(self.factors)} times around its mean"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, targets=len(self.factors))
        factors = pred.mean.new_tensor(self.factors)
        if isinstance(pred.likelihood, Quantiles):
            return replace(pred, outputs=pred.likelihood.stretch(pred.outputs.double(), pred.mean, factors))
        means = pred.mean + factors * (pred.member_mean - pred.mean)
        return Predictive.from_moments(means, factors * pred.member_var.sqrt(), pred.weights)


@dataclass(frozen=True)
class MemberStdScaling(Calibrator):
    """Each member's noise multiplied by factors of its own; its mean, and so the epistemic variance, stays."""

    factors: tuple[tuple[float, ...], ...]  # (S, K)
    name: ClassVar[str] = "member_temperature"
    task: ClassVar[str] = "regression"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({len(row) for row in self.factors}) != 1:
            raise damaged("factors", [list(row) for row in self.factors], "as many numbers for each member")

    @property
    def about(self) -> str:
        every = [factor for member in self.factors for factor in member]
        return f"the noise of each member multiplied by a factor of its own, {span(every)}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, members=len(self.factors), targets=len(self.factors[0]))
        factors = pred.mean.new_tensor(self.factors)[:, None, :]
        return Predictive.from_moments(pred.member_mean, factors * pred.member_var.sqrt(), pred.weights)


def fit_std(pred: Predictive, y: Tensor) -> StdScaling:
    """The factor of each target that minimises the loss of the mixture on targets y (N, K).

    The search starts at factor^2 = mean of (y - mean)^2 / total_var, which is the solution for one member.
    """
    if isinstance(pred.likelihood, Quantiles):
        return fit_quantile_std(pred, y)
    ratios = [((target - part.mean).square() / part.total_var).sum(0) for part, target in losses.chunks(pred, y)]
    start = (torch.stack(ratios).sum(0) / len(y)).sqrt().clamp(*FACTORS).log()
    low, high = (math.log(end) for end in FACTORS)
    found = losses.minimise(lambda point: std_loss(pred, y, point), start, low=low, high=high)
    return losses.better_of(pred, y, StdScaling(tuple(found.exp().tolist())), StdScaling((1.0,) * len(start)))


def fit_quantile_std(pred: Predictive, y: Tensor) -> StdScaling:
    """The same for predicted quantiles: the factor of each target in turn, by a search along its logarithm."""
    factors = [1.0] * y.shape[1]

    def scaled(k: int, log_factor: float) -> StdScaling:
        return StdScaling((*factors[:k], math.exp(log_factor), *factors[k + 1 :]))

    low, high = (math.log(end) for end in FACTORS)
    for k in range(len(factors)):
        best = losses.minimise_scalar(lambda at, k=k: losses.reported_loss(pred, y, scaled(k, at)), low=low, high=high)  # type: ignore[misc]
        factors[k] = losses.better_of(pred, y, scaled(k, best), StdScaling(tuple(factors))).factors[k]
    return StdScaling(tuple(factors))


def std_loss(pred: Predictive, y: Tensor, log_factors: Tensor) -> tuple[float, Tensor]:
    """The mean loss of the scaled mixture, without its constant, and its gradient (K,) by the log factors.

    A member's standardised error is z = (y - m) / (f std) - (m_s - m) / std, with factor f and predictive mean m.
    """
    value, gradient = 0.0, torch.zeros_like(log_factors)
    for part, target in losses.chunks(pred, y):
        std = part.member_var.sqrt()  # (S, n, K)
        errors = (target - part.mean) / (std * log_factors.exp())
        z = errors - (part.member_mean - part.mean) / std
        members = -(0.5 * z.square() + std.log() + log_factors).sum(-1)  # (S, n)
        weighted = part.member_weights.log()[:, None] + members
        value -= weighted.logsumexp(0).sum().item()
        gradient = gradient + (weighted.softmax(0)[..., None] * (1 - z * errors)).sum((0, 1))
    return value / len(y), gradient / len(y)


def fit_member_std(pred: Predictive, y: Tensor) -> MemberStdScaling:
    """The noise factor of each member and target that minimises the loss of this member alone on targets y (N, K).

    In closed form: factor^2 = mean of ((y - mean_s) / std_s)^2. Disagreement then counts twice, in each member's noise
    and in the variance of their means, so the mixture can be too wide; `temperature` fits the mixture itself.
    """
    ratios = [
        ((target - part.member_mean).square() / part.member_var).sum(1) for part, target in losses.chunks(pred, y)
    ]
    factors = (torch.stack(ratios).sum(0) / len(y)).sqrt().clamp(*FACTORS)  # (S, K)
    return MemberStdScaling(tuple(tuple(row) for row in factors.tolist()))
