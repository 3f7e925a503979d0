"""How wide a Gaussian weight is, and how that is stored.

| written | stored | standard deviation |
|---|---|---|
| `rho` | one number a weight | softplus(rho) |
| `std` | one number a weight | itself, for dynamics that keep it positive |
| `alpha` | log alpha, one a weight | sqrt(alpha) abs(mean): Gaussian dropout with p / (1 - p) = alpha |
| `alpha-channel` | log alpha, one a channel made | the same |
| `alpha-layer` | log alpha, one a kernel | the same; all its weights then have one signal-to-noise ratio |

With alpha a weight of mean zero has next to no spread, and no gradient leads it back to one.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.weights.outline import Kernel

SPREADS = ("rho", "std", "alpha", "alpha-channel", "alpha-layer")
LOG_ALPHA = 8.0  # log alpha stays within so much of 0
TINY = 1e-20  # keeps the logarithm of a spread of zero finite
LEAST_MEAN = 1e-8  # below it alpha acts on this number: a spread of exactly zero would cost infinitely much


def softplus_inverse(values: Tensor) -> Tensor:
    """The rho (...) whose softplus these positive values (...) are, also where exp would overflow.

    >>> F.softplus(softplus_inverse(torch.tensor([0.05, 1.0, 1000.0])))
    tensor([5.0000e-02, 1.0000e+00, 1.0000e+03])
    """
    return torch.where(values > 20, values, (torch.expm1(values.clamp(max=20)) + TINY).log())


def stored_shape(spread: str, shape: tuple[int, ...], kernel: Kernel | None = None) -> tuple[int, ...]:
    """The shape of what is stored beside a mean of this shape; `kernel` says what its axes are, if it is one.

    A transposed kernel (inputs, outputs / groups, ...) makes its channels along the second axis, in every group others.

    >>> stored_shape("alpha-channel", (16, 3, 5, 5))
    (16, 1, 1, 1)
    """
    if spread in ("rho", "std", "alpha") or not shape:
        return shape
    if spread == "alpha-layer":
        return (1,) * len(shape)
    if kernel is not None and kernel.transposed:
        return (kernel.groups, shape[1], *(1,) * (len(shape) - 2))
    return (shape[0], *(1,) * (len(shape) - 1))


def std_of(spread: str, stored: Tensor, mean: Tensor) -> Tensor:
    """Standard deviations like the mean (...), from what is stored beside it."""
    if spread == "rho":
        return F.softplus(stored)
    if spread == "std":
        return stored
    for axis, (few, many) in enumerate(zip(stored.shape, mean.shape, strict=True)):
        if few not in (1, many):  # groups of a transposed kernel
            stored = stored.repeat_interleave(many // few, axis)
    return (0.5 * stored.clamp(-LOG_ALPHA, LOG_ALPHA)).exp() * mean.abs().clamp_min(LEAST_MEAN)


def stored_for(spread: str, std: Tensor, mean: Tensor, kernel: Kernel | None = None) -> Tensor:
    """What to store beside a mean (...) for standard deviations near these (...): the geometric mean where one
    number stands for several weights."""
    if spread == "rho":
        return softplus_inverse(std)
    if spread == "std":
        return std
    log_alpha = 2 * ((std + TINY).log() - mean.abs().clamp_min(LEAST_MEAN).log())
    log_alpha = log_alpha.clamp(
        -LOG_ALPHA, LOG_ALPHA
    )  # before means are taken: one weight of zero must not decide them
    for axis, few in enumerate(stored_shape(spread, tuple(mean.shape), kernel)):
        log_alpha = log_alpha.unflatten(axis, (few, -1)).mean(axis + 1)
    return log_alpha


def fan_in(shape: tuple[int, ...], kernel: Kernel | None = None) -> int:
    """How many inputs one output of a kernel of this shape (outputs, inputs / groups, ...) has; 1 for a bias.

    Of a transposed kernel (inputs, outputs / groups, ...) with stride 1, that is: with a longer one fewer meet.

    >>> fan_in((8, 3, 5, 5)), fan_in((8, 3, 5, 5), Kernel("deconv", 8, 3, transposed=True)), fan_in((8,))
    (75, 200, 1)
    """
    if kernel is not None and kernel.transposed:
        return shape[0] // kernel.groups * math.prod(shape[2:])
    return math.prod(shape[1:]) if len(shape) > 1 else 1
