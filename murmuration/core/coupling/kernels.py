"""Squared distances between members' features, and the Gaussian kernel of them."""

import torch
from torch import Tensor

BLOCK = 1024  # numbers per partial sum: one sum of a million is off by 10,000 roundings, sums of blocks by a few
ROUNDINGS = 32  # bound of the rounding error in units of eps; the largest seen was 22


def squared_distances(t: Tensor) -> Tensor:
    """Return squared distances (B, M, M) between the M rows of every sample of t (B, M, R), zero on the diagonal.

    >>> squared_distances(torch.tensor([[[0.0, 0.0], [3.0, 4.0]]]))
    tensor([[[ 0., 25.],
             [25.,  0.]]])
    """
    return distances_of_products(products(centre(t)))


def centre(t: Tensor) -> Tensor:
    """Subtract the mean over members from t (B, M, R): distances are unchanged, inner products as small as possible."""
    offsets = t - t[:, :1]  # exactly zero where members are equal, unlike values minus their rounded mean
    return offsets.sub_(offsets.mean(1, keepdim=True))


def products(rows: Tensor) -> Tensor:
    """Return all inner products (B, M, M) of the rows of every sample (B, M, R)."""
    first, *parts = rows.split(BLOCK, dim=2)
    total = torch.bmm(first, first.mT)
    for part in parts:
        total = torch.baddbmm(total, part, part.mT)
    return total


def distances_of_products(gram: Tensor) -> Tensor:
    """Return squared distances |a|² + |b|² - 2 a.b, (B, M, M), from all inner products (B, M, M) of centred rows.

    The (B, M, M, R) differences are never formed. Rounding errors are proportional to |a|² + |b|²; values below are set
    to zero, so that equal members have distance zero and not a random small one.
    """
    norms = gram.diagonal(dim1=1, dim2=2)
    both = norms[:, :, None] + norms[:, None, :]
    squared = torch.sub(both, gram, alpha=2)
    noise = both.mul_(ROUNDINGS * torch.finfo(gram.dtype).eps)
    return squared.mul_(squared > noise)


def rbf(squared: Tensor, denominator: Tensor) -> Tensor:
    """Return the kernel exp(-d² / c) of squared distances (B, M, M) and denominators c that broadcast to them."""
    return torch.exp(squared / -denominator)
