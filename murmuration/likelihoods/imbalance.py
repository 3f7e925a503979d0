"""Likelihoods for classes of very different size: they move the decision towards rare classes while training.

With the frequencies pi_c = n_c / N of the classes among the training examples:

| likelihood | loss of an example with label y | reference |
|---|---|---|
| `LogitAdjusted` | cross-entropy of f + tau log pi | balanced softmax (Ren et al. 2020; Menon et al. 2021) |
| `LDAM` | cross-entropy of s (f - margin_y at the label) | margins of n^(-1/4) (Cao et al. 2019) |
| `Experts` | as `LogitAdjusted`, with another tau for each member | SADE (Zhang et al. 2022) |

A class-balanced loss by the effective number of examples (Cui et al. 2019) is `class_weight="effective"` of any
likelihood of classes. Predictions are the softmax of f without the adjustment: those of classes that are equally
frequent.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.likelihoods.classes import ClassOutputs, ClassWeight, Numbers, effective_weights
from murmuration.system.errors import Misuse
from murmuration.system.option_text import FIXED


@dataclass(frozen=True)
class Imbalanced(ClassOutputs):
    """Classification with the number of training examples of each class, which `fit` fills in."""

    counts: Numbers | None = field(default=None, metadata=FIXED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.counts is None:
            return
        object.__setattr__(self, "counts", tuple(float(count) for count in self.counts))
        if len(self.counts) != self.classes or not all(0 < count < math.inf for count in self.counts):
            raise Misuse(f"counts={self.counts}: expected {self.classes} positive numbers, one for each class")

    def for_targets(self, y: Tensor) -> Self:
        fitted = super().for_targets(y)
        if self.counts is not None:
            return fitted
        counts = y.bincount(minlength=self.classes)
        if not counts.all():
            missing = int((counts == 0).nonzero()[0])
            raise Misuse(f"class {missing} has no training example: give counts=, one number for each class")
        return replace(fitted, counts=tuple(counts.tolist()))

    def known_counts(self, like: Tensor) -> Tensor:
        """Return the counts (K,) of training examples."""
        if self.counts is None:
            raise Misuse(f"{type(self).__name__} has no training targets yet: call for_targets(y) first, as fit does")
        return like.new_tensor(self.counts)

    def log_frequencies(self, like: Tensor) -> Tensor:
        """Return log pi (K,) of the classes."""
        counts = self.known_counts(like)
        return (counts / counts.sum()).log()


@dataclass(frozen=True)
class LogitAdjusted(Imbalanced):
    """Classification by the cross-entropy of f + tau log pi; tau = 1 is the balanced softmax, tau = 0 the plain one.

    Attributes:
        classes: Number of classes K.
        counts: Training examples of each class; `fit` fills them in.
        tau: Factor of the log frequencies.
        link: "softmax" or "softplus".
        class_weight: A number for each class, "balanced", "effective", or None.
    >>> rare = LogitAdjusted(3, counts=(90, 9, 1)).loss(torch.zeros(1, 1, 3), torch.tensor([[2]]))
    >>> round(rare.item(), 6)
    4.60517
    """

    tau: float = 1.0
    link: str = field(default="softmax", metadata=FIXED)
    class_weight: ClassWeight = field(default=None, metadata=FIXED)
    kind: ClassVar[str] = "logit-adjusted"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tau < math.inf:
            raise Misuse(f"tau={self.tau:g}: expected a number that is not negative, such as 1")

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        return self.cross_entropy(self.logits(outputs) + self.tau * self.log_frequencies(outputs), y, weight)


@dataclass(frozen=True)
class LDAM(Imbalanced):
    """Classification by label-distribution-aware margins: the label's output must exceed the others by a margin.

    The margin of class c is `margin` n_c^(-1/4) / max of n^(-1/4): largest for the rarest class. Outputs are
    cosines and are multiplied by `scale`: a network by name gets a last layer of cosines, your nn.Module must end in
    `murmuration.models.nets.CosineLinear`. With scale=1 the last layer does not change.

    Attributes:
        classes: Number of classes K.
        counts: Training examples of each class; `fit` fills them in.
        margin: Margin of the rarest class.
        scale: Factor of the cosines.
        reweight_from: Fraction of the epochs after which examples are weighted by the effective number of examples of
            their class (deferred re-weighting); None: never.
        link: "softmax" or "softplus".
        class_weight: A number for each class, "balanced", "effective", or None.

    >>> [round(m, 6) for m in LDAM(3, counts=(90, 9, 1)).margins(torch.zeros(())).tolist()]
    [0.162334, 0.288675, 0.5]
    """

    margin: float = 0.5
    scale: float = 30.0
    reweight_from: float | None = 0.8
    link: str = field(default="softmax", metadata=FIXED)
    class_weight: ClassWeight = field(default=None, metadata=FIXED)
    kind: ClassVar[str] = "ldam"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("margin", self.margin), ("scale", self.scale)):
            if not 0 < value < math.inf:
                raise Misuse(f"{name}={value:g}: expected a positive number")
        start = self.reweight_from
        if start is not None and not 0 <= start <= 1:
            raise Misuse(f"reweight_from={start:g}: expected a fraction of the epochs such as 0.8, or None")
        if start is not None and self.class_weight is not None:
            raise Misuse("class_weight with reweight_from, which sets class weights late in training: give one of them")

    @property
    def takes_cosines(self) -> bool:
        return self.scale > 1

    def margins(self, like: Tensor) -> Tensor:
        """Return the margin (K,) of every class."""
        roots = self.known_counts(like).pow(-0.25)
        return self.margin * roots / roots.max()

    def logits(self, outputs: Tensor) -> Tensor:
        return self.scale * super().logits(outputs)

    def during(self, progress: float) -> "LDAM":
        if self.reweight_from is None or progress < self.reweight_from:
            return self
        assert self.counts is not None
        return replace(self, reweight_from=None, class_weight=effective_weights(self.counts))

    def validate(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> dict[str, Any]:
        largest = float(outputs.abs().nan_to_num(0, 0, 0).max())
        if self.takes_cosines and largest > 1 + 1e-3:
            raise Misuse(
                f"LDAM with scale={self.scale:g} and outputs up to {largest:.3g}: expected cosines, at most 1; end the"
                " net in murmuration.models.nets.CosineLinear, or write scale=1"
            )
        return super().validate(outputs, y, weight)

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        at_label = F.one_hot(y, self.classes).to(outputs.dtype) * self.margins(outputs)
        return self.cross_entropy(self.logits(outputs - at_label), y, weight)


@dataclass(frozen=True)
class Experts(Imbalanced):
    """Three kinds of experts in turn, member by member: for common, for equally frequent and for rare classes.

    Members 0, 3, ... are trained by the cross-entropy of f, members 1, 4, ... by that of f + log pi, and members
    2, 5, ... by that of f + log pi - tau log pi', where pi' has the frequencies in reverse order of rank.

    Attributes:
        classes: Number of classes K.
        counts: Training examples of each class; `fit` fills them in.
        tau: Factor of the reversed log frequencies.
        link: "softmax" or "softplus".
        class_weight: A number for each class, "balanced", "effective", or None.
    """

    tau: float = 2.0
    link: str = field(default="softmax", metadata=FIXED)
    class_weight: ClassWeight = field(default=None, metadata=FIXED)
    kind: ClassVar[str] = "experts"

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        if member is None:
            raise Misuse("Experts.loss without member: the loss of an expert depends on which member it is")
        logs = self.log_frequencies(outputs)
        terms = torch.stack([0 * logs, logs, logs - self.tau * reversed_ranks(logs)])  # (3, K), by kind of expert
        return self.cross_entropy(self.logits(outputs) + terms[member.to(outputs.device) % 3].unsqueeze(1), y, weight)


def reversed_ranks(values: Tensor) -> Tensor:
    """Reverse the ranks of values (K,): the largest goes where the smallest was.

    >>> reversed_ranks(torch.tensor([0.9, 0.09, 0.01]))
    tensor([0.0100, 0.0900, 0.9000])
    """
    ranked = values.sort()
    return torch.empty_like(values).scatter(0, ranked.indices, ranked.values.flip(0))
