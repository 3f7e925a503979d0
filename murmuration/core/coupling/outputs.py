"""Function space: outputs on the batch (function-RDE, D'Angelo and Fortuin 2021), with an optional functional prior."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from murmuration.core.coupling.estimators import Interaction, ssge_at
from murmuration.core.coupling.space import PartOfBatchSpace, SpaceInputs
from murmuration.system.errors import Misuse, require_choices, unknown
from murmuration.system.option_text import number, short

KINDS = ("none", "gaussian", "cauchy", "weights")


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
