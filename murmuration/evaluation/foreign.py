"""How well uncertainty tells foreign inputs from familiar ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from murmuration.ensemble import Ensemble
from murmuration.evaluation.exams import Exam
from murmuration.metrics import Detection, score_detection
from murmuration.ood import FeatureDistance, distance_columns, fit_feature_distance, ood_columns

BINS = 30  # of a histogram
SHOWN = ("entropy", "mutual_information", "total_std", "epistemic_std")  # uncertainties drawn as histograms


@dataclass(frozen=True, eq=False)
class ForeignFound:
    """One set of inputs that the ensemble should not know, beside the exam's own."""

    name: str
    examples: int
    detections: Mapping[str, Detection]  # uncertainty -> how well it tells them apart
    spreads: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]  # edges (B + 1,), familiar and foreign counts (B,)

    def to_json(self) -> dict[str, Any]:
        told = {name: each.to_json() for name, each in self.detections.items()}
        return {"name": self.name, "examples": self.examples, "uncertainties": told}


@dataclass(frozen=True, eq=False)
class Familiar:
    """What an ensemble makes of inputs like those it learned from; foreign sets are held against it."""

    columns: Mapping[str, np.ndarray]  # uncertainty -> (N,)
    distance: FeatureDistance | None


def familiar_of(ensemble: Ensemble, exam: Exam) -> Familiar:
    """The uncertainties of the exam's own examples; distances in feature space where training examples are at hand."""
    distance = None
    if exam.train is not None:
        labels = exam.train.y if exam.task == "classification" else None
        distance = fit_feature_distance(ensemble, exam.train.x, labels)
    return Familiar(uncertainties(ensemble, exam.split.x, distance), distance)


def uncertainties(ensemble: Ensemble, x: Tensor, distance: FeatureDistance | None) -> dict[str, np.ndarray]:
    """The uncertainties (N,) of inputs, larger for stranger ones, as the members make them before any calibrator."""
    tables = [ood_columns(pred) for pred in ensemble.stream(x, calibrated=False)]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    return {**columns, **(distance_columns(distance, ensemble, x) if distance is not None else {})}


def assess_foreign(ensemble: Ensemble, familiar: Familiar, name: str, x: Tensor) -> ForeignFound:
    """How well every uncertainty of the ensemble tells foreign inputs x (M, ...) from the familiar ones."""
    strange = uncertainties(ensemble, x, familiar.distance)
    detections = {key: score_detection(familiar.columns[key], strange[key]) for key in familiar.columns}
    spreads = {key: counted(familiar.columns[key], strange[key]) for key in SHOWN if key in strange}
    return ForeignFound(name, len(x), detections, spreads)


def counted(familiar: np.ndarray, foreign: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges (B + 1,) that span both groups, and how many of each lie between them (B,)."""
    both = np.concatenate([familiar, foreign])
    low, high = float(both.min()), float(both.max())
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    return edges, np.histogram(familiar, edges)[0], np.histogram(foreign, edges)[0]
