"""Moments, entropies, cdf and quantiles of mixtures and of their components; `Predictive` is built on them.

Members come first in every argument, (S, ...), and are weighted by `weights` (S,), which sum to one.
"""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import NormalDist
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.system.errors import Misuse

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
FEW_CLASSES = 32
OUTLIER_WIDTH = 3.0  # standard deviation of outliers, as a multiple of that of other values
HALVINGS = 40  # of the quantile's bracket: its width shrinks by 1e-12


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Average values (S, ...) over members, in float64."""
    return (weights @ values.double().reshape(len(values), -1)).view(values.shape[1:])


def softmax(logits: Tensor) -> Tensor:
    """Compute the softmax over the last axis of logits (..., K).

    For few classes it is computed by operators over all rows, four times as fast as torch's kernel, which loops over
    rows.
    """
    if logits.shape[-1] > FEW_CLASSES:
        return logits.softmax(-1)
    odds = (logits - logits.amax(-1, keepdim=True)).exp_()
    return odds.div_(odds.sum(-1, keepdim=True))


def weighted_variance(values: Tensor, weights: Tensor) -> Tensor:
    """Compute the variance (...) over members of values (S, ...), divided by S and not S - 1."""
    return weighted_mean((values - weighted_mean(values, weights)).square(), weights)


def second_moment(vectors: Tensor, weights: Tensor) -> Tensor:
    """Compute E[v v^T] (N, K, K) over members of vectors (S, N, K), one product per input."""
    return (vectors * weights[:, None, None]).permute(1, 2, 0) @ vectors.permute(1, 0, 2)


def entropy_of(probs: Tensor) -> Tensor:
    """Compute the entropy (...) in nats of probabilities (..., K), with 0 log 0 = 0.

    >>> round(entropy_of(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).sum().item(), 6)  # log 2
    0.693147
    """
    logs = probs.clamp_min(torch.finfo(probs.dtype).tiny).log()  # finite at 0; xlogy takes twice as long
    return -(probs * logs).sum(-1)


def jensen_shannon_distance(a: Tensor, b: Tensor) -> Tensor:
    """Compute the square root of the Jensen-Shannon divergence in bits (...) of probabilities a and b (..., K).

    A metric (Endres and Schindelin 2003): 0 for equal probabilities, 1 if they have no class in common.

    >>> jensen_shannon_distance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])).item()
    1.0
    """
    divergence = entropy_of((a + b) / 2) - (entropy_of(a) + entropy_of(b)) / 2
    return (divergence / math.log(2)).clamp(0, 1).sqrt()


def disagreement_of(votes: Tensor, weights: Tensor, classes: int) -> Tensor:
    """Compute the fraction (N,) of pairs of distinct members whose votes (S, N) differ; 0 for a single member.

    A pair is weighted by the product of its members' weights.
    """
    support = weights.new_zeros(votes.shape[1], classes)  # (N, K): total weight of the members that vote for a class
    support.scatter_add_(1, votes.T, weights.expand(len(support), -1))
    pairs = 1 - weights.square().sum()
    return (1 - support.square().sum(-1)).clamp_min(0) / pairs.clamp_min(1e-12)


def centred_logits(logits: Tensor) -> Tensor:
    """Subtract the mean over classes from logits (..., K): the logits of the same probabilities that sum to zero."""
    return logits - logits.mean(-1, keepdim=True)


def normal_cdf(z: Tensor) -> Tensor:
    """Compute P(Z <= z) (...) of the standard normal by erfc: as accurate in the tails as ndtr and ten times faster."""
    return 0.5 * torch.special.erfc(z * -math.sqrt(0.5))


def folded_mean(mean: Tensor, var: Tensor) -> Tensor:
    """Compute E|X| (...) of a Gaussian with this mean and variance (the folded normal)."""
    std = var.sqrt()
    z = mean / std
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    return 2 * std * density + mean * (2 * normal_cdf(z) - 1)


class Components(Protocol):
    """The component distributions of a mixture, one for each member, input and target: tensors (S, N, K).

    `log_prob`, `cdf` and `quantile` take y (N, K) or a level, and return (S, N, K).
    """

    @property
    def mean(self) -> Tensor: ...

    @property
    def var(self) -> Tensor: ...

    def log_prob(self, y: Tensor) -> Tensor: ...

    def cdf(self, y: Tensor) -> Tensor: ...

    def quantile(self, level: float) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Normals:
    """Gaussians with means and variances (S, N, K), or contaminated normals of these moments with a share of outliers.

    The contaminated normal (Tukey 1960) is N(m, s^2), and for the share of outliers N(m, (3 s)^2): more of its values
    are near the mean and more are far from it.
    """

    mean: Tensor
    var: Tensor
    outliers: float = 0.0

    @cached_property
    def std(self) -> Tensor:
        return self.var.sqrt()

    @property
    def parts(self) -> list[tuple[float, float]]:
        """Shares, and variances as multiples of `var`, of the Gaussian parts of each distribution."""
        return contaminated_parts(self.outliers)

    def log_prob(self, y: Tensor) -> Tensor:
        squares = (y - self.mean).square() / self.var
        if self.outliers:
            return contaminated_log_prob(squares, self.outliers) - 0.5 * self.var.log()
        return -(0.5 * squares + 0.5 * self.var.log() + HALF_LOG_TWO_PI)

    def cdf(self, y: Tensor) -> Tensor:
        z = (y - self.mean) / self.std
        terms = [share * normal_cdf(z / math.sqrt(factor)) for share, factor in self.parts]
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    def quantile(self, level: float) -> Tensor:
        return self.mean + contaminated_quantile(level, self.outliers) * self.std


def contaminated_parts(outliers: float) -> list[tuple[float, float]]:
    """Return shares and variances of the Gaussian parts of a contaminated normal of variance 1; one without outliers.

    >>> contaminated_parts(0.0), [round(factor, 4) for _, factor in contaminated_parts(0.05)]
    ([(1.0, 1.0)], [0.7143, 6.4286])
    """
    if not outliers:
        return [(1.0, 1.0)]
    narrow = 1 / (1 + (OUTLIER_WIDTH**2 - 1) * outliers)
    return [(1 - outliers, narrow), (outliers, OUTLIER_WIDTH**2 * narrow)]


def contaminated_log_prob(squares: Tensor, outliers: float) -> Tensor:
    """Compute the log density of a contaminated normal of variance 1 from squared distances (...) to its mean."""
    (share, narrow), (outlier_share, wide) = contaminated_parts(outliers)
    odds = math.log(outlier_share / share) + 0.5 * math.log(narrow / wide) + 0.5 * squares * (1 / narrow - 1 / wide)
    return math.log(share) - 0.5 * squares / narrow + F.softplus(odds) - 0.5 * math.log(narrow) - HALF_LOG_TWO_PI


@cache
def contaminated_quantile(level: float, outliers: float) -> float:
    """Compute the quantile of a contaminated normal of mean 0, variance 1, by bisection between those of its parts."""
    normal, parts = NormalDist(), contaminated_parts(outliers)
    ends = [normal.inv_cdf(level) * math.sqrt(factor) for _, factor in parts]
    low, high = min(ends), max(ends)
    for _ in range(HALVINGS if len(parts) > 1 else 0):
        middle = (low + high) / 2
        below = sum(share * normal.cdf(middle / math.sqrt(factor)) for share, factor in parts) < level
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True, eq=False)
class QuantileCurves:
    """Distributions known by their quantiles: `knots` (S, N, K, L), strictly increasing, at `levels` (L,) in (0, 1).

    The cdf is linear between neighbouring knots. Below the first knot q the cdf is t exp((y - q) d / t), with its level
    t and the density d of the first piece, and likewise above the last: the density is continuous there.
    """

    levels: Tensor
    knots: Tensor

    @cached_property
    def densities(self) -> Tensor:
        """The density (S, N, K, L - 1) between neighbouring knots."""
        return self.levels.diff() / self.knots.diff(dim=-1)

    @cached_property
    def tails(self) -> tuple[Tensor, Tensor]:
        """The mean distances (S, N, K) of the two tails from the outermost knots."""
        return self.levels[0] / self.densities[..., 0], (1 - self.levels[-1]) / self.densities[..., -1]

    def _moments(self, about: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the first and the second moment (S, N, K) about a point (S, N, K)."""
        low, high = self.tails
        middles = (self.knots[..., 1:] + self.knots[..., :-1]) / 2
        masses = torch.cat([self.levels[:1], self.levels.diff(), 1 - self.levels[-1:]])
        centres = torch.cat([self.knots[..., :1] - low[..., None], middles, self.knots[..., -1:] + high[..., None]], -1)
        inside = self.knots.diff(dim=-1).square() / 12
        spreads = torch.cat([low.square()[..., None], inside, high.square()[..., None]], -1)
        distances = centres - about[..., None]
        return (masses * distances).sum(-1), (masses * (distances.square() + spreads)).sum(-1)

    @cached_property
    def mean(self) -> Tensor:
        return self.knots[..., 0] + self._moments(self.knots[..., 0])[0]

    @cached_property
    def var(self) -> Tensor:
        return self._moments(self.mean)[1]

    def _place(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Locate y (N, K): its piece (S, N, K, 1), and distances (S, N, K) below and above the outermost knots."""
        y = y.expand(self.knots.shape[:-1])
        piece = (y[..., None] >= self.knots).sum(-1, keepdim=True).sub(1).clamp(0, len(self.levels) - 2)
        return piece, (self.knots[..., 0] - y).clamp_min(0), (y - self.knots[..., -1]).clamp_min(0)

    def log_prob(self, y: Tensor) -> Tensor:
        piece, below, above = self._place(y)
        return self.densities.gather(-1, piece).squeeze(-1).log() - below / self.tails[0] - above / self.tails[1]

    def cdf(self, y: Tensor) -> Tensor:
        piece, below, above = self._place(y)
        start, density = (values.gather(-1, piece).squeeze(-1) for values in (self.knots, self.densities))
        inside = self.levels[piece.squeeze(-1)] + (y - start) * density
        low = self.levels[0] * (-below / self.tails[0]).exp()
        high = (1 - self.levels[-1]) * (-above / self.tails[1]).exp()
        return torch.where(below > 0, low, torch.where(above > 0, 1 - high, inside))

    def quantile(self, level: float) -> Tensor:
        first, last = float(self.levels[0]), float(self.levels[-1])
        if level < first:
            return self.knots[..., 0] + self.tails[0] * math.log(level / first)
        if level > last:
            return self.knots[..., -1] - self.tails[1] * math.log((1 - level) / (1 - last))
        piece = min(int((self.levels <= level).sum()) - 1, len(self.levels) - 2)
        return self.knots[..., piece] + (level - self.levels[piece]) / self.densities[..., piece]


def mixture_cdf(y: Tensor, components: Components, weights: Tensor) -> Tensor:
    """Compute P(Y <= y) (...) for y (...) under the mixture of components (S, ...)."""
    return weighted_mean(components.cdf(y), weights)


def mixture_quantile(level: float, components: Components, weights: Tensor) -> Tensor:
    """Compute the quantile (...) at `level` of a mixture of components (S, ...).

    Bisection between the smallest and the largest member quantile, which enclose the mixture's: the error is at most
    1e-12 of that bracket, or rounding.
    """
    if not 0 < level < 1:
        raise Misuse(f"level {level} is outside (0, 1): write for example 0.9")
    members = components.quantile(level)
    low, high = members.amin(0), members.amax(0)
    for _ in range(HALVINGS if len(members) > 1 else 0):
        middle = (low + high) / 2
        below = mixture_cdf(middle, components, weights) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2
