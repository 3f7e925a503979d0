"""Convolutions that are differentiated twice give what torch's own give."""

import pytest
import torch
from torch import Tensor

from murmuration.weights.twice import convolve, inputs_only

CASES = {
    "plain": ((2, 4, 9, 9), (6, 4, 3, 3), 1, 1, 1, 1),
    "stride and groups": ((2, 4, 9, 8), (6, 2, 3, 3), 2, 1, 1, 2),
    "uneven": ((1, 3, 12, 12), (5, 3, 3, 2), (2, 1), (1, 0), (1, 2), 1),
    "same": ((2, 3, 7, 7), (4, 3, 3, 3), 1, "same", 1, 1),
}


def second_derivatives(convolution, case: str) -> tuple[Tensor, ...]:
    """Gradients by kernel, bias and input of a loss that uses both the output and its gradient by the input."""
    inputs, kernel, *settings = CASES[case]
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in (inputs, kernel, kernel[:1])
    )
    out = convolution(x, weight, bias, *settings)
    with inputs_only():
        slope = torch.autograd.grad(out.tanh().sum(), x, create_graph=True)[0]
    return torch.autograd.grad((slope**3).sum() + (out**2).sum(), [weight, bias, x])


@pytest.mark.parametrize("case", CASES)
def test_both_derivatives_are_those_of_torch(case: str) -> None:
    for ours, theirs in zip(second_derivatives(convolve, case), second_derivatives(torch.conv2d, case), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_kernels_are_left_out_only_where_asked() -> None:
    x = torch.randn(1, 2, 5, 5)
    weight = torch.randn(3, 2, 3, 3).requires_grad_()
    out = convolve(x, weight).sum()
    with inputs_only():
        assert torch.autograd.grad(out, weight, retain_graph=True, allow_unused=True) == (None,)
    assert torch.autograd.grad(out, weight)[0].abs().sum() > 0
