"""Embedded ensembles at infinite width: covariances of outputs and tangent kernels, layer by layer.

The network, with members alpha, hidden layers l = 1..L of widths N and a scalar output (Velikanov et al. 2022):

    z = g_w / sqrt(N) W x + g_b b,    x' = u phi(v z),    f = z of layer L + 1

W, b and all gains are shared; u and v are random factors of a member, one for every neuron. Widths go to infinity one
layer after the other; the recursions are exact in that limit. Inputs and outputs may have factors as well: those of the
inputs count by their first two moments, which is exact for many inputs.

`architecture_of` reads such an architecture off the layers of a fully connected ReLU network, `limit_kernels` computes
its kernels, all in float64. The expectations over one neuron and two inputs stand at the end: pre-activations (z, z')
are Gaussian with variances a, b and covariance q; a neuron multiplies them by its factor v before the activation phi.
Two inputs of the same member meet the same v, two different members have independent factors v and v'.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from murmuration.core.weights.distributions import Distribution
from murmuration.system.errors import Misuse, unknown

Activation = Literal["relu", "erf"]
ACTIVATIONS = ("erf", "relu")
# ab - q² below this many roundings of ab counts as 0: collinear inputs, whose angle would otherwise be off by 1e-8.
ROUNDINGS = 32
# Quadrature over Gaussian factors of erf: range in deviations, exponent of the error (e^-27 = 2e-12), most nodes.
REACH, EXPONENT, MOST = 7.5, 27.0, 401
Bias = Literal["shared", "member", "none"]
BIASES = ("member", "none", "shared")
CONVENTIONS = ("ntk", "seed")
ONES = Distribution.parse("ones")


@dataclass(frozen=True)
class Scales:
    """Gains g_w and g_b that multiply parameters, and standard deviations s_w and s_b of their initialisation.

    Covariances of outputs depend on the products only, tangent kernels on the gains as well.
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
    """Return the scales for effective standard deviations sigma_w and sigma_b of weights and biases.

    "seed": gains are 1 and parameters have these deviations; "ntk": deviations are 1 and the gains are these.

    >>> scales_of("seed", 2.0).weight_gain, scales_of("ntk", 2.0).weight_gain
    (1.0, 2.0)
    """
    if convention not in CONVENTIONS:
        raise unknown("convention", convention, CONVENTIONS)
    return Scales(1.0, 1.0, weight, bias) if convention == "seed" else Scales(weight, bias, 1.0, 1.0)


@dataclass(frozen=True)
class Architecture:
    """A fully connected embedded ensemble: laws of u and v in every hidden layer, scales, biases and the activation.

    A shared output bias makes members depend on each other whatever the laws are; a member's own does not. Factors
    that are not trained (dropout masks) are switched off by `train_u` and `train_v`.
    """

    u: tuple[Distribution, ...]
    v: tuple[Distribution, ...]
    activation: Activation = "relu"
    scales: Scales | tuple[Scales, ...] = Scales()  # one for all L + 1 layers, or one for each
    bias: Bias = "none"
    output_bias: bool = True
    train_u: bool = True
    train_v: bool = True
    input_factors: Distribution = ONES  # trained like u
    output_factors: Distribution = ONES  # trained like v

    def __post_init__(self) -> None:
        check(self.activation)
        if self.bias not in BIASES:
            raise unknown("bias", self.bias, BIASES)
        if not self.u or len(self.u) != len(self.v):
            raise Misuse(f"{len(self.u)} laws of u and {len(self.v)} of v: give one of each for every hidden layer")
        if isinstance(self.scales, tuple) and len(self.scales) != self.depth + 1:
            raise Misuse(f"{len(self.scales)} scales for {self.depth} hidden layers: give one, or {self.depth + 1}")

    @property
    def depth(self) -> int:
        """L, the number of hidden layers."""
        return len(self.u)

    def scales_of(self, layer: int) -> Scales:
        """Return the scales of layer 0..L."""
        return self.scales if isinstance(self.scales, Scales) else self.scales[layer]

    def bias_of(self, layer: int) -> Bias:
        """Return the kind of bias of layer 0..L; layer L is the output."""
        return "none" if layer == self.depth and not self.output_bias else self.bias


@dataclass(frozen=True)
class Kernels:
    """The five kernels between two sets of inputs, each (n1, n2).

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


def architecture_of(
    module: nn.Module, *, factors: Distribution, mask: Distribution | None = None, first: bool, last: bool
) -> Architecture:
    """Read the architecture off a fully connected ReLU network whose kernels are scaled by `factors` or masks.

    `first` and `last` say whether inputs of the first and outputs of the last layer have factors. Variances are those
    of the weights as they are, so the module must be untrained. A weight matrix (N', N) is taken as it is, z = W x: its
    tangent kernel is N times that of the convention with 1 / sqrt(N), and every layer counts by its width. Biases are
    left out: PyTorch draws them with variance 1 / 3N, which vanishes in the limit.
    """
    layers = chain_of(module)
    deviations = (layer.weight.detach().double().std().item() for layer in layers)
    gains = (math.sqrt(layer.in_features) for layer in layers)
    scales = tuple(Scales(gain, weight_deviation=std) for gain, std in zip(gains, deviations, strict=True))
    hidden = len(layers) - 1
    return Architecture(
        (mask or factors,) * hidden,
        (factors if mask is None else ONES,) * hidden,
        scales=scales,
        train_u=mask is None,
        train_v=mask is None,
        input_factors=factors if first and mask is None else ONES,
        output_factors=factors if last and mask is None else ONES,
    )


def chain_of(module: nn.Module) -> list[nn.Linear]:
    """Return the dense layers of a chain Linear, ReLU, ..., Linear; any other network is refused."""
    leaves = [part for part in module.modules() if not isinstance(part, nn.Sequential | nn.Flatten | nn.Dropout)]
    layers = [part for part in leaves if isinstance(part, nn.Linear)]
    expected = [kind for _ in layers for kind in (nn.Linear, nn.ReLU)][:-1]
    if len(layers) < 2 or [type(part) for part in leaves] != expected:
        raise Misuse("the limit of infinite width is known for chains of Linear and ReLU layers: use net='mlp'")
    return layers


def limit_kernels(architecture: Architecture, x1: Tensor, x2: Tensor) -> Kernels:
    """Return the kernels (n1, n2) of inputs x1 (n1, d) and x2 (n2, d) at infinite width, in float64."""
    if x1.ndim != 2 or x2.ndim != 2 or x1.shape[1] != x2.shape[1]:
        raise Misuse(f"inputs of shapes {tuple(x1.shape)} and {tuple(x2.shape)}: give (n1, d) and (n2, d)")
    rows, columns = x1.to(torch.float64), x2.to(torch.float64)
    now = first_layer(architecture, rows @ columns.mT / rows.shape[1])
    # Variances a = S_d(x, x) and b = S_d(x', x') are carried along: all two-point expectations need them.
    a, b = (first_layer(architecture, x.square().mean(1)).covariance_same for x in (rows, columns))
    for layer in range(1, architecture.depth + 1):
        now, a, b = (
            next_layer(architecture, layer, now, a[:, None], b[None, :]),
            next_variance(architecture, layer, a),
            next_variance(architecture, layer, b),
        )
    return output_layer(architecture, now)


def first_layer(architecture: Architecture, gram: Tensor) -> Kernels:
    """Return the kernels of the first pre-activations from x.x'/d of any shape."""
    scales, extra, factors = architecture.scales_of(0), bias_terms(architecture, 0), architecture.input_factors
    covariance, tangent = scales.weight_variance * gram, scales.weight_gain**2 * gram
    both, product = factors.second_moment, factors.mean**2
    learnt = covariance if architecture.train_u and factors != ONES else torch.zeros_like(gram)  # by factors of inputs
    return Kernels(
        both * covariance + extra.covariance_same,
        product * covariance + extra.covariance_other,
        both * tangent + extra.tangent_same,
        product * tangent + extra.tangent_other,
        learnt + extra.individual,
    )


def output_layer(architecture: Architecture, now: Kernels) -> Kernels:
    """Return the kernels of outputs that are multiplied by a factor of the member."""
    factors = architecture.output_factors
    both, product = factors.second_moment, factors.mean**2
    learnt = now.covariance_same if architecture.train_v and factors != ONES else 0.0  # by factors of outputs
    return Kernels(
        both * now.covariance_same,
        product * now.covariance_other,
        both * now.tangent_same,
        product * now.tangent_other,
        both * now.individual + learnt,
    )


def next_layer(architecture: Architecture, layer: int, now: Kernels, a: Tensor, b: Tensor) -> Kernels:
    """Return the kernels of layer `layer` (1..L, counted from 0) from those of the layer before, of variances a and b.

    S' = s² U A + s_b² and T' = g² U A + g_b² + s² U B T, with U = E u² within a member and (E u)² between two. Psi' =
    s² (A + U2 C + U2 B Psi), with the contributions A of u and U2 C of v.
    """
    u, v = architecture.u[layer - 1], architecture.v[layer - 1]
    scales, extra = architecture.scales_of(layer), bias_terms(architecture, layer)
    variance, gain = scales.weight_variance, scales.weight_gain**2
    value, slope, gate = same_member(architecture.activation, v, now.covariance_same, a, b)
    value_other, slope_other = other_member(architecture.activation, v, now.covariance_other, a, b)
    both, product = u.second_moment, u.mean**2
    learnt = architecture.train_u * value + architecture.train_v * both * gate
    return Kernels(
        variance * both * value + extra.covariance_same,
        variance * product * value_other + extra.covariance_other,
        gain * both * value + variance * both * slope * now.tangent_same + extra.tangent_same,
        gain * product * value_other + variance * product * slope_other * now.tangent_other + extra.tangent_other,
        variance * (learnt + both * slope * now.individual) + extra.individual,
    )


def next_variance(architecture: Architecture, layer: int, a: Tensor) -> Tensor:
    """Return S_d(x, x) of layer `layer` (n,) from that of the layer before (n,)."""
    value, _, _ = same_member(architecture.activation, architecture.v[layer - 1], a, a, a)
    extra = bias_terms(architecture, layer).covariance_same
    return architecture.scales_of(layer).weight_variance * architecture.u[layer - 1].second_moment * value + extra


def bias_terms(architecture: Architecture, layer: int) -> Kernels:
    """Return the contribution of the bias of one layer to each of the five kernels."""
    scales = architecture.scales_of(layer)
    variance, gain = scales.bias_variance, scales.bias_gain**2
    added = {
        "shared": (variance, variance, gain, gain, 0.0),
        "member": (variance, 0.0, 0.0, 0.0, gain),
        "none": (0.0, 0.0, 0.0, 0.0, 0.0),
    }
    return Kernels(*torch.tensor(added[architecture.bias_of(layer)], dtype=torch.float64))


def same_member(
    activation: Activation, v: Distribution, q: Tensor, a: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute A = E phi(vz) phi(vz'), B = E v² phi'(vz) phi'(vz') and C = E z z' phi'(vz) phi'(vz'), shaped as q.

    ReLU: V2 K1, V2 K0 and P(v != 0) K1 with the arc-cosine kernels (Cho and Saul 2009): the sign of v cancels,
    because (z, z') and -(z, z') are equally likely; at a factor of 0 the derivative of ReLU is 0, as autograd has it.
    erf: closed forms at every v (Williams 1997), averaged over nodes.
    """
    check(activation)
    if activation == "relu":
        first, zeroth = arc_cosine(q, a, b)
        silent = sum(probability for factor, probability in v.atoms if factor == 0)
        return v.second_moment * first, v.second_moment * zeroth, (1 - silent) * first
    value, slope, gate = torch.zeros(3, *q.shape, dtype=torch.float64)
    for factor, probability in zip(*quadrature(v, (a * b).max().sqrt() + q.abs().max()), strict=True):
        root = determinant(q, a, b, factor, factor).sqrt()
        value = value + probability * 2 / math.pi * torch.atan2(2 * factor**2 * q, root)
        slope = slope + probability * 4 / math.pi * factor**2 / root
        gate = gate + probability * 4 / math.pi * q / root**3
    return value, slope, gate


def other_member(activation: Activation, v: Distribution, q: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Compute A = E phi(vz) phi(v'z') and B = E v v' phi'(vz) phi'(v'z') for independent v, v', shaped as q.

    ReLU: with half-moments V+ and V-, A = (V+² + V-²) K1(q) + 2 V+ V- K1(-q) and B = (V+² + V-²) K0(q) -
    2 V+ V- K0(-q); mean and mean square of v alone do not determine them. erf: averaged over pairs of nodes.
    """
    check(activation)
    if activation == "relu":
        alike, opposed = v.positive**2 + v.negative**2, 2 * v.positive * v.negative
        first, zeroth = arc_cosine(q, a, b)
        mirrored_first, mirrored_zeroth = arc_cosine(-q, a, b)
        return alike * first + opposed * mirrored_first, alike * zeroth - opposed * mirrored_zeroth
    value, slope = torch.zeros(2, *q.shape, dtype=torch.float64)
    factors, probabilities = quadrature(v, torch.maximum(a.max(), b.max()))
    # One node at a time: (..., K) and never (..., K, K).
    for factor, probability in zip(factors, probabilities, strict=True):
        root = determinant(q[..., None], a[..., None], b[..., None], factor, factors).sqrt()
        angles = torch.atan2(2 * factor * factors * q[..., None], root)
        value = value + probability * 2 / math.pi * (probabilities * angles).sum(-1)
        slope = slope + probability * 4 / math.pi * (probabilities * factor * factors / root).sum(-1)
    return value, slope


def quadrature(v: Distribution, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return nodes and probabilities, both (K,), for expectations over v.

    The integrand is analytic for |Im v| < 1 / sqrt(2 variance). A discrete distribution has its atoms as nodes. For a
    Gaussian the trapezium rule has the error exp(-2 pi |Im v| / step) (Trefethen and Weideman 2014): about 1e-10 until
    the number of nodes reaches its limit, at a variance of 19 for a deviation of 1. A Gauss-Hermite rule of 60 nodes
    would be off by 1e-3 at deviation 1 and variance 1.
    """
    if v.atoms:
        return v.nodes()
    strip = 1 / math.sqrt(2 * max(variance.item(), torch.finfo(torch.float64).tiny))
    step = min(2 * math.pi * strip / EXPONENT / v.std, 0.8)  # in deviations; 0.8 for the Gaussian itself
    half = min(math.ceil(REACH / step), MOST // 2)
    standard = torch.linspace(-REACH, REACH, 2 * half + 1, dtype=torch.float64)
    weights = torch.exp(-(standard**2) / 2)
    return v.mean + v.std * standard, weights / weights.sum()


def check(activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise unknown("activation", activation, ACTIVATIONS)


def arc_cosine(q: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return K1 = E relu(z) relu(z') and K0 = P(z > 0, z' > 0), each shaped as q (Cho and Saul 2009).

    K1 = (sqrt(ab - q²) + (pi - theta) q) / 2 pi and K0 = (pi - theta) / 2 pi. The angle theta comes from atan2, as the
    arc cosine loses half of the digits near 1.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> arc_cosine(-one, one, one)
    (tensor([0.], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """
    product = a * b
    gap = product - q * q
    root = torch.where(gap > ROUNDINGS * torch.finfo(torch.float64).eps * product, gap, 0).sqrt()
    opening = math.pi - torch.atan2(root, q)
    return (root + opening * q) / (2 * math.pi), opening / (2 * math.pi)


def determinant(q: Tensor, a: Tensor, b: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Return (1 + 2v²a)(1 + 2w²b) - 4v²w²q², at least 1: the determinant behind every mean of error functions."""
    return (1 + 2 * v**2 * a) * (1 + 2 * w**2 * b) - 4 * v**2 * w**2 * q**2
