"""Local reparameterisation (Kingma et al. 2015): outputs sampled from their mean and variance, in few memory passes."""

import inspect
from typing import Any

import torch
from torch import Tensor

MIN_VARIANCE = 1e-12  # below it the slope of the square root, infinite at zero, is that at this variance


def sample_outputs(mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    """Return mean + sqrt(variance) noise of three tensors (...); a variance below zero by rounding counts as zero.

    >>> sample_outputs(torch.ones(2), torch.tensor([4.0, 0.0]), torch.tensor([0.5, 3.0]))
    tensor([2., 1.])
    """
    return torch.addcmul(mean, safe_sqrt(variance), noise)


def safe_sqrt(variance: Tensor) -> Tensor:
    """Return the square root of a variance (...), with a finite derivative everywhere."""
    return SafeSqrt.apply(variance)


class SafeSqrt(torch.autograd.Function):
    """Two passes over memory forwards and three backwards, against nine in plain operators; twice differentiable."""

    generate_vmap_rule = True

    @staticmethod
    def forward(variance: Tensor) -> Tensor:
        return variance.clamp_min(0).sqrt_()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (std,) = ctx.saved_tensors
        return (slope / std.clamp_min(MIN_VARIANCE**0.5)).mul_(0.5)


SafeSqrt.forward.__signature__ = inspect.signature(SafeSqrt.forward)  # type: ignore[attr-defined]  # asked for at every call
