"""`Likelihood`: the base class, and how training calls the loss of one."""

import inspect
import math
from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from murmuration.likelihoods.mixtures import Components, Normals
from murmuration.system.errors import Misuse

CLASSIFICATION, MULTI_LABEL, REGRESSION = "classification", "multi-label", "regression"
TASKS = (CLASSIFICATION, MULTI_LABEL, REGRESSION)
OWN = "own"  # kind of a likelihood of the caller's own, in a run directory


class Likelihood(ABC):
    """Base class. A class of your own has `task`, `width` (the number of outputs) and `loss`, and for a regression
    `mean_var`, or `distribution` if it is not Gaussian; the other methods have defaults by task.

    It is given to `fit`, and again to `load` and `resume`: a run directory holds its name and, if it is a dataclass,
    its fields, but no code.
    """

    kind: ClassVar[str] = ""  # the name of a built-in likelihood in a run directory
    task: ClassVar[str]  # one of TASKS
    moment_matched: ClassVar[bool] = False  # whether an ensemble predicts one Gaussian, not the mixture of its members

    if TYPE_CHECKING:  # a plain attribute will do

        @property
        def width(self) -> int:
            """The number of outputs a network needs."""
            ...

    @property
    def takes_cosines(self) -> bool:
        """Whether outputs are cosines: networks by name get a last layer of them."""
        return False

    @abstractmethod
    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        """The loss (m, N) of each example under each of m members: in nats, if it is a negative log-likelihood.

        `outputs` (m, N, width), `y` (m, N, ...) as `encode` returns them, `weight` (m, N) sample weights of mean 1 by
        which losses are multiplied, `member` (m,) the indices of these members: members may differ in their loss. A
        method without `weight` or `member` is called without them, and its losses are multiplied by the weights.
        """

    def for_targets(self, y: Tensor) -> "Likelihood":
        """The likelihood with the settings that follow from training targets y (N, ...); refuses those that do not fit.

        Regressions that standardise their targets take shift and scale from them.
        """
        return self

    def during(self, progress: float) -> "Likelihood":
        """The likelihood that members are trained by after a fraction of the epochs; a loss may change in training."""
        return self

    def encode(self, y: Tensor) -> Tensor:
        """Targets y (N, ...) in their own units as `loss` takes them; computed once, before training."""
        return y.float() if y.is_floating_point() else y

    def logits(self, outputs: Tensor) -> Tensor:
        """Logits (..., N, K), whose softmax are the class probabilities, or whose sigmoid those of labels."""
        return outputs

    def probs(self, outputs: Tensor) -> Tensor:
        """Probabilities (..., N, K) of classes or labels."""
        logits = self.logits(outputs)
        return logits.sigmoid() if self.task == MULTI_LABEL else logits.softmax(-1)

    def mean_var(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (..., N, K) of the target, in the target's units; for regressions."""
        raise Misuse(f"{type(self).__name__} has no mean_var(outputs): define it to predict, or distribution(outputs)")

    def distribution(self, outputs: Tensor) -> Components:
        """The distribution of each target (..., N, K), in the target's units; for regressions. Gaussian by default."""
        return Normals(*self.mean_var(outputs))

    def centre(self, outputs: Tensor) -> Tensor:
        """The values of a regression that coupling spaces compare: its first K of (..., N, width) entries."""
        return self.probs(outputs) if self.task == MULTI_LABEL else outputs

    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The log-likelihood (S, N) of targets y (N, ...), in their own units, under outputs (S, N, width)."""
        if self.task == REGRESSION:
            return self.distribution(outputs.double()).log_prob(y).sum(-1)
        logits, y = self.logits(outputs), y.expand(len(outputs), *y.shape)
        if self.task == MULTI_LABEL:
            return -F.binary_cross_entropy_with_logits(logits, y.to(logits), reduction="none").sum(-1)
        return -F.cross_entropy(logits.movedim(-1, 1), y, reduction="none")

    def validate(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> dict[str, Any]:
        """Validation NLL, and accuracy or RMSE, of each member, from outputs (M, N, width), and of all finite members.

        Targets y (N, ...) are in their own units. Means over examples are weighted by `weight` (N,), if it is given.
        """
        finite = _finite(outputs)
        if self.task == REGRESSION:
            name, guess = "val_rmse", self.distribution(outputs.double()).mean
            errors = [(mean - y).square().mean(-1) for mean in (guess, guess[finite].mean(0))]
            scores = [_average(error, weight).sqrt() for error in errors]
        else:
            probs, name = self.probs(outputs[finite]).mean(0), "val_accuracy"
            if self.task == MULTI_LABEL:
                hits = [((each > 0.5) == (y > 0.5)).double().mean(-1) for each in (self.probs(outputs), probs)]
            else:
                hits = [(each.argmax(-1) == y).double() for each in (self.logits(outputs), probs)]
            scores = [_average(hit, weight) for hit in hits]
        losses = -self.log_prob(outputs, y)  # (M, N)
        mixture = math.log(max(int(finite.sum()), 1)) - (-losses[finite]).logsumexp(0)
        return {
            "val_nll": _average(losses, weight).tolist(),
            name: scores[0].tolist(),
            "ensemble": {"val_nll": float(_average(mixture, weight)), name: float(scores[1])},
        }

    def to_json(self) -> dict[str, Any]:
        names: list[str] = [field.name for field in fields(self)] if is_dataclass(self) else []
        settings = {name: value for name in names if _is_plain(value := getattr(self, name))}
        if self.kind:
            return {"kind": self.kind, **settings}
        return {"kind": OWN, "name": type(self).__name__, "task": self.task, "width": self.width, "settings": settings}


def _is_plain(value: Any) -> bool:
    """Whether a run directory can hold a value: a number, a text, nothing, or a tuple of these."""
    if isinstance(value, tuple | list):
        return all(_is_plain(each) for each in value)
    return value is None or isinstance(value, int | float | str)


def _average(values: Tensor, weight: Tensor | None) -> Tensor:
    """The mean (...) of values (..., N) over examples, weighted by `weight` (N,) if it is given."""
    return values.mean(-1) if weight is None else (values * weight).mean(-1) / weight.double().mean()


def _finite(values: Tensor) -> Tensor:
    """Whether all values (M, ...) of each member (M,) are finite."""
    return values.flatten(1).isfinite().all(1)


def weighted(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Losses (m, N) multiplied by sample weights (m, N), if there are any."""
    return losses if weight is None else losses * weight


@cache
def _arguments(cls: type[Likelihood]) -> frozenset[str]:
    """Which of `weight` and `member` the loss of a class takes."""
    found = inspect.signature(cls.loss).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found.values()):
        return frozenset(("weight", "member"))
    return frozenset(found) & {"weight", "member"}


def member_losses(likelihood: Likelihood, outputs: Tensor, y: Tensor, weight: Tensor | None, member: Tensor) -> Tensor:
    """The losses (m, N) of a group of members, also by a `loss` that takes no weights or no member indices."""
    taken = _arguments(type(likelihood))
    given = {name: value for name, value in (("weight", weight), ("member", member)) if name in taken}
    found = likelihood.loss(outputs, y, **given)
    if found.shape != outputs.shape[:2]:
        name, expected = type(likelihood).__name__, tuple(outputs.shape[:2])
        raise Misuse(f"{name}.loss returned shape {tuple(found.shape)}: expected {expected}, members and examples")
    return found if "weight" in taken else weighted(found, weight)
