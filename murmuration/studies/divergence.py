"""The Jensen-Shannon divergence of several networks' predictions, at an equal number of networks.

It is H(mean p) - mean H(p) in nats, from 0 (the same predictions) to the logarithm of the number of networks or of
classes. Its expectation grows with the number M of networks about as 1 - 1/M: only equal M can be compared.
"""

import itertools
import math

import numpy as np
import torch
from torch import Tensor

SUBSETS = 200  # of runs, at most: all of them where there are no more
ELEMENTS = 1 << 22  # numbers that are in memory at a time
DRAWS = 50  # subsets of networks whose divergences are averaged


def jensen_shannon(probs: Tensor, eps: float = 0.0) -> Tensor:
    """Compute the Jensen-Shannon divergence of networks' predictions.

    H(mean p) - mean H(p) with H(p) = -sum p log(p + eps).

    Args:
        probs: Class probabilities (M, N, K) of M networks.
        eps: Added inside the logarithm. 0 is exact, with 0 log 0 = 0; the notebook of Fort et al. has 1e-5.

    Returns:
        The divergence (N,) of every input, in nats.

    >>> jensen_shannon(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])).item() == math.log(2)
    True
    """
    precise = probs.double()
    return entropies(precise.mean(0), eps) - entropies(precise, eps).mean(0)


def entropies(probs: Tensor, eps: float) -> Tensor:
    """Return -sum p log(p + eps) over the last axis."""
    return -torch.special.xlogy(probs, probs + eps).sum(-1)


def subsets_of(count: int, size: int, *, most: int = SUBSETS, seed: int = 0) -> tuple[list[tuple[int, ...]], bool]:
    """Return subsets of `size` of `count` things, and whether these are all of them: else they are `most` random ones.

    >>> subsets_of(3, 2)
    ([(0, 1), (0, 2), (1, 2)], True)
    """
    if math.comb(count, size) <= most:
        return list(itertools.combinations(range(count), size)), True
    rng = np.random.default_rng((seed, count, size))
    subsets: set[tuple[int, ...]] = set()
    while len(subsets) < most:
        subsets.add(tuple(sorted(rng.choice(count, size, replace=False).tolist())))
    return sorted(subsets), False


def mean_divergence(probs: Tensor, size: int, *, most: int = DRAWS, seed: int = 0, eps: float = 0.0) -> Tensor:
    """Return the Jensen-Shannon divergence (N,) of `size` of M networks' probabilities (M, N, K), mean over subsets."""
    subsets = torch.tensor(subsets_of(len(probs), size, most=most, seed=seed)[0])  # (B, size)
    membership = torch.zeros(len(subsets), len(probs), dtype=torch.float64).scatter_(1, subsets, 1 / size)

    def divergence(part: Tensor) -> Tensor:
        together = entropies(torch.einsum("bm,mnk->bnk", membership, part), eps).mean(0)
        return together - torch.einsum("bm,mn->n", membership, entropies(part, eps)) / len(subsets)

    inputs = max(1, ELEMENTS // (len(subsets) * probs.shape[-1]))
    return torch.cat([divergence(part.double()) for part in probs.split(inputs, dim=1)])
