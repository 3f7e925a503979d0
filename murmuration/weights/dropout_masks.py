"""Dropout masks from a member's own noise stream.

Torch's dropout draws one floating-point number per element from the global generator; on a CPU that is most of the time
of a small convolutional network. Here sixteen random bits decide an element, four elements to a 64-bit draw. The rate
is then a multiple of 2^-16, and kept values are divided by that exact rate, so dropout stays unbiased.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.devices import at_least_float32
from murmuration.streams import Noise

STEPS = 1 << 16  # of the dropout rate
# Trailing axes that one decision covers: the dropoutNd functions drop whole channels.
COVERED: dict[Callable, int] = {F.dropout: 0, F.dropout1d: 1, F.dropout2d: 2, F.dropout3d: 3}


def is_dropout(func: Callable) -> bool:
    return func in COVERED


def apply_dropout(func: Callable, noise: Sequence[Noise], arguments: dict[str, Any], stacked: bool = False) -> Tensor:
    """The input with each element (or channel) zeroed with probability p and the rest scaled up.

    `arguments` are those of the dropout function; with `stacked` the input has a leading member axis, one entry per
    stream of `noise`. The next axis is that of the examples, which have a mask each or, in prediction, one for all.
    """
    x, rate = arguments["input"], arguments.get("p", 0.5)
    if not arguments.get("training", True) or rate == 0:
        return x
    shape = list(x.shape[1:] if stacked else x.shape)
    if not noise[0].per_example:
        shape[0] = 1
    covered = COVERED[func]
    if covered:
        shape[-covered:] = [1] * covered
    exact = at_least_float32(x)  # the reciprocal of the rate is not rounded to half precision
    masks = [keep_mask(shape, 1 - rate, each, exact) for each in noise]
    return (exact * (torch.stack(masks) if stacked else masks[0])).to(x.dtype)


def dropout_arguments(args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a dropout function, by name."""
    return {**dict(zip(("input", "p", "training", "inplace"), args, strict=False)), **kwargs}


def keep_mask(shape: list[int], keep: float, noise: Noise, like: Tensor) -> Tensor:
    """A mask of this shape: 1/rate with probability `rate`, else 0; `rate` is `keep` rounded to a multiple of 2^-16.

    Images (B, C, H, W) are drawn in the order B, H, W, C, the layout convolutions run in: the order is part of the
    definition, so that engines with different memory layouts draw the same mask. `like` gives dtype and device.
    """
    kept = round(keep * STEPS)
    if kept == 0:
        return like.new_zeros(shape)
    size = shape if len(shape) != 4 else [shape[0], shape[2], shape[3], shape[1]]
    mask = like.new_empty(math.prod(size))
    torch.le(noise.bits(len(mask), like.device), kept - STEPS // 2 - 1, out=mask)
    mask = mask.mul_(STEPS / kept).view(size)
    return mask.permute(0, 3, 1, 2) if len(shape) == 4 else mask
