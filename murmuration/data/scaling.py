"""Scaling of numeric columns: standardised, robust with smooth clipping, or by quantiles to a normal distribution.

A `Scaling` holds the statistics of D columns, or of the channels of arrays (N, C, ...), as plain numbers:

    z = (x - centre) / scale                      standardise: mean and standard deviation; 0 if constant in training
    z = f((x - centre) / scale)                   robust: median and interquartile range, f(z) = z / sqrt(1 + (z / 3)^2)
    z = Phi^-1(F(x))                              quantile: F interpolates the quantiles of the training rows

Robust scaling is that of RealMLP (Holzmueller et al. 2024): a column whose quartiles are equal is divided by half its
range, and no value gets further from 0 than 3. The quantile transform is scikit-learn's `QuantileTransformer`, but for
the smallest and the largest value: rows that share it get the middle of their probabilities, not 0 or 1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from murmuration.data.file_rows import BLOCK, blocks, column_groups, pieces
from murmuration.system.errors import Misuse

Way = Literal["standardise", "robust", "quantile"]
WAYS: tuple[Way, ...] = get_args(Way)
CLIP = 3.0  # the bound of smooth clipping, in interquartile ranges
MAX_QUANTILES, MIN_QUANTILES, ROWS_PER_QUANTILE = 1000, 10, 30
LARGEST_SCALED = 1e100  # whose square is finite
EDGE = 1e-7  # probabilities closer to 0 or 1 than this become this
NO_SCALE = 1e100  # of a column that is constant in training: it becomes 0, whatever its later values


@dataclass(frozen=True)
class Scaling:
    """The scaling of D columns or channels; `clip` belongs to robust scaling, `quantiles` to the quantile transform."""

    centre: tuple[float, ...]  # (D,)
    scale: tuple[float, ...]  # (D,)
    clip: float | None = None
    quantiles: tuple[tuple[float, ...], ...] = ()  # (D, Q) each ascending

    @cached_property
    def _statistics(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.centre), np.array(self.scale)

    @property
    def linear(self) -> bool:
        """Whether scaled values are a linear function of raw ones."""
        return self.clip is None and not self.quantiles

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Scale raw values (N, D) or (N, C, ...) in float64, block by block, and return them as float32."""
        if values.size <= BLOCK:
            return self.single(values)
        out = np.empty(values.shape, dtype=np.float32)
        for rows in blocks(values):
            out[rows] = self.single(values[rows], rows.start)
        return out

    def single(self, values: np.ndarray, first: int = 0) -> np.ndarray:
        """Scale one block to float32; refuse values beyond it by their index, where that of row 0 is `first`."""
        with np.errstate(over="ignore"):
            scaled: np.ndarray = self.exact(values).astype(np.float32, order="C")
        if (bad := ~np.isfinite(scaled)).any():
            spot = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
            index, expected = ", ".join(map(str, (spot[0] + first, *spot[1:]))), "expected up to about 1e38"
            raise Misuse(f"x[{index}] is {values[spot]:.6g}, too large for single precision: {expected}")
        return scaled

    def exact(self, values: np.ndarray) -> np.ndarray:
        """Scale raw values (N, D) or (N, C, ...) in float64."""
        if self.quantiles:
            return np.stack([to_normal(x, np.array(q)) for x, q in zip(values.T, self.quantiles, strict=True)], axis=1)
        centre, scale = (per_channel(statistic, values.ndim) for statistic in self._statistics)
        z: np.ndarray = (values - centre) / scale
        return z if self.clip is None else smooth_clip(z, self.clip)

    def invert(self, z: np.ndarray) -> np.ndarray:
        """Recover raw values (N, D) from scaled ones; values outside the training range may become its end."""
        if self.quantiles:
            return np.stack([from_normal(x, np.array(q)) for x, q in zip(z.T, self.quantiles, strict=True)], axis=1)
        centre, scale = (per_channel(statistic, z.ndim) for statistic in self._statistics)
        return (z if self.clip is None else smooth_unclip(z, self.clip)) * scale + centre


def fit_scaling(values: Any, way: Way, name: str) -> Scaling:
    """Fit the scaling of raw values (N, D), or of arrays (N, C, ...) to standardise; `name` is for messages.

    Quantiles of rows in files are exact: columns are read and sorted in groups.
    """
    if way == "standardise":
        mean, std = mean_std(values, name, NO_SCALE if values.ndim == 2 else 1.0)
        return Scaling(tuple(mean.tolist()), tuple(std.tolist()))
    if values.ndim != 2:
        raise Misuse(f"prepare='{way}' for examples of shape {values.shape[1:]}: expected rows of numbers, (N, D)")
    if way == "robust":
        ranges = [median_range(columns) for columns in column_groups(values)]
        median, scale = (np.concatenate(statistic) for statistic in zip(*ranges, strict=True))
        return Scaling(tuple(median.tolist()), tuple(scale.tolist()), CLIP)
    levels = np.linspace(0, 1, int(np.clip(len(values) // ROWS_PER_QUANTILE, MIN_QUANTILES, MAX_QUANTILES)))
    groups = [np.maximum.accumulate(np.quantile(columns, levels, axis=0)).T for columns in column_groups(values)]
    quantiles = tuple(map(tuple, np.concatenate(groups).tolist()))  # (D, Q)
    return Scaling((0.0,) * len(quantiles), (1.0,) * len(quantiles), quantiles=quantiles)


def median_range(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return medians and interquartile ranges (D,) of values (N, D); half the range, or 1, if the quartiles are equal.

    >>> [row.tolist() for row in median_range(np.array([[0.0, 0, 7], [0, 1, 7], [0, 2, 7], [0, 3, 7], [8, 4, 7]]))]
    [[0.0, 2.0, 7.0], [4.0, 2.0, 1.0]]
    """
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    scale = np.where(high - low == 0, 0.5 * (values.max(axis=0) - values.min(axis=0)), high - low)
    return median, np.where(scale == 0, 1.0, scale)


def smooth_clip(z: np.ndarray, bound: float = CLIP) -> np.ndarray:
    """Return z / sqrt(1 + (z / bound)^2): nearly z around 0, and never further from 0 than the bound."""
    inside = np.clip(z, -LARGEST_SCALED, LARGEST_SCALED)
    return inside / np.sqrt(1 + np.square(inside / bound))


def smooth_unclip(z: np.ndarray, bound: float = CLIP) -> np.ndarray:
    """Invert `smooth_clip`; at the bound itself, invert the next smaller number in single precision."""
    inside = np.clip(z, -bound * (1 - 2**-24), bound * (1 - 2**-24))
    unclipped: np.ndarray = inside / np.sqrt(1 - np.square(inside / bound))
    return unclipped


def to_normal(x: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """Convert numbers to normal scores (N,) by linear interpolation between ascending quantiles (Q,).

    Where quantiles are equal, take the mean of the smallest and the largest probability.
    """
    from scipy.special import ndtri

    x, levels = x.astype(np.float64), np.linspace(0, 1, len(quantiles))
    rising = np.interp(x, quantiles, levels)
    falling = -np.interp(-x, -quantiles[::-1], -levels[::-1])
    scores: np.ndarray = ndtri(np.clip(0.5 * (rising + falling), EDGE, 1 - EDGE))
    return scores


def from_normal(z: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """Convert normal scores (N,) to numbers."""
    from scipy.special import ndtr

    return np.interp(ndtr(z.astype(np.float64)), np.linspace(0, 1, len(quantiles)), quantiles)


def per_channel(values: np.ndarray, rank: int) -> np.ndarray:
    """Reshape statistics (C,) to broadcast over arrays (N, C, ...) of this rank."""
    return values.reshape(1, -1, *[1] * (rank - 2))


def mean_std(values: Any, name: str, constant_std: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Compute mean and standard deviation (C,) float64 over all axes but the second of values (N, C, ...).

    `values` is an array, or rows in files, which are read block by block. Two passes (mean, then squared deviations)
    avoid cancellation. A constant channel gets `constant_std`.
    """
    axes = (0, *range(2, values.ndim))
    if not values.size:
        raise Misuse(f"{name} has the shape {values.shape}: expected at least one value")
    count = values.size // values.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = ((x.sum(axis=axes, dtype=np.float64), x.min(axis=axes), x.max(axis=axes)) for x in pieces(values))
        totals, lows, highs = zip(*sums, strict=True)
        mean = sum(totals) / count
        centre = per_channel(mean, values.ndim)
        squares = sum(np.square(part.astype(np.float64) - centre).sum(axis=axes) for part in pieces(values))
    std = np.sqrt(squares / count)
    if not np.isfinite(std).all():
        raise Misuse(f"{name} holds values too large to standardise: expected less than about 1e150")
    return mean, np.where((np.min(lows, axis=0) == np.max(highs, axis=0)) | (std == 0), constant_std, std)
