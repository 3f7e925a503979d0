"""Rectifiers and max-pools that are cheap to differentiate twice.

Both are linear piece by piece: their derivative is a fixed choice of elements, and the derivative of that is zero.
Torch does not say so but hands on tensors of zeros, for which the whole network is then walked backwards once more.
Here nothing is handed on. What is chosen forwards and what is spread backwards are each other's derivatives, to any
order, and images keep the layout they came in.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.weights.layouts import pair

Window = tuple[list[int], list[int], list[int], list[int], bool]  # kernel, stride, padding, dilation, rounded up


def rectify(x: Tensor, inplace: bool = False) -> Tensor:
    """`torch.relu` without a second derivative; a rectifier that works in place stays as it is."""
    return torch.relu_(x) if inplace else Rectifier.apply(x)


def pool(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """`torch.max_pool2d` of images (B, C, H, W) without a second derivative."""
    if x.dim() != 4 or return_indices:
        plain: Callable[..., Tensor] = F.max_pool2d
        return plain(x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    window: Window = (pair(kernel_size), pair(stride or kernel_size), pair(padding), pair(dilation), ceil_mode)
    return MaxPool.apply(x, window)


class Rectifier(torch.autograd.Function):
    """max(x, 0)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.relu()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        return Gate.apply(slope, out.detach())


class Gate(torch.autograd.Function):
    """A tensor where another is positive, elsewhere zero; linear in the first, a constant choice by the second."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor, out: Tensor) -> Tensor:
        ctx.save_for_backward(out)
        return torch.ops.aten.threshold_backward(slope, out, 0)

    @staticmethod
    def backward(ctx: Any, along: Tensor) -> Any:
        return Gate.apply(along, *ctx.saved_tensors), None


class MaxPool(torch.autograd.Function):
    """The largest element of every window."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: Window) -> Tensor:
        out, places = torch.ops.aten.max_pool2d_with_indices(x, *window)
        ctx.save_for_backward(x, places)
        ctx.window = window
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        x, places = ctx.saved_tensors
        return Spread.apply(slope, x.detach(), places, ctx.window), None


class Spread(torch.autograd.Function):
    """Elements (B, C, h, w) back at their places in zeros like x (B, C, H, W), added where they meet."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor, x: Tensor, places: Tensor, window: Window) -> Tensor:
        ctx.save_for_backward(x, places)
        ctx.window = window
        return torch.ops.aten.max_pool2d_with_indices_backward(slope, x, *window, places)

    @staticmethod
    def backward(ctx: Any, along: Tensor) -> Any:
        return Pick.apply(along, *ctx.saved_tensors, ctx.window), None, None, None


class Pick(torch.autograd.Function):
    """The elements (B, C, h, w) of a tensor like x (B, C, H, W) at the places chosen there, with channels last."""

    @staticmethod
    def forward(ctx: Any, along: Tensor, x: Tensor, places: Tensor, window: Window) -> Tensor:
        ctx.save_for_backward(x, places)
        ctx.window = window
        rows, chosen = (each.permute(0, 2, 3, 1).flatten(1, 2) for each in (along, places))  # (B, H W, C)
        return rows.gather(1, chosen).unflatten(1, places.shape[2:]).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        return Spread.apply(slope, *ctx.saved_tensors, ctx.window), None, None, None
