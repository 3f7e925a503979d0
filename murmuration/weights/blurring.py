"""Outputs drawn from their mean and variance: the noise of local reparameterisation, in as few passes as it takes."""

import inspect
from typing import Any

import torch
from torch import Tensor

LEAST = 1e-12  # the least variance that a slope is taken at: that of a square root at zero is infinite


def blurred_by(mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    """mean + sqrt(variance) noise (...), of three tensors (...); a variance below zero is a rounding of zero.

    >>> blurred_by(torch.ones(2), torch.tensor([4.0, 0.0]), torch.tensor([0.5, 3.0]))
    tensor([2., 1.])
    """
    return torch.addcmul(mean, root(variance), noise)


def root(variance: Tensor) -> Tensor:
    """The square root of a variance (...), with a finite slope everywhere."""
    made: Tensor = Root.apply(variance)
    return made


class Root(torch.autograd.Function):
    """Two passes there and three back; in plain operators it is nine. It can be differentiated twice."""

    generate_vmap_rule = True

    @staticmethod
    def forward(variance: Tensor) -> Tensor:
        return variance.clamp_min(0).sqrt_()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (found,) = ctx.saved_tensors
        return (slope / found.clamp_min(LEAST**0.5)).mul_(0.5)


Root.forward.__signature__ = inspect.signature(Root.forward)  # type: ignore[attr-defined]  # asked for at every call
