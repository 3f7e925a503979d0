"""The noise of local reparameterisation: against plain operators, finite differences, under vmap, at no variance."""

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import vmap

from murmuration.core.weights.operators import MIN_VARIANCE, SafeSqrt


def sample_outputs(mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    """Return mean + sqrt(variance) noise of three tensors (...), as a noisy kernel does."""
    return torch.addcmul(mean, SafeSqrt.apply(variance), noise)


def three(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A mean, a variance well above zero, and noise."""
    generator = torch.Generator().manual_seed(seed)
    mean, std_param, noise = (torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(3))
    return mean, std_param.square() + 0.1, noise


def test_the_outcome_is_mean_and_noise_times_std():
    mean, variance, noise = three(4, 5)
    torch.testing.assert_close(
        sample_outputs(mean, variance, noise), mean + variance.sqrt() * noise, rtol=1e-15, atol=1e-15
    )


def test_slopes_once_and_twice_are_those_of_finite_differences():
    mean, variance, noise = three(2, 3)
    mean, variance = mean.requires_grad_(), variance.requires_grad_()
    assert gradcheck(lambda a, b: sample_outputs(a, b, noise), (mean, variance))
    assert gradgradcheck(lambda a, b: sample_outputs(a, b, noise), (mean, variance))


def test_without_variance_there_is_no_noise_and_no_infinite_slope():
    mean, noise = torch.ones(3), torch.tensor([1.0, -2.0, 3.0])
    variance = torch.tensor([0.0, -1e-9, MIN_VARIANCE / 2]).requires_grad_()  # zero, a rounding of it, almost zero
    made = sample_outputs(mean, variance, noise)
    torch.testing.assert_close(made, mean, rtol=0, atol=3 * MIN_VARIANCE**0.5)
    assert made[:2].tolist() == [1.0, 1.0]
    (slope,) = torch.autograd.grad(made.sum(), variance)
    torch.testing.assert_close(
        slope, noise / (2 * MIN_VARIANCE**0.5), rtol=1e-5, atol=0
    )  # as steep as at the least variance


def test_members_under_vmap_are_those_one_by_one():
    mean, variance, noise = three(3, 4)

    def slope(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.func.grad(lambda v: sample_outputs(a, v, c).square().sum())(b)

    together = vmap(slope)(mean, variance, noise)
    alone = torch.stack([slope(*each) for each in zip(mean, variance, noise, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-15, atol=1e-15)
