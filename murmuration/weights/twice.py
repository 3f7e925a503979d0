"""Convolutions that are cheap to differentiate twice.

Input-gradient repulsion differentiates the gradient of a network by its inputs. A convolution's input gradient is
bilinear in the incoming gradient and the kernel; torch computes the kernel's part of its derivative as a convolution
with batch and channels exchanged, several times slower than the operator that finds the same numbers in an ordinary
backward pass. Here that operator is used for both.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

CONVOLUTIONS: set[Callable] = {torch.conv2d}
_local = threading.local()  # a backward pass on a CPU runs in the thread that asks for it

Settings = tuple[Sequence[int], Sequence[int], Sequence[int], int]  # stride, padding, dilation, groups


@contextmanager
def inputs_only() -> Iterator[None]:
    """Backward passes in here are asked for gradients by inputs: those by kernels are not computed."""
    before = getattr(_local, "inputs_only", False)
    _local.inputs_only = True
    try:
        yield
    finally:
        _local.inputs_only = before


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
    if isinstance(padding, str) or x.device.type != "cpu":  # "same" has its own rules; other devices their own thread
        return torch.conv2d(x, weight, bias, stride, padding, dilation, groups)
    settings: Settings = (pair(stride), pair(padding), pair(dilation), groups)
    return Convolution.apply(x, weight, bias, settings)


def pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def gradients(out: Tensor, x: Tensor, weight: Tensor, settings: Settings, mask: list[bool]) -> Any:
    """Gradients by input, kernel and bias, those that the mask asks for, of a gradient by the output."""
    stride, padding, dilation, groups = settings
    return torch.ops.aten.convolution_backward(
        out, x, weight, [len(weight)], stride, padding, dilation, False, [0, 0], groups, mask
    )


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
        needs = ctx.needs_input_grad
        along = InputGradient.apply(out, weight, x.detach(), ctx.settings) if needs[0] else None
        if getattr(_local, "inputs_only", False):
            return along, None, None, None
        _, kernel, bias = gradients(out, x, weight, ctx.settings, [False, needs[1], needs[2]])
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
        onward = torch.conv2d(along, weight, None, *ctx.settings) if ctx.needs_input_grad[0] else None
        kernel = gradients(out, along, weight, ctx.settings, [False, True, False])[1]
        return onward, kernel if ctx.needs_input_grad[1] else None, None, None
