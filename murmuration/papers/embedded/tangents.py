"""What tangent kernels say of members before they are trained; the only place here that knows where kernels live."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from murmuration.analysis.regimes import spike_threshold
from murmuration.population import Population
from murmuration.tangent_kernels import member_kernels, smooth_gamma
from murmuration.weights import NetworkWeights

__all__ = ["Pull", "pull_of", "smooth_gamma", "spike_threshold", "summed_up"]


@dataclass(frozen=True)
class Pull:
    """How much of one member's step through shared weights others feel."""

    ratio: float  # T_o / T_d
    top: float  # the largest eigenvalue of the members' matrix of alignments, whose diagonal is 1


def pull_of(module: nn.Module, population: Population, family: NetworkWeights, x: Tensor, most: int) -> Pull | None:
    """The pull between at most `most` members, on inputs x (n, ...); None if there are more, or nothing is shared.

    The kernels are those of the parameters as they are stored, which is what gradient descent on them feels.
    """
    if not 2 <= population.members <= most or not population.shared:
        return None
    common = member_kernels(module, population, family, x).common
    return summed_up(common.double().diagonal(dim1=1, dim2=3).mean(-1))


def summed_up(matrix: Tensor) -> Pull:
    """The ratio of a matrix (M, M) of kernels between members, and the largest eigenvalue of their alignments.

    An alignment is T_ab / sqrt(T_aa T_bb). Without the roots the eigenvalue would be that of the member whose own
    kernel is the largest, which says nothing of what members have to do with each other.

    >>> found = summed_up(torch.tensor([[2.0, 2.0], [2.0, 8.0]], dtype=torch.float64))
    >>> found.ratio, round(found.top, 9)
    (0.4, 1.5)
    """
    members, own = len(matrix), matrix.diagonal()
    others = float(matrix.sum() - own.sum()) / (members * (members - 1))
    alignment = matrix / own.sqrt().outer(own.sqrt())
    return Pull(others / float(own.mean()), float(torch.linalg.eigvalsh(alignment)[-1]))
