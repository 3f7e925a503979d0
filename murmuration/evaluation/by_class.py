"""Classification class by class: the confusion matrix, precision and recall, and the uncertainty decomposition."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.evaluation.coverage import mean_score
from murmuration.evaluation.metrics import ExampleScores, Score
from murmuration.evaluation.metrics.intervals import wilson
from murmuration.evaluation.metrics.scores import measure_of

UNCERTAINTIES = ("aleatoric", "epistemic", "entropy", "expected_entropy", "mutual_information")
GROUPINGS = {"label": "true", "predicted": "predicted"}  # column -> what its classes are


@dataclass(frozen=True)
class ClassScores:
    """Precision, recall and F1 of one class; NaN where there is nothing to divide by."""

    name: str
    examples: int  # of the class
    predicted: int  # examples that are predicted to be of the class
    precision: Score
    recall: Score
    f1: float

    def to_json(self) -> dict[str, Any]:
        scores = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return {"class": self.name, "examples": self.examples, "predicted": self.predicted, **scores}


@dataclass(frozen=True)
class ClassUncertainty:
    """The examples of one class: accuracy, and mean uncertainty of every kind."""

    name: str
    examples: int
    scores: dict[str, Score]  # accuracy, then UNCERTAINTIES

    def to_json(self) -> dict[str, Any]:
        return {"class": self.name, "examples": self.examples, **self.scores}


def confusion_matrix(scores: ExampleScores, classes: int) -> np.ndarray:
    """Return the number of examples (K, K) by true class (rows) and predicted class (columns)."""
    cells = scores.columns["label"] * classes + scores.columns["predicted"]
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)


def class_scores(matrix: np.ndarray, classes: tuple[str, ...]) -> tuple[ClassScores, ...]:
    """Precision and recall of every class with Wilson's intervals, from a confusion matrix (K, K)."""
    right, true, predicted = matrix.diagonal(), matrix.sum(1), matrix.sum(0)
    return tuple(
        ClassScores(
            name,
            int(true[k]),
            int(predicted[k]),
            fraction(right[k], predicted[k]),
            fraction(right[k], true[k]),
            float(2 * right[k] / (true[k] + predicted[k])) if true[k] + predicted[k] else np.nan,
        )
        for k, name in enumerate(classes)
    )


def fraction(count: int, total: int) -> Score:
    """count / total with Wilson's interval; NaN for nothing of nothing."""
    if not total:
        return Score(np.nan, np.nan, np.nan)
    low, high = wilson(np.array(count), np.array(total))
    return Score(float(count / total), float(low), float(high))


def uncertainty_by_class(
    scores: ExampleScores, classes: tuple[str, ...], by: str = "label"
) -> tuple[ClassUncertainty, ...]:
    """Return the uncertainty of every class that has examples, by true class (`label`) or by `predicted` class."""
    columns = scores.columns
    groups = {name: np.flatnonzero(columns[by] == k) for k, name in enumerate(classes)}
    return tuple(
        ClassUncertainty(
            name,
            len(rows),
            {
                "accuracy": mean_score(columns["correct"][rows], proportion=True),
                **{
                    kind: mean_score(columns[kind][rows], measure_of(kind, "classification").bounds)
                    for kind in UNCERTAINTIES
                },
            },
        )
        for name, rows in groups.items()
        if len(rows)
    )


def by_class_json(scores: ExampleScores, classes: tuple[str, ...]) -> dict[str, Any]:
    """Uncertainty by true and by predicted class; nothing for a regression."""
    if not classes:
        return {}
    return {f"by_{kind}_class": uncertainty_by_class(scores, classes, by) for by, kind in GROUPINGS.items()}
