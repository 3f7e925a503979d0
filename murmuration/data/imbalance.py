"""Long-tailed training data: classes of very different size, cut from balanced ones."""

import hashlib
from dataclasses import replace

import numpy as np

from murmuration.data.dataset import Data
from murmuration.errors import Misuse


def long_tail_counts(largest: int, classes: int, factor: float) -> list[int]:
    """Examples of each class, from `largest` down to `largest` / `factor`: n_i = n_max factor^(-i / (C - 1)).

    >>> long_tail_counts(5000, 10, 100)
    [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    if factor < 1:
        raise Misuse(f"imbalance={factor:g}: expected the size of the largest class over the smallest, at least 1")
    if classes < 2:
        raise Misuse(f"imbalance={factor:g} of {classes} class: expected at least 2")
    return [int(largest * factor ** (-i / (classes - 1))) for i in range(classes)]


def long_tailed(data: Data, factor: float, seed: int = 0) -> Data:
    """The data with a long-tailed training split: the first class has `factor` times as many examples as the last.

    It has as many as the smallest class had before. Examples are drawn at random by `seed`; validation and test splits,
    and the preparation, stay as they are. A run on such data is continued with the data given again.
    """
    if data.task != "classification":
        raise Misuse(f"imbalance={factor:g} for data of {data.task}: expected a classification")
    labels = data.train.y.numpy()
    smallest = int(np.bincount(labels, minlength=len(data.classes)).min())
    counts = long_tail_counts(smallest, len(data.classes), factor)
    if counts[-1] < 1:
        raise Misuse(f"imbalance={factor:g} of classes with {smallest} examples: expected at most {smallest}")
    kept = [
        np.random.default_rng((seed, label)).permutation(np.flatnonzero(labels == label))[:count]
        for label, count in enumerate(counts)
    ]
    name = f"{data.name}, imbalance {factor:g}"
    told = hashlib.sha256(f"{data.fingerprint} {factor!r} {seed}".encode()).hexdigest()
    return replace(data, train=data.train[np.sort(np.concatenate(kept))], name=name, fingerprint=told, source=None)
