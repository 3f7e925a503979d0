"""Calibration errors: how far confidence is from accuracy, in bins of confidence.

The absolute gap of a bin is at least the noise of its accuracy, so a plain calibration error is too large on average:
that of a calibrated model is not 0, and falls only as 1 / sqrt(N). Its interval is that of the error without the bias.
"""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from murmuration.evaluation.metrics.intervals import LEVEL, Feature
from murmuration.evaluation.metrics.per_example import Columns

Interval = Callable[[Columns], tuple[float, float]]
BINS = 15  # of every calibration error
DRAWS = 1000  # of the noise of all bins, from which an interval is found
HALVINGS = 15  # of the range in which an end of an interval is sought


def confidence_bins(confidence: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Return the equal-width bin (N,) of each confidence: (lo, hi], zero in the first and one in the last.

    >>> confidence_bins(np.array([0.0, 0.5, 0.51, 1.0]), bins=2).tolist()
    [0, 0, 1, 1]
    """
    return np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")


def adaptive_bins(confidence: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Return the equal-mass bin (N,) of each confidence; equal confidences share a bin, whatever their order."""
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
    return [*counted_gap(columns), Feature(gaps**2, bins, BINS), Feature(np.full(len(gaps), 1 / len(gaps)))]


def sum_of_absolutes(means: np.ndarray) -> np.ndarray:
    return np.abs(means).sum(-1)


def largest_gap(means: np.ndarray) -> np.ndarray:
    fraction, gaps = np.split(means, 2, axis=-1)
    return (np.abs(gaps) / np.where(fraction > 0, fraction, 1)).max(-1)


def calibration_interval(binning: Callable[[np.ndarray], np.ndarray], *, largest: bool = False) -> Interval:
    """Return the 95 % interval of a calibration error (sum of the bins' gaps, or largest) as columns -> (low, high).

    With gaps d of the bins and noise e of their accuracies, the ends are the errors of gaps t d for which the measured
    error is at the upper or lower 2.5 % of those of t d + e: a test of "the gaps are so large", inverted. A calibrated
    model has t = 0, and the interval holds 0 in 97.5 % of cases. The noise is normal, with the variance of (right + 2)
    of (count + 4), so that a bin without an error is not taken for certain (Agresti and Coull 1998), and the upper end
    is at least the largest equal gap of all bins that such noise could hide.
    """

    def interval(columns: Columns) -> tuple[float, float]:
        bins, inputs = binning(columns["confidence"]), len(columns["confidence"])
        weights = None, columns["correct"].astype(float), gap(columns)
        count, right, gaps = (np.bincount(bins, weights=values, minlength=BINS) for values in weights)
        filled = count > 0
        count, right, gaps = count[filled], right[filled], gaps[filled]
        accuracy = (right + 2) / (count + 4)
        variance = count * accuracy * (1 - accuracy)
        noise = np.random.default_rng(0).normal(size=(DRAWS, len(count))) * np.sqrt(variance)

        def error(of: np.ndarray) -> np.ndarray:
            return (np.abs(of) / count).max(-1) if largest else np.abs(of).sum(-1) / inputs

        def end(quantile: float) -> float:
            return measured * crossing(lambda t: float(np.quantile(error(t * gaps + noise), quantile)), measured)

        measured = float(error(gaps))
        hidden = NormalDist().inv_cdf((1 + LEVEL) / 2) * math.sqrt(variance.sum()) / inputs
        return end((1 + LEVEL) / 2), max(end((1 - LEVEL) / 2), hidden)

    return interval


def crossing(rising: Callable[[float], float], level: float) -> float:
    """Return the smallest t >= 0 at which a rising function reaches the level, to 3e-5 of the next power of two.

    >>> round(crossing(lambda t: t**2 - 1, 8.0), 3), crossing(lambda t: t + 5, 3.0)
    (3.0, 0.0)
    """
    if rising(0.0) >= level:
        return 0.0
    low, high = 0.0, 1.0
    while rising(high) < level:
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < level else (low, middle)
    return high


def unbiased_square(means: np.ndarray) -> np.ndarray:
    """Return the unbiased estimate of the mean over bins of the squared gap.

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
