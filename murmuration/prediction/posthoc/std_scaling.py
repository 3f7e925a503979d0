"""Calibrators of regressions: means of members and noise scaled together, the noise alone, or one Gaussian.

Members' means m_s with noise std_s predict a mixture around its mean m. Scaled together, its modes stay as far apart in
units of the noise as they were; the noise alone closes the gaps between them; the moment-matched Gaussian has none.
`murmuration.prediction.posthoc.fit` chooses between the three by held-out log-loss.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

import murmuration.prediction.posthoc.losses as losses
from murmuration.likelihoods import MomentMatched, Quantiles
from murmuration.likelihoods.mixtures import contaminated_parts
from murmuration.prediction.posthoc.calibrator import Calibrator, Path, check_predictive, span
from murmuration.prediction.predictive import Predictive
from murmuration.system.records import damaged

FACTORS = 1e-4, 1e4  # range of a fitted std factor: without errors among the examples the optimum is 0
LOG_FACTORS = math.log(FACTORS[0]), math.log(FACTORS[1])
PRIOR_STDS = 0.05, 0.1, 0.2, 0.4  # of the logarithm of a factor, to choose from


@dataclass(frozen=True)
class FactorScaling(Calibrator):
    """The base class of calibrators with one factor per target; `StdScaling` with ones is the identity of all."""

    factors: tuple[float, ...]  # (K,)
    task: ClassVar[str] = "regression"
    prior_stds: ClassVar[tuple[float, ...]] = PRIOR_STDS
    ones_change: ClassVar[bool] = False  # whether predictions change where all factors are 1

    @classmethod
    def identity(cls, pred: Predictive) -> Calibrator:
        return StdScaling((1.0,) * pred.mean.shape[-1])

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, targets=len(self.factors))
        if set(self.factors) == {1.0} and not self.ones_change:
            return pred
        return self.scaled(pred, pred.mean.new_tensor(self.factors))

    @abstractmethod
    def scaled(self, pred: Predictive, factors: Tensor) -> Predictive:
        """Return the predictive scaled by factors (K,)."""

    @classmethod
    def path(cls, pred: Predictive, y: Tensor) -> Path | None:
        """Return standard deviations multiplied by exp(t), for Gaussians of one target."""
        if y.shape[1] > 1 or not pred.is_gaussian:
            return None
        plain = Predictive.from_moments(pred.member_mean, pred.member_var.sqrt(), pred.weights, pred.outliers)

        def losses_at(t: float) -> Tensor:
            calibrator = cls((math.exp(t),))
            return torch.cat([-calibrator(part).log_prob(target) for part, target in losses.chunks(plain, y)])

        return Path(lambda t: cls((math.exp(t),)), losses_at, factor_penalty, LOG_FACTORS, not cls.ones_change)


@dataclass(frozen=True)
class StdScaling(FactorScaling):
    """Every deviation from the predictive mean, of members' means and of noise, multiplied by one factor per target.

    The mean stays; aleatoric, epistemic and total standard deviation and the quantiles' distances scale alike.
    """

    name: ClassVar[str] = "temperature"
    alternatives: ClassVar[tuple[str, ...]] = ("noise_scaling", "moment_matching")

    @classmethod
    def serves(cls, pred: Predictive) -> bool:
        return super().serves(pred) or isinstance(pred.likelihood, Quantiles)

    @property
    def about(self) -> str:
        return f"the predictive distribution stretched {span(self.factors)} times around its mean"

    def scaled(self, pred: Predictive, factors: Tensor) -> Predictive:
        if isinstance(pred.likelihood, Quantiles):
            return replace(pred, outputs=pred.likelihood.stretch(pred.outputs.double(), pred.mean, factors))
        return stretched(pred, factors)


@dataclass(frozen=True)
class NoiseScaling(FactorScaling):
    """The noise of all members multiplied by one factor per target; their means, and the epistemic variance, stay."""

    name: ClassVar[str] = "noise_scaling"

    @property
    def about(self) -> str:
        return f"the noise of the members multiplied by {span(self.factors)}"

    def scaled(self, pred: Predictive, factors: Tensor) -> Predictive:
        return with_noise(pred, pred.member_mean, factors)


@dataclass(frozen=True)
class MomentMatching(FactorScaling):
    """One Gaussian with the mean of the mixture and its standard deviation multiplied by one factor per target.

    Quantiles, intervals and densities are the Gaussian's; aleatoric and epistemic variance are the members', scaled.
    """

    name: ClassVar[str] = "moment_matching"
    ones_change: ClassVar[bool] = True

    @property
    def about(self) -> str:
        return f"one Gaussian of the mean and {span(self.factors)} times the standard deviation of the mixture"

    def scaled(self, pred: Predictive, factors: Tensor) -> Predictive:
        return replace(stretched(pred, factors), likelihood=MomentMatched(len(factors), pred.outliers))


@dataclass(frozen=True)
class MemberStdScaling(Calibrator):
    """Noise multiplied by one factor per member and target; means, and so the epistemic variance, stay."""

    factors: tuple[tuple[float, ...], ...]  # (S, K)
    name: ClassVar[str] = "member_temperature"
    task: ClassVar[str] = "regression"
    prior_stds: ClassVar[tuple[float, ...]] = PRIOR_STDS

    @classmethod
    def identity(cls, pred: Predictive) -> "MemberStdScaling":
        return cls(((1.0,) * pred.mean.shape[-1],) * len(pred.outputs))

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
        if {factor for row in self.factors for factor in row} == {1.0}:
            return pred
        return with_noise(pred, pred.member_mean, pred.mean.new_tensor(self.factors)[:, None, :])


def with_noise(pred: Predictive, means: Tensor, factors: Tensor) -> Predictive:
    """Return members with these means (S, N, K), and their noise multiplied by the factors."""
    return Predictive.from_moments(means, factors * pred.member_var.sqrt(), pred.weights, pred.outliers)


def stretched(pred: Predictive, factors: Tensor) -> Predictive:
    """Return members whose deviations from the predictive mean, and noise, are multiplied by factors (K,)."""
    return with_noise(pred, pred.mean + factors * (pred.member_mean - pred.mean), factors)


# The prior


def pseudo_examples(prior_std: float) -> float:
    """Return the number of examples that the prior counts as: half the precision of the logarithm of a factor.

    >>> pseudo_examples(0.5), pseudo_examples(math.inf)
    (2.0, 0.0)
    """
    return 1 / (2 * prior_std**2)


def factor_penalty(log_factors: Tensor, prior_std: float) -> Tensor:
    """Return minus the log prior of each log factor t, up to a constant: v (exp(-2 t) - 1 + 2 t) / 2.

    That of v examples whose standardised error is 1: the conjugate prior of a variance, a scaled inverse chi-squared
    distribution. Near 0 it is normal with standard deviation `prior_std`; narrow distributions are punished more.
    """
    return 0.5 * pseudo_examples(prior_std) * (torch.exp(-2 * log_factors) - 1 + 2 * log_factors)


# Fits


Compared = Callable[[Predictive, Tensor], Tensor]  # a chunk of predictions and its targets (n, K) -> (..., n, K)


def fit_std(pred: Predictive, y: Tensor, prior_std: float = math.inf) -> StdScaling:
    """Fit the factor of each target to y (N, K): smallest loss of the mixture plus penalty of the prior.

    The search starts at factor^2 = mean of (y - mean)^2 / total_var, which is the solution for one member.
    """
    if isinstance(pred.likelihood, Quantiles):
        return fit_quantile_std(pred, y, prior_std)
    factors = minimise_factors(pred, y, lambda part, target: target - part.mean, prior_std)
    return losses.better_of(pred, y, StdScaling(factors), StdScaling((1.0,) * len(factors)))


def fit_noise(pred: Predictive, y: Tensor, prior_std: float = math.inf) -> NoiseScaling:
    """Fit the noise factor of each target to y (N, K): smallest loss of the mixture plus penalty of the prior."""
    factors = minimise_factors(pred, y, lambda part, target: target - part.member_mean, prior_std)
    return losses.better_of(pred, y, NoiseScaling(factors), NoiseScaling((1.0,) * len(factors)))


def fit_moments(pred: Predictive, y: Tensor, prior_std: float = math.inf) -> MomentMatching:
    """Return the factor of each target: factor^2 = mean of (y - mean)^2 / total_var, with the prior's examples."""
    return MomentMatching(tuple(moment_factors(pred, y, prior_std).tolist()))


def moment_factors(pred: Predictive, y: Tensor, prior_std: float) -> Tensor:
    """Return the most probable factor (K,) of the moment-matched Gaussian's standard deviation."""
    return root_mean_ratio(pred, y, prior_std, lambda part, target: (target - part.mean).square() / part.total_var)


def root_mean_ratio(pred: Predictive, y: Tensor, prior_std: float, ratio: Compared) -> Tensor:
    """Return the root (..., K) of the mean of a ratio (..., n, K) over examples, with the prior's ratios of 1."""
    more, sums = pseudo_examples(prior_std), [ratio(part, target).sum(-2) for part, target in losses.chunks(pred, y)]
    return ((torch.stack(sums).sum(0) + more) / (len(y) + more)).sqrt().clamp(*FACTORS)


def minimise_factors(pred: Predictive, y: Tensor, error: Compared, prior_std: float) -> tuple[float, ...]:
    """Return the factors (K,) of the smallest mean loss plus penalty, by L-BFGS; for `error` see `scaled_loss`."""
    more, pred = pseudo_examples(prior_std), only_gaussians(pred)

    def penalised(point: Tensor) -> tuple[float, Tensor]:
        value, gradient = scaled_loss(pred, y, point, error)
        slope = more * (1 - torch.exp(-2 * point))
        return value + factor_penalty(point, prior_std).sum().item() / len(y), gradient + slope / len(y)

    start = moment_factors(pred, y, prior_std).log()
    return tuple(losses.minimise(penalised, start, low=LOG_FACTORS[0], high=LOG_FACTORS[1]).exp().tolist())


def only_gaussians(pred: Predictive) -> Predictive:
    """Return the same distribution as a mixture of Gaussians alone: a member with outliers is two of them."""
    if not pred.outliers:
        return pred
    parts, std = contaminated_parts(pred.outliers), pred.member_var.sqrt()
    stds = torch.cat([std * math.sqrt(factor) for _, factor in parts])
    weights = torch.cat([pred.member_weights * share for share, _ in parts])
    return Predictive.from_moments(pred.member_mean.repeat(len(parts), 1, 1), stds, weights)


def fit_quantile_std(pred: Predictive, y: Tensor, prior_std: float = math.inf) -> StdScaling:
    """Return the same for predicted quantiles: the factor of each target in turn, by a search along its logarithm."""
    factors = [1.0] * y.shape[1]

    def scaled(k: int, log_factor: float) -> StdScaling:
        return StdScaling((*factors[:k], math.exp(log_factor), *factors[k + 1 :]))

    def loss(k: int, log_factor: float) -> float:
        penalty = factor_penalty(torch.tensor(log_factor, dtype=torch.float64), prior_std).item() / len(y)
        return losses.reported_loss(pred, y, scaled(k, log_factor)) + penalty

    for k in range(len(factors)):
        best = losses.minimise_scalar(lambda at, k=k: loss(k, at), low=LOG_FACTORS[0], high=LOG_FACTORS[1])  # type: ignore[misc]
        factors[k] = losses.better_of(pred, y, scaled(k, best), StdScaling(tuple(factors))).factors[k]
    return StdScaling(tuple(factors))


def scaled_loss(pred: Predictive, y: Tensor, log_factors: Tensor, error: Compared) -> tuple[float, Tensor]:
    """Compute the mean loss, without its constant, and its gradient (K,), where `error` is divided by the factor.

    The rest of the distance from a member's mean, if there is any, is divided by the unscaled noise alone: with factor
    f, predictive mean m and noise std of a member, its standardised error is (y - m) / (f std) - (m_s - m) / std for
    the error y - m of the scaled mixture, and (y - m_s) / (f std) for the error y - m_s of scaled noise.
    """
    value, gradient = 0.0, torch.zeros_like(log_factors)
    for part, target in losses.chunks(pred, y):
        std = part.member_var.sqrt()  # (S, n, K)
        scaled = error(part, target)
        errors = scaled / (std * log_factors.exp())
        z = errors + (target - part.member_mean - scaled) / std
        members = -(0.5 * z.square() + std.log() + log_factors).sum(-1)  # (S, n)
        weighted = part.member_weights.log()[:, None] + members
        value -= weighted.logsumexp(0).sum().item()
        gradient = gradient + (weighted.softmax(0)[..., None] * (1 - z * errors)).sum((0, 1))
    return value / len(y), gradient / len(y)


def fit_member_std(pred: Predictive, y: Tensor, prior_std: float = math.inf) -> MemberStdScaling:
    """Fit the noise factor of each member and target to y (N, K), by the loss of this member alone.

    In closed form: factor^2 = mean of ((y - mean_s) / std_s)^2, with the prior's errors of 1. Disagreement then counts
    twice, in each member's noise and in the variance of their means, so the mixture can be too wide; `temperature` fits
    the mixture itself.
    """
    factors = root_mean_ratio(pred, y, prior_std, lambda part, t: (t - part.member_mean).square() / part.member_var)
    return MemberStdScaling(tuple(map(tuple, factors.tolist())))  # (S, K)
