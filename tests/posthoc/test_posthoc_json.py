"""Post-hoc steps in a file, whole and damaged, and configs that cannot be met: each refusal is one line."""

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from posthoc_factories import CASES, fitted
from prediction_factories import made_classes, made_numbers

from murmuration.errors import Failure, Misuse
from murmuration.posthoc import PostHocConfig, to_json
from murmuration.posthoc.fit import check_config, fit_posthoc, posthoc_from_json

EVERY = pytest.mark.parametrize("case", CASES)

# A file in between


@EVERY
def test_json_keeps_every_bit(case):
    guard, pred, y = fitted(case)
    again = posthoc_from_json(json.loads(json.dumps(to_json(guard), allow_nan=False)))
    assert again == guard
    assert torch.equal(again.calibrated(pred).outputs, guard.calibrated(pred).outputs)
    before, after = (each.kept(each.calibrated(pred), y, first=3) for each in (guard, again))
    assert list(before) == list(after)
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


def changed(**parts: Any) -> dict[str, Any]:
    return {**to_json(fitted("classes")[0]), **parts}


def within(place: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """The record with one value inside it replaced."""
    record = copy.deepcopy(to_json(fitted("classes")[0]))
    inner: Any = record
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return record


def lacking(key: str) -> dict[str, Any]:
    return {name: part for name, part in changed().items() if name != key}


DAMAGED = {
    "a list": ([], r"damaged post-hoc record: the record is \[\], expected PostHoc"),
    "nothing": (None, "damaged post-hoc record: the record is None, expected PostHoc"),
    "another record": (changed()["calibrator"], "damaged post-hoc record: the record is .*, expected PostHoc"),
    "no sets": (lacking("sets"), "damaged post-hoc record: field 'sets' of PostHoc is missing"),
    "no count": (lacking("rule_examples"), "damaged post-hoc record: field 'rule_examples' of PostHoc is missing"),
    "sets no list": (changed(sets={}), "sets is {}, expected tuple"),
    "declining no list": (changed(declining=None), "declining is None, expected tuple"),
    "half an example": (changed(rule_examples=1.5), "rule_examples is 1.5, expected int"),
    "true examples": (changed(calibrator_examples=True), "calibrator_examples is True, expected int"),
    "minus one": (changed(rule_examples=-1), "expected two counts"),
    "calibrator a word": (
        changed(calibrator="temperature"),
        "calibrator is 'temperature', expected Calibrator",
    ),
    "calibrator unknown": (within(("calibrator", "type"), "Warmth"), "calibrator is {'type': 'Warmth'"),
    "calibrator a rule": (changed(calibrator=changed()["sets"][0]), "calibrator is .*, expected Calibrator"),
    "temperature below 0": (within(("calibrator", "temperature"), -1.0), "temperature is -1.0, expected a number"),
    "temperature NaN": (within(("calibrator", "temperature"), float("nan")), "temperature is nan"),
    "rule a word": (changed(sets=["lac"]), r"sets\[0\] is 'lac', expected SetRule or IntervalRule"),
    "method": (within(("sets", 0, "method"), "lacc"), "damaged post-hoc record: unknown classification method"),
    "level": (within(("sets", 1, "level"), 2.0), "damaged post-hoc record: level 2.0"),
    "threshold": (within(("sets", 0, "threshold"), "high"), r"sets\[0\].threshold is 'high', expected float"),
    "threshold NaN": (within(("declining", 0, "threshold"), float("nan")), r"declining\[0\].threshold is nan"),
    "costs": (within(("declining", 0, "costs"), [1.0]), "1 costs of an abstention rule: expected two or none"),
    "no costs": (within(("declining", 0, "costs"), []), "rule 'cost' by 'confidence' with 0 costs"),
    "name": (within(("declining", 1, "name"), "luck"), "rule 'luck' by 'confidence' with 0 costs: expected cost, risk"),
    "uncertainty": (within(("declining", 1, "uncertainty"), "entropy"), "rule 'risk' by 'entropy'"),
    "uncertainty of the other task": (
        within(("declining", 1, "uncertainty"), "total_std"),
        "rule 'risk' by 'total_std'",
    ),
    "twice": (within(("sets", 1, "method"), "lac"), "classification, lac, lac, raps, cost"),
    "two tasks": (changed(sets=to_json(fitted("one target")[0])["sets"]), "classification, regression, quantile"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_record_is_refused_in_one_line(kind):
    record, message = DAMAGED[kind]
    with pytest.raises(Failure, match=message) as caught:
        posthoc_from_json(record)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


# Requests that cannot be met


@pytest.mark.parametrize(
    ("config", "task", "message"),
    [
        (PostHocConfig("isotonic"), "regression", "unknown calibrator for regression 'isotonic'"),
        (PostHocConfig("temperatur"), "classification", "did you mean 'temperature'"),
        (PostHocConfig(sets="aps"), "regression", "unknown regression method 'aps'"),
        (PostHocConfig(sets="quantile"), "classification", "unknown classification method 'quantile'"),
    ],
)
def test_settings_that_a_task_does_not_know_are_refused(config, task, message):
    pred, y = made_classes(40) if task == "classification" else made_numbers(40)
    for refused in (lambda: check_config(config, task), lambda: fit_posthoc(pred, y, config)):
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
        PostHocConfig(**fields)


def test_too_few_examples_are_refused():
    pred, y = made_classes(19)
    with pytest.raises(Misuse, match=r"^19 validation examples: expected at least 20 to fit post-hoc steps on$"):
        fit_posthoc(pred, y)
    assert fit_posthoc(*made_classes(20)).rule_examples == 10
