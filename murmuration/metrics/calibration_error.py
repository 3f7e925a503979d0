"""Calibration errors: how far confidence is from accuracy, in bins of confidence."""

from collections.abc import Callable

import numpy as np

from murmuration.metrics.intervals import Feature
from murmuration.metrics.per_example import Columns

BINS = 15  # of every calibration error


def confidence_bins(confidence: np.ndarray, bins: int = BINS) -> np.ndarray:
    """The equal-width bin (N,) of each confidence: (lo, hi], zero in the first and one in the last.

    >>> confidence_bins(np.array([0.0, 0.5, 0.51, 1.0]), bins=2).tolist()
    [0, 0, 1, 1]
    """
    return np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")


def adaptive_bins(confidence: np.ndarray, bins: int = BINS) -> np.ndarray:
    """The equal-mass bin (N,) of each confidence; equal confidences share a bin, whatever their order."""
    return np.searchsorted(np.quantile(confidence, np.arange(1, bins) / bins), confidence, side="left")


def gap(columns: Columns) -> np.ndarray:
    """Correctness minus confidence (N,): its mean is 0 wherever the model is calibrated."""
    return columns["correct"] - columns["confidence"]


def binned_gap(binning: Callable[[np.ndarray], np.ndarray]) -> Callable[[Columns], list[Feature]]:
    return lambda columns: [Feature(gap(columns), binning(columns["confidence"]), BINS)]


def counted_gap(columns: Columns) -> list[Feature]:
    """Per bin: the fraction of inputs, and their mean gap."""
    bins, gaps = confidence_bins(columns["confidence"]), gap(columns)
    return [Feature(np.ones_like(gaps), bins, BINS), Feature(gaps, bins, BINS)]


def squared_gap(columns: Columns) -> list[Feature]:
    """Per bin: the fraction of inputs, their mean gap and mean squared gap; then one over N."""
    bins, gaps = confidence_bins(columns["confidence"]), gap(columns)
    count = Feature(np.full(len(gaps), 1 / len(gaps)))
    return [*counted_gap(columns), Feature(gaps**2, bins, BINS), count]


def sum_of_absolutes(means: np.ndarray) -> np.ndarray:
    return np.abs(means).sum(-1)


def largest_gap(means: np.ndarray) -> np.ndarray:
    fraction, gaps = np.split(means, 2, axis=-1)
    return (np.abs(gaps) / np.where(fraction > 0, fraction, 1)).max(-1)


def unbiased_square(means: np.ndarray) -> np.ndarray:
    """The unbiased estimate of the mean over bins of the squared gap.

    Within a bin of n inputs with gaps d, (n mean(d)^2 - mean(d^2)) / (n - 1) is the mean of d_i d_j over
    pairs i != j: its expectation is the square of the true gap, exactly (a U-statistic; with one confidence
    per bin it is the debiased estimator of Kumar, Liang and Ma 2019). Bins of one input carry no information and
    count zero. The root is a root mean square, so far from calibration it is at least the ECE; at
    calibration it scatters around zero.
    """
    fractions, gaps, squares = np.split(means[..., :-1], 3, axis=-1)
    count = 1 / means[..., -1:]
    n = fractions * count
    return ((gaps**2 * count - squares) / np.where(n > 1.5, n - 1, np.inf)).sum(-1)
