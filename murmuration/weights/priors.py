"""What is believed of a weight before data, and what it costs to believe otherwise: KL(q || p), in nats.

| written | prior of a weight |
|---|---|
| `gaussian_0.1` | N(0, 0.1^2) |
| `he` | N(0, 2 / fan_in), the variance that keeps signals of ReLU networks alive |
| `learned` | N(0, s^2), s^2 the mean of mean^2 + spread^2 of the tensor: the s under which it costs least |
| `ard` | N(0, t^2) with the best t for every weight alone: 1/2 log(1 + mean^2 / spread^2) |
| `mixture_0.5_1_0.0025` | share 0.5 of N(0, 1^2), the rest of N(0, 0.0025^2) (Blundell et al. 2015); by Monte Carlo |
| `log-uniform` | uniform in log abs(w), up to a constant (Molchanov et al. 2017, their approximation) |

The direction matters: KL(q || p) is least, for a given mean, where the spread is the prior's; the reverse one is least
where spread^2 = s^2 + mean^2, and weights drown in noise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from murmuration.errors import Misuse, unknown
from murmuration.weights.outline import Kernel
from murmuration.weights.spreads import fan_in

K1, K2, K3 = 0.63576, 1.87320, 1.48695  # of the approximation by Molchanov, Ashukha and Vetrov (2017)
LOG_ROOT_TAU = 0.5 * math.log(2 * math.pi)
NUMBERS = {"gaussian": 1, "he": 0, "learned": 0, "ard": 0, "mixture": 3, "log-uniform": 0}
EXAMPLES = {"gaussian": "gaussian_0.1", "mixture": "mixture_0.5_1_0.0025"}

Draw = Callable[[Tensor], Tensor]  # standard normal numbers like a tensor


@dataclass(frozen=True)
class Prior:
    """A prior by name, with its numbers, and perhaps a mean for every weight (`centre` of the cost)."""

    kind: str
    numbers: tuple[float, ...] = ()
    kernel: Kernel | None = None  # what the axes of the weights are, if they are a kernel

    def cost(
        self,
        mean: Tensor,
        std: Tensor,
        centre: Tensor | float,
        draw: Draw,
        *,
        axes: int = 0,
        kept: Tensor | None = None,
    ) -> Tensor:
        """KL(q || p) of each entry (...) of a tensor; `axes` leading axes are members, each with its own `learned`.

        Entries that are not `kept` (...) cost nothing; their spread must be positive all the same.
        """
        if self.kind == "mixture":
            found = self._by_draws(mean, std, centre, draw)
        elif self.kind == "ard":
            found = ard_kl(mean - centre, std)
        elif self.kind == "log-uniform":
            found = log_uniform_kl(2 * (std.log() - (mean - centre).abs().clamp_min(1e-20).log()))
        else:
            found = gaussian_kl(mean, std, centre, self.scale(mean - centre, std, axes, kept))
        return found if kept is None else torch.where(kept, found, found.new_zeros(()))

    def scale(self, mean: Tensor, std: Tensor, axes: int = 0, kept: Tensor | None = None) -> Tensor | float:
        """The prior's standard deviation for a tensor."""
        fixed = self.fixed_scale(tuple(mean.shape[axes:]))
        if fixed is not None:
            return fixed
        squares, rest = mean.square() + std.square(), tuple(range(axes, mean.dim()))
        if kept is not None and rest:
            return ((squares * kept).sum(rest, keepdim=True) / kept.sum(rest, keepdim=True).clamp_min(1)).sqrt()
        return (squares.mean(rest, keepdim=True) if rest else squares).sqrt()  # over no axes torch means all

    def fixed_scale(self, shape: tuple[int, ...]) -> float | None:
        """The standard deviation of a Gaussian prior for weights of such a shape, unless it is learned from them."""
        if self.kind == "gaussian":
            return self.numbers[0]
        return math.sqrt(2 / fan_in(shape, self.kernel)) if self.kind == "he" else None

    def _by_draws(self, mean: Tensor, std: Tensor, centre: Tensor | float, draw: Draw) -> Tensor:
        """log q(w) - log p(w) at one draw of w: its mean over draws is the KL."""
        eps = draw(mean)
        share, wide, narrow = self.numbers
        weights = mean + std * eps
        return log_normal(eps, 1.0) - std.log() - mixture_log_density(weights - centre, share, wide, narrow)


@cache
def prior_named(text: str, kernel: Kernel | None = None) -> Prior:
    """The prior that a text stands for, of weights that are perhaps this kernel.

    >>> prior_named("mixture_0.5_1_0.0025").numbers
    (0.5, 1.0, 0.0025)
    """
    kind, *rest = text.split("_")
    if kind not in NUMBERS:
        raise unknown("prior", kind, NUMBERS)
    try:
        numbers = tuple(float(part) for part in rest)
    except ValueError:
        numbers = (math.nan,)
    if len(numbers) != NUMBERS[kind] or not all(math.isfinite(number) and number > 0 for number in numbers):
        raise Misuse(f"prior '{text}': write {EXAMPLES.get(kind, kind)}")
    if kind == "mixture" and not numbers[0] < 1:
        raise Misuse(f"prior '{text}': the share of the wide part must be below 1; write {EXAMPLES[kind]}")
    return Prior(kind, numbers, kernel)


def gaussian_kl(mean: Tensor, std: Tensor, prior_mean: Tensor | float, prior_std: Tensor | float) -> Tensor:
    """KL(N(mean, std^2) || N(prior_mean, prior_std^2)) of each entry, in nats.

    >>> round(gaussian_kl(torch.tensor(0.3), torch.tensor(0.2), 0.0, 0.1).item(), 5)
    5.30685
    """
    ratio = std / prior_std
    return 0.5 * (ratio.square() + ((mean - prior_mean) / prior_std).square() - 1) - ratio.log()


@dataclass(frozen=True)
class Belief:
    """A tensor of distributions, and what was believed of it."""

    prior: Prior
    mean: Tensor  # (...), with a leading axis if members have their own
    centre: Tensor | float = 0.0
    kept: Tensor | None = None


def total_cost(beliefs: Sequence[Belief], stds: Tensor, draw: Draw, *, axes: int = 0) -> Tensor:
    """KL(q || p) of some tensors together: () or, with a leading axis of members, (m,).

    Their standard deviations stand side by side: (P,) or (m, P).
    """
    scales = [belief.prior.fixed_scale(tuple(belief.mean.shape[axes:])) for belief in beliefs]
    fixed = tuple(scale for scale in scales if scale is not None)
    if len(fixed) == len(beliefs) and all(belief.kept is None for belief in beliefs):
        return _joint_cost(beliefs, stds, fixed, axes)
    total = stds.new_zeros(())
    for belief, std in zip(beliefs, out_of_a_row(stds, [each.mean for each in beliefs], axes), strict=True):
        each = belief.prior.cost(belief.mean, std, belief.centre, draw, axes=axes, kept=belief.kept)
        behind = belief.mean.dim() - axes
        total = total + (each.flatten(-behind).sum(-1) if behind else each)
    return total


def _joint_cost(beliefs: Sequence[Belief], stds: Tensor, scales: tuple[float, ...], axes: int) -> Tensor:
    """The same for Gaussian priors of these scales, all tensors in one row: small ones cost as much as large."""
    sizes = tuple(math.prod(each.mean.shape[axes:]) for each in beliefs)
    constant = sum(size * (math.log(scale) - 0.5) for size, scale in zip(sizes, scales, strict=True))
    row = in_a_row([_away(each.mean, each.centre) for each in beliefs], axes)
    found: Tensor = GaussianTotal.apply(row, stds, _precisions(scales, sizes, row.dtype, row.device))
    return found + constant


@lru_cache(8)  # the same at every step of a run
def _precisions(scales: Sequence[float], sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """1 / scale^2 of every entry (P,) of tensors of such sizes."""
    each = torch.tensor([scale**-2 for scale in scales], dtype=dtype, device=device)
    return each.repeat_interleave(torch.tensor(sizes, device=device))


def _away(mean: Tensor, centre: Tensor | float) -> Tensor:
    return mean if isinstance(centre, float) and centre == 0 else mean - centre


def in_a_row(tensors: Sequence[Tensor], axes: int = 0) -> Tensor:
    """All entries of some tensors side by side (P,), or (m, P) behind a leading axis of members.

    >>> in_a_row([torch.zeros(2, 3, 1), torch.ones(2, 2)], axes=1)
    tensor([[0., 0., 0., 1., 1.],
            [0., 0., 0., 1., 1.]])
    """
    return torch.cat([tensor.reshape(*tensor.shape[:axes], -1) for tensor in tensors], dim=axes)


def out_of_a_row(row: Tensor, likes: Sequence[Tensor], axes: int = 0) -> list[Tensor]:
    """The parts of a row that stand for some tensors, in their shapes: what `in_a_row` has put together."""
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


def ard_kl(mean: Tensor, std: Tensor) -> Tensor:
    """The KL to N(0, t^2) with the t^2 = mean^2 + std^2 that makes it least: 1/2 log(1 + 1/alpha)."""
    return 0.5 * torch.log1p((mean / std).square())


def log_uniform_kl(log_alpha: Tensor) -> Tensor:
    """Molchanov et al.'s approximation of the KL to the log-uniform prior, zero where alpha is infinite."""
    return K1 * (1 - torch.sigmoid(K2 + K3 * log_alpha)) + 0.5 * F.softplus(-log_alpha)


def log_normal(values: Tensor, std: float) -> Tensor:
    """The log density of N(0, std^2)."""
    return -0.5 * (values / std).square() - math.log(std) - LOG_ROOT_TAU


def mixture_log_density(weights: Tensor, share: float, wide: float, narrow: float) -> Tensor:
    """log(share N(w; 0, wide^2) + (1 - share) N(w; 0, narrow^2)), finite however far out w is."""
    parts = [math.log(share) + log_normal(weights, wide), math.log1p(-share) + log_normal(weights, narrow)]
    return torch.logaddexp(*parts)
