"""A coupling space: the features by which members are compared, and the repulsion between them.

Features are computed for some members at a time, where they run, with their graph. The repulsion is computed once for
all members from the detached features and returns cotangents of the same shape; no network is involved.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from murmuration.core.coupling.bandwidths import check_bandwidth
from murmuration.core.coupling.estimators import ESTIMATORS, Interaction, Total, gradient_mixing
from murmuration.likelihoods import identity
from murmuration.system.errors import Misuse, unknown

# What a space can need of the training step:
INPUTS = "inputs"  # the pass whose outputs enter the loss is differentiable by its inputs
FEATURES = "features"  # the network's body and head run one after the other, and the body's outputs are handed over
SUB_BATCH = "sub-batch"  # the first examples of the batch run in a pass of their own, differentiable by its inputs
SAME_BATCH = "same-batch"  # all members see the same examples at a step
OWN_WEIGHTS = "own-weights"  # members have parameters of their own
SHORTEST = 1e-12  # length of features below which their direction is taken as zero
NEEDS = frozenset((INPUTS, FEATURES, SUB_BATCH, SAME_BATCH, OWN_WEIGHTS))


@dataclass(frozen=True)
class SpaceInputs:
    """Tensors of a group of m members at one step, all differentiable."""

    weights: dict[str, Tensor]  # (m, ...) each, as realised for this step
    own: tuple[str, ...]  # names of the weights that are not shared
    x: Tensor  # (m, B, ...) inputs
    y: Tensor  # (m, B, ...) targets
    outputs: Tensor  # (m, B, K)
    losses: Tensor  # (m,) mean loss of each member
    features: Tensor | None = None  # (m, B, F) outputs of the network's body, if the space needs FEATURES
    run: Callable[[dict[str, Tensor], Tensor], Tensor] | None = None  # weights, x -> outputs; buffers stay unchanged
    draw: Callable[[Tensor], Tensor] | None = None  # standard normal tensor like one (m, ...), one stream per member
    sub_batch: tuple[Tensor, Tensor] | None = None  # outputs (m, r, K) and inputs of a separate pass (SUB_BATCH)
    link: Callable[[Tensor], Tensor] = identity  # outputs -> logits; of a regression, its means first (see `link_of`)


@dataclass(frozen=True)
class Space(ABC):
    """Base class of coupling spaces. A space of one's own implements `features` and may override the rest."""

    estimator: str = "kde"
    bandwidth: str = "all"

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise unknown("estimator", self.estimator, ESTIMATORS)
        if ESTIMATORS[self.estimator].mixes_gradients and not self.mixable:
            raise Misuse(
                f"estimator={self.estimator} in {type(self).__name__}: it mixes the gradients of weights; write"
                " coupling weights"
            )
        check_bandwidth(self.bandwidth)
        wrong = self.needs - NEEDS
        if wrong:
            raise unknown("need of a space", min(wrong), NEEDS)

    @property
    def needs(self) -> frozenset[str]:
        """What the training step must provide, a subset of NEEDS."""
        return frozenset((SAME_BATCH,))

    @property
    def mixable(self) -> bool:
        """Whether an estimator may mix the members' loss gradients (SVGD): only where features are the weights."""
        return False

    def prepare(self, x: Tensor) -> "Space":
        """The space for training inputs x (N, ...); refuses inputs that it cannot work with."""
        return self

    def candidates(self) -> "Mapping[str, Space]":
        """Spaces to choose from on validation data before training, by name; empty if nothing is left to choose."""
        return {}

    @abstractmethod
    def features(self, inputs: SpaceInputs) -> Tensor:
        """The features (m, B, R) of m members, with their graph: B samples of R numbers."""

    def repulsion(self, features: Tensor) -> Interaction:
        """Cotangents of the repulsion, from the detached features (M, B, R) of all members."""
        if features.dim() != 3:
            got = f"{type(self).__name__}.features returned shape {tuple(features.shape)}"
            raise Misuse(f"{got}: need (members, samples, numbers), as features.flatten(1).unsqueeze(1)")
        return ESTIMATORS[self.estimator](features, self.bandwidth)

    @property
    def separable(self) -> bool:
        """Whether the repulsion needs nothing of the features but products summed over all their numbers.

        Then processes can divide the numbers among them (`repulsion_of_part`).
        """
        return False

    def repulsion_of_part(self, features: Tensor, total: Total) -> Interaction:
        """The repulsion in a part (M, B, r) of the features; `total` sums a tensor over all parts."""
        return ESTIMATORS[self.estimator](features, self.bandwidth, total=total)

    def rows(self, batch: int) -> int:
        """The number of examples of a batch that the features are computed on."""
        return batch

    def compared(self, features: Tensor) -> Tensor:
        """The part (M, B', R) of the features by which members are compared; the rest is data of the repulsion."""
        return features

    @property
    def mixing_estimator(self) -> bool:
        """Whether members move along each other's loss gradients too (SVGD)."""
        return ESTIMATORS[self.estimator].mixes_gradients

    def mixing(self, features: Tensor, total: Total = identity) -> Tensor | None:
        """Weights (M, M) of each member's loss gradient in each member's step (SVGD); None: each its own.

        The features (M, B, r) may be a part, with `total` the sum over all parts.
        """
        if not self.mixing_estimator:
            return None
        return gradient_mixing(features, self.bandwidth, total).to(features)


def count_rows(batch: int, fraction: float) -> int:
    """The number of examples in a fraction of a batch, at least one."""
    return max(1, round(fraction * batch))


def check_fraction(fraction: float) -> None:
    """Refuse a batch fraction outside (0, 1]."""
    if not 0 < fraction <= 1:
        raise Misuse(f"batch_fraction={fraction}: need a fraction of the batch above 0, at most 1")


def predicted_means(outputs: Tensor, y: Tensor) -> Tensor:
    """The predicted means (m, B, targets) among the outputs of a regression."""
    return outputs[..., : y.shape[-1]]


def mean_cosine(features: Tensor, total: Total = identity) -> float:
    """The mean cosine between two members' features of one sample, from features (M, B, R).

    They may be a part of the features, with `total` the sum over all parts.
    """
    if features.ndim != 3 or len(features) < 2:
        return float("nan")
    rows = features.transpose(0, 1).float()  # (B, M, R)
    lengths = total(rows.square().sum(-1, keepdim=True)).sqrt()
    units = rows / lengths.clamp_min(SHORTEST)
    gram = total(units @ units.mT)
    members = len(features)
    pairs = (gram.sum((1, 2)) - gram.diagonal(dim1=1, dim2=2).sum(-1)) / (members * (members - 1))
    return float(pairs.mean())
