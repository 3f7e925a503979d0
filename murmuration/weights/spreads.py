"""How wide a Gaussian weight is, and how that is stored.

| written | stored | standard deviation |
|---|---|---|
| `rho` | one number a weight | softplus(rho) |
| `alpha` | log alpha, one a weight | sqrt(alpha) abs(mean): Gaussian dropout with p / (1 - p) = alpha |
| `alpha-channel` | log alpha, one a channel made | the same |
| `alpha-layer` | log alpha, one a kernel | the same; all its weights then have one signal-to-noise ratio |

With alpha a weight of mean zero has next to no spread, and no gradient leads it back to one.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

SPREADS = ("rho", "alpha", "alpha-channel", "alpha-layer")
LOG_ALPHA = 8.0  # log alpha stays within so much of 0
TINY = 1e-20  # keeps the logarithm of a spread of zero finite
LEAST_MEAN = 1e-8  # below it alpha acts on this number: a spread of exactly zero would cost infinitely much


def softplus_inverse(values: Tensor) -> Tensor:
    """The rho (...) whose softplus these positive values (...) are, also where exp would overflow.

    >>> F.softplus(softplus_inverse(torch.tensor([0.05, 1.0, 1000.0])))
    tensor([5.0000e-02, 1.0000e+00, 1.0000e+03])
    """
    return torch.where(values > 20, values, (torch.expm1(values.clamp(max=20)) + TINY).log())


def stored_shape(spread: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what is stored beside a mean of this shape.

    >>> stored_shape("alpha-channel", (16, 3, 5, 5))
    (16, 1, 1, 1)
    """
    if spread in ("rho", "alpha"):
        return shape
    return (shape[0] if spread == "alpha-channel" else 1, *(1,) * (len(shape) - 1)) if shape else shape


def std_of(spread: str, stored: Tensor, mean: Tensor) -> Tensor:
    """Standard deviations like the mean (...), from what is stored beside it."""
    if spread == "rho":
        return F.softplus(stored)
    return (0.5 * stored.clamp(-LOG_ALPHA, LOG_ALPHA)).exp() * mean.abs().clamp_min(LEAST_MEAN)


def stored_for(spread: str, std: Tensor, mean: Tensor) -> Tensor:
    """What to store beside a mean (...) for standard deviations near these (...): the geometric mean where one
    number stands for several weights."""
    if spread == "rho":
        return softplus_inverse(std)
    log_alpha = 2 * ((std + TINY).log() - mean.abs().clamp_min(LEAST_MEAN).log())
    log_alpha = log_alpha.clamp(
        -LOG_ALPHA, LOG_ALPHA
    )  # before means are taken: one weight of zero must not decide them
    shape = stored_shape(spread, tuple(mean.shape))
    rest = [axis for axis, size in enumerate(shape) if size == 1 and mean.shape[axis] != 1]
    return log_alpha.mean(rest, keepdim=True) if rest else log_alpha


def fan_in(shape: tuple[int, ...]) -> int:
    """How many inputs one output of a kernel of this shape (outputs, inputs, ...) has; 1 for a bias."""
    return math.prod(shape[1:]) if len(shape) > 1 else 1
