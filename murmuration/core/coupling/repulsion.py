"""Repulsion between members: a space, its weight beside the loss over time, and how often it is computed."""

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from murmuration.core.coupling.divergence import DivergenceSpace
from murmuration.core.coupling.estimators import Interaction, Total
from murmuration.core.coupling.features import FeatureSpace
from murmuration.core.coupling.input_gradients import InputGradientSpace
from murmuration.core.coupling.outputs import OutputPrior, OutputSpace
from murmuration.core.coupling.space import Space, SpaceInputs, mean_cosine
from murmuration.core.coupling.weights import WeightSpace
from murmuration.core.dynamics.schedules import TrainTime, learning_rate_factor
from murmuration.likelihoods import identity
from murmuration.system.errors import Misuse, unknown
from murmuration.system.option_text import INLINE, Answer, number, short

ANNEALINGS = ("constant", "linear", "hyper", "cyclic")
SAMPLED = 2048  # inputs from which lengthscales are taken where not all are in memory
WEIGHTS = ("1/B", "1/N")


@dataclass(frozen=True)
class Annealing:
    """A factor of the loss that rises to 1 over `steps` steps: linear, hyper (tanh), or cyclic (restarted).

    >>> rise = Annealing.parse("linear:10")
    >>> [round(rise(t), 2) for t in (0, 5, 10, 99)], str(Annealing.parse("cyclic:100"))
    ([0.1, 0.6, 1.0, 1.0], 'cyclic:100,5')
    """

    kind: str = "constant"
    steps: float = 1.0
    cycles: float = 5.0

    @classmethod
    def parse(cls, text: str) -> "Annealing":
        kind, _, rest = text.partition(":")
        if kind not in ANNEALINGS:
            raise unknown("loss_scale", kind, ANNEALINGS)
        numbers = (
            [number(part, "the steps of loss_scale") for part in rest.split(",")] if rest or kind != "constant" else []
        )
        most = {"constant": 0, "cyclic": 2}.get(kind, 1)
        if len(numbers) > most or not all(math.isfinite(value) and value > 0 for value in numbers):
            raise Misuse(
                f"loss_scale={text}: write constant, linear:T, hyper:T or cyclic:T,5, T a positive number of steps"
            )
        return cls(kind, *numbers)

    def __str__(self) -> str:
        numbers = {"constant": (), "cyclic": (self.steps, self.cycles)}.get(self.kind, (self.steps,))
        return ":".join([self.kind, ",".join(short(value) for value in numbers)]).removesuffix(":")

    def __call__(self, step: int) -> float:
        """The factor of the loss at a step; the repulsion is not annealed."""
        taken = step + 1
        if self.kind == "constant" or taken >= self.steps:
            return 1.0
        if self.kind == "linear":
            return taken / self.steps
        if self.kind == "hyper":
            return math.tanh((1.3 * taken / self.steps) ** 10)
        within = taken * self.cycles % self.steps or self.steps  # of a cycle, in parts of the length
        return (within / self.steps) ** 10


CONSTANT = Annealing()


@dataclass(frozen=True)
class Repulsion:
    """A space and the strength of the repulsion in it."""

    space: Space = field(metadata=INLINE)
    weight: float | str = "1/N"  # of the repulsion beside the mean loss of a batch: 1/B, 1/N or a number
    schedule: str = "constant"  # of that weight, as for learning rates
    loss_scale: Annealing = CONSTANT  # annealing of the loss
    every: int = 1  # computed at every so many steps; the weight is multiplied by it

    def __post_init__(self) -> None:
        if self.every < 1:
            raise Misuse(f"every={self.every}: need at least 1")
        if self.every > 1 and self.space.mixing_estimator:  # plain steps in between are M times as long and unmixed
            raise Misuse(
                f"every={self.every} with estimator={self.space.estimator}: it mixes the loss gradients of all members"
                " at every step; write every=1, or estimator=kde"
            )
        self.weight_for(batch=1, examples=1)
        learning_rate_factor(self.schedule, TrainTime(0, 1, 1))

    def weight_for(self, *, batch: int, examples: int) -> float:
        """The weight of the repulsion beside the mean loss of a batch."""
        if self.weight in WEIGHTS:
            return 1 / (batch if self.weight == "1/B" else examples)
        if isinstance(self.weight, str) or not (math.isfinite(self.weight) and self.weight >= 0):
            raise Misuse(f"weight={self.weight}: need 1/B, 1/N or a number that is not negative")
        return self.weight

    def prepare(
        self, x: Tensor, *, members: int, batch: int, steps: int = 1, epochs: int = 1, examples: int | None = None
    ) -> "Coupling | None":
        """Prepare the repulsion for a training run.

        Args:
            x: Training inputs (N, ...), or a sample of them.
            members: Number of members.
            batch: Examples per step.
            steps: Steps per epoch.
            epochs: Epochs.
            examples: Number N of training examples, if `x` is a sample.

        Returns:
            The coupling; None for one member.
        """
        if members == 1:
            return None
        examples = len(x) if examples is None else examples
        weight = self.weight_for(batch=min(batch, examples), examples=examples)
        some: Any = x
        if not isinstance(x, Tensor) and type(self.space).prepare is not Space.prepare:  # inputs are not in memory
            some = some.sample(SAMPLED)
        return Coupling(self, self.space.prepare(some), weight, steps, epochs)


@dataclass(frozen=True)
class Coupling:
    """A repulsion prepared for one training run."""

    repulsion: Repulsion
    space: Space  # prepared for the training inputs
    weight: float  # of the repulsion beside the mean loss of a batch
    steps_per_epoch: int = 1
    epochs: int = 1

    @property
    def needs(self) -> frozenset[str]:
        return self.space.needs

    def due(self, step: int) -> bool:
        """Whether the repulsion is computed at this step."""
        return step % self.repulsion.every == 0

    def loss_scale(self, step: int) -> float:
        """The factor of the loss at this step."""
        return self.repulsion.loss_scale(step)

    def strength(self, step: int) -> float:
        """The factor of the repulsion at this step; one computed rarely counts for the steps between."""
        time = TrainTime(step, self.steps_per_epoch, self.epochs)
        return self.weight * self.repulsion.every * learning_rate_factor(self.repulsion.schedule, time)

    def features(self, inputs: SpaceInputs) -> Tensor:
        """The features (m, B, R) of m members, with their graph."""
        found = self.space.features(inputs)
        if not found.is_floating_point() or not found.requires_grad:
            raise Misuse(
                f"{type(self.space).__name__}.features returned {found.dtype} without a graph to the weights: it must"
                " be differentiable; do not detach it or take it under no_grad"
            )
        return found

    def interact(self, features: Tensor, strength: float | Tensor, total: Total = identity) -> Interaction:
        """The interaction of a strength, from the detached features (M, B, R) of all members.

        Of a separable space they may be a part of the features, with `total` the sum over all parts.
        """
        whole = total is identity
        found = self.space.repulsion(features) if whole else self.space.repulsion_of_part(features, total)
        found.cotangents.mul_(strength)
        return found

    def cosine(self, features: Tensor, total: Total = identity) -> float:
        """The mean cosine between two members' features."""
        return mean_cosine(self.space.compared(features), total)


COUPLINGS: dict[str, Answer[Repulsion | None]] = {
    "none": Answer(None, "members are trained independently"),
    "weights": Answer(
        Repulsion(WeightSpace(bandwidth="rde")), "repulsion of weights (weight-RDE, D'Angelo and Fortuin 2021)"
    ),
    "outputs": Answer(
        Repulsion(OutputSpace(bandwidth="rde")),
        "repulsion of outputs on the batch (function-RDE, D'Angelo and Fortuin 2021)",
    ),
    "features": Answer(
        Repulsion(FeatureSpace(bandwidth="code", prior=OutputPrior("cauchy", 5e-3)), weight="1/B"),
        "repulsion of penultimate features, projected on the directions of the loss gradients (feature-RDE, Yashima"
        " et al. 2022)",
    ),
    "input-gradients": Answer(
        Repulsion(InputGradientSpace(bandwidth="code"), weight="1/B"),
        "repulsion of normalised input gradients (FoRDE, Trinh et al. 2024)",
    ),
    "divergence": Answer(
        Repulsion(DivergenceSpace(), weight=0.2),
        "class distributions away from that of the mean logits (RIDE, Wang et al. 2021)",
    ),
}
