"""Do members of an embedded ensemble learn on their own or together? Ratios, thresholds and a word for it."""

import math
from dataclasses import dataclass
from typing import Literal

from murmuration.analysis.infinite_width import Kernels
from murmuration.tangent_kernels import check_members, smooth_gamma, trace_ratio
from murmuration.weights.distributions import Distribution

RegimeName = Literal["independent", "between", "collective", "degenerate"]

IDENTICAL = 1e-6  # ratios this near 1 are 1: members the same function, up to rounding through many layers
WEAK = 0.1  # all others together push a member by no more than this share of its own push
STRONG = 1.0  # all others together push a member at least as much as it does itself


@dataclass(frozen=True)
class Regime:
    """A regime by name, and the numbers it was read from.

    covariance_ratio  S_o / S_d, how alike members start
    tangent_ratio     T_o / T_d, how much of one member's step through shared parameters another one feels
    pull              (M - 1) T_o / T_d, all other members' pushes against a member's own
    gamma             the smooth choice of the shared rate for this ratio
    """

    name: RegimeName
    covariance_ratio: float
    tangent_ratio: float
    pull: float
    gamma: float


def regime(covariance_ratio: float, tangent_ratio: float, members: int) -> Regime:
    """The regime of `members` members from S_o / S_d and T_o / T_d.

    "degenerate": both ratios are 1 within 1e-6, members are one function for ever. "collective": the others together
    push a member at least as much as it does itself, (M - 1) T_o >= T_d. "independent": at most a tenth as much,
    (M - 1) |T_o| <= T_d / 10; so does a single member, which has no others. Else "between".

    What counts is the pull of all members and not the ratio of two: a tenth is little for two members and
    much for a hundred, and T_o / T_d falls with depth at one and the same law of factors.

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
    """The regime read from the traces of kernels (n, n) of one set of inputs with itself."""
    covariance_ratio = trace_ratio(kernels.covariance_same, kernels.covariance_other)
    return regime(covariance_ratio, trace_ratio(kernels.tangent_same, kernels.tangent_other), members)


def capacity_ratio(members: int, width: int) -> float:
    """M / N: how full a layer of width N is of independent members; at 1 some combination of them cannot learn."""
    check_members(members)
    return members / width


def wishart_edges(members: int, width: int) -> tuple[float, float]:
    """The ends of the eigenvalues of U U' / N for factors U (M, N) of mean 0 and variance 1 (Marchenko, Pastur 1967).

    (1 - sqrt(M/N))² and (1 + sqrt(M/N))²: the slowest combination of members learns at the first. From M = N on there
    are more members than neurons and the first is 0. Sharp as both grow; off by about N^(-2/3) before.

    >>> wishart_edges(25, 100)
    (0.25, 2.25)
    """
    root = math.sqrt(capacity_ratio(members, width))
    return max(1 - root, 0.0) ** 2, (1 + root) ** 2


def relative_mean(law: Distribution) -> float:
    """|E u| / sqrt(E u²), from 0 (independent) to 1 (constant)."""
    return abs(law.mean) / math.sqrt(law.second_moment)


def spike_threshold(members: int, width: int) -> float:
    """(M N)^(-1/4): factors of a smaller relative mean act as if it were zero at this width.

    Leading order in a small mean; the exact point is where `spike_eigenvalue` leaves the bulk.
    """
    check_members(members)
    return (members * width) ** -0.25
