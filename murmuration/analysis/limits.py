"""Kernels of embedded ensembles of infinite width: covariances of outputs and tangent kernels, layer by layer.

The network, with members alpha, hidden layers l = 1..L of widths N and a scalar output (Velikanov et al. 2022):

    z = g_w / sqrt(N) W x + g_b b,    x' = u phi(v z),    f = z of layer L + 1

W, b and all gains are shared; u and v are random factors of a member, one number a neuron. The input is not multiplied
by any factor. Widths go to infinity one layer after the other; the recursions are exact in that limit.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from murmuration.analysis.two_point import Activation, check, other_member, same_member
from murmuration.errors import Misuse, unknown
from murmuration.weights.laws import Law

Bias = Literal["shared", "member", "none"]
BIASES = ("member", "none", "shared")
CONVENTIONS = ("ntk", "seed")


@dataclass(frozen=True)
class Scales:
    """Gains g_w and g_b that multiply parameters, and standard deviations s_w and s_b they are drawn with.

    Covariances of outputs depend on the products alone, tangent kernels on the gains as well.
    """

    weight_gain: float = 1.0
    bias_gain: float = 1.0
    weight_deviation: float = 1.0
    bias_deviation: float = 1.0

    @property
    def weight_variance(self) -> float:
        return (self.weight_gain * self.weight_deviation) ** 2

    @property
    def bias_variance(self) -> float:
        return (self.bias_gain * self.bias_deviation) ** 2


def scales_of(convention: str, weight: float, bias: float = 0.0) -> Scales:
    """The scales that give weights and biases these standard deviations (sigma_w, sigma_b).

    "seed": gains are one and parameters are drawn with the deviations; "ntk": the other way round.

    >>> scales_of("seed", 2.0).weight_gain, scales_of("ntk", 2.0).weight_gain
    (1.0, 2.0)
    """
    if convention not in CONVENTIONS:
        raise unknown("convention", convention, CONVENTIONS)
    return Scales(1.0, 1.0, weight, bias) if convention == "seed" else Scales(weight, bias, 1.0, 1.0)


@dataclass(frozen=True)
class Blueprint:
    """An embedded ensemble before any number is drawn: laws of u and v in every hidden layer, scales and biases.

    A shared output bias makes members depend on each other whatever the laws are; a member's own does not. Factors
    that are not trained (dropout masks) are switched off by `train_u` and `train_v`.
    """

    u: tuple[Law, ...]
    v: tuple[Law, ...]
    activation: Activation = "relu"
    scales: Scales = Scales()
    bias: Bias = "none"
    output_bias: bool = True
    train_u: bool = True
    train_v: bool = True

    def __post_init__(self) -> None:
        check(self.activation)
        if self.bias not in BIASES:
            raise unknown("bias", self.bias, BIASES)
        if not self.u or len(self.u) != len(self.v):
            raise Misuse(f"{len(self.u)} laws of u and {len(self.v)} of v: give one of each for every hidden layer")

    @property
    def depth(self) -> int:
        """L, the number of hidden layers."""
        return len(self.u)

    def bias_of(self, layer: int) -> Bias:
        """Which bias layer 0..L has; the last one is the output."""
        return "none" if layer == self.depth and not self.output_bias else self.bias


@dataclass(frozen=True)
class Kernels:
    """The five kernels of two sets of inputs, each (n1, n2).

    covariance_same   S_d    Cov[f_a(x), f_a(x')] over initialisations
    covariance_other  S_o    Cov[f_a(x), f_b(x')], two different members
    tangent_same      T_d    <df_a(x)/dw, df_a(x')/dw>, w all shared parameters
    tangent_other     T_o    <df_a(x)/dw, df_b(x')/dw>
    individual        Psi    <df_a(x)/du_a, df_a(x')/du_a>, u_a all parameters of member a
    """

    covariance_same: Tensor
    covariance_other: Tensor
    tangent_same: Tensor
    tangent_other: Tensor
    individual: Tensor


def limit_kernels(blueprint: Blueprint, x1: Tensor, x2: Tensor) -> Kernels:
    """The kernels (n1, n2) of inputs x1 (n1, d) and x2 (n2, d) at infinite width, in float64."""
    if x1.ndim != 2 or x2.ndim != 2 or x1.shape[1] != x2.shape[1]:
        raise Misuse(f"inputs of shapes {tuple(x1.shape)} and {tuple(x2.shape)}: give (n1, d) and (n2, d)")
    rows, columns = x1.to(torch.float64), x2.to(torch.float64)
    now = first_layer(blueprint, rows @ columns.mT / rows.shape[1])
    # Variances a = S_d(x, x) of both sets travel along: all two-point means need them.
    a, b = (first_layer(blueprint, each.square().mean(1)).covariance_same for each in (rows, columns))
    for layer in range(1, blueprint.depth + 1):
        now, a, b = (
            next_layer(blueprint, layer, now, a[:, None], b[None, :]),
            next_variance(blueprint, layer, a),
            next_variance(blueprint, layer, b),
        )
    return now


def first_layer(blueprint: Blueprint, gram: Tensor) -> Kernels:
    """The kernels of the first pre-activations from x.x'/d of any shape: nothing of a member has come in yet."""
    scales, extra = blueprint.scales, bias_terms(blueprint, 0)
    covariance, tangent = scales.weight_variance * gram, scales.weight_gain**2 * gram
    return Kernels(
        covariance + extra.covariance_same,
        covariance + extra.covariance_other,
        tangent + extra.tangent_same,
        tangent + extra.tangent_other,
        torch.zeros_like(gram) + extra.individual,
    )


def next_layer(blueprint: Blueprint, layer: int, now: Kernels, a: Tensor, b: Tensor) -> Kernels:
    """The kernels of layer `layer` (1..L, counted from 0) from those of the layer before, of variances a and b.

    S' = s² U A + s_b², T' = g² U A + g_b² + s² U B T with U = E u² for one member and (E u)² for two; Psi' = s² (A +
    U2 C + U2 B Psi), where A is what u learns and U2 C what v learns.
    """
    u, v, scales, extra = blueprint.u[layer - 1], blueprint.v[layer - 1], blueprint.scales, bias_terms(blueprint, layer)
    variance, gain = scales.weight_variance, scales.weight_gain**2
    value, slope, gate = same_member(blueprint.activation, v, now.covariance_same, a, b)
    value_other, slope_other = other_member(blueprint.activation, v, now.covariance_other, a, b)
    both, product = u.square, u.mean**2
    learnt = blueprint.train_u * value + blueprint.train_v * both * gate
    return Kernels(
        variance * both * value + extra.covariance_same,
        variance * product * value_other + extra.covariance_other,
        gain * both * value + variance * both * slope * now.tangent_same + extra.tangent_same,
        gain * product * value_other + variance * product * slope_other * now.tangent_other + extra.tangent_other,
        variance * (learnt + both * slope * now.individual) + extra.individual,
    )


def next_variance(blueprint: Blueprint, layer: int, a: Tensor) -> Tensor:
    """S_d(x, x) of layer `layer` (n,) from that of the layer before (n,)."""
    value, _, _ = same_member(blueprint.activation, blueprint.v[layer - 1], a, a, a)
    extra = bias_terms(blueprint, layer).covariance_same
    return blueprint.scales.weight_variance * blueprint.u[layer - 1].square * value + extra


def bias_terms(blueprint: Blueprint, layer: int) -> Kernels:
    """What the bias of one layer adds to each kernel, five numbers."""
    variance, gain = blueprint.scales.bias_variance, blueprint.scales.bias_gain**2
    added = {
        "shared": (variance, variance, gain, gain, 0.0),
        "member": (variance, 0.0, 0.0, 0.0, gain),
        "none": (0.0, 0.0, 0.0, 0.0, 0.0),
    }
    return Kernels(*torch.tensor(added[blueprint.bias_of(layer)], dtype=torch.float64))


def fixed_correlation(u: Law, v: Law) -> float:
    """The correlation S_o / S_d two members of a deep ReLU net without biases end at, at equal inputs.

    The fixed point in [0, 1] of c -> (E u)² A_o(c) / (E u² A_d(1)) at unit variances; the map is convex and starts
    above the diagonal, so there is one below 1, or it is 1 (no randomness at all).

    >>> from murmuration.weights.laws import law_named
    >>> round(fixed_correlation(law_named("bernoulli_0.5"), law_named("ones")), 6)
    0.217234
    """

    def step(correlation: float) -> float:
        one = torch.ones((), dtype=torch.float64)
        together, _ = other_member("relu", v, correlation * one, one, one)
        alone, _, _ = same_member("relu", v, one, one, one)
        return u.mean**2 * together.item() / (u.square * alone.item())

    if step(1.0) >= 1.0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(math.ceil(math.log2(1 / torch.finfo(torch.float64).eps))):
        middle = (low + high) / 2
        low, high = (middle, high) if step(middle) > middle else (low, middle)
    return low
