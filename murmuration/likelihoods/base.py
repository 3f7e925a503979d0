"""`Likelihood`: the base class, and how training calls the loss of one."""

import inspect
import math
from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.likelihoods.mixtures import Components, Normals
from murmuration.system.errors import Misuse, described

CLASSIFICATION, MULTI_LABEL, REGRESSION = "classification", "multi-label", "regression"
TASKS = (CLASSIFICATION, MULTI_LABEL, REGRESSION)
OWN = "own"  # kind of a user-defined likelihood, in a run directory


class Likelihood(ABC):
    """Base class of likelihoods.

    A user-defined class has `task`, `width` and `loss`, and for a regression `mean_var`, or `distribution` if it is not
    Gaussian; the other methods have defaults by task. Pass it to `fit`, and again to `load` and `resume`: a run
    directory holds its name and, if it is a dataclass, its fields, but no code.

    Attributes:
        kind: Name of a built-in likelihood in a run directory.
        task: "classification", "multi-label" or "regression".
        width: Number of outputs that a network needs.
        moment_matched: Whether an ensemble predicts one Gaussian instead of the mixture of its members.
    """

    kind: ClassVar[str] = ""
    task: ClassVar[str]
    moment_matched: ClassVar[bool] = False

    if TYPE_CHECKING:  # a plain attribute will do

        @property
        def width(self) -> int:
            """The number of outputs a network needs."""
            ...

    @property
    def takes_cosines(self) -> bool:
        """Whether outputs are cosines: networks by name get a last layer that returns cosines."""
        return False

    @property
    def about_outputs(self) -> str:
        """What the outputs of a network are, and what to write if it gives others, for messages."""
        return ""

    @abstractmethod
    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        """Compute the loss of each example under each of m members.

        A method without the parameter `weight` or `member` is called without it; its losses are then multiplied by the
        weights.

        Args:
            outputs: Outputs (m, N, width).
            y: Targets (m, N, ...) as `encode` returns them.
            weight: Sample weights (m, N) of mean 1 by which losses are multiplied.
            member: Indices (m,) of these members: members may differ in their loss.

        Returns:
            Losses (m, N); in nats, if they are negative log-likelihoods.
        """

    def for_targets(self, y: Tensor) -> "Likelihood":
        """Complete the settings from training targets, such as shift and scale of a regression.

        Args:
            y: Training targets (N, ...).

        Returns:
            The likelihood with these settings.

        Raises:
            Misuse: If the targets do not fit.
        """
        return self

    def during(self, progress: float) -> "Likelihood":
        """Return the likelihood to train by at a point of training; by default itself.

        Args:
            progress: Fraction of the epochs that are done.
        """
        return self

    def encode(self, y: Tensor) -> Tensor:
        """Convert targets from their units to those of `loss`, once, before training.

        Args:
            y: Targets (N, ...).
        """
        return y.float() if y.is_floating_point() else y

    def logits(self, outputs: Tensor) -> Tensor:
        """Return logits (..., N, K), whose softmax are the class probabilities, or whose sigmoid those of labels.

        Args:
            outputs: Outputs (..., N, width) of a network.
        """
        return outputs

    def probs(self, outputs: Tensor) -> Tensor:
        """Return probabilities (..., N, K) of classes or labels.

        Args:
            outputs: Outputs (..., N, width) of a network.
        """
        logits = self.logits(outputs)
        return logits.sigmoid() if self.task == MULTI_LABEL else logits.softmax(-1)

    def mean_var(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance (..., N, K) of the target, in the target's units; for regressions.

        Args:
            outputs: Outputs (..., N, width) of a network.
        """
        raise Misuse(f"{type(self).__name__} has no mean_var(outputs): define it to predict, or distribution(outputs)")

    def distribution(self, outputs: Tensor) -> Components:
        """Return the distribution of each target (..., N, K) of a regression, in its units; Gaussian by default.

        Args:
            outputs: Outputs (..., N, width) of a network.
        """
        return Normals(*self.mean_var(outputs))

    def centre(self, outputs: Tensor) -> Tensor:
        """Return the values that coupling spaces compare: of a regression, the outputs of the centre (..., N, K).

        Args:
            outputs: Outputs (..., N, width) of a network.
        """
        return self.probs(outputs) if self.task == MULTI_LABEL else outputs

    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Compute the log-likelihood (S, N) of targets under outputs.

        Args:
            outputs: Outputs (S, N, width) of S networks.
            y: Targets (N, ...), in their units.
        """
        if self.task == REGRESSION:
            return self.distribution(outputs.double()).log_prob(y).sum(-1)
        logits, y = self.logits(outputs), y.expand(len(outputs), *y.shape)
        if self.task == MULTI_LABEL:
            return -F.binary_cross_entropy_with_logits(logits, y.to(logits), reduction="none").sum(-1)
        return -F.cross_entropy(logits.movedim(-1, 1), y, reduction="none")

    def validate(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> dict[str, Any]:
        """Compute validation NLL, and accuracy or RMSE.

        Args:
            outputs: Outputs (M, N, width).
            y: Targets (N, ...) in their units.
            weight: Sample weights (N,) of the means over examples.

        Returns:
            Scores of each member, and under "ensemble" those of all finite members together.
        """
        finite = outputs.flatten(1).isfinite().all(1)  # (M,)
        if self.task == REGRESSION:
            name, guess = "val_rmse", self.distribution(outputs.double()).mean
            errors = [(mean - y).square().mean(-1) for mean in (guess, guess[finite].mean(0))]
            scores = [_average(error, weight).sqrt() for error in errors]
        else:
            probs, name = self.probs(outputs[finite]).mean(0), "val_accuracy"
            if self.task == MULTI_LABEL:
                hits = [((p > 0.5) == (y > 0.5)).double().mean(-1) for p in (self.probs(outputs), probs)]
            else:
                hits = [(p.argmax(-1) == y).double() for p in (self.logits(outputs), probs)]
            scores = [_average(hit, weight) for hit in hits]
        losses = -self.log_prob(outputs, y)  # (M, N)
        mixture = math.log(max(int(finite.sum()), 1)) - (-losses[finite]).logsumexp(0)
        ensemble = {"val_nll": float(_average(mixture, weight)), name: float(scores[1])}
        return {"val_nll": _average(losses, weight).tolist(), name: scores[0].tolist(), "ensemble": ensemble}

    def to_json(self) -> dict[str, Any]:
        names: list[str] = [field.name for field in fields(self)] if is_dataclass(self) else []
        settings = {name: value for name in names if _is_plain(value := getattr(self, name))}
        if self.kind:
            return {"kind": self.kind, **settings}
        return {"kind": OWN, "name": type(self).__name__, "task": self.task, "width": self.width, "settings": settings}


def _is_plain(value: Any) -> bool:
    """Return whether a run directory can hold a value: a number, a string, None, or a tuple of these."""
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, int | float | str)


def _average(values: Tensor, weight: Tensor | None) -> Tensor:
    """Average values (..., N) over examples, weighted by `weight` (N,) if it is given."""
    return values.mean(-1) if weight is None else (values * weight).mean(-1) / weight.double().mean()


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp(x)); in double precision, that of predictions, by operators that ONNX Runtime has."""
    return x.clamp_min(0) + (-x.abs()).exp().log1p() if x.dtype == torch.float64 else F.softplus(x, threshold=40)


def weighted(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Multiply losses by sample weights.

    Args:
        losses: Losses (m, N).
        weight: Sample weights (m, N), or None.

    Returns:
        Weighted losses (m, N).
    """
    return losses if weight is None else losses * weight


@cache
def _arguments(cls: type[Likelihood]) -> frozenset[str]:
    """Return which of `weight` and `member` the loss of a class takes."""
    parameters = inspect.signature(cls.loss).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return frozenset(("weight", "member"))
    return frozenset(parameters) & {"weight", "member"}


def member_losses(likelihood: Likelihood, outputs: Tensor, y: Tensor, weight: Tensor | None, member: Tensor) -> Tensor:
    """Compute the losses of a group of members, also by a `loss` without parameters for weights or member indices.

    Args:
        likelihood: Any likelihood.
        outputs: Outputs (m, N, width).
        y: Encoded targets (m, N, ...).
        weight: Sample weights (m, N), or None.
        member: Indices (m,) of these members.

    Returns:
        Weighted losses (m, N).

    Raises:
        Misuse: If `loss` returns another shape, or losses without a gradient.
    """
    accepted = _arguments(type(likelihood))
    arguments = {name: value for name, value in (("weight", weight), ("member", member)) if name in accepted}
    losses: Any = likelihood.loss(outputs, y, **arguments)
    name, expected = type(likelihood).__name__, tuple(outputs.shape[:2])
    if not isinstance(losses, Tensor):
        raise Misuse(f"{name}.loss returned {described(losses)}: expected a tensor {expected}, members and examples")
    if losses.shape != expected:
        raise Misuse(f"{name}.loss returned shape {tuple(losses.shape)}: expected {expected}, members and examples")
    if outputs.requires_grad and torch.is_grad_enabled() and not losses.requires_grad:
        raise Misuse(f"{name}.loss returned losses without a graph to the outputs: do not detach or convert them")
    return losses if "weight" in accepted else weighted(losses, weight)
