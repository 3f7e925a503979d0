"""The metric of normalised input gradients: the identity, the input covariance, or between the two.

q(s, s') = (s - s')^T W (s - s') with W the identity, the inputs' covariance C (PCA lengthscales), or between the two
(tuned). W acts through its leading eigenvectors and one weight for all other directions, that of the mean of their
eigenvalues: nothing is of size D x D.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_ROWS = 2000  # training inputs that the covariance is computed from


@dataclass(frozen=True)
class Metric:
    """A linear map of vectors s (..., D) to t (..., R) such that q(s, s') = |t - t'|^2.

    Attributes:
        basis: Orthonormal columns (D, r); None for the identity.
        scales: Square roots (r,) of the weights of these columns, after `remainder` squared is subtracted.
        remainder: Square root of the weight of every other direction.
    """

    basis: Tensor | None = None
    scales: Tensor | None = None
    remainder: float = 1.0

    def __call__(self, s: Tensor) -> Tensor:
        if self.basis is None or self.scales is None:
            return s
        leading = (s @ self.basis.to(s)) * self.scales.to(s)
        return leading if self.remainder == 0 else torch.cat([leading, self.remainder * s], dim=-1)


def spectrum(x: Tensor, rank: int, *, centred: bool = False) -> tuple[Tensor, Tensor, float]:
    """Return the largest eigenvalues (r,) of X^T X / (N - 1), their eigenvectors (D, r), and the mean of the others.

    The published code does not subtract the mean input (`centred` does), which then enters the first direction. At most
    2,000 evenly spaced inputs are used.
    """
    indices = torch.linspace(0, len(x) - 1, min(len(x), MAX_ROWS), dtype=torch.float64).round().long()
    rows = x[indices.to(x.device)].double()
    rows = rows - rows.mean(0) if centred else rows
    _, singular, directions = torch.linalg.svd(rows, full_matrices=False)
    values = singular.square() / max(len(rows) - 1, 1)
    count, width = min(rank, len(values)), x.shape[1]
    remainder = float(values[count:].sum()) / (width - count) if width > count else 0.0
    return values[:count].float(), directions[:count].T.contiguous().float(), remainder


def tune(values: Tensor, alpha: float, form: str) -> Tensor:
    """Interpolate weights between one (alpha 0) and the eigenvalues (alpha 1).

    `paper` interpolates squared lengthscales: 1 / ((1 - alpha) + alpha / value); `poster` interpolates their inverses:
    (1 - alpha) + alpha value. The two official statements agree only at the ends.

    >>> values = torch.tensor([8 / 3, 2 / 3])
    >>> tune(values, 0.5, "paper"), tune(values, 0.5, "poster")
    (tensor([1.4545, 0.8000]), tensor([1.8333, 0.8333]))
    """
    if form == "poster":
        return (1 - alpha) + alpha * values
    return values / ((1 - alpha) * values + alpha) if alpha > 0 else torch.ones_like(values)
