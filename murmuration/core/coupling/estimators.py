"""Estimators of grad log rho, the gradient of the log density of the members, from pairwise kernels.

With B samples the kernel of two members is the mean k_ij = (1/B) sum over b of kappa_ij,b, and the estimators combine

    G_i = sum over j of grad_i k_ij = sum over j, b of (2 / (B c_ij,b)) kappa_ij,b (t_j,b - t_i,b)

where t_j and the denominators c are held constant. Every estimator is a weighting of these pairs, so all of them end
in one product of a matrix (B, M, M), whose rows sum to zero, with the features.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from murmuration.core.coupling.bandwidths import FLOOR, denominator
from murmuration.likelihoods.classes import identity

Total = Callable[[Tensor], Tensor]  # sums a tensor over parts of the features
ETA = 0.01  # added to the kernel matrix before it is inverted
BLOCK = 1024  # numbers per partial sum: one sum of a million is off by 10,000 roundings, sums of blocks by a few
ROUNDINGS = 32  # bound of the rounding error in units of eps; the largest seen was 22


@dataclass(frozen=True)
class Interaction:
    """The repulsion between M members at one step.

    Attributes:
        cotangents: Estimates of grad log rho (M, B, R), to be descended.
        matrix: Kernel k_ij (M, M), the similarity of two members.
    """

    cotangents: Tensor
    matrix: Tensor

    @property
    def mean_kernel(self) -> Tensor:
        """The mean () of k_ij over pairs, from 0 (far apart) to 1 (identical); 0 for one member."""
        members = len(self.matrix)
        return (self.matrix.sum() - self.matrix.trace()) / max(members * (members - 1), 1)

    @property
    def log_density(self) -> Tensor:
        """The log sums (M,) over j of k_ij, from 0 (isolated) to ln M (identical); the quantity that kde descends."""
        return self.matrix.sum(1).log()


@dataclass(frozen=True)
class Estimator:
    """A weighting of kernel gradients.

    Attributes:
        about: The estimator in one line, with its source.
        pairs: Maps the kernel matrix (M, M) to the weights of grad_i k_ij, which broadcast to (M, M).
        precondition: Maps the kernel matrix and eta to a factor (M, M) of the sums; None for no factor.
        mixes_gradients: Whether loss gradients are averaged over members too, with weights K / M.
    """

    about: str
    pairs: Callable[[Tensor], Tensor]
    precondition: Callable[[Tensor, float], Tensor] | None = None
    mixes_gradients: bool = False

    def __call__(self, features: Tensor, bandwidth: str, *, eta: float = ETA, total: Total = identity) -> Interaction:
        """Compute the interaction of M members.

        Args:
            features: Features (M, B, R) of all members, or a part of their numbers.
            bandwidth: Name of the kernel bandwidth.
            eta: Added to the kernel matrix before it is inverted.
            total: Sums a tensor over all parts, if `features` are a part.

        Returns:
            The interaction; its cotangents are zero if all members are equal or M is 1.
        """
        rows = _samples_first(features)
        kernel, slopes = kernel_and_slopes(rows, bandwidth, total)
        matrix = kernel.mean(0)  # (M, M)
        small = matrix.cpu().double()  # small enough to be exact, and not every device knows double precision
        pulls = laplacian(slopes * _like(self.pairs(small), slopes))
        if self.precondition is not None:
            pulls = _like(self.precondition(small, eta), pulls) @ pulls
        return Interaction(torch.bmm(pulls, rows).transpose(0, 1).to(features.dtype), matrix)


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
    return squared.mul_(squared > both.mul_(ROUNDINGS * torch.finfo(gram.dtype).eps))


def rbf(squared: Tensor, denominator: Tensor) -> Tensor:
    """Return the kernel exp(-d² / c) of squared distances (B, M, M) and denominators c that broadcast to them."""
    return torch.exp(squared / -denominator)


def kernel_and_slopes(rows: Tensor, bandwidth: str, total: Total = identity) -> tuple[Tensor, Tensor]:
    """Return kernels kappa_ij,b and slopes, both (B, M, M), of centred rows t (B, M, R).

    The slopes are those of grad_i k_ij = slope (t_j - t_i).

    A slope is 2 kappa / (B c), and zero where the denominator c is at its floor: no length is defined there.
    """
    squared = distances_of_products(total(products(rows)))
    c = denominator(bandwidth, squared)
    kernel = rbf(squared, c)
    return kernel, kernel * torch.where(c > FLOOR, 2 / (len(rows) * c), 0)


def laplacian(weights: Tensor) -> Tensor:
    """Overwrite weights w (B, M, M) by the matrices that map t to the sums over j of w_ij (t_j - t_i)."""
    diagonal = weights.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    diagonal.sub_(weights.sum(-1))
    return weights


def gradient_mixing(features: Tensor, bandwidth: str, total: Total = identity) -> Tensor:
    """Return K / M, (M, M): the weights of all members' loss gradients in a step of SVGD (Liu and Wang 2016)."""
    kernel, _ = kernel_and_slopes(_samples_first(features), bandwidth, total)
    return kernel.mean(0) / len(features)


def ssge_at(samples: Tensor, points: Tensor, bandwidth: str, *, eta: float = ETA, pairs: int | None = None) -> Tensor:
    """Compute the spectral estimate of grad log density at arbitrary points (Shi, Sun and Zhu 2018).

    It is k(points, samples) V diag(1 / (lambda + eta)²) V' G with the eigenpairs of K; at the samples, with all pairs,
    K (K + eta I)^-2 G. The bandwidth is that of the samples everywhere.

    Args:
        samples: Samples (M, R) of the density.
        points: Points (P, R) at which it is estimated.
        bandwidth: Name of the kernel bandwidth.
        eta: Added to the eigenvalues.
        pairs: Number of eigenpairs to use, the largest first; None for all.

    Returns:
        The estimate (P, R).
    """
    members = len(samples)
    rows = centre(torch.cat([samples, points]).unsqueeze(0))  # (1, M + P, R)
    squared = distances_of_products(products(rows))
    c = denominator(bandwidth, squared[:, :members, :members])
    kernel = rbf(squared[:, :, :members], c).cpu().double()[0]  # (M + P, M)
    slopes = torch.where(c > FLOOR, 2 * kernel[:members].to(c) / c, 0)
    values, vectors = eigenpairs(kernel[:members], pairs)
    weights = kernel[members:] @ (vectors / (values + eta).square()) @ vectors.mT  # (P, M)
    return _like(weights @ laplacian(slopes).cpu().double()[0], rows) @ rows[0, :members]


def eigenpairs(matrix: Tensor, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalues (J,) of a kernel matrix (M, M), descending, and their vectors (M, J).

    With one bandwidth per member the matrix is neither symmetric nor positive, and adding eta may leave it singular: it
    is replaced by the positive part of its symmetric part. Every other kernel is unchanged by that.
    """
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)  # ascending
    return values.flip(0)[:count].clamp_min(0), vectors.flip(1)[:, :count]


def _samples_first(features: Tensor) -> Tensor:
    """Return centred rows (B, M, R) of features (M, B, R), in single precision or better."""
    precise = torch.promote_types(features.dtype, torch.float32)
    rows = features.detach().to(precise).transpose(0, 1)
    # Input gradients may have samples last; products of such rows take five times as long as the copy.
    return centre(rows if rows.stride(-1) == 1 else rows.contiguous())


def _like(small: Tensor, other: Tensor) -> Tensor:
    """Return a tensor in the dtype and on the device of another, in this order."""
    return small.to(other.dtype).to(other.device)


def _by_density(matrix: Tensor) -> Tensor:
    return 1 / matrix.sum(1, keepdim=True).expand_as(matrix)


def _by_both_densities(matrix: Tensor) -> Tensor:
    return _by_density(matrix) + _by_density(matrix).mT


def _stein(matrix: Tensor, eta: float) -> Tensor:
    values, vectors = eigenpairs(matrix)
    return (vectors / (values + eta)) @ vectors.mT


def _spectral(matrix: Tensor, eta: float) -> Tensor:
    values, vectors = eigenpairs(matrix)
    return (vectors * (values / (values + eta).square())) @ vectors.mT


ESTIMATORS: dict[str, Estimator] = {
    "kde": Estimator("G_i / sum_j k_ij: a kernel density estimate's (GFSD, Liu et al. 2019)", _by_density),
    "sge": Estimator("(K + eta I)^-1 G: the Stein gradient estimator (Li and Turner 2018)", torch.ones_like, _stein),
    "ssge": Estimator("K (K + eta I)^-2 G: the spectral one (Shi, Sun and Zhu 2018)", torch.ones_like, _spectral),
    "blob": Estimator(
        "sum_j grad_i k_ij (1 / sum_m k_im + 1 / sum_m k_jm): the blob method (Liu et al. 2019)", _by_both_densities
    ),
    "svgd": Estimator(
        "G_i / M, beside loss gradients mixed by K / M (Liu and Wang 2016)",
        lambda matrix: torch.ones_like(matrix) / len(matrix),
        mixes_gradients=True,
    ),
}
