"""Scores of generated examples against real ones, from features (N, D) of a trained network.

| score | measures | does not see |
|---|---|---|
| Frechet distance | the distance of means and covariances of features | other moments; it grows as examples get fewer |
| precision | the fraction of generated examples that could be real | real examples that are never generated |
| recall | the fraction of real examples that could be generated | generated examples that are not realistic |
"""

from typing import Any

import torch
from torch import Tensor

from murmuration.system.errors import Misuse

NEIGHBOURS = 3  # of Kynkaanniemi et al. (2019)
ROWS = 1024  # rows of distances in memory at once


def frechet_distance(real: Any, generated: Any) -> float:
    """Compute the squared Frechet distance of Gaussians with the means and covariances of features (N, D) and (M, D).

    Heusel et al. (2017) call it FID where features are those of an Inception network. Distances are comparable only
    for the same network and the same numbers of examples.

    >>> frechet_distance([[0.0], [2.0]], [[3.0], [5.0]])
    9.0
    """
    first, second = checked_pair(real, generated)
    moments = [(rows.mean(0), rows.T.cov().reshape(rows.shape[1], rows.shape[1])) for rows in (first, second)]
    return gaussian_frechet(*moments[0], *moments[1])


def gaussian_frechet(mean: Tensor, covariance: Tensor, other_mean: Tensor, other_covariance: Tensor) -> float:
    """Return |m - n|^2 + tr(A + B - 2 (A B)^(1/2)) of N(m, A) and N(n, B) (Dowson and Landau 1982).

    The trace of (A B)^(1/2) is the sum of the singular values of A^(1/2) B^(1/2): no root is taken of an eigenvalue
    that rounding has generated negative.

    >>> one = torch.ones(1, 1)
    >>> gaussian_frechet(torch.zeros(1), 4 * one, torch.zeros(1), 9 * one)  # (2 - 3)^2
    1.0
    """
    roots = matrix_root(covariance) @ matrix_root(other_covariance)
    apart = (mean - other_mean).square().sum() + covariance.trace() + other_covariance.trace()
    return max(0.0, float(apart - 2 * torch.linalg.svdvals(roots).sum()))


def matrix_root(covariance: Tensor) -> Tensor:
    """Return the symmetric square root (D, D) of a covariance (D, D)."""
    values, vectors = torch.linalg.eigh(covariance)
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.T


def precision_recall(real: Any, generated: Any, *, neighbours: int = NEIGHBOURS) -> tuple[float, float]:
    """Return precision and recall of generated features (M, D) against real ones (N, D) (Kynkaanniemi et al. 2019).

    The support of a set is estimated by balls around its features, each with the distance to the `neighbours`-th
    nearest in the set as radius. Precision is the fraction of generated features in the support of the real ones,
    recall that of real features in the support of the generated ones. Outliers have large balls: with few examples
    both are too high.

    >>> precision_recall([[0.0], [1.0], [2.0]], [[0.5], [9.0]], neighbours=1)
    (0.5, 1.0)
    """
    first, second = checked_pair(real, generated)
    fewest = min(len(first), len(second))
    if not 1 <= neighbours < fewest:
        raise Misuse(f"neighbours={neighbours} for {fewest} examples: need at least 1 and fewer than the examples")
    return fraction_within(first, second, neighbours), fraction_within(second, first, neighbours)


def fraction_within(bank: Tensor, points: Tensor, neighbours: int) -> float:
    """Return the fraction of points (M, D) that lie in a ball around one of the bank (N, D)."""
    k = neighbours + 1  # the nearest is the point itself
    radii = torch.cat([distances(rows, bank).kthvalue(k, dim=1).values for rows in bank.split(ROWS)])
    inside = [(distances(rows, bank) <= radii).any(1) for rows in points.split(ROWS)]
    return float(torch.cat(inside).double().mean())


def distances(rows: Tensor, bank: Tensor) -> Tensor:
    """Return euclidean distances (n, N), exactly zero between equal points."""
    return torch.cdist(rows, bank, compute_mode="donot_use_mm_for_euclid_dist")


def checked_pair(real: Any, generated: Any) -> tuple[Tensor, Tensor]:
    """Return both features in float64, checked to be comparable."""
    first, second = (torch.as_tensor(values, dtype=torch.float64) for values in (real, generated))
    for name, rows in (("real", first), ("generated", second)):
        if rows.dim() != 2 or len(rows) < 2:
            raise Misuse(f"{name} features of shape {tuple(rows.shape)}: expected (N, D), and at least two examples")
        if not rows.isfinite().all():
            raise Misuse(f"{name} features are not all finite: expected numbers")
    if first.shape[1] != second.shape[1]:
        raise Misuse(f"{first.shape[1]} real and {second.shape[1]} generated features: expected those of one network")
    return first, second
