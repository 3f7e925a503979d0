"""Repulsion between members: a space, its weight beside the loss over time, and how often it is computed."""

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from murmuration.core.coupling.estimators import Interaction, Total
from murmuration.core.coupling.input_gradients import InputGradientSpace
from murmuration.core.coupling.space import Space, SpaceInputs, mean_cosine
from murmuration.core.coupling.spaces import DivergenceSpace, FeatureSpace, OutputPrior, OutputSpace, WeightSpace
from murmuration.core.dynamics.schedules import TrainTime, learning_rate_factor
from murmuration.likelihoods.classes import identity
from murmuration.system.errors import Misuse, described, unknown
from murmuration.system.option_text import INLINE, Answer, number, short

ANNEALINGS = ("constant", "linear", "hyper", "cyclic")
SAMPLE_SIZE = 2048  # inputs from which lengthscales are computed where not all are in memory
WEIGHTS = ("1/B", "1/N")


@dataclass(frozen=True)
class Annealing:
    """A factor of the loss that rises to 1 over some steps.

    Attributes:
        kind: "constant" (1 throughout), "linear", "hyper" (tanh) or "cyclic" (restarted).
        steps: Number of steps after which the factor is 1.
        cycles: Number of restarts of "cyclic".

    >>> rise = Annealing.parse("linear:10")
    >>> [round(rise(t), 2) for t in (0, 5, 10, 99)], str(Annealing.parse("cyclic:100"))
    ([0.1, 0.6, 1.0, 1.0], 'cyclic:100,5')
    """

    kind: str = "constant"
    steps: float = 1.0
    cycles: float = 5.0

    @classmethod
    def parse(cls, text: str) -> "Annealing":
        """Parse `constant`, `linear:T`, `hyper:T` or `cyclic:T,5`; raise Misuse for anything else."""
        kind, _, values = text.partition(":")
        if kind not in ANNEALINGS:
            raise unknown("loss_scale", kind, ANNEALINGS)
        parts = values.split(",") if values or kind != "constant" else []
        numbers = [number(part, "the steps of loss_scale") for part in parts]
        most = {"constant": 0, "cyclic": 2}.get(kind, 1)
        if len(numbers) > most or not all(math.isfinite(value) and value > 0 for value in numbers):
            forms = "constant, linear:T, hyper:T or cyclic:T,5, T a positive number of steps"
            raise Misuse(f"loss_scale={text}: write {forms}")
        return cls(kind, *numbers)

    def __str__(self) -> str:
        numbers = {"constant": (), "cyclic": (self.steps, self.cycles)}.get(self.kind, (self.steps,))
        return ":".join([self.kind, ",".join(short(value) for value in numbers)]).removesuffix(":")

    def __call__(self, step: int) -> float:
        """Return the factor of the loss at a step; the repulsion is not annealed."""
        count = step + 1
        if self.kind == "constant" or count >= self.steps:
            return 1.0
        if self.kind == "linear":
            return count / self.steps
        if self.kind == "hyper":
            return math.tanh((1.3 * count / self.steps) ** 10)
        within = count * self.cycles % self.steps or self.steps  # of a cycle, in parts of the length
        return (within / self.steps) ** 10


CONSTANT = Annealing()


@dataclass(frozen=True)
class Repulsion:
    """A repulsion between members: a space, and its strength over time.

    Attributes:
        space: Features by which members are compared.
        weight: Weight of the repulsion beside the mean loss of a batch: "1/B" (batch size), "1/N" (training
            examples) or a number.
        schedule: Schedule of that weight, written as for learning rates.
        loss_scale: Annealing of the loss.
        every: Interval in steps at which the repulsion is computed; the weight is multiplied by it.
    """

    space: Space = field(metadata=INLINE)
    weight: float | str = "1/N"
    schedule: str = "constant"
    loss_scale: Annealing = CONSTANT
    every: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.space, Space):
            name = self.space.__name__ if isinstance(self.space, type) else "MySpace"
            expected = f"give an object derived from mm.Space, such as {name}()"
            raise Misuse(f"space= is {described(self.space)}: {expected}")
        if self.every < 1:
            raise Misuse(f"every={self.every}: need at least 1")
        if self.every > 1 and self.space.mixing_estimator:  # plain steps in between are M times as long and unmixed
            problem = "it mixes the loss gradients of all members at every step; write every=1, or estimator=kde"
            raise Misuse(f"every={self.every} with estimator={self.space.estimator}: {problem}")
        self.weight_for(batch=1, examples=1)
        learning_rate_factor(self.schedule, TrainTime(0, 1, 1))

    def weight_for(self, *, batch: int, examples: int) -> float:
        """Return the weight of the repulsion beside the mean loss of a batch.

        Args:
            batch: Examples per step.
            examples: Training examples.

        Returns:
            The weight, not negative.

        Raises:
            Misuse: If the weight is neither "1/B", "1/N" nor a number that is not negative.
        """
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
        inputs: Any = x
        if not isinstance(x, Tensor) and type(self.space).prepare is not Space.prepare:  # inputs are not in memory
            inputs = inputs.sample(SAMPLE_SIZE)
        return Coupling(self, self.space.prepare(inputs), weight, steps, epochs)


@dataclass(frozen=True)
class Coupling:
    """A repulsion prepared for one training run.

    Attributes:
        repulsion: The settings.
        space: The space, prepared for the training inputs.
        weight: Weight of the repulsion beside the mean loss of a batch.
        steps_per_epoch: Steps per epoch of the run.
        epochs: Epochs of the run.
    """

    repulsion: Repulsion
    space: Space
    weight: float
    steps_per_epoch: int = 1
    epochs: int = 1

    def due(self, step: int) -> bool:
        """Return whether the repulsion is computed at this step, counted from 0."""
        return step % self.repulsion.every == 0

    def loss_scale(self, step: int) -> float:
        """Return the factor of the loss at this step, counted from 0."""
        return self.repulsion.loss_scale(step)

    def strength(self, step: int) -> float:
        """Return the factor of the repulsion at this step, times `every` to make up for the steps without it."""
        time = TrainTime(step, self.steps_per_epoch, self.epochs)
        return self.weight * self.repulsion.every * learning_rate_factor(self.repulsion.schedule, time)

    def features(self, inputs: SpaceInputs) -> Tensor:
        """Compute the features of a group of members.

        Args:
            inputs: Tensors of m members at one step.

        Returns:
            Features (m, B, R) with their graph.

        Raises:
            Misuse: If the space returned anything but one row of features a member, or features that cannot be
                differentiated.
        """
        name, lacks_body = type(self.space).__name__, inputs.features is None
        hint = "; inputs.features is None unless needs holds 'features'" if lacks_body else ""
        try:
            features: Any = self.space.features(inputs)
        except (AttributeError, TypeError) as error:
            if not lacks_body or "NoneType" not in str(error):
                raise
            raise Misuse(f"{name}.features: {error}{hint}") from error
        expected = f"need a tensor (members, samples, numbers) of {len(inputs.losses)} members"
        if not isinstance(features, Tensor):
            raise Misuse(f"{name}.features returned {described(features)}: {expected}{hint}")
        if features.shape[:1] != inputs.losses.shape:
            raise Misuse(f"{name}.features returned {described(features)}: {expected}")
        if not features.is_floating_point() or not features.requires_grad:
            problem = f"{name}.features returned {features.dtype} without a graph to the weights"
            raise Misuse(f"{problem}: it must be differentiable; do not detach it or take it under no_grad")
        return features

    def interact(self, features: Tensor, strength: float | Tensor, total: Total = identity) -> Interaction:
        """Compute the interaction of all members.

        Args:
            features: Detached features (M, B, R); for a separable space they may be a part (M, B, r).
            strength: Factor of the cotangents.
            total: Sums a tensor over all parts, if `features` are a part.

        Returns:
            The interaction, its cotangents multiplied by `strength`.
        """
        space = self.space
        interaction = space.repulsion(features) if total is identity else space.repulsion_of_part(features, total)
        interaction.cotangents.mul_(strength)
        return interaction

    def cosine(self, features: Tensor, total: Total = identity) -> float:
        """Return the mean cosine between two members' features (M, B, R), which may be a part; see `interact`."""
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
