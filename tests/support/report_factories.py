"""Evaluations of made-up predictions with every part that a report can show, and reports on them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from prediction_factories import classification_sample, regression_sample

from murmuration.data import ArrayPreparation, Split
from murmuration.evaluation import EvalSet, Evaluation, OodResult, ShiftResult, ShiftSuite, score_predictions
from murmuration.evaluation.coverage import rows_by_class
from murmuration.evaluation.metrics import Score, by_group, score_detection, shown_in
from murmuration.evaluation.ood import histogram_of
from murmuration.evaluation.shift import Cell
from murmuration.prediction.posthoc.fit import fit_posthoc
from murmuration.prediction.predictive import Predictive
from murmuration.reports import Report
from murmuration.reports.findings import differences
from murmuration.runs.manifest import Manifest

NOTHING = ArrayPreparation((0,), (), ())
CORRUPTIONS = ("gaussian_noise", "approximate_motion_blur", "fog")


def evaluation_of(pred: Predictive, y: Any, name: str, posthoc: Any = None, **fields: Any) -> Evaluation:
    """The evaluation of given predictions, calibrated where there are post-hoc steps."""
    classes = tuple("abcdefghij"[: pred.mean.shape[-1]]) if pred.task == "classification" else ()
    eval_set = EvalSet("made up", pred.task, Split(pred.mean, torch.as_tensor(y)), classes, NOTHING, {"test": len(y)})  # type: ignore[arg-type]
    found = score_predictions([(pred, y)], posthoc)
    calibrated = fields.pop("calibrated", posthoc is not None)
    examples = found.view(calibrated)
    views: dict[str, Any] = {}
    if posthoc is not None:
        views = {
            "posthoc": posthoc,
            "before": found.uncalibrated,
            "after": found.calibrated,
            "subsets": rows_by_class(found.uncalibrated, classes),
            "calibrated": calibrated,
        }
    return Evaluation(name, eval_set, examples, examples.scores(resamples=100), **{**views, **fields})


def classification(name: str = "one", *, distortion: float = 1.0, members: int = 3, **fields: Any) -> Evaluation:
    """Predictions of four classes for 300 examples; the same examples whatever the distortion."""
    config = fields.pop("config", None)
    pred, y = classification_sample(300, distortion=distortion, members=members)
    posthoc = fit_posthoc(*classification_sample(200, distortion=distortion, members=members, seed=1), config)
    return evaluation_of(pred, y, name, posthoc, **fields)


def regression(name: str = "one", *, distortion: float = 1.0, members: int = 3, **fields: Any) -> Evaluation:
    """Predictions of one target for 200 examples."""
    pred, y = regression_sample(200, distortion=distortion, members=members)
    posthoc = fit_posthoc(*regression_sample(150, distortion=distortion, members=members, seed=1))
    return evaluation_of(pred, y, name, posthoc, **fields)


def shift_result(task: Any, harm: float = 0.1, **fields: Any) -> ShiftResult:
    """Scores that grow worse by `harm` a severity, by another amount for every corruption."""
    names, severities = shown_in("shift", task), (1, 3, 5)

    def scores(amount: float) -> dict[str, Score]:
        return {name: Score(0.5 + amount, 0.45 + amount, 0.55 + amount) for name in names}

    cells = tuple(
        Cell(corruption, severity, scores(harm * severity * (1 + turn) / 10))
        for turn, corruption in enumerate(CORRUPTIONS)
        for severity in severities
    )
    values = {
        "suite": ShiftSuite(CORRUPTIONS, severities),
        "examples": 300,
        "clean": scores(0.0),
        "cells": cells,
        "by_type": {name: scores(harm * 0.3 * (1 + turn)) for turn, name in enumerate(CORRUPTIONS)},
        "by_severity": {severity: scores(harm * severity / 5) for severity in severities},
        "pooled": scores(harm * 0.6),
    }
    return ShiftResult(**{**values, **fields})  # type: ignore[arg-type]


def ood_result(name: str = "noise", by: float = 1.0) -> OodResult:
    """Two uncertainties of 300 inputs that are higher by `by` standard deviations."""
    rng = np.random.default_rng(0)
    known, ood = rng.standard_normal((2, 300)), by + rng.standard_normal((2, 300))
    keys = ("entropy", "energy")
    detections = {key: score_detection(a, b, resamples=50) for key, a, b in zip(keys, known, ood, strict=True)}
    return OodResult(name, 300, detections, {"entropy": histogram_of(known[0], ood[0])})


def full(kind: Any, name: str, **fields: Any) -> Evaluation:
    """An evaluation with shift, OOD inputs, groups and cost."""
    found = kind(name, **fields)
    site = np.array(["north", "south", "east"])[np.arange(found.examples.inputs) % 3]
    more = {
        "shift": shift_result(found.task),
        "ood": (ood_result(),),
        "groups": {"site": by_group(found.examples, site, resamples=50)},
        "cost": {"seconds": 12.5, "parameters": 1000, "ms_per_prediction": 0.02, "members": 3},
    }
    return kind(name, **{**fields, **more})


def trained(history: list[dict[str, Any]], manifest: Manifest | None = None, draws: int = 1) -> Any:
    """What sections read of an ensemble that was trained."""
    recipe = SimpleNamespace(
        name="made up", weights=SimpleNamespace(draws=draws), weighs=SimpleNamespace(draws=draws), answers=dict
    )
    return SimpleNamespace(history=history, manifest=manifest or Manifest(), recipe=recipe, groups=(), ranges=None)


def report(*evaluations: Evaluation, **fields: Any) -> Report:
    tests = tuple(differences(evaluations)) if len(evaluations) > 1 else ()
    return Report(tuple(evaluations), **{"differences": tests, "command": "murmur compare", "date": "2030", **fields})
