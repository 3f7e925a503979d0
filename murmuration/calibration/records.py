"""What a calibrator is, what it may be applied to, and how its numbers are read back from a file."""

from collections.abc import Sequence
from typing import Any, Protocol

from murmuration.errors import Failure, Misuse
from murmuration.predictive import Predictive

SHOWN = 60  # characters of a damaged value that its message repeats


class Calibrator(Protocol):
    """A frozen map from predictives to better calibrated predictives of the same members, inputs and classes."""

    @property
    def name(self) -> str:
        """The method that fitted it, a key of `CALIBRATORS`."""

    @property
    def task(self) -> str:
        """The task it was fitted for."""

    @property
    def about(self) -> str:
        """What it does, in one plain sentence."""

    def __call__(self, pred: Predictive) -> Predictive:
        """The calibrated predictive; the given one stays as it is."""

    def to_json(self) -> dict[str, Any]:
        """The record that `calibrator_from_json` reads."""


def check_task(calibrator: Calibrator, pred: Predictive) -> None:
    """Nothing, if the predictive is of the task that the calibrator was fitted for."""
    if pred.task != calibrator.task:
        raise Misuse(
            f"calibrator '{calibrator.name}' was fitted for {calibrator.task}, and this is a {pred.task}: "
            "fit another with fit_calibrator"
        )


def check_count(calibrator: Calibrator, what: str, *, fitted: int, got: int) -> None:
    """Nothing, if there are as many members, classes or targets as the calibrator was fitted on."""
    if fitted != got:
        raise Misuse(
            f"calibrator '{calibrator.name}' was fitted on {fitted} {what}, got {got}: "
            "fit another with fit_calibrator on predictions like these"
        )


def span(values: Sequence[float]) -> str:
    """The smallest and the largest value as words.

    >>> span([1.5, 1.1234]), span([2.0])
    ('1.12 to 1.5', '2')
    """
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"


def damaged(what: str, got: Any, expected: str) -> Failure:
    """The error for a record that cannot have been written by `to_json`."""
    shown = repr(got)
    shown = shown if len(shown) <= SHOWN else shown[: SHOWN - 3] + "..."
    return Failure(f"damaged calibrator: {what} is {shown}, expected {expected}; fit it again with fit_calibrator")


def number(value: Any, what: str, *, low: float, high: float) -> float:
    """A number of a record, if it lies in [low, high]; NaN never does."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise damaged(what, value, f"a number from {low:g} to {high:g}")
    return float(value)


def numbers(values: Any, what: str, *, low: float, high: float) -> tuple[float, ...]:
    """One or more numbers of a record, each in [low, high]."""
    if not isinstance(values, list) or not values:
        raise damaged(what, values, "a list of numbers")
    return tuple(number(value, f"{what}[{i}]", low=low, high=high) for i, value in enumerate(values))
