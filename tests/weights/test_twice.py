"""Convolutions that are differentiated twice give what torch's own give."""

import pytest
import torch
from torch import Tensor

from murmuration.weights import twice
from murmuration.weights.twice import convolve

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
    slope = torch.autograd.grad(out.tanh().sum(), x, create_graph=True)[0]
    return torch.autograd.grad((slope**3).sum() + (out**2).sum(), [weight, bias, x])


@pytest.mark.parametrize("case", CASES)
def test_both_derivatives_are_those_of_torch(case: str) -> None:
    for ours, theirs in zip(second_derivatives(convolve, case), second_derivatives(torch.conv2d, case), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("with_bias", [True, False])
def test_only_what_a_pass_asks_for_is_computed(monkeypatch, with_bias: bool) -> None:
    """Two layers: a pass for inputs needs no kernels, one for kernels no gradient by the network's inputs."""
    masks, real = [], twice.gradients

    def noted(out, x, weight, settings, mask):
        masks.append(tuple(mask))
        return real(out, x, weight, settings, mask)

    monkeypatch.setattr(twice, "gradients", noted)
    x = torch.randn(1, 2, 6, 6).requires_grad_()
    weights = [torch.randn(3, 2, 3, 3).requires_grad_(), torch.randn(4, 3, 3, 3).requires_grad_()]
    biases = [torch.randn(3).requires_grad_(), torch.randn(4).requires_grad_()] if with_bias else [None, None]
    hidden = convolve(x[:, :], weights[0], biases[0])
    out = convolve(hidden, weights[1], biases[1]).square().sum()
    torch.autograd.grad(out, x, retain_graph=True)
    assert masks == [(True, False, False)] * 2
    masks.clear()
    torch.autograd.grad(out, weights, retain_graph=True)
    assert masks == [(True, False, False), (False, True, False), (False, True, False)]
    masks.clear()
    torch.autograd.grad(out, [*weights, *(bias for bias in biases if bias is not None)])
    assert masks == [(True, False, False), (False, True, with_bias), (False, True, with_bias)]


def test_a_pass_that_fills_leaves_finds_the_same() -> None:
    """`backward` names no inputs: everything that has a graph is asked for."""
    x, weight = torch.randn(1, 2, 5, 5).requires_grad_(), torch.randn(3, 2, 3, 3).requires_grad_()
    wanted = torch.autograd.grad(torch.conv2d(x, weight).square().sum(), [x, weight])
    convolve(x, weight).square().sum().backward()
    torch.testing.assert_close((x.grad, weight.grad), wanted)


def test_images_keep_their_channels_last() -> None:
    """Also where what comes back from the input gradient does not have them so."""
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(4, 3, 3, 3).requires_grad_()
    seed = torch.randn(2, 4, 6, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    slope = torch.autograd.grad(convolve(x, weight), x, seed, create_graph=True)[0]
    assert slope.is_contiguous(memory_format=torch.channels_last)
    onward = torch.autograd.grad(slope, seed, torch.randn(2, 3, 8, 8))[0]
    assert onward.is_contiguous(memory_format=torch.channels_last)
