"""Reliability, risk-coverage and PIT curves."""

from dataclasses import dataclass

import numpy as np

from murmuration.evaluation.metrics.calibration_error import BINS, confidence_bins
from murmuration.evaluation.metrics.intervals import wilson
from murmuration.evaluation.metrics.per_example import Columns
from murmuration.evaluation.metrics.ranking import risks
from murmuration.system.errors import Misuse

POINTS = 200  # of a risk-coverage curve, at most


@dataclass(frozen=True, eq=False)
class Reliability:
    """Confidence against accuracy in bins of equal width; means of an empty bin are NaN."""

    edges: np.ndarray  # (bins + 1,)
    count: np.ndarray  # (bins,)
    confidence: np.ndarray  # (bins,) mean
    accuracy: np.ndarray  # (bins,)
    low: np.ndarray  # (bins,) of the 95 % interval of the accuracy
    high: np.ndarray  # (bins,)


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The mean loss of the most certain fraction of inputs: error rate, or absolute error of a regression."""

    coverage: np.ndarray  # (P,) increasing, ends at 1
    risk: np.ndarray  # (P,)


@dataclass(frozen=True, eq=False)
class PitCurve:
    """The fraction of targets below the predicted quantile of each level."""

    nominal: np.ndarray  # (P,) levels
    observed: np.ndarray  # (P,)
    low: np.ndarray  # (P,) of the 95 % interval of the observed fraction
    high: np.ndarray  # (P,)


def reliability(columns: Columns, bins: int = BINS) -> Reliability:
    """Compute the reliability diagram: accuracy by confidence.

    Args:
        columns: Per-example columns of a classification.
        bins: Number of bins (lo, hi] of equal width.

    Returns:
        Mean confidence and accuracy of every bin, with its interval.

    Raises:
        Misuse: For a regression.
    """
    need(columns, "confidence", "classification")
    bin_of = confidence_bins(columns["confidence"], bins)
    weights = None, columns["confidence"], columns["correct"]
    count, confidence, right = (np.bincount(bin_of, weights=values, minlength=bins) for values in weights)
    with np.errstate(invalid="ignore"):
        means = confidence / count, right / count
    return Reliability(np.linspace(0, 1, bins + 1), count, *means, *wilson(right, count))


def risk_coverage(columns: Columns, points: int = POINTS) -> RiskCoverage:
    """Compute the risk-coverage curve; its area is the score aurc.

    Args:
        columns: Per-example columns.
        points: Largest number of coverages.

    Returns:
        Coverages and the mean loss of the most certain inputs at each.
    """
    risk = risks(columns)
    places = np.unique(np.ceil(np.linspace(0, 1, points + 1)[1:] * len(risk)).astype(int)) - 1
    return RiskCoverage((places + 1) / len(risk), risk[places])


def pit_curve(columns: Columns, points: int = 19) -> PitCurve:
    """Compute the calibration curve of a regression: the fraction of PIT <= level.

    Args:
        columns: Per-example columns of a regression.
        points: Number of levels, evenly inside (0, 1).

    Returns:
        Nominal and observed fractions with intervals.

    Raises:
        Misuse: For a classification.
    """
    need(columns, "pit", "regression")
    nominal, pit = np.arange(1, points + 1) / (points + 1), np.sort(columns["pit"].ravel())
    below = np.searchsorted(pit, nominal, side="right")
    return PitCurve(nominal, below / len(pit), *wilson(below, np.full(points, len(pit))))


def need(columns: Columns, name: str, task: str) -> None:
    if name not in columns:
        raise Misuse(f"columns {', '.join(columns)} have no '{name}': this curve is for {task}")
