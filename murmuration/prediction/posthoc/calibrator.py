"""`Calibrator`: the base class of the fitted maps from predictives to predictives, and the checks that they share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

import murmuration.prediction.posthoc.losses as losses
from murmuration.likelihoods import REGRESSION
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse, described
from murmuration.system.records import damaged

VALID = 1e-9, 1e9  # range of a temperature or factor in a record


@dataclass(frozen=True)
class Path:
    """Calibrators of one number t, for a choice between priors with each example left out in turn.

    Attributes:
        make: Returns the calibrator at t.
        losses: Returns the loss (N,) of each example at t.
        penalty: Returns minus the log prior (G,) of values t (G,) for a prior std, up to a constant.
        ends: Smallest and largest t.
        is_identity: Whether the calibrator at 0 leaves predictions unchanged.
    """

    make: Callable[[float], "Calibrator"]
    losses: Callable[[float], Tensor]
    penalty: Callable[[Tensor, float], Tensor]
    ends: tuple[float, float]
    is_identity: bool = True

    def best(self, prior_std: float, low: float, high: float) -> float:
        """Return the t in [low, high] with the smallest total loss plus penalty."""

        def penalised(t: float) -> float:
            return self.losses(t).sum().item() + self.penalty(torch.tensor(t, dtype=torch.float64), prior_std).item()

        return losses.minimise_scalar(penalised, low=low, high=high)


@dataclass(frozen=True)
class Calibrator(ABC):
    """A map from predictives to predictives, fitted on held-out examples; its fields are the fitted numbers.

    Fields are plain Python numbers or tuples of them, which a run directory holds as JSON. A subclass is a frozen
    dataclass with `name`, `about`, `__call__` and `identity`. One row of `CALIBRATORS` makes it available by name;
    everything else has a default.

    Attributes:
        name: The method that fits it, a key of `CALIBRATORS`.
        task: The task that it is fitted for.
        valid: Smallest and largest value of a field; 1e-9 and 1e9 by default.
        prior_stds: Strengths of the prior to choose from, passed to the fit function as `prior_std`; smaller is nearer
            to the identity. With infinity, the default, the fit function is called without one.
        alternatives: Other methods that the choice also considers.
    """

    name: ClassVar[str]
    task: ClassVar[str] = "classification"
    valid: ClassVar[tuple[float, float]] = VALID
    prior_stds: ClassVar[tuple[float, ...]] = (math.inf,)
    alternatives: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            check_range(getattr(self, field.name), field.name, *self.valid, f" ({type(self).__name__}.valid)")

    @property
    @abstractmethod
    def about(self) -> str:
        """Describe the map in one line, with the fitted numbers."""

    @abstractmethod
    def __call__(self, pred: Predictive) -> Predictive:
        """Return the calibrated predictive; `pred` is not modified."""

    @classmethod
    @abstractmethod
    def identity(cls, pred: Predictive) -> "Calibrator":
        """Return a calibrator that leaves predictions with the members and outputs of `pred` unchanged."""

    @classmethod
    def path(cls, pred: Predictive, y: Tensor) -> Path | None:
        """Return the calibrators as functions of one number, or None to compare priors by folds."""
        return None

    @classmethod
    def serves(cls, pred: Predictive) -> bool:
        """Return whether it can calibrate predictions of this likelihood; of regressions, Gaussians by default."""
        return pred.task != REGRESSION or pred.is_gaussian


def check_predictive(calibrator: Calibrator, pred: Predictive, **fitted: int) -> None:
    """Refuse a predictive of another task, or of other numbers of members, classes or targets, than was fitted on."""
    if pred.task != calibrator.task:
        got = f"was fitted for {calibrator.task}, and this is a {pred.task}"
        raise Misuse(f"calibrator '{calibrator.name}' {got}: fit another with fit_calibrator")
    width = pred.outputs.shape[-1] if pred.task == "classification" else pred.mean.shape[-1]
    sizes = {"members": len(pred.outputs), "classes": width, "labels": width, "targets": width}
    for axis, count in fitted.items():
        if count != sizes[axis]:
            hint = "fit another with fit_calibrator on predictions like these"
            raise Misuse(f"calibrator '{calibrator.name}' was fitted on {count} {axis}, got {sizes[axis]}: {hint}")


def calibrate(calibrator: Calibrator, pred: Predictive) -> Predictive:
    """Return the calibrated predictive; refuse other results of user-defined calibrators, and NaN that is new."""
    calibrated = calibrator(pred)
    if calibrated is pred or type(calibrator).__module__.startswith("murmuration."):
        return calibrated
    name = f"{type(calibrator).__name__}.__call__ of calibrator '{calibrator.name}'"
    if not isinstance(calibrated, Predictive):
        raise Misuse(f"{name} returned {described(calibrated)}: expected a Predictive, such as pred.with_logits(...)")
    if calibrated.outputs.isnan().any() and not pred.outputs.isnan().any():
        raise Misuse(f"{name} returned NaN for outputs without NaN: expected numbers")
    return calibrated


def check_range(values: Any, name: str, low: float, high: float, of: str = "") -> None:
    """Refuse numbers outside [low, high], NaN included, empty tuples, and anything but plain numbers and tuples.

    `of` says in the message where the range is set.
    """
    if isinstance(values, tuple):
        if not values:
            raise damaged(name, [], "at least one entry")
        for i, value in enumerate(values):
            check_range(value, f"{name}[{i}]", low, high, of)
    elif not isinstance(values, int | float):
        write = f"tuple({name})" if isinstance(values, list) else f"float({name})"
        write = f"tuple({name}.tolist())" if getattr(values, "ndim", 0) else write
        expected = "a number, or a tuple of numbers"
        raise Misuse(f"field {name} of a calibrator is {described(values)}: expected {expected}, such as {write}")
    elif not low <= values <= high:
        raise damaged(name, values, f"a number from {low:g} to {high:g}{of}")


def span(values: Sequence[float]) -> str:
    """Return the smallest and the largest value as text.

    >>> span([1.5, 1.1234]), span([2.0])
    ('1.12 to 1.5', '2')
    """
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"
