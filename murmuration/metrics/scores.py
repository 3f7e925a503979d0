"""The table of scores: each is a function of means, over inputs, of features of the columns.

This form is what makes intervals cheap: a bootstrap resample changes only the means, so a thousand resamples
of all scores are one matrix product.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from murmuration.errors import unknown
from murmuration.metrics.intervals import Feature
from murmuration.metrics.per_example import Columns
from murmuration.metrics.ranking import (
    error_area,
    error_interval,
    error_placements,
    generalised_influence,
    right_and_wrong,
    risk_influence,
)

BINS = 15  # of every calibration error

Task = Literal["classification", "regression"]
Better = Literal["lower", "higher", "neutral"]
Bounds = tuple[float, float]
POSITIVE, UNIT, BRIER, ANY = (0.0, np.inf), (0.0, 1.0), (0.0, 2.0), (-np.inf, np.inf)


@dataclass(frozen=True)
class Measure:
    """How a score is computed and read."""

    task: Task
    better: Better
    meaning: str  # one line, for tables and help
    features: Callable[[Columns], list[Feature]]
    combine: Callable[[np.ndarray], np.ndarray]  # means (..., F) of the features -> statistic (...)
    bounds: Bounds  # the score lies within, and so does its interval
    finish: Callable[[np.ndarray], np.ndarray] = np.asarray  # increasing: statistic -> score, e.g. a root
    proportion: bool = False  # a mean of zeros and ones, whose spread is known without resampling
    exists: Callable[[Columns], bool] = lambda columns: True  # where it does not, the score is left out
    interval: Callable[[Columns], tuple[float, float]] | None = None  # where there is a better one than by resampling


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
    """Per bin: the share of inputs, and their mean gap."""
    bins, gaps = confidence_bins(columns["confidence"]), gap(columns)
    return [Feature(np.ones_like(gaps), bins, BINS), Feature(gaps, bins, BINS)]


def squared_gap(columns: Columns) -> list[Feature]:
    """Per bin: the share of inputs, their mean gap and mean squared gap; then one over N."""
    bins, gaps = confidence_bins(columns["confidence"]), gap(columns)
    count = Feature(np.full(len(gaps), 1 / len(gaps)))
    return [*counted_gap(columns), Feature(gaps**2, bins, BINS), count]


def sum_of_absolutes(means: np.ndarray) -> np.ndarray:
    return np.abs(means).sum(-1)


def largest_gap(means: np.ndarray) -> np.ndarray:
    share, gaps = np.split(means, 2, axis=-1)
    return (np.abs(gaps) / np.where(share > 0, share, 1)).max(-1)


def unbiased_square(means: np.ndarray) -> np.ndarray:
    """The unbiased estimate of the mean over bins of the squared gap.

    Within a bin of n inputs with gaps d, (n mean(d)^2 - mean(d^2)) / (n - 1) is the mean of d_i d_j over
    pairs i != j: its expectation is the square of the true gap, exactly (a U-statistic; with one confidence
    per bin it is the debiased estimator of Kumar, Liang and Ma 2019). Bins of one input say nothing and
    count zero. The root is a root mean square, so far from calibration it is at least the ECE; at
    calibration it scatters around zero.
    """
    shares, gaps, squares = np.split(means[..., :-1], 3, axis=-1)
    count = 1 / means[..., -1:]
    n = shares * count
    return ((gaps**2 * count - squares) / np.where(n > 1.5, n - 1, np.inf)).sum(-1)


def root(square: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(square, 0))


def signed_root(square: np.ndarray) -> np.ndarray:
    return np.sign(square) * np.sqrt(np.abs(square))


def column(name: str, sign: float = 1.0) -> Callable[[Columns], list[Feature]]:
    return lambda columns: [Feature(sign * columns[name])]


def only(means: np.ndarray) -> np.ndarray:
    return means[..., 0]


def mean_of(name: str, task: Task, better: Better, bounds: Bounds, meaning: str) -> Measure:
    """The score that is the mean of a column."""
    return Measure(task, better, meaning, column(name), only, bounds)


def share_of(name: str, task: Task, better: Better, meaning: str) -> Measure:
    """The score that is the mean of a column of zeros and ones."""
    return replace(mean_of(name, task, better, UNIT, meaning), proportion=True)


def loss_of(name: str, task: Task, bounds: Bounds, meaning: str) -> Measure:
    """The score that is minus the mean of a column of log-probabilities."""
    return Measure(task, "lower", meaning, column(name, sign=-1.0), only, bounds)


def fair(name: str, task: Task, bounds: Bounds, meaning: str) -> Measure:
    """The score that is the mean of a column made for infinitely many members.

    Fewer members are further from the mean of all that could have been trained, so a plain score falls as
    members are added, and ensembles of different sizes cannot be compared by it. By the fair one they can: it
    is the same on average for every S (Ferro 2014; Fricker, Ferro and Stephenson 2013). It exists for what is
    quadratic in the members, and for two members at least; accuracy and nll have none.
    """
    measure = mean_of(name, task, "lower", bounds, f"{meaning} of infinitely many such members, estimated")
    return replace(measure, exists=lambda columns: name in columns)


def error_of(binning: Callable[[np.ndarray], np.ndarray], meaning: str) -> Measure:
    """The calibration error over the bins that `binning` makes."""
    return Measure("classification", "lower", meaning, binned_gap(binning), sum_of_absolutes, UNIT)


C: Task = "classification"
R: Task = "regression"

CLASS_SCORES: dict[str, Measure] = {
    "accuracy": share_of("correct", C, "higher", "share of inputs whose most probable class is right"),
    "nll": loss_of("log_prob", C, POSITIVE, "mean surprise at the label, in nats"),
    "brier": mean_of("brier", C, "lower", BRIER, "squared distance of the probabilities from the label, 0 to 2"),
    "brier_fair": fair("brier_fair", C, BRIER, "Brier score"),
    "ece": error_of(confidence_bins, "mean distance of confidence from accuracy, 15 bins of equal width"),
    "ece_adaptive": error_of(adaptive_bins, "mean distance of confidence from accuracy, 15 bins of equal mass"),
    "ece_debiased": Measure(
        C,
        "lower",
        "root mean square distance of confidence from accuracy, free of the bias of noise; may be below 0",
        squared_gap,
        unbiased_square,
        (-1.0, 1.0),
        signed_root,
    ),
    "mce": Measure(C, "lower", "the largest distance in any of the 15 bins", counted_gap, largest_gap, UNIT),
    "aurc": Measure(C, "lower", "mean error rate when the least sure are left out", risk_influence, only, UNIT),
    "augrc": Measure(C, "lower", "mean share of inputs wrong and kept", generalised_influence, only, (0.0, 0.5)),
    "error_auroc": Measure(
        C,
        "higher",
        "how often a wrong prediction is less confident than a right one; 0.5 is chance",
        error_placements,
        error_area,
        UNIT,
        exists=right_and_wrong,
        interval=error_interval,
    ),
    "entropy": mean_of("entropy", C, "neutral", POSITIVE, "total uncertainty, in nats"),
    "expected_entropy": mean_of("expected_entropy", C, "neutral", POSITIVE, "aleatoric uncertainty, in nats"),
    "mutual_information": mean_of("mutual_information", C, "neutral", POSITIVE, "epistemic uncertainty, in nats"),
    "aleatoric": mean_of("aleatoric", C, "neutral", UNIT, "trace of the label's covariance that members agree on"),
    "epistemic": mean_of("epistemic", C, "neutral", UNIT, "trace of the covariance of members' probabilities"),
    "disagreement": mean_of("disagreement", C, "neutral", UNIT, "share of pairs of members that differ in class"),
    "member_accuracy": mean_of("expected_correct", C, "higher", UNIT, "accuracy of a member alone, on average"),
    "member_nll": loss_of("expected_log_prob", C, POSITIVE, "nll of a member alone, on average"),
    "member_brier": mean_of("expected_brier", C, "lower", BRIER, "Brier score of a member alone, on average"),
    "diversity": mean_of("diversity", C, "neutral", BRIER, "what averaging gains: member_brier minus brier"),
}

NUMBER_SCORES: dict[str, Measure] = {
    "rmse": Measure(R, "lower", "root mean square error", column("squared_error"), only, POSITIVE, root),
    "rmse_fair": replace(fair("squared_error_fair", R, ANY, "root mean square error"), finish=signed_root),
    "mae": mean_of("absolute_error", R, "lower", POSITIVE, "mean absolute error"),
    "nll": loss_of("log_prob", R, ANY, "minus the mean log-density of the target, in nats"),
    "crps": mean_of("crps", R, "lower", POSITIVE, "continuous ranked probability score, in the target's units"),
    "crps_fair": fair("crps_fair", R, ANY, "CRPS"),
    "coverage_50": share_of("inside_50", R, "neutral", "share of targets inside the 50 % interval"),
    "coverage_90": share_of("inside_90", R, "neutral", "share of targets inside the 90 % interval"),
    "coverage_95": share_of("inside_95", R, "neutral", "share of targets inside the 95 % interval"),
    "sharpness": mean_of("interval_width", R, "lower", POSITIVE, "mean width of the 90 % interval"),
    "aurc": Measure(R, "lower", "mean absolute error when the least sure are left out", risk_influence, only, POSITIVE),
    "augrc": Measure(
        R,
        "lower",
        "mean, over coverages, of the absolute errors kept, per input",
        generalised_influence,
        only,
        POSITIVE,
    ),
    "aleatoric_std": mean_of("aleatoric_std", R, "neutral", POSITIVE, "mean std of the noise members expect"),
    "epistemic_std": mean_of("epistemic_std", R, "neutral", POSITIVE, "mean std of the members' means"),
    "member_rmse": Measure(
        R, "lower", "rmse over members and inputs", column("expected_squared_error"), only, POSITIVE, root
    ),
    "member_nll": loss_of("expected_log_prob", R, ANY, "nll of a member alone, on average"),
}

SCORES: dict[Task, dict[str, Measure]] = {C: CLASS_SCORES, R: NUMBER_SCORES}


def score_names(task: Task) -> list[str]:
    """The names of the scores of a task, in the order they are shown."""
    return list(SCORES[task])


def measure_of(name: str, task: Task) -> Measure:
    """The measure of that name."""
    if name not in SCORES[task]:
        raise unknown(f"{task} score", name, SCORES[task])
    return SCORES[task][name]
