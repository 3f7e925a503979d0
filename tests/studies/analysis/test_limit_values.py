"""Kernels at infinite width against stored numbers, and against a second derivation for plain nets."""

import math

import numpy as np
import pytest
import torch
from embedded_ensembles import CRITICAL, NAMES, THREE, five, made
from kernel_matrices import gaussian
from torch import Tensor

from murmuration.core.weights.distributions import Distribution
from murmuration.studies.infinite_width import Architecture, limit_kernels, scales_of

NONE = (0.0, 0.0, 0.0, 0.0)
G0 = {
    1: (
        (2, 1.35509514, 0.05423944, 0.63661977), (4, 2.20089445, -0.27349298, 0.63661977),
        (4, 2.71019027, 0.10847888, 1.27323954)),
    2: (
        (2, 1.46686757, 0.66397362, 0.98746218), (6, 3.08883260, 0.52486591, 1.37141727),
        (8, 4.93102940, 1.38312323, 2.74283455)),
    3: (
        (2, 1.55062487, 1.00402261, 1.20965144), (8, 3.90457337, 1.32299358, 2.12077621),
        (12, 6.85910611, 2.84859542, 4.24155243)),
}  # fmt: skip


def same(depth: int, other: tuple[float, ...] | None = None, tangent: tuple[float, ...] | None = None) -> tuple:
    """The five golden rows that share the same-member kernels of a plain critical ReLU net."""
    covariance, own_tangent, individual = G0[depth]
    return covariance, other or covariance, own_tangent, tangent or own_tangent, individual


NORMAL = made("normal_1_0.5", "normal_1_0.5", 1), made("normal_1_0.5", "normal_1_0.5", 3)
G4 = {"activation": "erf", "scales": scales_of("ntk", 1.5, 0.1), "bias": "shared"}
G6 = {"scales": scales_of("seed", 1.2, 0.3), "bias": "shared"}
HALF = f"normal_0.5_{math.sqrt(0.75)}"
MASKS = {"scales": CRITICAL, "train_u": False, "train_v": False}
# At pairs (0, 0), (0, 1), (0, 2), (1, 2) of the three inputs: S_d, S_o, T_d, T_o, Psi.
GOLDEN: dict[str, tuple[Architecture, tuple]] = {
    **{f"plain {depth}": (made("ones", "ones", depth, scales=CRITICAL), same(depth)) for depth in G0},
    **{f"signs {n}": (made("rademacher", "rademacher", n, scales=CRITICAL), same(n, NONE, NONE)) for n in G0},
    "normal 1": (NORMAL[0], (
        (0.78125, 0.52933404, 0.02118728, 0.24867960), (0.50426337, 0.34199304, 0.01720180, 0.16186909),
        (1.5625, 0.85972440, -0.10683320, 0.24867960), (1.00852675, 0.55449080, -0.06271785, 0.16186909),
        (1.25, 0.84693446, 0.03389965, 0.39788736))),
    "normal 3": (NORMAL[1], (
        (0.47683716, 0.36969778, 0.23937764, 0.28840338), (0.17936378, 0.16161570, 0.13377205, 0.14505169),
        (1.90734863, 0.93092283, 0.31542625, 0.50563245), (0.39088025, 0.28708906, 0.16651037, 0.20877785),
        (2.28881836, 1.30827067, 0.54332646, 0.80901192))),
    "dropout 1": (made("bernoulli_0.5", "ones", 1, **MASKS), (
        (1, 0.67754757, 0.02711972, 0.31830989), (0.5, 0.33877378, 0.01355986, 0.15915494),
        (2, 1.10044723, -0.13674649, 0.31830989), (1, 0.55022361, -0.06837325, 0.15915494), NONE)),
    "dropout 3": (made("bernoulli_0.5", "ones", 3, **MASKS), (
        (0.25, 0.19382811, 0.12550283, 0.15120643), (0.06067918, 0.05688680, 0.05047559, 0.05315517),
        (1, 0.48807167, 0.16537420, 0.26509703), (0.10839613, 0.08747738, 0.06050213, 0.07042611), NONE)),
    "erf 1": (made("normal_1_0.5", "ones", 1, **G4), (
        (1.72777810, 0.93255408, -1.25351318, 0.01648731), (1.38422248, 0.74804326, -1.00081054, 0.01518985),
        (4.28191536, 1.94646298, -2.77909013, 0.02297464), (3.42753229, 1.55917038, -2.22127210, 0.02037972),
        (1.62861862, 0.78198869, -1.09722591, 0.00540276))),
    "erf 3": (made("normal_1_0.5", "ones", 3, **G4), (
        (1.56077692, 0.69467960, -0.93776489, 0.02983183), (0.69829915, 0.35483031, -0.44622657, 0.02348774),
        (10.84434356, 2.99841357, -4.65511957, 0.06541506), (3.60923349, 1.45424986, -2.06708907, 0.04591752),
        (6.29549938, 1.84650193, -2.82673008, 0.03030636))),
    "inner signs 1": (made("ones", "rademacher", 1, scales=CRITICAL), same(
        1, (1, 0.75509514, 0.85423944, 0.63661977), (2, 1.00089445, 1.32650702, 0.63661977))),
    "inner signs 3": (made("ones", "rademacher", 3, scales=CRITICAL), same(
        3, (0.67810204, 0.67406664, 0.67552994, 0.67259591), (0.80098288, 0.76340837, 0.77525812, 0.75238988))),
    "biased 1": (made(HALF, "sign_0.8", 1, **G6), (
        (1.1916, 0.85477791, 0.14682869, 0.47365701), (0.277272, 0.22624408, 0.16537837, 0.18073025),
        (3.205, 2.35397149, 1.07629881, 1.63991762), (1.37485, 1.20817287, 1.05003470, 1.09877941),
        (2.2032, 1.52955583, 0.11365739, 0.76731401))),
    "biased 3": (made(HALF, "sign_0.8", 3, **G6), (
        (0.77252544, 0.64675013, 0.47923332, 0.54572737), (0.15065956, 0.15056260, 0.15045442, 0.15048095),
        (4.284424, 2.93690258, 2.03501902, 2.35732372), (1.08983641, 1.08909147, 1.08834589, 1.08854301),
        (3.74264064, 2.32737581, 1.10382204, 1.55546384))),
}  # fmt: skip


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_kernels(case: str):
    architecture, expected = GOLDEN[case]
    for name, kernel, row in zip(NAMES, five(limit_kernels(architecture, THREE, THREE)), expected, strict=True):
        got = kernel[[0, 0, 0, 1], [0, 1, 2, 2]]
        torch.testing.assert_close(got, torch.tensor(row, dtype=torch.float64), rtol=0, atol=1e-8, msg=f"{case} {name}")


def test_one_golden_number_by_hand():
    angle = math.acos(0.6)
    expected = 2 / math.pi * (math.sin(angle) + (math.pi - angle) * 0.6)
    got = limit_kernels(made("ones", "ones", 1, scales=CRITICAL), THREE, THREE).covariance_same[0, 1]
    assert got.item() == pytest.approx(expected, abs=1e-14)


# A second derivation of plain tangent kernels, with or without dropout of its own mask for each input: means over one
# neuron by quadrature, all inputs at once in one matrix.


def relu_means(k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E relu relu and E step step by integrating over the directions in which both inputs are positive."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    value, slope = np.empty_like(k), np.empty_like(k)
    for i, j in np.ndindex(*k.shape):
        norms = math.sqrt(k[i, i] * k[j, j])
        apart = 0.0 if i == j else math.acos(k[i, j] / norms)
        half = (math.pi - apart) / 2  # both are positive on an arc of pi - apart
        angles = half * nodes + apart / 2
        value[i, j] = norms / math.pi * half * weights @ (np.cos(angles) * np.cos(angles - apart))
        slope[i, j] = half / math.pi
    return value, slope


def erf_means(k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E erf' erf' is a Gaussian integral, and its integral over the covariance is E erf erf."""
    nodes, weights = np.polynomial.legendre.leggauss(100)
    value, slope = np.empty_like(k), np.empty_like(k)

    def inner(first: float, second: float, between: np.ndarray) -> np.ndarray:
        pairs = np.array([[first + 0 * between, between], [between, second + 0 * between]]).transpose(2, 0, 1)
        return 4 / math.pi / np.sqrt(np.linalg.det(np.eye(2) + 2 * pairs))

    for i, j in np.ndindex(*k.shape):
        slope[i, j] = inner(k[i, i], k[j, j], k[i, j : j + 1])[0]
        value[i, j] = k[i, j] / 2 * weights @ inner(k[i, i], k[j, j], k[i, j] * (nodes + 1) / 2)
    return value, slope


def plain(means, x: Tensor, depth: int, weight: list[float], bias: float, keep: float = 1.0) -> tuple[Tensor, Tensor]:
    """Covariance and tangent kernel (n, n) of a plain net in the NTK convention, `weight` one deviation a layer."""
    k = weight[0] ** 2 * (x @ x.T).numpy() / x.shape[1] + bias**2
    theta = k.copy()
    kept = np.where(np.eye(len(k)), 1 / keep, 1.0)  # masks of one input meet themselves, of two they do not
    for layer in range(1, depth + 1):
        value, slope = means(k)
        k = weight[layer] ** 2 * kept * value + bias**2
        theta = k + weight[layer] ** 2 * kept * slope * theta
    return torch.from_numpy(k), torch.from_numpy(theta)


@pytest.mark.parametrize(("activation", "means"), [("relu", relu_means), ("erf", erf_means)])
def test_constant_factors_give_the_plain_net(activation: str, means):
    x = gaussian(5, 3)
    architecture = made("ones", "ones", 3, activation=activation, scales=scales_of("ntk", 1.5, 0.3), bias="shared")
    kernels = limit_kernels(architecture, x, x)
    covariance, tangent = plain(means, x, 3, [1.5] * 4, 0.3)
    torch.testing.assert_close(kernels.covariance_same, covariance, rtol=0, atol=1e-10)
    torch.testing.assert_close(kernels.tangent_same, tangent, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("activation", "means"), [("relu", relu_means), ("erf", erf_means)])
def test_masks_of_their_own_for_every_input_are_members_of_their_own(activation: str, means):
    x = gaussian(5, 3)
    scales = scales_of("ntk", 1.4, 0.2)
    architecture = made("inverted_0.7", "ones", 3, activation=activation, scales=scales, bias="shared")
    kernels = limit_kernels(architecture, x, x)
    covariance, tangent = plain(means, x, 3, [1.4] * 4, 0.2, keep=0.7)
    one = torch.eye(5, dtype=torch.bool)
    ours = torch.where(one, kernels.covariance_same, kernels.covariance_other)
    torch.testing.assert_close(ours, covariance, rtol=0, atol=1e-10)
    torch.testing.assert_close(
        torch.where(one, kernels.tangent_same, kernels.tangent_other), tangent, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize(
    ("u", "v"), [("normal_1_0.5", "normal_1_0.5"), ("bernoulli_0.5", "sign_0.8"), (HALF, "normal_0_2")]
)
def test_one_relu_member_is_a_plain_net_of_larger_weights(u: str, v: str):
    x = gaussian(4, 3, seed=1)
    kernels = limit_kernels(made(u, v, 3, scales=scales_of("ntk", 1.3, 0.4), bias="shared"), x, x)
    grown = 1.3 * math.sqrt(Distribution.parse(u).second_moment * Distribution.parse(v).second_moment)
    covariance, tangent = plain(relu_means, x, 3, [1.3] + [grown] * 3, 0.4)
    torch.testing.assert_close(kernels.covariance_same, covariance, rtol=0, atol=1e-10)
    torch.testing.assert_close(kernels.tangent_same, tangent, rtol=0, atol=1e-10)
