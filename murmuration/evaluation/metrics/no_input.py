"""Features of scores whose reference is a prediction without input: balanced accuracy, R2 and the skill of the CRPS."""

from collections.abc import Iterable

import numpy as np

from murmuration.evaluation.metrics.intervals import Feature, wilson
from murmuration.evaluation.metrics.per_example import Columns


def class_accuracy(correct: np.ndarray, label: np.ndarray, classes: Iterable[int] | None = None) -> np.ndarray:
    """Return values (N,) whose mean is the mean over classes (by default all) of the accuracy on their examples.

    The values have the variance of that mean: the accuracy plus N times its derivative by the weight of the example
    (the infinitesimal jackknife, Efron 1982). Classes without examples are left out.

    >>> float(class_accuracy(np.array([1, 1, 1, 0]), np.array([0, 0, 0, 1])).mean())
    0.5
    """
    numbers = np.unique(label) if classes is None else classes
    rows = [members for k in numbers if len(members := np.flatnonzero(label == k))]
    values = np.zeros(len(label))
    for part in rows:
        values[part] = (correct[part] - correct[part].mean()) / len(part)
    return np.asarray(np.mean([correct[part].mean() for part in rows]) + len(label) / len(rows) * values)


def balanced_interval(columns: Columns) -> tuple[float, float]:
    """Return the 95 % interval of the mean accuracy of classes, from Wilson's intervals of each (Zou & Donner 2008).

    The distances of the mean's ends are the root of the sum of squares of those of the classes, over their number. A
    resample of two examples that are both wrong says that none is right; these intervals know better.
    """
    label = columns["label"]
    totals = np.bincount(label)
    right = np.bincount(label, weights=columns["correct"], minlength=len(totals))[totals > 0]
    totals = totals[totals > 0]
    shares, (low, high) = right / totals, wilson(right, totals)
    mean, down, up = shares.mean(), *(np.sqrt(((end - shares) ** 2).sum()) / len(totals) for end in (low, high))
    return float(mean - down), float(mean + up)


def by_target(values: np.ndarray) -> np.ndarray:
    """Return values of one target (N,) or several (K, N) as (K, N)."""
    return np.atleast_2d(np.asarray(values, dtype=float))


def varied(columns: Columns) -> bool:
    """Return whether every target varies among the examples."""
    return "target" in columns and bool((np.ptp(by_target(columns["target"]), axis=1) > 0).all())


def explained(columns: Columns) -> list[Feature]:
    """For each target: squared error, target and its square, in the units of its standard deviation."""
    target, predicted = by_target(columns["target"]), by_target(columns["predicted"])
    scale = target.std(1, keepdims=True)
    centred, errors = (target - target.mean(1, keepdims=True)) / scale, (predicted - target) / scale
    return [Feature(row) for part in (errors**2, centred, centred**2) for row in part]


def mean_explained(means: np.ndarray) -> np.ndarray:
    """Return 1 minus the mean squared error over the variance, mean over targets, from means (..., 3 K)."""
    errors, first, second = np.split(means, 3, axis=-1)
    spread = second - first**2
    return (1 - errors / np.where(spread > 0, spread, 1)).mean(-1)


def crps_without_input(target: np.ndarray) -> np.ndarray:
    """Return values (N,) whose mean is the CRPS of the distribution of the targets (N,) themselves.

    It is half the mean distance of two targets, A = E|Y - Y'| / 2. With h_i = E|Y - y_i| its derivative by the weight
    of example i is h_i - 2 A, so that h_i - A has mean A and its variance (the infinitesimal jackknife).
    """
    order = np.argsort(target, kind="stable")
    ranked, count = target[order], len(target)
    below = np.arange(count)
    before = np.concatenate([[0.0], np.cumsum(ranked)[:-1]])
    after = ranked.sum() - before - ranked
    distance = np.empty(count)
    distance[order] = (below * ranked - before + after - (count - 1 - below) * ranked) / count
    return distance - distance.mean() / 2


def crps_features(columns: Columns) -> list[Feature]:
    """Return the CRPS of each example, and values whose mean is that of predictions without input."""
    target = by_target(columns["target"])
    centred = target - target.mean(1, keepdims=True)  # sums keep their digits
    return [Feature(columns["crps"]), Feature(np.mean([crps_without_input(row) for row in centred], axis=0))]


def skill(means: np.ndarray) -> np.ndarray:
    """Return 1 minus the score over that without input, from means (..., 2) of both."""
    score, reference = np.moveaxis(means, -1, 0)
    return 1 - score / np.where(reference > 0, reference, 1)
