"""Safeguards in a file, whole and damaged, and wishes that cannot be met: each refusal is one line."""

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from made_predictions import made_classes, made_numbers
from made_safeguards import CASES, fitted

from murmuration.errors import Failure, Misuse
from murmuration.recipe import Wishes
from murmuration.safeguards import check_wishes, fit_safeguards, safeguards_from_json

EVERY = pytest.mark.parametrize("case", CASES)

# A file in between


@EVERY
def test_json_keeps_every_bit(case):
    guard, pred, y = fitted(case)
    again = safeguards_from_json(json.loads(json.dumps(guard.to_json(), allow_nan=False)))
    assert again == guard
    assert torch.equal(again.calibrated(pred).outputs, guard.calibrated(pred).outputs)
    before, after = (each.kept(each.calibrated(pred), y, first=3) for each in (guard, again))
    assert list(before) == list(after)
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


def changed(**parts: Any) -> dict[str, Any]:
    return {**fitted("classes")[0].to_json(), **parts}


def within(place: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """The record with one value inside it replaced."""
    record = copy.deepcopy(fitted("classes")[0].to_json())
    inner: Any = record
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return record


def lacking(key: str) -> dict[str, Any]:
    return {name: part for name, part in changed().items() if name != key}


DAMAGED = {
    "a list": ([], "damaged safeguards: expected an object with calibrator, sets,"),
    "nothing": (None, "damaged safeguards: expected an object"),
    "no sets": (lacking("sets"), "damaged safeguards: expected an object"),
    "no count": (lacking("rule_examples"), "damaged safeguards: expected an object"),
    "sets no list": (changed(sets={}), "expected lists of rules"),
    "declining no list": (changed(declining=None), "expected lists of rules"),
    "half an example": (changed(rule_examples=1.5), r"\[100, 1.5\] examples, expected two counts"),
    "true examples": (changed(calibrator_examples=True), r"\[True, 100\] examples, expected two counts"),
    "minus one": (changed(rule_examples=-1), "expected two counts"),
    "calibrator a word": (changed(calibrator="temperature"), "damaged calibrator: the record is 'temperature'"),
    "calibrator unknown": (within(("calibrator", "name"), "warmth"), "damaged calibrator: name is 'warmth'"),
    "temperature below 0": (within(("calibrator", "temperature"), -1.0), "temperature is -1.0, expected a number"),
    "temperature NaN": (within(("calibrator", "temperature"), float("nan")), "temperature is nan"),
    "rule a word": (changed(sets=["lac"]), "the conformal rule is damaged"),
    "method": (within(("sets", 0, "method"), "lacc"), "the conformal rule is damaged: unknown classification method"),
    "level": (within(("sets", 1, "level"), 2.0), "the conformal rule is damaged: level 2.0"),
    "threshold": (within(("sets", 0, "threshold"), "high"), "field 'threshold' is 'high', expected float"),
    "threshold NaN": (within(("declining", 0, "threshold"), float("nan")), "field 'threshold' is nan"),
    "costs": (within(("declining", 0, "costs"), [1.0]), "1 costs, expected two or none"),
    "no costs": (within(("declining", 0, "costs"), []), "rule 'cost' by 'confidence' with 0 costs"),
    "name": (within(("declining", 1, "name"), "luck"), "rule 'luck' by 'confidence' with 0 costs, expected cost, risk"),
    "uncertainty": (within(("declining", 1, "uncertainty"), "entropy"), "rule 'risk' by 'entropy'"),
    "uncertainty of the other task": (
        within(("declining", 1, "uncertainty"), "total_std"),
        "rule 'risk' by 'total_std'",
    ),
    "twice": (within(("sets", 1, "method"), "lac"), "classification, lac, lac, raps, cost"),
    "two tasks": (changed(sets=fitted("one target")[0].to_json()["sets"]), "classification, regression, quantile"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_record_is_refused_in_one_line(kind):
    record, message = DAMAGED[kind]
    with pytest.raises(Failure, match=message) as caught:
        safeguards_from_json(record)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


# Requests that cannot be met


@pytest.mark.parametrize(
    ("wishes", "task", "message"),
    [
        (Wishes("isotonic"), "regression", "unknown calibrator for regression 'isotonic'"),
        (Wishes("temperatur"), "classification", "did you mean 'temperature'"),
        (Wishes(sets="aps"), "regression", "unknown regression method 'aps'"),
        (Wishes(sets="quantile"), "classification", "unknown classification method 'quantile'"),
    ],
)
def test_wishes_that_a_task_does_not_know_are_refused(wishes, task, message):
    pred, y = made_classes(40) if task == "classification" else made_numbers(40)
    for refused in (lambda: check_wishes(wishes, task), lambda: fit_safeguards(pred, y, wishes)):
        with pytest.raises(Misuse, match=message) as caught:
            refused()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"level": 0.0}, "level=0.0: need a share between 0 and 1, such as 0.9"),
        ({"level": 1.0}, "level=1.0: need a share"),
        ({"level": float("nan")}, "level=nan: need a share"),
        ({"risk": 5.0}, "risk=5.0: need a share between 0 and 1, such as 0.05"),
        ({"risk": -0.1}, "risk=-0.1: need a share"),
        ({"error_cost": 0.0}, "error_cost=0.0: need a positive number"),
        ({"decline_cost": -1.0}, "decline_cost=-1.0: need a positive number"),
        ({"decline_cost": float("inf")}, "decline_cost=inf: need a positive number"),
    ],
)
def test_numbers_out_of_range_are_refused(fields, message):
    with pytest.raises(Misuse, match=message):
        Wishes(**fields)


def test_too_few_examples_are_refused():
    pred, y = made_classes(19)
    with pytest.raises(Misuse, match=r"^19 validation examples: expected at least 20 to fit safeguards on$"):
        fit_safeguards(pred, y)
    assert fit_safeguards(*made_classes(20)).rule_examples == 10
