"""Post-hoc steps in a file, whole and damaged, and configs that cannot be met: each refusal is one line."""

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from posthoc_factories import CASES, fitted
from prediction_factories import classification_sample, regression_sample

from murmuration.prediction.posthoc import PostHocConfig, to_json
from murmuration.prediction.posthoc.fit import check_config, fit_posthoc, posthoc_from_json
from murmuration.system.errors import Failure, Misuse

EVERY = pytest.mark.parametrize("case", CASES)

# A file in between


@EVERY
def test_json_keeps_every_bit(case):
    posthoc, pred, y = fitted(case)
    again = posthoc_from_json(json.loads(json.dumps(to_json(posthoc), allow_nan=False)))
    assert again == posthoc
    assert torch.equal(again.calibrated(pred).outputs, posthoc.calibrated(pred).outputs)
    before, after = (each.per_example(each.calibrated(pred), y, first=3) for each in (posthoc, again))
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
    "no sets": (lacking("conformal"), "damaged post-hoc record: field 'conformal' of PostHoc is missing"),
    "no count": (lacking("rule_examples"), "damaged post-hoc record: field 'rule_examples' of PostHoc is missing"),
    "sets no list": (changed(conformal={}), "conformal is {}, expected tuple"),
    "abstention no list": (changed(abstention=None), "abstention is None, expected tuple"),
    "half an example": (changed(rule_examples=1.5), "rule_examples is 1.5, expected int"),
    "true examples": (changed(calibrator_examples=True), "calibrator_examples is True, expected int"),
    "minus one": (changed(rule_examples=-1), "expected two counts"),
    "calibrator a word": (changed(calibrator="temperature"), "calibrator is 'temperature', expected Calibrator"),
    "calibrator unknown": (within(("calibrator", "type"), "Warmth"), "the calibrator Warmth is unknown here"),
    "calibrator a rule": (changed(calibrator=changed()["conformal"][0]), "calibrator is .*, expected Calibrator"),
    "temperature below 0": (within(("calibrator", "temperature"), -1.0), "temperature is -1.0, expected a number"),
    "temperature NaN": (within(("calibrator", "temperature"), float("nan")), "temperature is nan"),
    "rule a word": (changed(conformal=["lac"]), r"conformal\[0\] is 'lac', expected SetRule or IntervalRule"),
    "method": (within(("conformal", 0, "method"), "lacc"), "damaged post-hoc record: unknown classification method"),
    "coverage": (within(("conformal", 1, "coverage"), 2.0), "damaged post-hoc record: coverage 2.0"),
    "threshold": (within(("conformal", 0, "threshold"), "high"), r"conformal\[0\].threshold is 'high', expected float"),
    "threshold NaN": (within(("abstention", 0, "threshold"), float("nan")), r"abstention\[0\].threshold is nan"),
    "costs": (within(("abstention", 0, "costs"), [1.0]), "1 costs of an abstention rule: expected two or none"),
    "no costs": (within(("abstention", 0, "costs"), []), "rule 'cost' by 'confidence' with 0 costs"),
    "name": (
        within(("abstention", 1, "name"), "luck"),
        "rule 'luck' by 'confidence' with 0 costs: expected cost, error-rate",
    ),
    "uncertainty": (within(("abstention", 1, "uncertainty"), "entropy"), "rule 'error-rate' by 'entropy'"),
    "uncertainty of the other task": (
        within(("abstention", 1, "uncertainty"), "total_std"),
        "rule 'error-rate' by 'total_std'",
    ),
    "twice": (within(("conformal", 1, "method"), "lac"), "classification, lac, lac, raps, mondrian, cost"),
    "two tasks": (
        changed(conformal=to_json(fitted("one target")[0])["conformal"]),
        "classification, regression, quantile",
    ),
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
        (PostHocConfig(conformal="aps"), "regression", "conformal='aps': unknown conformal method for regression"),
        (PostHocConfig(conformal="quantile"), "classification", "conformal='quantile': unknown conformal method"),
    ],
)
def test_settings_that_a_task_does_not_know_are_refused(config, task, message):
    pred, y = classification_sample(40) if task == "classification" else regression_sample(40)
    for refused in (lambda: check_config(config, task), lambda: fit_posthoc(pred, y, config)):
        with pytest.raises(Misuse, match=message) as caught:
            refused()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"coverage": 0.0}, "coverage=0.0: need a number between 0 and 1, such as 0.9"),
        ({"coverage": 1.0}, "coverage=1.0: need a number"),
        ({"coverage": float("nan")}, "coverage=nan: need a number"),
        ({"max_error_rate": 5.0}, "max_error_rate=5.0: need a number between 0 and 1, such as 0.05"),
        ({"max_error_rate": -0.1}, "max_error_rate=-0.1: need a number"),
        ({"error_cost": 0.0}, "error_cost=0.0: need a positive number"),
        ({"abstain_cost": -1.0}, "abstain_cost=-1.0: need a positive number"),
        ({"abstain_cost": float("inf")}, "abstain_cost=inf: need a positive number"),
    ],
)
def test_numbers_out_of_range_are_refused(fields, message):
    with pytest.raises(Misuse, match=message):
        PostHocConfig(**fields)


def test_too_few_examples_are_refused():
    pred, y = classification_sample(19)
    with pytest.raises(Misuse, match=r"^19 validation examples: expected at least 20 to fit post-hoc steps on$"):
        fit_posthoc(pred, y)
    assert fit_posthoc(*classification_sample(20)).rule_examples == 10


def test_a_record_from_before_there_were_baselines_widens_nothing():
    posthoc, pred, _ = fitted("classes")
    assert posthoc.baseline is not None
    again = posthoc_from_json(json.loads(json.dumps(lacking("baseline"))))
    assert again.baseline is None
    assert again.widened(pred) is pred
