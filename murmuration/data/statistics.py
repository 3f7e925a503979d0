"""Means and standard deviations of large arrays, and standardising by them, a block of rows at a time."""

from collections.abc import Iterator

import numpy as np

from murmuration.errors import Misuse

BLOCK = 1 << 18  # values held in float64 at once: 2 MB, about what a core caches


def blocks(values: np.ndarray) -> Iterator[slice]:
    """Slices of rows that cover an array (N, ...)."""
    rows = max(1, BLOCK * len(values) // max(values.size, 1))
    return (slice(start, start + rows) for start in range(0, len(values), rows))


def along(values: np.ndarray, rank: int) -> np.ndarray:
    """Statistics (C,) shaped to broadcast over arrays (N, C, ...) of the given rank."""
    return values.reshape(1, -1, *[1] * (rank - 2))


def moments(values: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (C,) float64 over all axes but the second of values (N, C, ...).

    Two passes (mean, then squared deviations), so nothing cancels. A channel that never changes gets the
    deviation 1.
    """
    axes = (0, *range(2, values.ndim))
    count = values.size // values.shape[1]
    mean = sum(values[rows].sum(axis=axes, dtype=np.float64) for rows in blocks(values)) / count
    centre = along(mean, values.ndim)
    with np.errstate(over="ignore"):
        squares = sum(np.square(values[rows].astype(np.float64) - centre).sum(axis=axes) for rows in blocks(values))
    std = np.sqrt(squares / count)
    if not np.isfinite(std).all():
        raise Misuse(f"{name} holds values too large to standardise: expected less than about 1e150")
    constant = (values.min(axis=axes) == values.max(axis=axes)) | (std == 0)
    return mean, np.where(constant, 1.0, std)


def standardise(values: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """(values - mean) / std as float32 (N, C, ...), computed in float64 block by block."""
    centre, scale = along(mean, values.ndim), along(std, values.ndim)
    out = np.empty(values.shape, dtype=np.float32)
    for rows in blocks(values):
        out[rows] = (values[rows] - centre) / scale
    return out
