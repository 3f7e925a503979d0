"""Regimes of members that share weights: names, thresholds, and the spectra of random factors."""

import math
from dataclasses import dataclass
from typing import Literal

from murmuration.analysis.infinite_width import Kernels
from murmuration.tangent_kernels import check_members, smooth_gamma, trace_ratio
from murmuration.weights.distributions import Distribution

RegimeName = Literal["independent", "between", "collective", "degenerate"]

IDENTICAL = 1e-6  # ratios this near 1 count as 1: members are the same function up to rounding
WEAK = 0.1  # of (M - 1) |T_o| / T_d: independent up to here
STRONG = 1.0  # of (M - 1) T_o / T_d: collective from here on


@dataclass(frozen=True)
class Regime:
    """A regime, and the ratios it follows from."""

    name: RegimeName
    covariance_ratio: float  # S_o / S_d, covariance of two members' initial outputs over the variance of one
    tangent_ratio: float  # T_o / T_d, tangent kernel between two members over that within one
    pull: float  # (M - 1) T_o / T_d, effect of all other members' steps on a member over that of its own
    gamma: float  # `smooth_gamma` of the tangent ratio


def regime(covariance_ratio: float, tangent_ratio: float, members: int) -> Regime:
    """The regime of `members` members from S_o / S_d and T_o / T_d.

    "degenerate": both ratios are 1 within 1e-6, so that members stay the same function. "collective": (M - 1) T_o >=
    T_d, the other members' steps move a member at least as far as its own. "independent": (M - 1) |T_o| <= T_d / 10; a
    single member is independent. Otherwise "between".

    The criterion uses all members and not the ratio of two: T_o / T_d = 0.1 is little for two members and much for a
    hundred, and for one distribution of factors it falls with depth.

    >>> regime(0.65, 0.35, members=10).name, regime(0.0, 0.001, members=10).name
    ('collective', 'independent')
    """
    check_members(members)
    pull = (members - 1) * tangent_ratio
    name: RegimeName = "between"
    if members > 1 and max(abs(covariance_ratio - 1), abs(tangent_ratio - 1)) <= IDENTICAL:
        name = "degenerate"
    elif pull >= STRONG:
        name = "collective"
    elif abs(pull) <= WEAK:
        name = "independent"
    return Regime(name, covariance_ratio, tangent_ratio, pull, smooth_gamma(members, tangent_ratio))


def regime_of(kernels: Kernels, members: int) -> Regime:
    """The regime from the traces of kernels (n, n) of one set of inputs with itself."""
    covariance_ratio = trace_ratio(kernels.covariance_same, kernels.covariance_other)
    return regime(covariance_ratio, trace_ratio(kernels.tangent_same, kernels.tangent_other), members)


def capacity_ratio(members: int, width: int) -> float:
    """M / N for independent members in a layer of width N; from 1 on some combination of members cannot learn."""
    check_members(members)
    return members / width


def wishart_edges(members: int, width: int) -> tuple[float, float]:
    """Edges of the spectrum of U U' / N for factors U (M, N) of mean 0 and variance 1 (Marchenko and Pastur 1967).

    (1 - sqrt(M/N))² and (1 + sqrt(M/N))²: the first is the learning speed of the slowest combination of members, 0 from
    M = N on. Exact as both grow; at finite sizes off by about N^(-2/3).

    >>> wishart_edges(25, 100)
    (0.25, 2.25)
    """
    root = math.sqrt(capacity_ratio(members, width))
    return max(1 - root, 0.0) ** 2, (1 + root) ** 2


def relative_mean(factors: Distribution) -> float:
    """|E u| / sqrt(E u²), from 0 (independent) to 1 (constant)."""
    return abs(factors.mean) / math.sqrt(factors.second_moment)


def spike_threshold(members: int, width: int) -> float:
    """(M N)^(-1/4), the relative mean of factors below which they act as if it were zero at this width.

    To leading order in a small mean: there the largest eigenvalue of U U' / N leaves the bulk.
    """
    check_members(members)
    return (members * width) ** -0.25
