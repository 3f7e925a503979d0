"""Operators that are cheap to differentiate twice.

Input-gradient repulsion differentiates the gradient of a network by its inputs. A convolution's input gradient is
bilinear in the incoming gradient and the kernel; torch computes the kernel's part of its derivative as a convolution
with batch and channels exchanged, several times slower than the operator that finds the same numbers in an ordinary
backward pass. Here that operator is used for both, with channels last throughout, and only for what is asked for.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.weights.layouts import laid_out_like, pair
from murmuration.weights.piecewise import pool, rectify

Settings = tuple[Sequence[int], Sequence[int], Sequence[int], int]  # stride, padding, dilation, groups


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.conv2d` with a cheaper second derivative."""
    if isinstance(padding, str) or x.device.type != "cpu":  # "same" has its own rules; on other devices torch's is fast
        return torch.conv2d(x, weight, bias, stride, padding, dilation, groups)
    settings: Settings = (pair(stride), pair(padding), pair(dilation), groups)
    return Convolution.apply(x, weight, bias, settings)


TWICE: dict[Callable, Callable[..., Tensor]] = {
    torch.conv2d: convolve,
    F.max_pool2d: pool,
    torch.max_pool2d: pool,
    F.relu: rectify,
    torch.relu: rectify,
    Tensor.relu: rectify,
}


def gradients(out: Tensor, x: Tensor, weight: Tensor, settings: Settings, mask: list[bool]) -> Any:
    """Gradients by input, kernel and bias, those that the mask asks for, of a gradient by the output."""
    stride, padding, dilation, groups = settings
    return torch.ops.aten.convolution_backward(
        out, x, weight, [len(weight)], stride, padding, dilation, False, [0, 0], groups, mask
    )


def asked_for(ctx: Any) -> list[bool]:
    """Of which inputs of an operator the running backward pass needs the gradient.

    An operator only knows which inputs have a graph. A pass that asks for gradients by the network's inputs needs none
    by kernels, and one that asks for gradients by weights none by the network's inputs.
    """
    return [node is not None and _runs(node) for node, _ in ctx.next_functions]


def _runs(node: Any) -> bool:
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:  # a leaf that the pass was asked for
        return True


class Convolution(torch.autograd.Function):
    """The convolution: its input gradient is an operator of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, settings: Settings) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.settings = settings
        return torch.conv2d(x, weight, bias, *settings)

    @staticmethod
    def backward(ctx: Any, out: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        asked = [*asked_for(ctx), False][:3]  # without a bias there are only two
        along = InputGradient.apply(out, weight, x.detach(), ctx.settings) if asked[0] else None
        kernel, bias = None, None
        if asked[1] or asked[2]:
            _, kernel, bias = gradients(out, x, weight, ctx.settings, [False, *asked[1:]])
        return along, kernel, bias, None


class InputGradient(torch.autograd.Function):
    """The gradient of a convolution by its input, bilinear in the gradient by its output and the kernel."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, weight: Tensor, x: Tensor, settings: Settings) -> Tensor:
        ctx.save_for_backward(out, weight)
        ctx.settings = settings
        return gradients(out, x, weight, settings, [True, False, False])[0]

    @staticmethod
    def backward(ctx: Any, along: Tensor) -> Any:
        out, weight = ctx.saved_tensors
        asked, along = asked_for(ctx), laid_out_like(out, along)
        onward = torch.conv2d(along, weight, None, *ctx.settings) if asked[0] else None
        kernel = gradients(out, along, weight, ctx.settings, [False, True, False])[1] if asked[1] else None
        return onward, kernel, None, None
