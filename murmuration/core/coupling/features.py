"""Feature space: penultimate features in the directions that change the loss (feature-RDE, Yashima et al. 2022)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from murmuration.core.coupling.estimators import Interaction
from murmuration.core.coupling.outputs import NO_PRIOR, OutputPrior
from murmuration.core.coupling.space import FEATURES, SAME_BATCH, PartOfBatchSpace, SpaceInputs
from murmuration.system.errors import Misuse, require_choices


@dataclass(frozen=True)
class FeatureSpace(PartOfBatchSpace):
    """Penultimate features on the batch, and the loss gradients with respect to them: (m, 2, B F).

    Members are compared along the leading eigenvectors of the Gram matrix of those gradients.

    Attributes:
        estimator: Name of the estimator.
        bandwidth: Name of the kernel bandwidth.
        batch_fraction: Fraction of the batch that features are computed on, in (0, 1].
        prior: Prior on features; one of functions is refused.
        directions: Eigenvectors that features are projected on: those of the "largest" or "smallest" eigenvalues.
        projection: Number of these eigenvectors.
    """

    prior: OutputPrior = NO_PRIOR
    directions: str = "largest"
    projection: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choices(self, directions=("largest", "smallest"))
        if self.projection < 1:
            raise Misuse(f"projection={self.projection}: need at least 1")
        if self.prior.kind == "weights":
            raise Misuse(f"prior={self.prior} in the feature space: it is a prior of functions; write gaussian:0.005")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset((FEATURES, SAME_BATCH))

    def compared(self, features: Tensor) -> Tensor:
        return features[:, :1]

    def features(self, inputs: SpaceInputs) -> Tensor:
        assert inputs.features is not None
        gradients = torch.autograd.grad(inputs.losses.sum(), inputs.features, retain_graph=True)[0]
        rows = self.rows(inputs.x.shape[1])
        return torch.stack([inputs.features[:, :rows].flatten(1), gradients[:, :rows].detach().flatten(1)], dim=1)

    def repulsion(self, features: Tensor) -> Interaction:
        own_features, gradients = features[:, 0], features[:, 1]
        basis = leading_directions(gradients, self.projection, self.directions)  # (B F, r)
        interaction = super().repulsion((own_features @ basis).unsqueeze(1))
        cotangents = interaction.cotangents[:, 0] @ basis.mT + self.prior.gradient(own_features)
        return Interaction(torch.stack([cotangents, torch.zeros_like(cotangents)], dim=1), interaction.matrix)


def leading_directions(vectors: Tensor, count: int, which: str) -> Tensor:
    """Return orthonormal directions (D, r) of the largest, or smallest nonzero, singular values of vectors (M, D)."""
    precise = vectors.cpu().double()  # not every device supports double precision
    values, combinations = torch.linalg.eigh(precise @ precise.mT)  # ascending
    positive = values > 1e-10 * values[-1].clamp_min(1e-30)
    values, combinations = values[positive], combinations[:, positive]
    columns = slice(-count, None) if which == "largest" else slice(None, count)
    directions = precise.mT @ (combinations[:, columns] / values[columns].sqrt())
    return directions.to(vectors)
