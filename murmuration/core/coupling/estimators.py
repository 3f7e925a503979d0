"""Estimators of grad log rho, the gradient of the log density of the members, from pairwise kernels.

With B samples the kernel of two members is the mean k_ij = (1/B) sum over b of kappa_ij,b, and the estimators combine

    G_i = sum over j of grad_i k_ij = sum over j, b of (2 / (B c_ij,b)) kappa_ij,b (t_j,b - t_i,b)

where t_j and the denominators c are held constant. Every estimator is a weighting of these pairs, so all of them end
in one product of a matrix (B, M, M), whose rows sum to zero, with the features.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from murmuration.core.coupling.bandwidths import FLOOR, denominator
from murmuration.core.coupling.kernels import centre, distances_of_products, products, rbf
from murmuration.likelihoods import identity

Total = Callable[[Tensor], Tensor]  # the sum of a tensor over parts of the features
ETA = 0.01  # added to the kernel matrix before it is inverted


@dataclass(frozen=True)
class Interaction:
    """The repulsion between M members at one step."""

    cotangents: Tensor  # (M, B, R) to be descended: estimates of grad log rho
    matrix: Tensor  # (M, M) kernel k_ij, the similarity of two members

    @property
    def mean_kernel(self) -> Tensor:
        """The mean () of k_ij over pairs, from 0 (far apart) to 1 (identical); 0 for one member."""
        return mean_off_diagonal(self.matrix)

    @property
    def log_density(self) -> Tensor:
        """The log sums (M,) over j of k_ij, from 0 (isolated) to ln M (identical); the quantity that kde descends."""
        return self.matrix.sum(1).log()

    def with_cotangents(self, cotangents: Tensor) -> "Interaction":
        """The same kernel matrix with other cotangents."""
        return replace(self, cotangents=cotangents)


@dataclass(frozen=True)
class Estimator:
    """A weighting of kernel gradients; called with features (M, B, R) and a bandwidth it returns the interaction."""

    about: str
    pairs: Callable[[Tensor], Tensor]  # kernel matrix (M, M) -> weights of grad_i k_ij, broadcastable to (M, M)
    precondition: Callable[[Tensor, float], Tensor] | None = None  # kernel matrix, eta -> (M, M) factor of the sums
    mixes_gradients: bool = False  # whether loss gradients are averaged over members with weights K / M too

    def __call__(self, features: Tensor, bandwidth: str, *, eta: float = ETA, total: Total = identity) -> Interaction:
        """The interaction of M members with features (M, B, R); zero cotangents where all are equal or M is 1.

        The features may be a part of all numbers; then `total` sums a tensor over all parts.
        """
        here = _samples_first(features)
        kernel, slopes = kernel_and_slopes(here, bandwidth, total)
        matrix = kernel.mean(0)  # (M, M)
        small = matrix.cpu().double()  # small enough to be exact, and not every device knows double precision
        pulls = laplacian(slopes * _like(self.pairs(small), slopes))
        if self.precondition is not None:
            pulls = _like(self.precondition(small, eta), pulls) @ pulls
        cotangents = torch.bmm(pulls, here).transpose(0, 1).to(features.dtype)
        return Interaction(cotangents, matrix)


def kernel_and_slopes(here: Tensor, bandwidth: str, total: Total = identity) -> tuple[Tensor, Tensor]:
    """Kernels kappa_ij,b (B, M, M) of centred rows (B, M, R), and slopes (B, M, M): grad_i k_ij = slope (t_j - t_i).

    A slope is 2 kappa / (B c). Where the denominator is at its floor there is no length to measure by: it is zero, not
    arbitrary.
    """
    squared = distances_of_products(total(products(here)))
    c = denominator(bandwidth, squared)
    kernel = rbf(squared, c)
    return kernel, kernel * torch.where(c > FLOOR, 2 / (len(here) * c), 0)


def laplacian(weights: Tensor) -> Tensor:
    """The matrices (B, M, M) that take t to the sums over j of w_ij (t_j - t_i), written over weights w (B, M, M)."""
    diagonal = weights.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    diagonal.sub_(weights.sum(-1))
    return weights


def gradient_mixing(features: Tensor, bandwidth: str, total: Total = identity) -> Tensor:
    """K / M, (M, M): the weights of all members' loss gradients in each step of SVGD (Liu and Wang 2016)."""
    kernel, _ = kernel_and_slopes(_samples_first(features), bandwidth, total)
    return kernel.mean(0) / len(features)


def ssge_at(samples: Tensor, points: Tensor, bandwidth: str, *, eta: float = ETA, pairs: int | None = None) -> Tensor:
    """The spectral estimate (P, R) of grad log density of samples (M, R) at points (P, R) (Shi, Sun and Zhu 2018).

    It is k(points, samples) V diag(1 / (lambda + eta)²) V' G with the eigenpairs of K, the largest `pairs` of them or
    all. The bandwidth is that of the samples, everywhere. At the samples, with all pairs, it is K (K + eta I)^-2 G.
    """
    members = len(samples)
    here = centre(torch.cat([samples, points]).unsqueeze(0))  # (1, M + P, R)
    squared = distances_of_products(products(here))
    c = denominator(bandwidth, squared[:, :members, :members])
    kernel = rbf(squared[:, :, :members], c).cpu().double()[0]  # (M + P, M)
    slopes = torch.where(c > FLOOR, 2 * kernel[:members].to(c) / c, 0)
    values, vectors = eigenpairs(kernel[:members], pairs)
    weights = kernel[members:] @ (vectors / (values + eta).square()) @ vectors.mT  # (P, M)
    pulls = weights @ laplacian(slopes).cpu().double()[0]
    return _like(pulls, here) @ here[0, :members]


def eigenpairs(matrix: Tensor, count: int | None = None) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues (J,) of a kernel matrix (M, M), falling, and their vectors (M, J); all by default.

    With one bandwidth per member the matrix is neither symmetric nor positive, and adding eta may leave it singular: it
    is replaced by the positive part of its symmetric part, which leaves every other kernel unchanged.
    """
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)  # rising
    return values.flip(0)[:count].clamp_min(0), vectors.flip(1)[:, :count]


def mean_off_diagonal(matrix: Tensor) -> Tensor:
    """The mean of a matrix (M, M) without its diagonal, (); 0 where nothing is left."""
    members = len(matrix)
    return (matrix.sum() - matrix.trace()) / max(members * (members - 1), 1)


def _samples_first(features: Tensor) -> Tensor:
    """Centred rows (B, M, R) of features (M, B, R), in single precision or better."""
    precise = torch.promote_types(features.dtype, torch.float32)
    rows = features.detach().to(precise).transpose(0, 1)
    # Input gradients may come with samples last; products of such rows take five times as long as the copy.
    return centre(rows if rows.stride(-1) == 1 else rows.contiguous())


def _like(small: Tensor, other: Tensor) -> Tensor:
    return small.to(other.dtype).to(other.device)


def _one(matrix: Tensor) -> Tensor:
    return torch.ones_like(matrix)


def _by_density(matrix: Tensor) -> Tensor:
    return 1 / matrix.sum(1, keepdim=True).expand_as(matrix)


def _by_both_densities(matrix: Tensor) -> Tensor:
    return _by_density(matrix) + _by_density(matrix).mT


def _by_count(matrix: Tensor) -> Tensor:
    return _one(matrix) / len(matrix)


def _stein(matrix: Tensor, eta: float) -> Tensor:
    values, vectors = eigenpairs(matrix)
    return (vectors / (values + eta)) @ vectors.mT


def _spectral(matrix: Tensor, eta: float) -> Tensor:
    values, vectors = eigenpairs(matrix)
    return (vectors * (values / (values + eta).square())) @ vectors.mT


ESTIMATORS: dict[str, Estimator] = {
    "kde": Estimator("G_i / sum_j k_ij: a kernel density estimate's (GFSD, Liu et al. 2019)", _by_density),
    "sge": Estimator("(K + eta I)^-1 G: the Stein gradient estimator (Li and Turner 2018)", _one, _stein),
    "ssge": Estimator("K (K + eta I)^-2 G: the spectral one (Shi, Sun and Zhu 2018)", _one, _spectral),
    "blob": Estimator(
        "sum_j grad_i k_ij (1 / sum_m k_im + 1 / sum_m k_jm): the blob method (Liu et al. 2019)",
        _by_both_densities,
    ),
    "svgd": Estimator(
        "G_i / M, beside loss gradients mixed by K / M (Liu and Wang 2016)", _by_count, mixes_gradients=True
    ),
}
