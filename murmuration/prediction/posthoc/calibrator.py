"""`Calibrator`: the base class of the fitted maps from predictives to predictives, and the checks that they share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from murmuration.prediction.posthoc.serialization import damaged
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse

VALID = 1e-9, 1e9  # range of a temperature or factor in a record


@dataclass(frozen=True)
class Calibrator(ABC):
    """A map from predictives to predictives, fitted on held-out examples; its fields are the fitted numbers."""

    name: ClassVar[str]  # the method that fitted it, a key of `CALIBRATORS`
    task: ClassVar[str] = "classification"  # it was fitted for
    valid: ClassVar[tuple[float, float]] = VALID

    def __post_init__(self) -> None:
        for field in fields(self):
            check_range(getattr(self, field.name), field.name, *self.valid)

    @property
    @abstractmethod
    def about(self) -> str:
        """A one-line description with the fitted numbers."""

    @abstractmethod
    def __call__(self, pred: Predictive) -> Predictive:
        """The calibrated predictive; the given one is not modified."""


def check_predictive(calibrator: Calibrator, pred: Predictive, **fitted: int) -> None:
    """Refuse a predictive of another task, or of other numbers of members, classes or targets, than was fitted on."""
    if pred.task != calibrator.task:
        raise Misuse(
            f"calibrator '{calibrator.name}' was fitted for {calibrator.task}, and this is a {pred.task}: "
            "fit another with fit_calibrator"
        )
    width = pred.outputs.shape[-1] if pred.task == "classification" else pred.mean.shape[-1]
    got = {"members": len(pred.outputs), "classes": width, "labels": width, "targets": width}
    for what, count in fitted.items():
        if count != got[what]:
            raise Misuse(
                f"calibrator '{calibrator.name}' was fitted on {count} {what}, got {got[what]}: "
                "fit another with fit_calibrator on predictions like these"
            )


def check_range(values: Any, name: str, low: float, high: float) -> None:
    """Refuse numbers outside [low, high], NaN included, and empty tuples of numbers or tuples."""
    if isinstance(values, tuple):
        if not values:
            raise damaged(name, [], "at least one entry")
        for i, value in enumerate(values):
            check_range(value, f"{name}[{i}]", low, high)
    elif not low <= values <= high:
        raise damaged(name, values, f"a number from {low:g} to {high:g}")


def span(values: Sequence[float]) -> str:
    """The smallest and the largest value as text.

    >>> span([1.5, 1.1234]), span([2.0])
    ('1.12 to 1.5', '2')
    """
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"
