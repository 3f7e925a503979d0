"""What sets and intervals are worth on each example: plain columns, on which any mean or group can be taken."""

from typing import Any

import numpy as np

from murmuration.errors import Misuse
from murmuration.predictive_checks import checked_labels

Regions = np.ndarray | tuple[np.ndarray, np.ndarray]  # sets (N, K), or the ends (low, high), each (N, K)


def coverage(regions: Regions, y: Any) -> np.ndarray:
    """Whether each truth is inside (N,): bool for sets and for one target, the share of targets for several.

    >>> coverage(np.array([[True, False], [True, True]]), [1, 0]).tolist()
    [False, True]
    """
    if isinstance(regions, tuple):
        low, high = regions
        targets = np.asarray(y, dtype=float)
        targets = targets[:, None] if targets.ndim == 1 and low.shape[1] == 1 else targets
        if targets.shape != low.shape:
            raise Misuse(f"targets of shape {targets.shape} for intervals of shape {low.shape}: expected the same")
        inside = (low <= targets) & (targets <= high)
        return inside[:, 0] if inside.shape[1] == 1 else inside.mean(1)
    labels = checked_labels(y, inputs=len(regions), classes=regions.shape[1]).numpy()
    return np.take_along_axis(regions, labels[:, None], axis=1)[:, 0]


def sizes(regions: Regions) -> np.ndarray:
    """How large each region is (N,): the number of classes, or the mean width over targets."""
    if isinstance(regions, tuple):
        return (regions[1] - regions[0]).mean(1)
    return regions.sum(1)
