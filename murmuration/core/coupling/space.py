"""A coupling space: the features by which members are compared, and the repulsion between them.

Features are computed for some members at a time, where they run, with their graph. The repulsion is computed once for
all members from the detached features and returns cotangents of the same shape; no network is involved.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from murmuration.core.coupling.bandwidths import find_bandwidth
from murmuration.core.coupling.estimators import ESTIMATORS, Interaction, Total, gradient_mixing
from murmuration.likelihoods.classes import identity
from murmuration.system.errors import Misuse, described, require_choices, unknown

# What a space can need of the training step:
INPUTS = "inputs"  # the pass whose outputs enter the loss is differentiable by its inputs
FEATURES = "features"  # the network's body and head run one after the other, and the body's outputs are passed on
SUB_BATCH = "sub-batch"  # the first examples of the batch run in a separate pass, differentiable by its inputs
SAME_BATCH = "same-batch"  # all members have the same examples at a step
OWN_WEIGHTS = "own-weights"  # members have own parameters
MIN_LENGTH = 1e-12  # length of features below which their direction is taken as zero
NEEDS = frozenset((INPUTS, FEATURES, SUB_BATCH, SAME_BATCH, OWN_WEIGHTS))


@dataclass(frozen=True)
class SpaceInputs:
    """Tensors of a group of m members at one step, all differentiable.

    Attributes:
        weights: Weights by name, (m, ...) each, as realised for this step.
        own: Names of the weights that are not shared.
        x: Inputs (m, B, ...).
        y: Targets (m, B, ...).
        outputs: Outputs of the network (m, B, K).
        losses: Mean loss of each member (m,).
        features: Outputs of the network's body (m, B, F), if the space needs "features"; otherwise None.
        run: Runs the network on (weights, x) and returns outputs (m, B', K); buffers stay unchanged.
        draw: Draws a standard normal tensor like one (m, ...), from one random stream per member.
        sub_batch: Outputs (m, r, K) and inputs (m, r, ...) of a separate pass, if the space needs "sub-batch".
        link: Maps outputs to logits; for a regression, to its means first (see `link_of`).
    """

    weights: dict[str, Tensor]
    own: tuple[str, ...]
    x: Tensor
    y: Tensor
    outputs: Tensor
    losses: Tensor
    features: Tensor | None = None
    run: Callable[[dict[str, Tensor], Tensor], Tensor] | None = None
    draw: Callable[[Tensor], Tensor] | None = None
    sub_batch: tuple[Tensor, Tensor] | None = None
    link: Callable[[Tensor], Tensor] = identity


@dataclass(frozen=True)
class Space(ABC):
    """Base class of coupling spaces: a subclass implements `features` and may override the other methods.

    Attributes:
        estimator: Name of the estimator of grad log rho, a row of `ESTIMATORS`.
        bandwidth: Name of the kernel bandwidth, a row of `BANDWIDTHS` or `fixed:L`.
        mixable: Whether an estimator may mix the members' loss gradients (SVGD): only where features are the weights.
        separable: Whether the repulsion depends on features only through products summed over all their numbers. If
            so, processes can divide the numbers among themselves (`repulsion_of_part`).
    """

    mixable: ClassVar[bool] = False
    separable: ClassVar[bool] = False

    estimator: str = "kde"
    bandwidth: str = "all"

    def __post_init__(self) -> None:
        require_choices(self, estimator=ESTIMATORS)
        if ESTIMATORS[self.estimator].mixes_gradients and not self.mixable:
            problem = "it mixes the gradients of weights; write coupling weights"
            raise Misuse(f"estimator={self.estimator} in {type(self).__name__}: {problem}")
        find_bandwidth(self.bandwidth)  # raises Misuse if there is none
        if not isinstance(self.needs, frozenset | set):
            raise Misuse(f"needs of {type(self).__name__} is {described(self.needs)}: write frozenset(('same-batch',))")
        if not self.needs <= NEEDS:
            raise unknown("need of a space", min(self.needs - NEEDS), NEEDS)

    @property
    def needs(self) -> frozenset[str]:
        """What the training step must provide: names in a set, which replaces the default.

        "inputs": the outputs of the loss are differentiable by the inputs. "features": the network's body and head run
        one after the other. "sub-batch": the first examples run in a pass of their own, differentiable by its inputs.
        "same-batch", the default: all members have the same examples at a step. "own-weights": members have own
        parameters. A space that compares other things, such as weights, returns `frozenset()`.
        """
        return frozenset((SAME_BATCH,))

    def prepare(self, x: Tensor) -> "Space":
        """Prepare the space for a training run.

        Args:
            x: Training inputs (N, ...), or a sample of them.

        Returns:
            The space to train with; by default this one.

        Raises:
            Misuse: If the space does not support such inputs.
        """
        return self

    def candidates(self) -> "Mapping[str, Space]":
        """Return the spaces to choose from on validation data before training, by name; empty if there is no choice."""
        return {}

    @abstractmethod
    def features(self, inputs: SpaceInputs) -> Tensor:
        """Compute the features of a group of members.

        Args:
            inputs: Tensors of m members at one step.

        Returns:
            Features (m, B, R), B samples of R numbers, differentiable with respect to the weights.
        """

    def repulsion(self, features: Tensor) -> Interaction:
        """Compute the repulsion between all members.

        Args:
            features: Their detached features (M, B, R).

        Returns:
            Cotangents of the same shape, and the similarity of members.

        Raises:
            Misuse: If the features have another number of axes.
        """
        if features.dim() != 3:
            got = f"{type(self).__name__}.features returned shape {tuple(features.shape)}"
            raise Misuse(f"{got}: need (members, samples, numbers), as features.flatten(1).unsqueeze(1)")
        return ESTIMATORS[self.estimator](features, self.bandwidth)

    def repulsion_of_part(self, features: Tensor, total: Total) -> Interaction:
        """Compute the repulsion of a separable space from a part of the features.

        Args:
            features: Detached features (M, B, r) of all members: a part of their numbers.
            total: Sums a tensor over all parts.

        Returns:
            Cotangents of the same shape, and the similarity of members.
        """
        return ESTIMATORS[self.estimator](features, self.bandwidth, total=total)

    def rows(self, batch: int) -> int:
        """Return how many examples of a batch the features are computed on.

        Args:
            batch: Number of examples in the batch.
        """
        return batch

    def compared(self, features: Tensor) -> Tensor:
        """Return the part (M, B', R) of the features by which members are compared, without auxiliary data.

        Args:
            features: Features (M, B, R) of all members.
        """
        return features

    @property
    def mixing_estimator(self) -> bool:
        """Whether members also move along each other's loss gradients (SVGD)."""
        return ESTIMATORS[self.estimator].mixes_gradients

    def mixing(self, features: Tensor, total: Total = identity) -> Tensor | None:
        """Compute the weights of all members' loss gradients in each member's step (SVGD).

        Args:
            features: Detached features (M, B, R) of all members, or a part (M, B, r).
            total: Sums a tensor over all parts, if `features` are a part.

        Returns:
            Weights (M, M); None if members move along their own loss gradients only.
        """
        if not self.mixing_estimator:
            return None
        return gradient_mixing(features, self.bandwidth, total).to(features)


@dataclass(frozen=True)
class PartOfBatchSpace(Space):
    """Base class of spaces whose features may be computed on a part of the batch.

    Attributes:
        estimator: Name of the estimator.
        bandwidth: Name of the kernel bandwidth.
        batch_fraction: Fraction of the batch that features are computed on, in (0, 1].
    """

    batch_fraction: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.batch_fraction <= 1:
            raise Misuse(f"batch_fraction={self.batch_fraction}: need a fraction of the batch above 0, at most 1")

    def rows(self, batch: int) -> int:
        return max(1, round(self.batch_fraction * batch))


def mean_cosine(features: Tensor, total: Total = identity) -> float:
    """Return the mean cosine between two members' features of one sample, from features (M, B, R).

    If they are a part of the features, `total` sums a tensor over all parts.
    """
    if features.ndim != 3 or len(features) < 2:
        return float("nan")
    rows = features.transpose(0, 1).float()  # (B, M, R)
    units = rows / total(rows.square().sum(-1, keepdim=True)).sqrt().clamp_min(MIN_LENGTH)
    gram = total(units @ units.mT)
    members = len(features)
    pairs = (gram.sum((1, 2)) - gram.diagonal(dim1=1, dim2=2).sum(-1)) / (members * (members - 1))
    return float(pairs.mean())
