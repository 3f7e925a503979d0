"""Networks of growing width approach their limits, at the rates they should."""

import math

import pytest
import torch
from embedded_ensembles import BIASED, CRITICAL, five, made, network
from finite_width import EmbeddedMLP, empirical_kernels, run
from kernel_matrices import average_kernels, gaussian
from torch import Tensor

from murmuration.studies.infinite_width import Architecture, limit_kernels, scales_of
from murmuration.studies.tangent_kernels import MemberKernels


def covariance_given_hidden(net: EmbeddedMLP, x: Tensor) -> Tensor:
    """Covariances (M, n, M, n) of outputs over the last weights and biases alone, with all before as they are."""
    design, last = net.architecture, run(net, x).inputs[-1]
    common = design.scales.weight_variance * torch.einsum("aif,bjf->aibj", last, last) / last.shape[2]
    bias = design.bias_of(design.depth)
    if bias == "shared":
        return common + design.scales.bias_variance
    return common + (
        design.scales.bias_variance * torch.eye(net.members).double()[:, None, :, None] if bias == "member" else 0
    )


def drawn_kernels(architecture: Architecture, x: Tensor, width: int, draws: int) -> Tensor:
    """S_d, S_o, T_d, T_o, Psi of every draw, averaged over members and pairs: (draws, 5, n, n)."""
    found = []
    for seed in range(draws):
        net = network(architecture, width, seed=100 + seed, inputs=x.shape[1])
        same, other, _ = average_kernels(MemberKernels(covariance_given_hidden(net, x), torch.zeros(3, 1, 1)))
        found.append(torch.stack([same, other, *average_kernels(empirical_kernels(net, x, x))]))
    return torch.stack(found)


WIDE = {
    "signs": made("rademacher", "rademacher", 2, scales=CRITICAL),
    "normal": made("normal_1_0.5", "normal_1_0.5", 2, scales=BIASED, bias="shared"),
    "own biases": made("interpolation_0.8", "sign_0.9", 2, scales=scales_of("seed", 1.2, 0.3), bias="member"),
    "masks": made("bernoulli_0.7", "ones", 2, scales=CRITICAL, bias="shared", output_bias=False),
    "erf": made("normal_1_0.5", "normal_1_0.5", 2, activation="erf", scales=BIASED, bias="shared"),
    "silent": made("normal_1_0.5", "bernoulli_0.7", 2, scales=CRITICAL),  # factors of zero before ReLU
}


def check_limit(architecture: Architecture, width: int, draws: int, bound: float) -> None:
    """Mean kernels are within this relative Frobenius distance of the limit's."""
    x = gaussian(4, 5, seed=11)
    limit = limit_kernels(architecture, x, x)
    own = (limit.covariance_same, limit.covariance_same, limit.tangent_same, limit.tangent_same, limit.individual)
    for got, want, same in zip(drawn_kernels(architecture, x, width, draws).mean(0), five(limit), own, strict=True):
        size = want if want.abs().max() > 0 else same  # a limit of zero is measured against a member's own kernel
        assert (got - want).norm() < bound * size.norm()


@pytest.mark.parametrize("name", WIDE)
def test_wide_networks_have_the_kernels_of_the_limit(name: str):
    check_limit(WIDE[name], 256, 64, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal", "own biases"])
def test_wider_networks_have_them_too(name: str):
    check_limit(WIDE[name], 1024, 32, 0.05)


@pytest.mark.slow
def test_many_networks_agree_with_the_limit_within_their_standard_error():
    """Small means leave little for two members to share: the noise of their kernels is large against it."""
    x, draws = gaussian(4, 5, seed=11), 600
    architecture = made("normal_0.5_0.87", "sign_0.8", 2, scales=scales_of("seed", 1.2, 0.3), bias="member")
    drawn, want = drawn_kernels(architecture, x, 256, draws), torch.stack(five(limit_kernels(architecture, x, x)))
    standard_error = drawn.std(0) / math.sqrt(draws)
    assert ((drawn.mean(0) - want).abs() < 4 * standard_error).all()
    assert (standard_error.flatten(1).norm(dim=1) < 0.03 * want.flatten(1).norm(dim=1)).all()


@pytest.mark.slow
def test_one_very_wide_network_is_enough():
    check_limit(made("normal_1_0.5", "normal_1_0.5", 3, scales=BIASED, bias="shared"), 2048, 1, 0.15)


def slope_of(widths: list[int], sizes: list[float]) -> float:
    """The exponent of a power law through these points, by least squares of logarithms."""
    logs = torch.tensor(widths).double().log(), torch.tensor(sizes).double().log()
    x, y = (each - each.mean() for each in logs)
    return ((x * y).sum() / (x * x).sum()).item()


def test_cross_kernels_of_independent_members_vanish_as_the_root_of_the_width():
    widths, x = [64, 128, 256, 512, 1024], gaussian(3, 5, seed=12)
    architecture = WIDE["signs"]
    tangents, covariances = [], []
    for width in widths:
        nets = [network(architecture, width, members=4, seed=seed, inputs=5) for seed in range(12)]
        for kernels, sizes in (
            ([empirical_kernels(net, x, x).common for net in nets], tangents),
            ([covariance_given_hidden(net, x) for net in nets], covariances),
        ):
            common = torch.stack(kernels)
            within = torch.stack([common[:, each, :, each] for each in range(4)]).square().mean()
            across = torch.stack([common[:, a, :, b] for a in range(4) for b in range(a)]).square().mean()
            sizes.append((across / within).sqrt().item())
    assert slope_of(widths, tangents) == pytest.approx(-0.5, abs=0.1)
    assert slope_of(widths, covariances) == pytest.approx(-0.5, abs=0.1)
    assert tangents[0] == pytest.approx(0.09, rel=0.3)


def test_kernels_become_certain_as_the_root_of_the_width():
    widths, x = [32, 64, 128, 256], gaussian(3, 5, seed=12)
    spreads = []
    for width in widths:
        nets = [network(WIDE["normal"], width, members=2, seed=seed, inputs=5) for seed in range(60)]
        kernels = torch.stack([empirical_kernels(net, x, x).common for net in nets])
        spreads.append((kernels.std(0).square().mean().sqrt() / kernels.mean(0).square().mean().sqrt()).item())
    assert slope_of(widths, spreads) == pytest.approx(-0.5, abs=0.1)


def test_outputs_have_mean_zero_and_the_covariance_of_the_limit():
    x, draws = gaussian(2, 5, seed=13), 800
    architecture = made("normal_1_0.5", "sign_0.8", 2, scales=scales_of("seed", 1.2, 0.3), bias="shared")
    outputs = torch.stack(
        [network(architecture, 64, members=2, seed=seed, inputs=5)(x) for seed in range(draws)]
    )  # (R, M, n)
    standard_error = outputs.std(0) / math.sqrt(draws)
    assert (outputs.mean(0).abs() < 4 * standard_error).all()
    limit = limit_kernels(architecture, x, x)
    for a, b, kernel in ((0, 0, limit.covariance_same), (1, 1, limit.covariance_same), (0, 1, limit.covariance_other)):
        products = outputs[:, a, :, None] * outputs[:, b, None, :]
        assert ((products.mean(0) - kernel).abs() < 4 * products.std(0) / math.sqrt(draws)).all()


@pytest.mark.slow
def test_outputs_become_gaussian_as_the_width():
    """Given all before, outputs are Gaussian of a variance s: their excess kurtosis is 3 Var(s) / E(s)².

    For ReLU after signs without biases each layer multiplies E s² / E(s)² by 1 + 5 / N: E relu(z)⁴ = 6 (E relu(z)²)².
    """
    x = gaussian(1, 3)
    for width, draws in ((32, 1000), (128, 300)):
        variances = torch.stack(
            [
                covariance_given_hidden(network(WIDE["signs"], width, members=1, seed=seed), x).flatten()
                for seed in range(draws)
            ]
        )
        excess = 3 * variances.var() / variances.mean() ** 2
        # Squares of s - 1 over draws: their spread gives the standard error of the variance of s.
        squares = (variances / variances.mean() - 1).square()
        expected = 3 * ((1 + 5 / width) ** 2 - 1)
        assert abs(excess.item() - expected) < 4 * 3 * squares.std().item() / math.sqrt(draws)
        assert excess > 0.5 * expected
