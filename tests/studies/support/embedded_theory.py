"""Facts about embedded ensembles that only tests use: outliers of spectra, counting of parameters, fixed points."""

import math

import torch

from murmuration.core.weights.distributions import Distribution
from murmuration.studies.infinite_width import other_member, same_member
from murmuration.studies.kernels import capacity_ratio, check_members, wishart_edges
from murmuration.system.errors import Misuse


def spike_eigenvalue(mean: float, members: int, width: int) -> float:
    """The largest eigenvalue of U U' / N for factors of this mean m and mean square 1.

    With l = M m² / (1 - m²) above sqrt(M/N) it is (1 - m²)(1 + l)(1 + M / (N l)), an outlier; below, the bulk's edge
    (1 - m²)(1 + sqrt(M/N))² (Baik, Ben Arous and Péché 2005).
    """
    if not -1 <= mean <= 1:
        raise Misuse(f"relative mean {mean}: give a number from -1 to 1, as |E u| / sqrt(E u²)")
    noise, signal = 1 - mean**2, members * mean**2
    if signal <= noise * math.sqrt(capacity_ratio(members, width)):
        return noise * wishart_edges(members, width)[1]
    return (noise + signal) * (1 + noise / (width * mean**2))


def can_interpolate(members: int, examples: int, shared: int, own: int) -> bool:
    """Whether M members can fit n examples exactly by counting parameters: M n <= shared + M own."""
    check_members(members)
    return members * examples <= shared + members * own


def fixed_correlation(u: Distribution, v: Distribution) -> float:
    """The correlation S_o / S_d two members of a deep ReLU net without biases end at, at equal inputs.

    The fixed point in [0, 1] of c -> (E u)² A_o(c) / (E u² A_d(1)) at unit variances; the map is convex and starts
    above the diagonal, so there is one below 1, or it is 1 (no randomness at all).

    >>> from murmuration.core.weights.distributions import Distribution
    >>> round(fixed_correlation(Distribution.parse("bernoulli_0.5"), Distribution.parse("ones")), 6)
    0.217234
    """

    def step(correlation: float) -> float:
        one = torch.ones((), dtype=torch.float64)
        together, _ = other_member("relu", v, correlation * one, one, one)
        alone, _, _ = same_member("relu", v, one, one, one)
        return u.mean**2 * together.item() / (u.second_moment * alone.item())

    if step(1.0) >= 1.0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(math.ceil(math.log2(1 / torch.finfo(torch.float64).eps))):
        middle = (low + high) / 2
        low, high = (middle, high) if step(middle) > middle else (low, middle)
    return low
