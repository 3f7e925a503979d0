"""Means over one neuron of two inputs: what the layers of an infinitely wide embedded ensemble are made of.

The pre-activations (z, z') of two inputs are Gaussian with variances a, b and covariance q. A neuron of a member
multiplies them by its factor v before the activation phi. Two inputs of the same member meet the same v, two different
members have independent factors v and v'. Everything is float64 and elementwise: q, a and b broadcast.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from murmuration.errors import unknown
from murmuration.weights.laws import Law

Activation = Literal["relu", "erf"]
ACTIVATIONS = ("erf", "relu")
# ab - q² below this many roundings of ab is none: inputs on one line, whose angle would otherwise be off by 1e-8.
ROUNDINGS = 32
# Quadrature over Gaussian factors of erf: how far out, how exact (e^-27 = 2e-12), and never more nodes than this.
REACH, EXPONENT, MOST = 7.5, 27.0, 401


def same_member(activation: Activation, v: Law, q: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A = E phi(vz) phi(vz'), B = E v² phi'(vz) phi'(vz') and C = E z z' phi'(vz) phi'(vz'), each shaped as q.

    ReLU: V2 K1, V2 K0 and P(v != 0) K1 with the arc-cosine kernels (Cho and Saul 2009): the sign of v falls out,
    because (z, z') and -(z, z') are equally likely; at a factor of 0 the derivative of ReLU is 0, as autograd has it.
    erf: closed forms at every v (Williams 1997), averaged over nodes.
    """
    check(activation)
    if activation == "relu":
        first, zeroth = arc_cosine(q, a, b)
        silent = sum(share for factor, share in v.atoms if factor == 0)
        return v.square * first, v.square * zeroth, (1 - silent) * first
    value, slope, gate = torch.zeros(3, *q.shape, dtype=torch.float64)
    for factor, share in zip(*quadrature(v, (a * b).max().sqrt() + q.abs().max()), strict=True):
        root = determinant(q, a, b, factor, factor).sqrt()
        value = value + share * 2 / math.pi * torch.atan2(2 * factor**2 * q, root)
        slope = slope + share * 4 / math.pi * factor**2 / root
        gate = gate + share * 4 / math.pi * q / root**3
    return value, slope, gate


def other_member(activation: Activation, v: Law, q: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A = E phi(vz) phi(v'z') and B = E v v' phi'(vz) phi'(v'z') for independent v and v', each shaped as q.

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
    factors, shares = quadrature(v, torch.maximum(a.max(), b.max()))
    for factor, share in zip(factors, shares, strict=True):  # one node at a time: (..., K) and never (..., K, K)
        root = determinant(q[..., None], a[..., None], b[..., None], factor, factors).sqrt()
        angles = torch.atan2(2 * factor * factors * q[..., None], root)
        value = value + share * 2 / math.pi * (shares * angles).sum(-1)
        slope = slope + share * 4 / math.pi * (shares * factor * factors / root).sum(-1)
    return value, slope


def quadrature(v: Law, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Factors and probabilities, both (K,), for means over v of functions analytic up to |Im v| < 1 / sqrt(2 variance).

    Atoms as they are. For a Gaussian the trapezium rule, whose error is exp(-2 pi |Im v| / step) (Trefethen and
    Weideman 2014): about 1e-10 until the number of nodes is at its limit, which a deviation of 1 meets at a variance
    of 19. A Gauss-Hermite rule of 60 nodes would be off by 1e-3 at deviation 1 and variance 1.
    """
    if v.atoms:
        return v.nodes()
    strip = 1 / math.sqrt(2 * max(variance.item(), torch.finfo(torch.float64).tiny))
    step = min(2 * math.pi * strip / EXPONENT / v.deviation, 0.8)  # in deviations; 0.8 for the Gaussian itself
    half = min(math.ceil(REACH / step), MOST // 2)
    standard = torch.linspace(-REACH, REACH, 2 * half + 1, dtype=torch.float64)
    weights = torch.exp(-(standard**2) / 2)
    return v.centre + v.deviation * standard, weights / weights.sum()


def check(activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise unknown("activation", activation, ACTIVATIONS)


def arc_cosine(q: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """K1 = E relu(z) relu(z') and K0 = P(z > 0, z' > 0), each shaped as q (Cho and Saul 2009).

    K1 = (sqrt(ab - q²) + (pi - theta) q) / 2 pi and K0 = (pi - theta) / 2 pi. The angle theta comes from atan2, as the
    arc cosine loses half of the digits near 1.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> arc_cosine(-one, one, one)
    (tensor([0.], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """
    both = a * b
    rest = both - q * q
    root = torch.where(rest > ROUNDINGS * torch.finfo(torch.float64).eps * both, rest, 0).sqrt()
    opening = math.pi - torch.atan2(root, q)
    return (root + opening * q) / (2 * math.pi), opening / (2 * math.pi)


def determinant(q: Tensor, a: Tensor, b: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """(1 + 2v²a)(1 + 2w²b) - 4v²w²q², at least 1: the determinant behind every mean of error functions."""
    return (1 + 2 * v**2 * a) * (1 + 2 * w**2 * b) - 4 * v**2 * w**2 * q**2
