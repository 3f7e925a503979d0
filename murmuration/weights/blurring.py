"""Outputs drawn from their mean and variance: the noise of local reparameterisation, in as few passes as it takes."""

from typing import Any

import torch
from torch import Tensor

LEAST = 1e-12  # the least variance that a slope is taken at: that of a square root at zero is infinite


def blurred_by(mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    """mean + sqrt(variance) noise (...), of three tensors (...); a variance below zero is a rounding of zero.

    >>> blurred_by(torch.ones(2), torch.tensor([4.0, 0.0]), torch.tensor([0.5, 3.0]))
    tensor([2., 1.])
    """
    made: Tensor = Blurred.apply(mean, variance, noise)
    return made


class Blurred(torch.autograd.Function):
    """Two passes there and four back; written in plain operators it is twelve. It can be differentiated twice."""

    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        return torch.addcmul(mean, variance.clamp_min(0).sqrt_(), noise)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, variance, noise = inputs
        ctx.save_for_backward(variance, noise)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:
        variance, noise = ctx.saved_tensors
        half = variance.clamp_min(LEAST).mul_(4).rsqrt_()  # 1 / (2 sqrt(variance))
        return slope, (slope * noise).mul_(half), None
