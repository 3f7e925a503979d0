"""How far a number computed from a sample may be off: bootstrap and Wilson intervals. No models here."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

LEVEL = 0.95  # of every interval
GROUPS = 10_000  # at most so many units are resampled: more inputs are first summed into random groups
CHUNK = 100  # resamples held in memory at once


@dataclass(frozen=True)
class Feature:
    """A quantity of each input whose mean over inputs is taken, all together or in bins."""

    values: np.ndarray  # (N,)
    bins: np.ndarray | None = None  # (N,) index below `size`: the values count for this bin only
    size: int = 1


def group_of(count: int, seed: int, most: int = GROUPS) -> np.ndarray:
    """Return the group (N,) of each input: itself, or one of `most` random groups when there are more inputs.

    Sums of random groups are independent and alike, as single inputs are, so resampling groups estimates the
    same spread: its standard deviation is off by about 1/sqrt(2 * 10,000) = 0.7 %.
    """
    return np.arange(count) if count <= most else np.random.default_rng(seed).permutation(count) % most


def group_sums(features: list[Feature], groups: np.ndarray) -> np.ndarray:
    """Return the sums (G, F) of all features over the inputs of each group, side by side."""
    count = int(groups.max()) + 1
    parts = []
    for feature in features:
        cell = groups if feature.bins is None else groups * feature.size + feature.bins
        sums = np.bincount(cell, weights=feature.values, minlength=count * feature.size)
        parts.append(sums.reshape(count, feature.size))
    return np.concatenate(parts, axis=1)


def bootstrap_means(sums: np.ndarray, sizes: np.ndarray, *, resamples: int, seed: int) -> np.ndarray:
    """Return the means (B, F) per input, in B resamples, of sums (G, F) over groups of those sizes (G,)."""
    rng, count = np.random.default_rng(seed), len(sums)
    means = np.empty((resamples, sums.shape[1]))
    for start in range(0, resamples, CHUNK):
        rows = min(CHUNK, resamples - start)
        draws = rng.integers(count, size=(rows, count)) + np.arange(rows)[:, None] * count
        counts = np.bincount(draws.ravel(), minlength=rows * count).reshape(rows, count).astype(float)
        means[start : start + rows] = counts @ sums / (counts @ sizes)[:, None]
    return means


def percentile_interval(value: float, resampled: np.ndarray) -> tuple[float, float]:
    """Return the 95 % percentile interval (low, high) of resampled values, shifted by the bias the resamples show.

    A mean has none, and gets the plain percentile interval. A sum of absolute values, such as a mean of ECE over
    corruptions, grows with noise: its resamples are too large by about as much as the value itself already is.
    """
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - (resampled.mean() - value)
    return min(float(low), value), max(float(high), value)


def wilson(successes: np.ndarray, trials: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % interval (low, high) of proportions (Wilson 1927): never empty, never outside [0, 1].

    >>> [round(float(end), 4) for end in wilson(np.array(10), np.array(10))]
    [0.7225, 1.0]
    """
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    safe = np.maximum(trials, 1)
    share = successes / safe
    centre = (share + z**2 / (2 * safe)) / (1 + z**2 / safe)
    half = z / (1 + z**2 / safe) * np.sqrt(share * (1 - share) / safe + z**2 / (4 * safe**2))
    low, high = np.clip(centre - half, 0, share), np.clip(centre + half, share, 1)
    return np.where(trials > 0, low, 0.0), np.where(trials > 0, high, 1.0)
