"""Scores that count every class alike: accuracy, F1, AUROC and average precision, each a mean over classes.

Each function returns a value (N,) per example whose mean is the score, with the same variance: the score plus N times
its derivative by the weight of the example (the infinitesimal jackknife, Efron 1982), so that intervals need no model
of how the classes depend on each other. Classes without examples are left out.
"""

from collections.abc import Iterable

import numpy as np

from murmuration.evaluation.metrics.ranking import placements, precision_influence


def class_accuracy(correct: np.ndarray, label: np.ndarray, classes: Iterable[int]) -> np.ndarray:
    """Return values (N,) whose mean is the mean over these classes of the accuracy on their examples.

    >>> float(class_accuracy(np.array([1, 1, 1, 0]), np.array([0, 0, 0, 1]), (0, 1)).mean())
    0.5
    """
    rows = [members for k in classes if len(members := np.flatnonzero(label == k))]
    values = np.zeros(len(label))
    for part in rows:
        values[part] = (correct[part] - correct[part].mean()) / len(part)
    return np.mean([correct[part].mean() for part in rows]) + len(label) / len(rows) * values


def macro_f1(label: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return values (N,) whose mean is the mean over classes of F1 = 2 TP / (predicted + true)."""
    return _mean_over_classes(_f1(label == k, predicted == k) for k in np.unique(label))


def macro_auroc(label: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Return values (N,) with the mean over classes of the one-against-rest AUROC, from probabilities (N, K)."""
    return _mean_over_classes(_auroc(probs[:, k], label == k) for k in np.unique(label))


def macro_average_precision(label: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Return values (N,) whose mean is the mean over classes of the average precision against the rest."""
    return _mean_over_classes(
        precision_influence({"positive_prob": probs[:, k], "label": (label == k).astype(int)}) for k in np.unique(label)
    )


def _mean_over_classes(parts: Iterable[np.ndarray]) -> np.ndarray:
    influences = list(parts)
    return np.asarray(sum(influences) / len(influences))


def _f1(true: np.ndarray, said: np.ndarray) -> np.ndarray:
    both, either = (true & said).astype(float), true.astype(float) + said
    score = 2 * both.sum() / either.sum()
    return score + len(true) * (2 * both - score * either) / either.sum()


def _auroc(scores: np.ndarray, positive: np.ndarray) -> np.ndarray:
    if positive.all():
        return np.full(len(scores), np.nan)
    place = np.empty(len(scores))  # the fraction of the other kind on the right side
    place[positive] = placements(scores[positive], np.sort(scores[~positive]))
    place[~positive] = 1 - placements(scores[~positive], np.sort(scores[positive]))
    area = place[positive].mean()
    return area + len(scores) * (place - area) / np.where(positive, positive.sum(), (~positive).sum())
