"""The spaces of weights, outputs, penultimate features and class distributions.

Weights: weight-RDE (D'Angelo and Fortuin 2021), SVGD (Liu and Wang 2016). Outputs: function-RDE (D'Angelo and Fortuin
2021), with an optional functional prior. Features: in the directions that change the loss, feature-RDE (Yashima et al.
2022). Class distributions: RIDE (Wang et al. 2021), every member is rewarded for differing from the mean member.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from murmuration.core.coupling.estimators import Interaction, ssge_at
from murmuration.core.coupling.space import FEATURES, OWN_WEIGHTS, SAME_BATCH, PartOfBatchSpace, Space, SpaceInputs
from murmuration.system.errors import Misuse, require_choices, unknown
from murmuration.system.option_text import FIXED, number, short

KINDS = ("none", "gaussian", "cauchy", "weights")


@dataclass(frozen=True)
class WeightSpace(Space):
    """A member's own parameters as one vector, (m, 1, P).

    Attributes:
        estimator: Name of the estimator.
        bandwidth: Name of the kernel bandwidth.
    """

    mixable: ClassVar[bool] = True
    separable: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        return frozenset((OWN_WEIGHTS,))

    def features(self, inputs: SpaceInputs) -> Tensor:
        return torch.cat([inputs.weights[name].flatten(1) for name in sorted(inputs.own)], dim=1).unsqueeze(1)


@dataclass(frozen=True)
class OutputPrior:
    """A prior on outputs or features.

    Attributes:
        kind: "none", "gaussian", "cauchy", or "weights" (functions of weights drawn from N(0, scale^2)).
        scale: Its scale, positive unless the kind is "none".

    >>> str(OutputPrior.parse("cauchy:5e-3"))
    'cauchy:0.005'
    """

    kind: str = "none"
    scale: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("prior", self.kind, KINDS)
        if self.kind != "none" and not (math.isfinite(self.scale) and self.scale > 0):
            raise Misuse(f"prior={self}: need a positive scale, such as {self.kind}:0.005")

    @classmethod
    def parse(cls, text: str) -> "OutputPrior":
        """Parse `none` or `kind:scale`; raise Misuse for anything else."""
        kind, _, scale = text.partition(":")
        return cls(kind, number(scale, "the scale of prior") if kind in KINDS[1:] else 0.0)

    def __str__(self) -> str:
        return self.kind if self.kind == "none" else f"{self.kind}:{short(self.scale)}"

    def gradient(self, values: Tensor) -> Tensor:
        """Return the gradient of the negative log prior of values v, in their shape.

        The negative log prior is scale/2 |v|^2 (gaussian), the sum of log(1 + scale v^2) (cauchy), or zero.
        """
        if self.kind == "gaussian":
            return self.scale * values
        if self.kind == "cauchy":
            return 2 * self.scale * values / (1 + self.scale * values.square())
        return torch.zeros_like(values)


NO_PRIOR = OutputPrior()


@dataclass(frozen=True)
class OutputSpace(PartOfBatchSpace):
    """Class probabilities, logits or predicted means on the batch as one vector, (m, 1, B K).

    With a prior of functions a second vector follows: the outputs of weights drawn from the prior of weights.

    Attributes:
        estimator: Name of the estimator.
        bandwidth: Name of the kernel bandwidth.
        batch_fraction: Fraction of the batch that outputs are compared on, in (0, 1].
        of: For classes, "probs" or "logits".
        prior: Prior on these outputs.
    """

    of: str = "probs"
    prior: OutputPrior = NO_PRIOR

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choices(self, of=("probs", "logits"))

    def compared(self, features: Tensor) -> Tensor:
        return features[:, :1]

    def features(self, inputs: SpaceInputs) -> Tensor:
        rows = self.rows(inputs.x.shape[1])
        values = self._values(inputs.outputs[:, :rows], inputs).flatten(1).unsqueeze(1)
        if self.prior.kind != "weights":
            return values
        assert inputs.run is not None
        assert inputs.draw is not None
        with torch.no_grad():
            prior_weights = {name: self.prior.scale * inputs.draw(weight) for name, weight in inputs.weights.items()}
            prior_values = self._values(inputs.run(prior_weights, inputs.x[:, :rows].detach()), inputs).flatten(1)
        return torch.cat([values, prior_values.unsqueeze(1)], dim=1)

    def _values(self, outputs: Tensor, inputs: SpaceInputs) -> Tensor:
        """Return the compared values (m, B, K) of outputs."""
        if inputs.y.is_floating_point():
            return inputs.link(outputs)[..., : inputs.y.shape[-1]]  # predicted means
        return inputs.link(outputs).softmax(-1) if self.of == "probs" else outputs

    def repulsion(self, features: Tensor) -> Interaction:
        values = features[:, :1]
        interaction = super().repulsion(values)
        if self.prior.kind == "weights":
            score = ssge_at(features[:, 1], values[:, 0], self.bandwidth)
            cotangents = torch.stack([interaction.cotangents[:, 0] - score, torch.zeros_like(score)], dim=1)
        else:
            cotangents = interaction.cotangents + self.prior.gradient(values)
        return Interaction(cotangents, interaction.matrix)


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
    return (precise.mT @ (combinations[:, columns] / values[columns].sqrt())).to(vectors)


@dataclass(frozen=True)
class DivergenceSpace(Space):
    """Logits on the batch, (m, B, K); class distributions are pushed away from that of the mean logits (RIDE).

    With logits z_i of member i, their mean z over members and a temperature T, the loss of a batch gains

        - weight T^2 mean over examples of KL(softmax(z / T) || softmax(z_i / T))

    where the mean is held constant, as in the released code. Its gradient by z_i is - weight T (p_i - p) / B, with the
    two softmaxes p_i and p.

    Attributes:
        estimator: Not used; the cotangents have a closed form.
        bandwidth: Not used.
        temperature: Temperature T of the softmax, positive.
    """

    estimator: str = field(default="kde", metadata=FIXED)
    bandwidth: str = field(default="all", metadata=FIXED)
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < math.inf:
            raise Misuse(f"temperature={self.temperature:g}: expected a positive number such as 1")

    def features(self, inputs: SpaceInputs) -> Tensor:
        if inputs.y.is_floating_point():
            raise Misuse("coupling divergence is for classes, and the targets are numbers: write coupling outputs")
        return inputs.link(inputs.outputs)

    def repulsion(self, features: Tensor) -> Interaction:
        """Return the cotangents; the similarity of two members is the mean Bhattacharyya coefficient."""
        probs = (features / self.temperature).softmax(-1)  # (M, B, K)
        mean = (features.mean(0) / self.temperature).softmax(-1)
        roots = probs.sqrt().flatten(1)
        matrix = roots @ roots.mT / probs.shape[1]  # (M, M)
        return Interaction(self.temperature / probs.shape[1] * (mean - probs), matrix)
