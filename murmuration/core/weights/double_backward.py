"""Convolutions, rectifiers and max-pools that are cheap to differentiate twice.

Input-gradient repulsion differentiates the gradient of a network by its inputs. A convolution's input gradient is
bilinear in the incoming gradient and the kernel; torch computes the kernel's part of its derivative as a convolution
with batch and channels exchanged, several times slower than the operator that finds the same numbers in an ordinary
backward pass. Here that operator is used for both, with channels last throughout, and only where a gradient is needed.

Rectifiers and max-pools are piecewise linear: their derivative selects elements, and the derivative of that is zero.
Torch propagates tensors of zeros in its place, through the whole network; here nothing is propagated. Selection and
its transpose are each other's derivatives, to any order.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ConvSettings = tuple[Sequence[int], Sequence[int], Sequence[int], int]  # stride, padding, dilation, groups
PoolSettings = tuple[list[int], list[int], list[int], list[int], bool]  # kernel, stride, padding, dilation, ceil_mode


def channels_last(x: Tensor) -> Tensor:
    """Return images (B, C, H, W) in channels-last memory format, which is fastest for convolutions on a CPU."""
    if x.dim() == 4 and x.shape[1] == 1:  # both formats are the same memory then; torch would read it as the other one
        return x.squeeze(1).unsqueeze(-1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def pair(value: Any) -> list[int]:
    """Return two sizes (height, width); a single one stands for both.

    >>> pair(3), pair((1, 2)), pair([4])
    ([3, 3], [1, 2], [4, 4])
    """
    sizes = [value] if isinstance(value, int) else list(value)
    return sizes * 2 if len(sizes) == 1 else sizes


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Run `torch.conv2d` with a cheaper second derivative."""
    if isinstance(padding, str) or x.device.type != "cpu":  # "same" has its own rules; on other devices torch's is fast
        return torch.conv2d(x, weight, bias, stride, padding, dilation, groups)
    settings: ConvSettings = (pair(stride), pair(padding), pair(dilation), groups)
    return Conv2d.apply(x, weight, bias, settings)


def relu(x: Tensor, inplace: bool = False) -> Tensor:
    """Run `torch.relu` without a second derivative; an in-place rectifier stays torch's."""
    return torch.relu_(x) if inplace else Relu.apply(x)


def max_pool2d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Run `torch.max_pool2d` on images (B, C, H, W) without a second derivative."""
    if x.dim() != 4 or return_indices:
        plain: Callable[..., Tensor] = F.max_pool2d
        return plain(x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    window: PoolSettings = (pair(kernel_size), pair(stride or kernel_size), pair(padding), pair(dilation), ceil_mode)
    return MaxPool2d.apply(x, window)


REPLACEMENTS: dict[Callable, Callable[..., Tensor]] = {F.relu: relu, torch.relu: relu, Tensor.relu: relu}
REPLACEMENTS |= {torch.conv2d: conv2d, F.max_pool2d: max_pool2d, torch.max_pool2d: max_pool2d}


def conv_gradients(out: Tensor, x: Tensor, weight: Tensor, settings: ConvSettings, mask: list[bool]) -> Any:
    """Return gradients by input, kernel and bias, where the mask is set, from the gradient by the output."""
    stride, padding, dilation, groups = settings
    return torch.ops.aten.convolution_backward(
        out, x, weight, [len(weight)], stride, padding, dilation, False, [0, 0], groups, mask
    )


def needed_gradients(ctx: Any) -> list[bool]:
    """Return for each input of an operator whether the running backward pass needs its gradient.

    `ctx.needs_input_grad` only says which inputs have a graph. A pass for gradients by the network's inputs needs none
    by kernels, and a pass for gradients by weights none by the network's inputs.
    """
    return [node is not None and _runs(node) for node, _ in ctx.next_functions]


def _runs(node: Any) -> bool:
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:  # a leaf among the requested inputs
        return True


class Conv2d(torch.autograd.Function):
    """The convolution; its input gradient is a differentiable operator."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, settings: ConvSettings) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.settings = settings
        return torch.conv2d(x, weight, bias, *settings)

    @staticmethod
    def backward(ctx: Any, out: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        needed = [*needed_gradients(ctx), False][:3]  # without a bias there are only two
        along = Conv2dInputGradient.apply(out, weight, x.detach(), ctx.settings) if needed[0] else None
        kernel, bias = None, None
        if needed[1] or needed[2]:
            _, kernel, bias = conv_gradients(out, x, weight, ctx.settings, [False, *needed[1:]])
        return along, kernel, bias, None


class Conv2dInputGradient(torch.autograd.Function):
    """The gradient of a convolution by its input, bilinear in the gradient by its output and the kernel."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, weight: Tensor, x: Tensor, settings: ConvSettings) -> Tensor:
        ctx.save_for_backward(out, weight)
        ctx.settings = settings
        return conv_gradients(out, x, weight, settings, [True, False, False])[0]

    @staticmethod
    def backward(ctx: Any, along: Tensor) -> Any:
        out, weight = ctx.saved_tensors
        needed = needed_gradients(ctx)
        along = channels_last(along) if out.is_contiguous(memory_format=torch.channels_last) else along
        onward = torch.conv2d(along, weight, None, *ctx.settings) if needed[0] else None
        kernel = conv_gradients(out, along, weight, ctx.settings, [False, True, False])[1] if needed[1] else None
        return onward, kernel, None, None


class Relu(torch.autograd.Function):
    """max(x, 0)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.relu()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        return ReluBackward.apply(slope, out.detach())


class ReluBackward(torch.autograd.Function):
    """`slope` where `out` is positive, elsewhere zero: linear in `slope`, constant in `out`."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor, out: Tensor) -> Tensor:
        ctx.save_for_backward(out)
        return torch.ops.aten.threshold_backward(slope, out, 0)

    @staticmethod
    def backward(ctx: Any, along: Tensor) -> Any:
        return ReluBackward.apply(along, *ctx.saved_tensors), None


class MaxPool2d(torch.autograd.Function):
    """The largest element of every window, with its index."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: PoolSettings) -> Tensor:
        out, indices = torch.ops.aten.max_pool2d_with_indices(x, *window)
        ctx.save_for_backward(x, indices)
        ctx.window = window
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        x, indices = ctx.saved_tensors
        return MaxPool2dSelection.apply(slope, x.detach(), indices, ctx.window, False), None


class MaxPool2dSelection(torch.autograd.Function):
    """The selection of the largest elements, or its transpose: each other's derivatives.

    With `gather` the elements (B, C, h, w) of a tensor like x (B, C, H, W) at the indices, in channels-last format;
    else elements (B, C, h, w) added at their indices to zeros like x.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, x: Tensor, indices: Tensor, window: PoolSettings, gather: bool) -> Tensor:
        ctx.save_for_backward(x, indices)
        ctx.settings = window, not gather
        if not gather:
            return torch.ops.aten.max_pool2d_with_indices_backward(values, x, *window, indices)
        rows, places = (tensor.permute(0, 2, 3, 1).flatten(1, 2) for tensor in (values, indices))  # (B, H W, C)
        return rows.gather(1, places).unflatten(1, indices.shape[2:]).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        return MaxPool2dSelection.apply(slope, *ctx.saved_tensors, *ctx.settings), None, None, None, None
