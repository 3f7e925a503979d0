"""Priors of Gaussian weights, and the KL divergence KL(q || p) of a weight from its prior, in nats.

| object | text | prior of a weight |
|---|---|---|
| `GaussianPrior(0.1)` | `gaussian_0.1` | N(0, 0.1^2) |
| `HePrior()` | `he` | N(0, 2 / fan_in), the variance that keeps the scale of signals in ReLU networks |
| `LearnedPrior()` | `learned` | N(0, s^2), s^2 the mean of mean^2 + std^2 over the tensor, the minimiser of the KL |
| `ArdPrior()` | `ard` | N(0, t^2) with the best t for each weight: KL = 1/2 log(1 + mean^2 / std^2) |
| `MixturePrior(0.5, 1, 0.0025)` | `mixture_0.5_1_0.0025` | 0.5 N(0, 1^2) + 0.5 N(0, 0.0025^2) (Blundell et al. 2015) |
| `LogUniformPrior()` | `log-uniform` | uniform in log abs(w), up to a constant (Molchanov et al. 2017) |

The KL to a mixture is estimated at one draw of the weights, that to the log-uniform prior by the approximation of
Molchanov et al. The direction matters: for a given mean KL(q || p) is least where the standard deviation is that of the
prior; KL(p || q) is least where std^2 = s^2 + mean^2, with far too much noise.

A prior of your own derives from `Prior` and defines `cost`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from murmuration.core.weights.distributions import TextForm
from murmuration.core.weights.kernel_trace import Kernel, fan_in

K1, K2, K3 = 0.63576, 1.87320, 1.48695  # of the approximation by Molchanov, Ashukha and Vetrov (2017)
LOG_ROOT_TAU = 0.5 * math.log(2 * math.pi)

Draw = Callable[[Tensor], Tensor]  # standard normal numbers like a tensor


@dataclass(frozen=True, eq=False)
class WeightTensor:
    """The means of a tensor of Gaussian weights, with everything that a prior depends on.

    Attributes:
        mean: Means (...).
        centre: Mean of the prior, like `mean` or a number.
        kernel: The kernel, if the weights are one.
        kept: Mask (...), False for pruned weights; None if none is pruned.
        axes: Number of leading axes of members, 0 or 1.
    """

    mean: Tensor
    centre: Tensor | float = 0.0
    kernel: Kernel | None = None
    kept: Tensor | None = None
    axes: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one member's weights."""
        return tuple(self.mean.shape[self.axes :])


class Prior(TextForm):
    """A prior of independent weights, around `WeightTensor.centre`. A subclass defines `cost`.

    >>> Prior.parse("mixture_0.5_1_0.0025")
    MixturePrior(weight=0.5, wide=1.0, narrow=0.0025)

    Attributes:
        monte_carlo: Whether `cost` is an unbiased estimate from one draw.
    """

    what = "prior"
    monte_carlo: ClassVar[bool] = False

    def cost(self, weights: WeightTensor, std: Tensor, draw: Draw) -> Tensor:
        """Compute KL(q || p) of each weight, in nats.

        Args:
            weights: Means of the weights (...).
            std: Their standard deviations (...), positive, also for pruned weights.
            draw: Draws standard normal numbers like a tensor.

        Returns:
            The KL of each weight (...).
        """
        raise NotImplementedError(f"{type(self).__name__} must define cost(weights, std, draw)")

    def std(self, weights: WeightTensor, std: Tensor) -> Tensor | float | None:
        """Return the standard deviation, broadcasting to the weights (...); None for a prior that is not Gaussian."""
        return self.fixed_std(weights.shape, weights.kernel)

    def fixed_std(self, shape: tuple[int, ...], kernel: Kernel | None) -> float | None:
        """Return the standard deviation of a Gaussian prior that does not depend on the weights, else None."""
        return None


class _Normal(Prior):
    """A Gaussian prior with one standard deviation per tensor."""

    def cost(self, weights: WeightTensor, std: Tensor, draw: Draw) -> Tensor:
        prior_std = self.std(weights, std)
        assert prior_std is not None
        return gaussian_kl(weights.mean, std, weights.centre, prior_std)


@dataclass(frozen=True)
class GaussianPrior(_Normal):
    """N(0, scale^2)."""

    word, rule, example = "gaussian", "a positive standard deviation", "gaussian_0.1"
    scale: float

    def is_valid(self) -> bool:
        return self.scale > 0

    def fixed_std(self, shape: tuple[int, ...], kernel: Kernel | None) -> float:
        return self.scale


@dataclass(frozen=True)
class HePrior(_Normal):
    """N(0, 2 / fan_in)."""

    word, rule, example = "he", "no numbers", "he"

    def fixed_std(self, shape: tuple[int, ...], kernel: Kernel | None) -> float:
        return math.sqrt(2 / fan_in(shape, kernel))


@dataclass(frozen=True)
class LearnedPrior(_Normal):
    """N(0, s^2) with the s of least KL, one per tensor and member."""

    word, rule, example = "learned", "no numbers", "learned"

    def std(self, weights: WeightTensor, std: Tensor) -> Tensor:
        squares = (weights.mean - weights.centre).square() + std.square()
        axes, mask = tuple(range(weights.axes, squares.dim())), weights.kept
        if mask is not None and axes:
            return ((squares * mask).sum(axes, keepdim=True) / mask.sum(axes, keepdim=True).clamp_min(1)).sqrt()
        return (squares.mean(axes, keepdim=True) if axes else squares).sqrt()  # over no axes torch means all


@dataclass(frozen=True)
class ArdPrior(Prior):
    """N(0, t^2) with the t^2 = mean^2 + std^2 of least KL, one per weight (automatic relevance determination)."""

    word, rule, example = "ard", "no numbers", "ard"

    def cost(self, weights: WeightTensor, std: Tensor, draw: Draw) -> Tensor:
        return 0.5 * torch.log1p(((weights.mean - weights.centre) / std).square())

    def std(self, weights: WeightTensor, std: Tensor) -> Tensor:
        return ((weights.mean - weights.centre).square() + std.square()).sqrt()


@dataclass(frozen=True)
class MixturePrior(Prior):
    """weight N(0, wide^2) + (1 - weight) N(0, narrow^2)."""

    word, example = "mixture", "mixture_0.5_1_0.0025"
    rule = "the weight of the wide part, between 0 and 1, and two positive standard deviations"
    monte_carlo = True
    weight: float
    wide: float
    narrow: float

    def is_valid(self) -> bool:
        return 0 < self.weight < 1 and self.wide > 0 and self.narrow > 0

    def cost(self, weights: WeightTensor, std: Tensor, draw: Draw) -> Tensor:
        """Return log q(w) - log p(w) at one draw of w: its mean over draws is the KL."""
        eps = draw(weights.mean)
        away = weights.mean + std * eps - weights.centre
        return log_normal(eps, 1.0) - std.log() - mixture_log_density(away, self.weight, self.wide, self.narrow)


@dataclass(frozen=True)
class LogUniformPrior(Prior):
    """Uniform in log abs(w)."""

    word, rule, example = "log-uniform", "no numbers", "log-uniform"

    def cost(self, weights: WeightTensor, std: Tensor, draw: Draw) -> Tensor:
        """Return the approximation of Molchanov et al., zero where alpha = std^2 / mean^2 is infinite."""
        log_mean = (weights.mean - weights.centre).abs().clamp_min(1e-20).log()
        log_alpha = 2 * (std.log() - log_mean)
        return K1 * (1 - torch.sigmoid(K2 + K3 * log_alpha)) + 0.5 * F.softplus(-log_alpha)


Prior.kinds = (GaussianPrior, HePrior, LearnedPrior, ArdPrior, MixturePrior, LogUniformPrior)


def gaussian_kl(mean: Tensor, std: Tensor, prior_mean: Tensor | float, prior_std: Tensor | float) -> Tensor:
    """Return KL(N(mean, std^2) || N(prior_mean, prior_std^2)) of each entry, in nats.

    >>> round(gaussian_kl(torch.tensor(0.3), torch.tensor(0.2), 0.0, 0.1).item(), 5)
    5.30685
    """
    ratio = std / prior_std
    return 0.5 * (ratio.square() + ((mean - prior_mean) / prior_std).square() - 1) - ratio.log()


@dataclass(frozen=True, eq=False)
class WeightPosterior:
    """A named tensor of Gaussian weights N(mean, std^2) with its prior."""

    name: str
    own: bool  # whether each member has its own; else the member axis is 1 long
    weights: WeightTensor  # (m, ...) each
    std: Tensor  # (m, ...)
    prior: Prior


def masked_cost(prior: Prior, weights: WeightTensor, std: Tensor, draw: Draw) -> Tensor:
    """Return KL(q || p) of each weight (...); pruned weights cost nothing."""
    cost = prior.cost(weights, std, draw)
    return cost if weights.kept is None else torch.where(weights.kept, cost, cost.new_zeros(()))


def total_cost(prior: Prior, tensors: Sequence[WeightTensor], stds: Tensor, draw: Draw, *, axes: int = 0) -> Tensor:
    """Return KL(q || p) of some tensors together: () or, with a leading member axis, (m,).

    `stds` are the standard deviations of all tensors side by side, (P,) or (m, P).
    """
    scales = [prior.fixed_std(tensor.shape, tensor.kernel) for tensor in tensors]
    fixed = tuple(scale for scale in scales if scale is not None)
    if len(fixed) == len(tensors) and all(tensor.kept is None for tensor in tensors):  # fewer, larger operators
        sizes = tuple(math.prod(tensor.shape) for tensor in tensors)
        constant = sum(size * (math.log(scale) - 0.5) for size, scale in zip(sizes, fixed, strict=True))
        away = [t.mean if isinstance(t.centre, float) and t.centre == 0 else t.mean - t.centre for t in tensors]
        row = concat_flat(away, axes)
        cost: Tensor = GaussianTotal.apply(row, stds, _precisions(fixed, sizes, row.dtype, row.device))
        return cost + constant
    total = stds.new_zeros(())
    for tensor, std in zip(tensors, split_flat(stds, [tensor.mean for tensor in tensors], axes), strict=True):
        cost = masked_cost(prior, tensor, std, draw)
        behind = tensor.mean.dim() - axes
        total = total + (cost.flatten(-behind).sum(-1) if behind else cost)
    return total


@lru_cache(8)  # the same at every step of a run
def _precisions(scales: Sequence[float], sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return 1 / scale^2 of every entry (P,) of tensors of these sizes."""
    precisions = torch.tensor([scale**-2 for scale in scales], dtype=dtype, device=device)
    return precisions.repeat_interleave(torch.tensor(sizes, device=device))


def concat_flat(tensors: Sequence[Tensor], axes: int = 0) -> Tensor:
    """Return all entries of some tensors side by side (P,), or (m, P) behind a leading axis of members.

    >>> concat_flat([torch.zeros(2, 3, 1), torch.ones(2, 2)], axes=1)
    tensor([[0., 0., 0., 1., 1.],
            [0., 0., 0., 1., 1.]])
    """
    return torch.cat([tensor.reshape(*tensor.shape[:axes], -1) for tensor in tensors], dim=axes)


def split_flat(row: Tensor, likes: Sequence[Tensor], axes: int = 0) -> list[Tensor]:
    """Return the inverse of `concat_flat`: the parts of a row, in the shapes of `likes`."""
    parts = row.split([math.prod(like.shape[axes:]) for like in likes], dim=axes)
    return [part.view(like.shape) for part, like in zip(parts, likes, strict=True)]


class GaussianTotal(torch.autograd.Function):
    """1/2 sum of precision (away^2 + std^2), less that of log std, over the last axis; in few passes."""

    @staticmethod
    def forward(ctx: Any, away: Tensor, std: Tensor, precision: Tensor) -> Tensor:
        ctx.save_for_backward(away, std, precision)
        return torch.addcmul(std.square(), away, away).matmul(precision).mul_(0.5).sub_(std.log().sum(-1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:
        away, std, precision = ctx.saved_tensors
        slope = slope.unsqueeze(-1)
        steep = slope * precision
        return away * steep, torch.addcmul(std * steep, std.reciprocal(), slope, value=-1), None


def log_normal(values: Tensor, std: float) -> Tensor:
    """Return the log density of N(0, std^2)."""
    return -0.5 * (values / std).square() - math.log(std) - LOG_ROOT_TAU


def mixture_log_density(weights: Tensor, weight: float, wide: float, narrow: float) -> Tensor:
    """Return log(weight N(w; 0, wide^2) + (1 - weight) N(w; 0, narrow^2)), finite for any w."""
    parts = [math.log(weight) + log_normal(weights, wide), math.log1p(-weight) + log_normal(weights, narrow)]
    return torch.logaddexp(*parts)
