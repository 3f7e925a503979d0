"""Likelihoods of classes and labels: cross-entropy, focal loss, losses for imbalanced classes, independent labels.

Those for classes of very different size move the decision towards rare classes while training. With the frequencies
pi_c = n_c / N of the classes among the training examples:

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
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.likelihoods.base import CLASSIFICATION, MULTI_LABEL, Likelihood, softplus, weighted
from murmuration.system.errors import Misuse, require_choices
from murmuration.system.option_text import FIXED

EXP_BELOW = -37.0  # softplus(x) equals exp(x) in double precision
BALANCED, EFFECTIVE = "balanced", "effective"


def identity(outputs: Tensor) -> Tensor:
    """Return the outputs unchanged: the link of softmax.

    Args:
        outputs: Outputs (...).

    Returns:
        The same tensor.
    """
    return outputs


def log_softplus(outputs: Tensor) -> Tensor:
    """Compute log log(1 + exp(x)) of each output (...); x itself for very low x, so that value and gradient are finite.

    >>> log_softplus(torch.tensor([-1000.0, 0.0]))
    tensor([-1.0000e+03, -3.6651e-01])
    """
    safe = outputs.clamp_min(EXP_BELOW)  # the gradient of the unused branch must be finite too
    return torch.where(outputs < EXP_BELOW, outputs, softplus(safe).log())


LINKS: dict[str, Callable[[Tensor], Tensor]] = {  # outputs -> logits; class probabilities are their softmax
    "softmax": identity,
    "softplus": log_softplus,
}

Numbers = tuple[float, ...]
ClassWeight = Numbers | str | None  # one for each class, "balanced", "effective", or none


@dataclass(frozen=True)
class ClassOutputs(Likelihood):
    """Classification: one output per class; targets are label indices. The link maps outputs f to probabilities.

    | link | probability of class c | |
    |---|---|---|
    | `softmax` | exp(f_c) / sum of exp(f_j) | |
    | `softplus` | softplus(f_c) / sum of softplus(f_j) | linear in large f, so less confident (Shridhar et al. 2018) |

    Both are the softmax of logits, which are f or log softplus(f); use `logits` wherever probabilities are needed.
    `class_weight` multiplies the loss of each example by the weight of its class, as torch's cross_entropy with
    reduction "none" does: the mean over a batch is not divided by the sum of weights. "balanced" is
    N / (K N_c), whose mean over the N training examples is 1; "effective" is by the effective number of examples of a
    class, (1 - b) / (1 - b^N_c) for b = 0.9999, whose mean over the K classes is 1 (Cui et al. 2019).
    """

    classes: int = field(metadata=FIXED)
    task: ClassVar[str] = CLASSIFICATION

    if TYPE_CHECKING:

        @property
        def link(self) -> str: ...

        @property
        def class_weight(self) -> ClassWeight: ...

    def __post_init__(self) -> None:
        require_choices(self, link=LINKS)
        weights = self.class_weight
        if isinstance(weights, dict):
            raise Misuse(f"class_weight={weights}: expected one number for each class, in the order of the classes")
        if isinstance(weights, str):
            require_choices(self, class_weight=(BALANCED, EFFECTIVE))
        elif weights is not None:
            object.__setattr__(self, "class_weight", tuple(float(value) for value in weights))
            valid = len(weights) == self.classes and all(0 <= value < math.inf for value in weights)
            if not valid or not any(weights):
                expected = f"{self.classes}, one for each class, none negative"
                raise Misuse(f"class_weight of {len(weights)} numbers: expected {expected}")

    @property
    def width(self) -> int:
        return self.classes

    def logits(self, outputs: Tensor) -> Tensor:
        return LINKS[self.link](outputs)

    def for_targets(self, y: Tensor) -> Self:
        if len(y) and int(y.max()) >= self.classes:
            raise Misuse(f"{self} for label {int(y.max())}: expected labels 0 to {self.classes - 1}")
        if not isinstance(self.class_weight, str):
            return self
        counts, how = y.bincount(minlength=self.classes).double(), self.class_weight
        if not counts.all():
            missing = int((counts == 0).nonzero()[0])
            raise Misuse(f"class_weight={how}: class {missing} has no training example; give the weights as numbers")
        balanced = tuple((len(y) / (self.classes * counts)).tolist())
        weights: Any = {"class_weight": balanced if how == BALANCED else effective_weights(tuple(counts.tolist()))}
        return replace(self, **weights)

    def _class_weight(self, like: Tensor) -> Tensor | None:
        how = self.class_weight
        if isinstance(how, str):
            raise Misuse(f"class_weight={how} has no training targets yet: call for_targets(y) first, as fit does")
        return None if how is None else like.new_tensor(how)

    def cross_entropy(self, logits: Tensor, y: Tensor, weight: Tensor | None, label_smoothing: float = 0.0) -> Tensor:
        """Compute the cross-entropy (m, N) of labels y under logits (m, N, K), times class and sample weights."""
        logits, class_weight = logits.movedim(-1, 1), self._class_weight(logits)
        losses = F.cross_entropy(logits, y, class_weight, reduction="none", label_smoothing=label_smoothing)
        return weighted(losses, weight)


def effective_weights(counts: Numbers, beta: float = 0.9999) -> Numbers:
    """Compute class weights (1 - beta) / (1 - beta^n), with mean 1 over the classes (Cui et al. 2019).

    >>> [round(w, 6) for w in effective_weights((90, 9, 1))]
    [0.029833, 0.297124, 2.673043]
    """
    raw = [(1 - beta) / -math.expm1(count * math.log(beta)) for count in counts]
    return tuple(value * len(raw) / sum(raw) for value in raw)


@dataclass(frozen=True)
class Categorical(ClassOutputs):
    """Classification by cross-entropy; see `ClassOutputs` for link and class weights.

    With `label_smoothing` e, the target of an example is 1 - e for its label plus e / K for every class.

    Attributes:
        classes: Number of classes K.
        link: "softmax" or "softplus".
        class_weight: A number for each class, "balanced", "effective", or None.
        label_smoothing: Share e of the target that all classes share equally.
    """

    link: str = field(default="softmax", metadata=FIXED)
    class_weight: ClassWeight = field(default=None, metadata=FIXED)
    label_smoothing: float = 0.0
    kind: ClassVar[str] = "categorical"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.label_smoothing < 1:
            raise Misuse(f"label_smoothing={self.label_smoothing:g}: expected a number from 0 to below 1, such as 0.1")

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        """Compute the cross-entropy (..., N) of labels under outputs.

        Args:
            outputs: Logits (..., N, K).
            y: Labels (..., N).
            weight: Weights (..., N) of examples; by default 1.
            member: Numbers of the members; not used.
        """
        return self.cross_entropy(self.logits(outputs), y, weight, self.label_smoothing)


@dataclass(frozen=True)
class Focal(ClassOutputs):
    """Classification by the focal loss -(1 - p)^gamma log p of the label's probability p (Lin et al. 2017).

    Examples that are classified well count less; gamma = 0 is cross-entropy.

    Attributes:
        classes: Number of classes K.
        gamma: Exponent of the focal factor.
        link: "softmax" or "softplus".
        class_weight: A number for each class, "balanced", "effective", or None.
    """

    gamma: float = 2.0
    link: str = field(default="softmax", metadata=FIXED)
    class_weight: ClassWeight = field(default=None, metadata=FIXED)
    kind: ClassVar[str] = "focal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gamma < math.inf:
            raise Misuse(f"gamma={self.gamma:g}: expected a number that is not negative, such as 2")

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        """Compute the focal loss (..., N) of labels under outputs.

        Args:
            outputs: Logits (..., N, K).
            y: Labels (..., N).
            weight: Weights (..., N) of examples; by default 1.
            member: Numbers of the members; not used.
        """
        losses = F.cross_entropy(self.logits(outputs).movedim(-1, 1), y, reduction="none")
        complement = (-torch.expm1(-losses)).clamp_min(torch.finfo(losses.dtype).tiny)  # 1 - p
        losses, classes = complement.pow(self.gamma) * losses, self._class_weight(outputs)
        return weighted(losses if classes is None else losses * classes[y], weight)


@dataclass(frozen=True)
class MultiLabel(Likelihood):
    """K labels of which any number may hold: independent Bernoullis given a member; targets are zeros and ones (N, K).

    The loss is the sum over labels of binary cross-entropies.

    Attributes:
        labels: Number of labels K.
        positive_weight: Factor of the loss of examples that have a label, one number for each label, as `pos_weight`
            of torch's binary_cross_entropy_with_logits.
    """

    labels: int
    positive_weight: tuple[float, ...] | None = None
    kind: ClassVar[str] = "multi-label"
    task: ClassVar[str] = MULTI_LABEL

    def __post_init__(self) -> None:
        weights = self.positive_weight
        if weights is not None:
            object.__setattr__(self, "positive_weight", tuple(float(value) for value in weights))
            if len(weights) != self.labels or not all(0 < value < math.inf for value in weights):
                raise Misuse(f"positive_weight of {len(weights)} numbers: expected {self.labels}, all positive")

    @property
    def width(self) -> int:
        return self.labels

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        """Compute the binary cross-entropy (..., N) of labels under outputs, summed over labels.

        Args:
            outputs: Logits (..., N, K).
            y: Labels (..., N, K), 0 or 1.
            weight: Weights (..., N) of examples; by default 1.
            member: Numbers of the members; not used.
        """
        positive = None if self.positive_weight is None else outputs.new_tensor(self.positive_weight)
        losses = F.binary_cross_entropy_with_logits(outputs, y.to(outputs), reduction="none", pos_weight=positive)
        return weighted(losses.sum(-1), weight)

    def for_targets(self, y: Tensor) -> "MultiLabel":
        if y.ndim != 2 or y.shape[1] != self.labels:
            raise Misuse(f"{self} for targets of shape {tuple(y.shape)}: expected (examples, {self.labels})")
        wrong = (y != 0) & (y != 1)
        if wrong.any():
            raise Misuse(f"{self} for a target of {y[wrong][0].item():g}: expected zeros and ones")
        return self


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
        """Return the margin (K,) of every class.

        Args:
            like: Tensor whose type and device the result has.
        """
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
            hint = "end the net in murmuration.models.nets.CosineLinear, or write scale=1"
            outputs_seen = f"LDAM with scale={self.scale:g} and outputs up to {largest:.3g}"
            raise Misuse(f"{outputs_seen}: expected cosines, at most 1; {hint}")
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
