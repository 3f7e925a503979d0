"""Which classes an ensemble is unsure of, and why: noise that members agree on, or what they disagree on."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.evaluation.promises import mean_score
from murmuration.metrics import Evaluation, Score
from murmuration.metrics.scores import measure_of

KINDS = ("aleatoric", "epistemic", "entropy", "expected_entropy", "mutual_information")
GROUPINGS = {"label": "true", "predicted": "predicted"}  # column of an evaluation -> what its classes are


@dataclass(frozen=True)
class ClassDoubt:
    """The examples of one class: how often they are recognised, and how unsure of them the ensemble is on average."""

    name: str
    examples: int
    scores: dict[str, Score]  # accuracy, then the kinds of uncertainty

    def to_json(self) -> dict[str, Any]:
        scores = {name: score.to_json() for name, score in self.scores.items()}
        return {"class": self.name, "examples": self.examples, **scores}


def doubts_by_class(evaluation: Evaluation, classes: tuple[str, ...], by: str = "label") -> tuple[ClassDoubt, ...]:
    """The doubts of every class that has examples, by their true class or by the `predicted` one."""
    columns = evaluation.columns
    groups = {name: np.flatnonzero(columns[by] == k) for k, name in enumerate(classes)}
    return tuple(
        ClassDoubt(
            name,
            len(rows),
            {
                "accuracy": mean_score(columns["correct"][rows], proportion=True),
                **{kind: mean_score(columns[kind][rows], measure_of(kind, "classification").bounds) for kind in KINDS},
            },
        )
        for name, rows in groups.items()
        if len(rows)
    )


def doubts_json(evaluation: Evaluation, classes: tuple[str, ...]) -> dict[str, Any]:
    """The doubts by true and by predicted class; nothing for a regression."""
    if not classes:
        return {}
    return {
        f"by_{told}_class": [each.to_json() for each in doubts_by_class(evaluation, classes, by)]
        for by, told in GROUPINGS.items()
    }
