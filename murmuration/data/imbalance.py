"""Long-tailed training data: classes of very different size, cut from balanced ones."""

import numpy as np

from murmuration.system.errors import Misuse


def long_tail_counts(largest: int, classes: int, factor: float) -> list[int]:
    """Return the size of each class, from `largest` down to `largest` / `factor`: n_i = n_max factor^(-i / (C - 1)).

    >>> long_tail_counts(5000, 10, 100)
    [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    if factor < 1:
        raise Misuse(f"imbalance={factor:g}: expected the size of the largest class over the smallest, at least 1")
    if classes < 2:
        raise Misuse(f"imbalance={factor:g} of {classes} class: expected at least 2")
    return [int(largest * factor ** (-i / (classes - 1))) for i in range(classes)]


def long_tail_rows(labels: np.ndarray, classes: int, factor: float, seed: int) -> np.ndarray:
    """Select rows of labels (N,) that form a long tail: the first class has `factor` times the rows of the last.

    The first class gets as many rows as the smallest class has in `labels`. Rows are drawn at random by `seed` and
    class, and returned in order.
    """
    smallest = int(np.bincount(labels, minlength=classes).min())
    counts = long_tail_counts(smallest, classes, factor)
    if counts[-1] < 1:
        raise Misuse(f"imbalance={factor:g} of classes with {smallest} examples: expected at most {smallest}")
    rows = [
        np.random.default_rng((seed, label)).permutation(np.flatnonzero(labels == label))[:count]
        for label, count in enumerate(counts)
    ]
    return np.sort(np.concatenate(rows))
