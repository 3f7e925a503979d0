"""Out-of-distribution detection: how well uncertainty separates OOD inputs from the evaluation set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from murmuration.evaluation.eval_set import EvalSet
from murmuration.evaluation.metrics import Detection, score_detection
from murmuration.evaluation.ood_scores import FeatureDistance, distance_columns, fit_feature_distance, ood_columns
from murmuration.prediction.ensemble import Ensemble

BINS = 30  # of a histogram
HISTOGRAM_SCORES = ("entropy", "mutual_information", "total_std", "epistemic_std")  # uncertainties drawn as histograms


@dataclass(frozen=True, eq=False)
class OodResult:
    """Detection of one set of OOD inputs by every uncertainty of an ensemble."""

    name: str
    examples: int
    detections: Mapping[str, Detection]  # uncertainty -> how well it separates the two sets
    histograms: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]  # edges (B + 1,), counts (B,) of each set

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "examples": self.examples, "uncertainties": self.detections}


@dataclass(frozen=True, eq=False)
class InDistribution:
    """The uncertainties of an ensemble on the evaluation set, which OOD inputs are compared with."""

    columns: Mapping[str, np.ndarray]  # uncertainty -> (N,)
    distance: FeatureDistance | None


def in_distribution(ensemble: Ensemble, eval_set: EvalSet) -> InDistribution:
    """Compute the uncertainties of the evaluation set.

    Args:
        ensemble: The trained ensemble.
        eval_set: The in-distribution examples.

    Returns:
        Its uncertainties, with feature distances if training examples are available.
    """
    distance = None
    if eval_set.train is not None and not ensemble.models:
        labels = eval_set.train.y if eval_set.task == "classification" else None
        distance = fit_feature_distance(ensemble, eval_set.train.prepared, labels)
    return InDistribution(uncertainties(ensemble, eval_set.split.prepared, distance), distance)


def uncertainties(ensemble: Ensemble, x: Tensor, distance: FeatureDistance | None) -> dict[str, np.ndarray]:
    """Return the uncertainties (N,) of inputs before any calibrator, larger for inputs that look more OOD."""
    tables = [ood_columns(pred) for pred in ensemble.stream(x, calibrated=False, prepared=True)]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    return {**columns, **(distance_columns(distance, ensemble, x) if distance is not None else {})}


def evaluate_ood(ensemble: Ensemble, known: InDistribution, name: str, x: Tensor) -> OodResult:
    """Score how well every uncertainty detects OOD inputs.

    Args:
        ensemble: The trained ensemble.
        known: Uncertainties of the evaluation set.
        name: Name of the OOD inputs.
        x: The prepared OOD inputs (M, ...).

    Returns:
        Detection scores and histograms by uncertainty.
    """
    scores = uncertainties(ensemble, x, known.distance)
    detections = {key: score_detection(known.columns[key], scores[key]) for key in known.columns}
    histograms = {key: histogram_of(known.columns[key], scores[key]) for key in HISTOGRAM_SCORES if key in scores}
    return OodResult(name, len(x), detections, histograms)


def histogram_of(known: np.ndarray, ood: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges (B + 1,) that span both groups, and how many of each lie between them (B,)."""
    both = np.concatenate([known, ood])
    low, high = float(both.min()), float(both.max())
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    return edges, np.histogram(known, edges)[0], np.histogram(ood, edges)[0]
