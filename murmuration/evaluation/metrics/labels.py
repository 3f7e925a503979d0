"""Features of multi-label scores, from columns (K, N) of labels and their probabilities."""

import numpy as np

import murmuration.evaluation.metrics.calibration_error as calibration_error
from murmuration.evaluation.metrics.intervals import Feature
from murmuration.evaluation.metrics.per_example import Columns


def label_frequencies(columns: Columns) -> list[Feature]:
    """For each label: whether it is predicted and true, and twice the mean of predicted and true."""
    pairs = list(zip(columns["predicted"], columns["label"], strict=True))
    both, sums = [Feature(p * true * 1.0) for p, true in pairs], [Feature(p + true * 1.0) for p, true in pairs]
    return both + sums


def mean_f1(means: np.ndarray) -> np.ndarray:
    """Return the mean over labels of F1 = 2 TP / (predicted + true), from means (..., 2 K); 0 for absent labels."""
    both, sums = np.split(means, 2, axis=-1)
    return (2 * both / np.where(sums > 0, sums, 1)).mean(-1)


def label_gaps(columns: Columns) -> list[Feature]:
    """For each label, its frequency minus its probability in bins of its probability."""
    pairs = zip(columns["label"], columns["prob"], strict=True)
    return [
        Feature(true - prob, calibration_error.confidence_bins(prob), calibration_error.BINS) for true, prob in pairs
    ]


def mean_gap(means: np.ndarray) -> np.ndarray:
    """Return the sum over bins of absolute gaps, mean over labels, from means (..., K bins)."""
    return np.abs(means).sum(-1) / (means.shape[-1] // calibration_error.BINS)
