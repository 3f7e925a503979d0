"""A coupling at work: when members meet, what they show, how strongly they are pushed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from murmuration.coupling.forces import Felt, mixing
from murmuration.coupling.lengthscales import metric_of
from murmuration.coupling.settings import AUTO, Repulsion
from murmuration.coupling.spaces import Shown, Space, part, space_of
from murmuration.dynamics.schedules import Moment, learning_rate_factor


@dataclass(frozen=True)
class Coupling:
    """A space, a force in it, and its strength over time."""

    settings: Repulsion
    space: Space
    weight: float  # of the repulsion beside a batch's mean loss
    steps_per_epoch: int = 1
    epochs: int = 1

    @property
    def needs_features(self) -> bool:
        return self.settings.space == "features"

    @property
    def needs_inputs(self) -> bool:
        """Whether what members show is differentiated by the inputs of the step."""
        return self.settings.space == "input-gradients" and self.settings.share == 1

    @property
    def stands_apart(self) -> bool:
        """Whether what members show has a graph of its own, beside that of their losses."""
        return self.settings.space == "input-gradients" and not self.needs_inputs

    def rows(self, batch: int) -> int:
        """How many examples of a batch members show themselves on."""
        return part(batch, self.settings.share)

    @property
    def mixes(self) -> bool:
        """Whether members move along each other's loss gradients too (SVGD)."""
        return self.settings.estimator == "svgd"

    def due(self, step: int) -> bool:
        """Whether members meet at this step."""
        return step % self.settings.every == 0

    def drive(self, step: int) -> float:
        """The factor of the loss at this step."""
        return self.settings.drive_at(step)

    def strength(self, step: int) -> float:
        """The factor of the repulsion at this step; rarer meetings count for the steps between."""
        moment = Moment(step, self.steps_per_epoch, self.epochs)
        return self.weight * self.settings.every * learning_rate_factor(self.settings.schedule, moment)

    def signature(self, shown: Shown) -> Tensor:
        """What each of m members shows, (m, ...), with its graph."""
        return self.space.show(shown)

    def couple(self, signatures: Tensor, step: int = 0) -> Felt:
        """Cotangents (M, ...) of the repulsion at a step, from the detached signatures (M, ...) of all members."""
        felt = self.space.push(signatures)
        felt.cotangents.mul_(self.strength(step))
        return felt

    def mixture(self, signatures: Tensor) -> Tensor:
        """How much (M, M) of each member's loss gradient goes into each member's step."""
        return mixing(signatures, self.settings.bandwidth).to(signatures)

    def cosine(self, signatures: Tensor) -> float:
        """How alike two members look on average; what a signature holds beside what is compared does not count."""
        return cosine(signatures if self.settings.space == "input-gradients" else signatures[:, :1])


def make_coupling(
    settings: Repulsion | None, x: Tensor, *, members: int, batch: int, epochs: int, alpha: float | None = None
) -> Coupling | None:
    """The coupling of so many members that learn from inputs x (N, ...); None where nobody is to be pushed."""
    if settings is None or members == 1:
        return None
    chosen = alpha if alpha is not None or settings.alpha == AUTO else float(settings.alpha)
    metric = metric_of(settings, x, 0.5 if chosen is None and settings.lengthscales == "tuned" else chosen)
    space = space_of(settings, metric, int(x[0].numel()))
    size = min(batch, len(x))
    weight = settings.weight_of(batch=size, examples=len(x))
    return Coupling(settings, space, weight, max(1, len(x) // batch), epochs)


def cosine(signatures: Tensor) -> float:
    """The mean cosine between what two members show for one example, from signatures (M, B, R)."""
    if signatures.ndim != 3 or len(signatures) < 2:
        return float("nan")
    units = torch.nn.functional.normalize(signatures.transpose(0, 1).float(), dim=-1)  # (B, M, R)
    gram = units @ units.mT
    members = len(signatures)
    pairs = (gram.sum((1, 2)) - gram.diagonal(dim1=1, dim2=2).sum(-1)) / (members * (members - 1))
    return float(pairs.mean())
