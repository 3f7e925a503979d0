"""What members do about being alike: estimates of grad log rho, the density they crowd together in.

With B samples members are as alike as they are on average, k_ij = (1/B) sum over b of kappa_ij,b, and member i feels

    G_i = sum over j of grad_i k_ij = sum over j, b of (2 / (B c_ij,b)) kappa_ij,b (t_j,b - t_i,b)

where t_j and the denominators c count as constants. Every estimator is a weighting of these pairs, so all of them end
in one product of a matrix (B, M, M), whose rows sum to zero, with the signatures.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from murmuration.coupling.bandwidths import FLOOR, denominator
from murmuration.coupling.kernels import centre, distances_of_products, products, rbf

ETA = 0.01  # added to the kernel matrix before it is inverted


@dataclass(frozen=True)
class Felt:
    """What the members feel of each other."""

    cotangents: Tensor  # (M, B, R) to be descended: estimates of grad log rho
    matrix: Tensor  # (M, M) how alike members are, k_ij

    @property
    def mean_kernel(self) -> Tensor:
        """The mean () of k_ij over pairs, from 0 (strangers) to 1 (one and the same); 0 for one member."""
        return mean_off_diagonal(self.matrix)

    @property
    def r(self) -> Tensor:
        """The log sums (M,) over j of k_ij, from 0 (alone) to ln M; what kde descends."""
        return self.matrix.sum(1).log()

    def replaced(self, cotangents: Tensor) -> "Felt":
        """The same with other cotangents."""
        return replace(self, cotangents=cotangents)


@dataclass(frozen=True)
class Force:
    """An estimator: called with signatures (M, B, R) and the name of a bandwidth it gives what the members feel."""

    about: str
    pairs: Callable[[Tensor], Tensor]  # kernel matrix (M, M) -> weights of grad_i k_ij, broadcastable to (M, M)
    blend: Callable[[Tensor, float], Tensor] | None = None  # kernel matrix, eta -> what multiplies the sums, (M, M)

    def __call__(self, signatures: Tensor, bandwidth: str, *, eta: float = ETA) -> Felt:
        """What M members feel that show (M, B, R); nothing, where they all show the same or there is only one."""
        here = _samples_first(signatures)
        kernel, slopes = meeting(here, bandwidth)
        matrix = kernel.mean(0)  # (M, M)
        small = matrix.cpu().double()  # small enough to be exact, and not every device knows double precision
        pulls = laplacian(slopes * _like(self.pairs(small), slopes))
        if self.blend is not None:
            pulls = _like(self.blend(small, eta), pulls) @ pulls
        cotangents = torch.bmm(pulls, here).transpose(0, 1).to(signatures.dtype)
        return Felt(cotangents, matrix)


def meeting(here: Tensor, bandwidth: str) -> tuple[Tensor, Tensor]:
    """Kernels kappa_ij,b (B, M, M) of centred rows (B, M, R), and slopes (B, M, M): grad_i k_ij = slope (t_j - t_i).

    A slope is 2 kappa / (B c). Where the denominator is at its floor there is no length to measure by: it is zero, not
    arbitrary.
    """
    squared = distances_of_products(products(here))
    c = denominator(bandwidth, squared)
    kernel = rbf(squared, c)
    return kernel, kernel * torch.where(c > FLOOR, 2 / (len(here) * c), 0)


def laplacian(weights: Tensor) -> Tensor:
    """The matrices (B, M, M) that take t to the sums over j of w_ij (t_j - t_i), written over weights w (B, M, M)."""
    diagonal = weights.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    diagonal.sub_(weights.sum(-1))
    return weights


def mixing(signatures: Tensor, bandwidth: str) -> Tensor:
    """K / M, (M, M): the shares of all members' loss gradients in each member's step under SVGD (Liu and Wang 2016)."""
    kernel, _ = meeting(_samples_first(signatures), bandwidth)
    return kernel.mean(0) / len(signatures)


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
    blend = kernel[members:] @ (vectors / (values + eta).square()) @ vectors.mT  # (P, M)
    pulls = blend @ laplacian(slopes).cpu().double()[0]
    return _like(pulls, here) @ here[0, :members]


def eigenpairs(matrix: Tensor, count: int | None = None) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues (J,) of a kernel matrix (M, M), falling, and their vectors (M, J); all, unless told.

    Where every member has a bandwidth of its own the matrix is neither symmetric nor positive, and with eta added may
    have no inverse at all: it is replaced by the positive part of its symmetric part, which changes no other kernel.
    """
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)  # rising
    return values.flip(0)[:count].clamp_min(0), vectors.flip(1)[:, :count]


def mean_off_diagonal(matrix: Tensor) -> Tensor:
    """The mean of a matrix (M, M) without its diagonal, (); 0 where nothing is left."""
    members = len(matrix)
    return (matrix.sum() - matrix.trace()) / max(members * (members - 1), 1)


def _samples_first(signatures: Tensor) -> Tensor:
    """Centred rows (B, M, R) of signatures (M, B, R), in single precision or better."""
    precise = torch.promote_types(signatures.dtype, torch.float32)
    rows = signatures.detach().to(precise).transpose(0, 1)
    # Input gradients may come with samples last; products of such rows take five times as long as the copy.
    return centre(rows if rows.stride(-1) == 1 else rows.contiguous())


def _like(small: Tensor, other: Tensor) -> Tensor:
    return small.to(other.dtype).to(other.device)


def _one(matrix: Tensor) -> Tensor:
    return torch.ones_like(matrix)


def _each_by_its_density(matrix: Tensor) -> Tensor:
    return 1 / matrix.sum(1, keepdim=True).expand_as(matrix)


def _each_by_both_densities(matrix: Tensor) -> Tensor:
    return _each_by_its_density(matrix) + _each_by_its_density(matrix).mT


def _each_by_members(matrix: Tensor) -> Tensor:
    return _one(matrix) / len(matrix)


def _stein(matrix: Tensor, eta: float) -> Tensor:
    values, vectors = eigenpairs(matrix)
    return (vectors / (values + eta)) @ vectors.mT


def _spectral(matrix: Tensor, eta: float) -> Tensor:
    values, vectors = eigenpairs(matrix)
    return (vectors * (values / (values + eta).square())) @ vectors.mT


FORCES: dict[str, Force] = {
    "kde": Force("G_i / sum_j k_ij: a kernel density estimate's (GFSD, Liu et al. 2019)", _each_by_its_density),
    "sge": Force("(K + eta I)^-1 G: the Stein gradient estimator (Li and Turner 2018)", _one, _stein),
    "ssge": Force("K (K + eta I)^-2 G: the spectral one (Shi, Sun and Zhu 2018)", _one, _spectral),
    "blob": Force(
        "sum_j grad_i k_ij (1 / sum_m k_im + 1 / sum_m k_jm): the blob method (Liu et al. 2019)",
        _each_by_both_densities,
    ),
    "svgd": Force("G_i / M, beside loss gradients mixed by K / M (Liu and Wang 2016)", _each_by_members),
}
