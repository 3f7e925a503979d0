import math

import pytest
import torch
from embedded_ensembles import CRITICAL, THREE, made
from embedded_theory import can_interpolate, spike_eigenvalue
from kernel_matrices import Descent, gaussian
from linearised import mode_kernels

from murmuration.core.tangent_kernels import smooth_gamma, trace_ratio
from murmuration.core.weights.distributions import Distribution
from murmuration.studies.infinite_width import limit_kernels
from murmuration.studies.kernels import capacity_ratio, regime, regime_of, relative_mean, spike_threshold, wishart_edges
from murmuration.system.errors import Misuse


@pytest.mark.parametrize(
    ("u", "v", "depth", "members", "expected"),
    [
        ("ones", "ones", 3, 5, "degenerate"),
        ("interpolation_1", "sign_1", 3, 5, "degenerate"),
        ("ones", "ones", 1, 1, "independent"),  # no other member to be equal to
        ("rademacher", "rademacher", 3, 100, "independent"),
        ("interpolation_0", "ones", 2, 100, "independent"),
        ("normal_1_0.5", "normal_1_0.5", 2, 4, "collective"),  # 3 * 0.3531
        ("normal_1_0.5", "normal_1_0.5", 2, 3, "between"),  # 2 * 0.3531
        ("normal_1_0.5", "normal_1_0.5", 20, 4, "independent"),  # 3 * 0.0249: depth hides the mean
        ("normal_1_0.5", "normal_1_0.5", 20, 64, "collective"),
        ("bernoulli_0.9", "ones", 3, 4, "collective"),
    ],
)
def test_regimes_of_known_ensembles(u: str, v: str, depth: int, members: int, expected: str):
    kernels = limit_kernels(made(u, v, depth, scales=CRITICAL), THREE, THREE)
    assert regime_of(kernels, members).name == expected


def test_regimes_change_at_their_thresholds():
    assert regime(0.5, 0.5, 3).name == "collective"
    assert regime(0.5, 0.499, 3).name == "between"
    assert regime(0.0, 0.05, 3).name == "independent"
    assert regime(0.0, -0.05, 3).name == "independent"
    assert regime(0.0, 0.051, 3).name == "between"
    assert regime(0.0, -0.2, 3).name == "between"
    assert regime(1 - 5e-7, 1 + 5e-7, 3).name == "degenerate"
    assert regime(1 - 5e-6, 1.0, 3).name == "collective"


def test_a_regime_carries_its_numbers():
    found = regime(0.4, 0.25, 5)
    assert (found.covariance_ratio, found.tangent_ratio, found.pull, found.gamma) == (0.4, 0.25, 1.0, 2.5)


def test_ratios_are_those_of_traces():
    same, other = torch.diag(torch.tensor([1.0, 3.0])), torch.tensor([[0.5, 9.0], [9.0, 0.5]])
    assert trace_ratio(same, other) == 0.25


def test_the_smooth_gamma_keeps_the_trace_of_one_member():
    kernels = limit_kernels(made("normal_1_0.5", "ones", 2, train_u=False, train_v=False), THREE, THREE)
    for members in (1, 4, 32):
        gamma = smooth_gamma(members, trace_ratio(kernels.tangent_same, kernels.tangent_other))
        mean, _ = mode_kernels(kernels, members, Descent(1.0, gamma))
        assert mean.trace().item() == pytest.approx(kernels.tangent_same.trace().item(), rel=1e-12)
    assert (smooth_gamma(8, 0.0), smooth_gamma(8, 1.0)) == (8, 1)
    assert smooth_gamma(2, -1.0) == math.inf  # two members that undo each other's steps


def test_edges_and_outliers_of_the_table():
    for members, low, high in ((10, 0.81, 1.21), (100, 0.468, 1.732), (300, 0.205, 2.395)):
        assert wishart_edges(members, 1000) == pytest.approx((low, high), abs=6e-4)
    for mean, top in ((0.05, 1.49), (0.1, 1.64), (0.2, 3.03), (0.5, 13.29)):
        assert spike_eigenvalue(mean, 50, 1000) == pytest.approx(top, abs=6e-3)
    assert spike_threshold(50, 1000) == pytest.approx(0.067, abs=5e-4)


@pytest.mark.parametrize("members", [10, 100, 300])
def test_the_edges_hold_random_members(members: int):
    signs = Distribution.parse("rademacher").sample(
        (members, 1000), torch.Generator().manual_seed(0), dtype=torch.float64
    )
    values = torch.linalg.eigvalsh(signs @ signs.mT / 1000)
    low, high = wishart_edges(members, 1000)
    assert values[0].item() == pytest.approx(low, rel=0.1)
    assert values[-1].item() == pytest.approx(high, rel=0.1)


@pytest.mark.parametrize("mean", [0, 0.05, 0.1, 0.2, 0.5, 1])
def test_the_outlier_is_the_largest_eigenvalue_of_random_members(mean: float):
    generator = torch.Generator().manual_seed(1)
    factors = Distribution.parse(f"interpolation_{mean}").sample((50, 1000), generator, dtype=torch.float64)
    top = torch.linalg.eigvalsh(factors @ factors.mT / 1000)[-1].item()
    assert spike_eigenvalue(mean, 50, 1000) == pytest.approx(top, rel=0.1)


def test_the_outlier_leaves_the_bulk_without_a_jump_and_at_the_threshold():
    exact = math.sqrt(1 / (1 + math.sqrt(50 * 1000)))  # M m² / (1 - m²) = sqrt(M / N)
    assert exact == pytest.approx(spike_threshold(50, 1000), rel=0.01)
    below, above = (spike_eigenvalue(exact * (1 + step), 50, 1000) for step in (-1e-7, 1e-7))
    assert above == pytest.approx(below, rel=1e-7)
    assert spike_eigenvalue(2 * exact, 50, 1000) > 1.1 * wishart_edges(50, 1000)[1]
    assert spike_eigenvalue(-0.3, 50, 1000) == spike_eigenvalue(0.3, 50, 1000)


def test_relative_means():
    got = [
        relative_mean(Distribution.parse(text))
        for text in ("rademacher", "bernoulli_0.25", "inverted_0.25", "normal_-2_0")
    ]
    assert got == [0, 0.5, 0.5, 1]


def test_a_full_layer_holds_as_many_members_as_neurons():
    assert capacity_ratio(32, 256) == 0.125
    assert wishart_edges(256, 256) == (0, 4)
    assert wishart_edges(1024, 256) == (0, 9)
    factors = gaussian(12, 8)
    assert torch.linalg.eigvalsh(factors @ factors.mT)[0].abs() < 1e-12  # more members than neurons


def test_parameters_are_counted():
    assert can_interpolate(4, 30, 100, 5)  # 120 <= 120
    assert not can_interpolate(4, 31, 100, 5)


def test_wrong_requests_say_what_to_give():
    with pytest.raises(Misuse, match="0 members: give at least 1"):
        regime(0.1, 0.1, 0)
    with pytest.raises(Misuse, match=r"relative mean 1.5: give a number from -1 to 1"):
        spike_eigenvalue(1.5, 3, 10)
