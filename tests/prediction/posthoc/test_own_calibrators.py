"""Mistakes in a calibrator of the user: each is one line that says what to write, when the calibrator is fitted."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from prediction_factories import classification_sample

import murmuration as mm
from murmuration.prediction.posthoc import CALIBRATORS, fit_posthoc
from murmuration.prediction.posthoc.calibration import CalibrationMethod
from murmuration.prediction.posthoc.calibrator import Calibrator
from murmuration.prediction.predictive import Predictive


@dataclass(frozen=True)
class Mixed(Calibrator):
    """A share of the uniform distribution mixed in."""

    share: Any
    name: ClassVar[str] = "mixed"
    valid: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def about(self) -> str:
        return "mixed"

    def __call__(self, pred: Predictive) -> Predictive:
        return pred if self.share == 0 else pred.with_logits(pred.logits * 0.9)

    @classmethod
    def identity(cls, pred: Predictive) -> "Mixed":
        return cls(0.0)


class Logits(Mixed):
    def __call__(self, pred: Predictive) -> Any:
        return pred.logits


class NotANumber(Mixed):
    def __call__(self, pred: Predictive) -> Predictive:
        return pred.with_logits(pred.logits * float("nan"))


def fitted(monkeypatch, row: Any, settings: str = "") -> Any:
    monkeypatch.setitem(CALIBRATORS, "mixed", row)
    return fit_posthoc(*classification_sample(60), mm.PostHocConfig(calibrate=f"mixed{settings}"))


def row_of(fit: Any, kind: type[Calibrator] = Mixed) -> CalibrationMethod:
    return CalibrationMethod("mixed", {"classification": (kind, fit)}, ("strength",))


WRONG = {
    "nothing": (lambda: None, "the fit function .* of 'mixed' returned None: expected a calibrator, such as Mixed"),
    "a number": (lambda: 0.3, "returned a float: expected a calibrator, such as Mixed"),
    "a class": (lambda: Mixed, "returned the class Mixed: expected a calibrator"),
    "logits": (
        lambda: Logits(0.1),
        "Logits.__call__ of calibrator 'mixed' returned a Tensor of shape .*: expected a P",
    ),
    "NaN": (lambda: NotANumber(0.1), "NotANumber.__call__ of calibrator 'mixed' returned NaN"),
    "a tensor field": (lambda: Mixed(torch.tensor(0.1)), r"field share .* is a Tensor .* such as float\(share\)"),
    "a tensor field of several": (lambda: Mixed(torch.ones(2)), r"field share .* such as tuple\(share.tolist\(\)\)"),
    "a float32 field": (lambda: Mixed(np.float32(0.1)), r"field share .* is a float32 .* such as float\(share\)"),
    "a list field": (lambda: Mixed([0.1, 0.2]), r"field share .* is a list: .* such as tuple\(share\)"),
    "a text field": (lambda: Mixed("0.1"), r"field share .* is a str: expected a number"),
}


@pytest.mark.parametrize("settings", ["", ":strength=2"])
@pytest.mark.parametrize("case", WRONG)
def test_what_a_fit_function_returns_is_checked_when_it_is_fitted(monkeypatch, case: str, settings: str):
    make, words = WRONG[case]

    def fit(pred: Predictive, y: torch.Tensor, strength: float = 1.0) -> Any:
        return make()

    with pytest.raises(mm.Misuse, match=words):
        fitted(monkeypatch, row_of(fit), settings)


def test_a_row_that_is_something_else_is_named(monkeypatch):
    with pytest.raises(mm.Misuse, match="row 'mixed' of CALIBRATORS is a tuple: write CALIBRATORS"):
        fitted(monkeypatch, (Mixed, lambda pred, y: Mixed(0.0)))


def test_double_precision_numbers_of_numpy_are_plain_numbers(monkeypatch):
    posthoc = fitted(monkeypatch, row_of(lambda pred, y, strength=1.0: Mixed(np.float64(0.1))), ":strength=2")
    assert posthoc.calibrator == Mixed(0.1)
