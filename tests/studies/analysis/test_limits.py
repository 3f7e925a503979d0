import math

import pytest
import torch
from embedded_ensembles import CRITICAL, THREE, five, made
from embedded_theory import fixed_correlation
from kernel_matrices import gaussian, least_eigenvalue
from torch import Tensor

from murmuration.core.weights.distributions import Distribution
from murmuration.studies.infinite_width import limit_kernels, scales_of
from murmuration.system.errors import Misuse


def test_both_conventions_agree_on_covariances_and_differ_in_tangents():
    x = gaussian(4, 3)
    seed, ntk = (
        limit_kernels(made("normal_1_0.5", "sign_0.8", 2, scales=scales_of(name, 1.3, 0.4), bias="shared"), x, x)
        for name in ("seed", "ntk")
    )
    torch.testing.assert_close(seed.covariance_same, ntk.covariance_same, rtol=1e-13, atol=0)
    torch.testing.assert_close(seed.covariance_other, ntk.covariance_other, rtol=1e-13, atol=0)
    torch.testing.assert_close(seed.individual, ntk.individual, rtol=1e-13, atol=0)
    assert (seed.tangent_same - ntk.tangent_same).abs().min() > 0.1


# Independence


@pytest.mark.parametrize("activation", ["relu", "erf"])
@pytest.mark.parametrize("last", ["rademacher", "interpolation_0"])
def test_factors_of_mean_zero_in_the_last_layer_alone_make_members_independent(activation: str, last: str):
    x = gaussian(4, 3)
    for u in (["ones", "ones", last], ["normal_1_0.5", "bernoulli_0.5", last]):
        for bias, output in (("none", True), ("shared", False), ("member", True)):
            plan = {"activation": activation, "bias": bias, "output_bias": output}
            architecture = made(u, "sign_0.8", 3, scales=scales_of("seed", 1.2, 0.5), **plan)
            kernels = limit_kernels(architecture, x, x)
            assert torch.equal(kernels.covariance_other, torch.zeros(4, 4, dtype=torch.float64))
            assert torch.equal(kernels.tangent_other, torch.zeros(4, 4, dtype=torch.float64))
            assert kernels.covariance_same.diagonal().min() > 0.01


def test_a_shared_output_bias_is_all_that_independent_members_share():
    x = gaussian(4, 3)
    for name in ("seed", "ntk"):
        scales = scales_of(name, 1.2, 0.5)
        kernels = limit_kernels(made("rademacher", "rademacher", 2, scales=scales, bias="shared"), x, x)
        full = torch.ones(4, 4, dtype=torch.float64)
        assert torch.equal(kernels.covariance_other, scales.bias_variance * full)
        assert torch.equal(kernels.tangent_other, scales.bias_gain**2 * full)


def test_signs_everywhere_but_in_the_last_layer_leave_a_known_rest():
    kernels = limit_kernels(made(["rademacher", "rademacher", "ones"], "ones", 3, scales=CRITICAL), THREE, THREE)
    covariance = (kernels.covariance_other / kernels.covariance_same).diagonal()
    tangent = (kernels.tangent_other / kernels.tangent_same).diagonal()
    torch.testing.assert_close(covariance, torch.full_like(covariance, 1 / math.pi), rtol=0, atol=1e-12)
    torch.testing.assert_close(tangent, torch.full_like(tangent, 1 / (4 * math.pi)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("v", ["rademacher", "normal_0_1"])
def test_an_odd_activation_and_symmetric_inner_factors_make_independence_at_any_mean(v: str):
    kernels = limit_kernels(made("ones", v, 2, activation="erf", scales=scales_of("ntk", 1.5)), THREE, THREE)
    assert kernels.covariance_other.abs().max() < 1e-12
    assert kernels.tangent_other.abs().max() < 1e-12


# Positivity


@pytest.mark.parametrize("u", ["normal_-1_0.5", "bernoulli_0.3", "sign_0.6"])
def test_deep_members_of_non_zero_mean_are_positively_correlated_at_all_inputs(u: str):
    x = torch.cat([gaussian(20, 3), -gaussian(20, 3)])  # every input and its mirror image
    for v in ("ones", "normal_1_0.5", "rademacher"):
        for depth in (2, 4):
            assert limit_kernels(made(u, v, depth), x, x).covariance_other.min() > 0


def test_one_layer_does_not_correlate_opposite_inputs():
    x = gaussian(20, 3)
    kernels = limit_kernels(made("normal_1_0.5", "ones", 1), x, -x)
    assert torch.equal(kernels.covariance_other.diagonal(), torch.zeros(20, dtype=torch.float64))
    assert kernels.covariance_other.fill_diagonal_(1).min() > 0


def test_members_of_non_zero_mean_teach_each_other_about_inputs_on_one_side():
    x = gaussian(60, 3)
    one_side = x @ x.T > 0
    for u in ("normal_-1_0.5", "bernoulli_0.3"):
        for v in ("ones", "normal_1_0.5"):
            for depth in (1, 3):
                assert limit_kernels(made(u, v, depth), x, x).tangent_other[one_side].min() > 0


def test_beyond_a_known_angle_one_layer_unteaches():
    def tangent(angle: float) -> float:
        x = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]], dtype=torch.float64)
        return limit_kernels(made("normal_1_0.5", "ones", 1), x[:1], x[1:]).tangent_other.item()

    low, high = 1.5, 2.5
    assert tangent(low) > 0 > tangent(high)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if tangent(middle) > 0 else (low, middle)
    assert low == pytest.approx(1.976031468, abs=1e-9)
    assert math.cos(low) == pytest.approx(-0.394234869, abs=1e-9)


@pytest.mark.parametrize("activation", ["relu", "erf"])
@pytest.mark.parametrize("bias", ["none", "shared", "member"])
def test_kernels_are_symmetric_and_positive_semidefinite(activation: str, bias: str):
    x, members = gaussian(8, 3), 3
    architecture = made(
        "normal_1_0.5", "sign_0.8", 2, activation=activation, bias=bias, scales=scales_of("ntk", 1.2, 0.4)
    )
    kernels = limit_kernels(architecture, x, x)
    for kernel in five(kernels):
        torch.testing.assert_close(kernel, kernel.mT, rtol=0, atol=1e-13)
        assert least_eigenvalue(kernel) >= -1e-10
    eye, rest = torch.eye(members).double(), (1 - torch.eye(members)).double()
    for same_member, other in (
        (kernels.covariance_same, kernels.covariance_other),
        (kernels.tangent_same, kernels.tangent_other),
    ):
        assert least_eigenvalue(same_member - other) >= -1e-10
        assert least_eigenvalue(torch.kron(eye, same_member) + torch.kron(rest, other)) >= -1e-10


def test_two_sets_of_inputs_give_a_part_of_the_kernels_of_both():
    x = gaussian(7, 3)
    architecture = made("normal_1_0.5", "normal_1_0.5", 2, activation="erf", bias="member")
    for whole, part in zip(
        five(limit_kernels(architecture, x, x)), five(limit_kernels(architecture, x[:3], x[3:])), strict=True
    ):
        torch.testing.assert_close(whole[:3, 3:], part, rtol=0, atol=1e-10)


# Depth


DEPTHS = (1, 2, 3, 5, 10, 20)


@pytest.mark.parametrize(
    ("u", "v", "covariances", "tangents"),
    [
        (
            "normal_1_0.5",
            "normal_1_0.5",
            (0.6455, 0.4586, 0.3762, 0.3290, 0.3206, 0.3205),
            (0.6455, 0.3531, 0.2049, 0.0987, 0.0477, 0.0249),
        ),
        (
            "bernoulli_0.9",
            "ones",
            (0.9, 0.8186, 0.7578, 0.6849, 0.6338, 0.6272),
            (0.9, 0.7353, 0.5891, 0.3804, 0.1721, 0.0841),
        ),
    ],
)
def test_ratios_fall_with_depth_as_in_the_table(u: str, v: str, covariances: tuple, tangents: tuple):
    critical = scales_of(
        "ntk", math.sqrt(2 / (Distribution.parse(u).second_moment * Distribution.parse(v).second_moment))
    )
    for depth, covariance, tangent in zip(DEPTHS, covariances, tangents, strict=True):
        kernels = limit_kernels(made(u, v, depth, scales=critical), THREE[:1], THREE[:1])
        assert (kernels.covariance_other / kernels.covariance_same).item() == pytest.approx(covariance, abs=5.1e-5)
        assert (kernels.tangent_other / kernels.tangent_same).item() == pytest.approx(tangent, abs=5.1e-5)


FIXED = {
    1: (1, 0.336508),
    0.9: (0.627146, 0.299419),
    0.8: (0.472799, 0.263544),
    0.5: (0.217234, 0.161228),
    0.3: (0.113064, 0.095933),
}


@pytest.mark.parametrize(("share", "expected"), FIXED.items())
def test_fixed_points_of_the_correlation(share: float, expected: tuple[float, float]):
    u = Distribution.parse(f"bernoulli_{share}")  # (E u)² / E u² is the share kept
    got = [fixed_correlation(u, Distribution.parse(v)) for v in ("ones", "rademacher")]
    assert got == pytest.approx(expected, abs=1e-6)


def test_the_fixed_point_is_where_deep_members_end():
    assert fixed_correlation(Distribution.parse("rademacher"), Distribution.parse("ones")) == 0
    normal = Distribution.parse("normal_1_0.5")
    deep = limit_kernels(made("normal_1_0.5", "normal_1_0.5", 60), THREE, THREE)
    ratio = (deep.covariance_other / deep.covariance_same)[0, 0].item()
    assert fixed_correlation(normal, normal) == pytest.approx(ratio, abs=1e-10)


# Switches


def test_what_members_learn_is_the_sum_of_what_their_factors_learn():
    x = gaussian(4, 3)

    def individual(train_u: bool, train_v: bool) -> Tensor:
        architecture = made("normal_1_0.5", "sign_0.8", 3, activation="erf", train_u=train_u, train_v=train_v)
        return limit_kernels(architecture, x, x).individual

    torch.testing.assert_close(individual(True, True), individual(True, False) + individual(False, True))
    assert torch.equal(individual(False, False), torch.zeros(4, 4, dtype=torch.float64))
    assert individual(True, False).diagonal().min() > 0.1


def test_own_biases_move_from_the_shared_to_the_individual_kernel():
    """With u = v = 1 a member's tangent kernel is the same whoever owns the biases."""
    x = gaussian(4, 3)
    plan = {"scales": scales_of("ntk", 1.4, 0.6), "train_u": False, "train_v": False}
    shared, own, none = (
        limit_kernels(made("ones", "ones", 2, bias=bias, **plan), x, x) for bias in ("shared", "member", "none")
    )
    torch.testing.assert_close(own.tangent_same + own.individual, shared.tangent_same, rtol=1e-13, atol=0)
    torch.testing.assert_close(own.covariance_same, shared.covariance_same, rtol=1e-13, atol=0)
    assert (own.covariance_other < shared.covariance_other).all()
    assert none.individual.abs().max() == 0


def test_without_output_bias_only_the_last_term_is_missing():
    x = gaussian(4, 3)
    plan = {"scales": scales_of("ntk", 1.4, 0.6), "bias": "shared"}
    with_it, without = (
        five(limit_kernels(made("normal_1_0.5", "ones", 2, output_bias=switch, **plan), x, x))
        for switch in (True, False)
    )
    for more, less, missing in zip(with_it, without, (0.36, 0.36, 0.36, 0.36, 0.0), strict=True):
        torch.testing.assert_close(more, less + missing, rtol=1e-14, atol=1e-15)


def test_wrong_requests_say_what_to_give():
    with pytest.raises(Misuse, match="2 laws of u and 1 of v: give one of each for every hidden layer"):
        made(["ones", "ones"], ["ones"], 2)
    with pytest.raises(Misuse, match="unknown bias 'sharde': did you mean 'shared'"):
        made("ones", "ones", 1, bias="sharde")
    with pytest.raises(Misuse, match="unknown activation 'tanh'"):
        made("ones", "ones", 1, activation="tanh")
    with pytest.raises(Misuse, match="unknown convention 'ntl': did you mean 'ntk'"):
        scales_of("ntl", 1.0)
    with pytest.raises(Misuse, match=r"inputs of shapes \(4, 3\) and \(4, 2\): give \(n1, d\) and \(n2, d\)"):
        limit_kernels(made("ones", "ones", 1), gaussian(4, 3), gaussian(4, 2))
