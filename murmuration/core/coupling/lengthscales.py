"""The metric of normalised input gradients: the identity, the input covariance, or between the two.

q(s, s') = (s - s')^T W (s - s') with W the identity, the inputs' covariance C (PCA lengthscales), or between the two
(tuned). W acts through its leading eigenvectors and one weight for all other directions, that of the mean of their
eigenvalues: nothing is of size D x D.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

ROWS = 2000  # training inputs that the covariance is computed from, at most


@dataclass(frozen=True)
class Metric:
    """Vectors s (..., D) -> t (..., R) such that q(s, s') = |t - t'|^2."""

    basis: Tensor | None = None  # (D, r), orthonormal columns; None: the identity
    scales: Tensor | None = None  # (r,) square roots of the weights above the rest's
    rest: float = 1.0  # square root of the weight of every other direction

    def __call__(self, s: Tensor) -> Tensor:
        if self.basis is None or self.scales is None:
            return s
        along = (s @ self.basis.to(s)) * self.scales.to(s)
        return along if self.rest == 0 else torch.cat([along, self.rest * s], dim=-1)


def spectrum(x: Tensor, rank: int, *, centred: bool = False) -> tuple[Tensor, Tensor, float]:
    """The largest eigenvalues (r,) of X^T X / (N - 1), their eigenvectors (D, r), and the mean of the others.

    The published code does not subtract the mean input (`centred` does): it then enters the first direction. Of more
    than 2,000 inputs, 2,000 evenly spaced ones are used.
    """
    chosen = torch.linspace(0, len(x) - 1, min(len(x), ROWS), dtype=torch.float64).round().long()
    rows = x[chosen.to(x.device)].double()
    rows = rows - rows.mean(0) if centred else rows
    _, singular, directions = torch.linalg.svd(rows, full_matrices=False)
    values = singular.square() / max(len(rows) - 1, 1)
    kept, width = min(rank, len(values)), x.shape[1]
    others = float(values[kept:].sum()) / (width - kept) if width > kept else 0.0
    return values[:kept].float(), directions[:kept].T.contiguous().float(), others


def tune(values: Tensor, alpha: float, form: str) -> Tensor:
    """Weights between one (alpha 0) and the eigenvalues (alpha 1).

    `paper` interpolates squared lengthscales: 1 / ((1 - alpha) + alpha / value); `poster` interpolates their inverses:
    (1 - alpha) + alpha value. The two official statements agree only at the ends.

    >>> values = torch.tensor([8 / 3, 2 / 3])
    >>> tune(values, 0.5, "paper"), tune(values, 0.5, "poster")
    (tensor([1.4545, 0.8000]), tensor([1.8333, 0.8333]))
    """
    if form == "poster":
        return (1 - alpha) + alpha * values
    return values / ((1 - alpha) * values + alpha) if alpha > 0 else torch.ones_like(values)
