"""Noise: every value of an image changes independently.

In all files of corruptions, images are x (N, H, W, C) float32 in 0..1, a copy that a corruption may overwrite; it
returns an array of the same shape, which `corrupt` clips and converts. The constants are those of CIFAR-10-C
(Hendrycks and Dietterich 2019).
"""

from functools import lru_cache

import numpy as np

from murmuration.data.shift.randomness import Draws

Alias = tuple[np.ndarray, np.ndarray, np.ndarray]  # thresholds (256, K), other columns (256, K), first counts (256,)
WHOLE = 1e-3  # of a grey level: closer to an integer than this is that integer


def gaussian_noise(x: np.ndarray, deviation: float, draws: Draws) -> np.ndarray:
    """Return x + N(0, c²), (N, H, W, C)."""
    return x + np.float32(deviation) * draws.normals(x.shape[1:])


def speckle_noise(x: np.ndarray, deviation: float, draws: Draws) -> np.ndarray:
    """Return x + x N(0, c²), (N, H, W, C): black stays black."""
    return x + np.float32(deviation) * draws.normals(x.shape[1:]) * x


def impulse_noise(x: np.ndarray, probability: float, draws: Draws) -> np.ndarray:
    """Replace each value of x (N, H, W, C) with probability c by 1 (salt) or 0 (pepper), equally often."""
    words = draws.words(x.shape[1:])
    hit = words < np.uint32(round(probability * 2**32))
    x[hit] = words[hit] & np.uint32(1)  # the lowest bit is independent of the comparison above
    return x


def shot_noise(x: np.ndarray, photons: float, draws: Draws) -> np.ndarray:
    """Return Poisson(c x) / c, (N, H, W, C): what a sensor counts when white is c photons.

    The 256 grey levels have tables made in advance (Walker's alias method). The part of a float value above its grey
    level adds an independent Poisson count of that small mean, which is exact because Poisson counts add up.
    """
    levels = x * np.float32(255)
    floor = np.floor(levels + np.float32(WHOLE))
    counts = poisson(floor.astype(np.intp), draws.words(x.shape[1:]), alias_tables(photons))
    fraction = levels - floor
    if (fraction > WHOLE).any():
        for count, mean, generator in zip(counts, fraction, draws.generators(1), strict=True):
            count += generator.poisson(np.where(mean > WHOLE, mean, 0) * (photons / 255)).astype(count.dtype)
    return np.divide(counts, np.float32(photons), dtype=np.float32)


def poisson(levels: np.ndarray, words: np.ndarray, tables: Alias) -> np.ndarray:
    """Draw Poisson counts (...) int32 for grey levels (...) in 0..255, each from one random 32-bit word (...)."""
    thresholds, aliases, starts = tables
    columns = thresholds.shape[1]
    low = 32 - (columns.bit_length() - 1)  # the high bits of a word choose a column, the low ones compare
    column = (words >> np.uint32(low)).astype(np.intp)
    cell = levels * columns + column
    below = (words & np.uint32((1 << low) - 1)) < thresholds.ravel()[cell]
    return (np.where(below, column, aliases.ravel()[cell]) + starts[levels]).astype(np.int32)


@lru_cache(maxsize=8)
def alias_tables(photons: float) -> Alias:
    """Build the alias tables of Poisson(c k / 255) for the grey levels k = 0..255 (Walker 1977).

    Each level has a window of K counts around its mean, wide enough that less than 1e-8 lies outside. A column
    holds its own count up to a threshold, another count above it; all columns are equally likely.
    """
    from scipy.special import gammaln, xlogy

    mean = photons * np.arange(256)[:, None] / 255
    columns = 1 << int(np.ceil(np.log2(12 * np.sqrt(photons) + 20)))
    starts = np.maximum(np.rint(mean).astype(np.int64) - columns // 2, 0)  # (256, 1)
    counts = starts + np.arange(columns)
    mass = np.exp(xlogy(counts, mean) - mean - gammaln(counts + 1))
    thresholds, aliases = alias_columns(mass * (columns / mass.sum(1, keepdims=True)))
    low = 32 - (columns.bit_length() - 1)
    return np.rint(thresholds * 2.0**low).astype(np.uint32), aliases, starts[:, 0]


def alias_columns(mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return thresholds and aliases (L, K) of columns of mass (L, K), mean 1: the fullest fills up the emptiest."""
    mass = mass.copy()
    thresholds, aliases = np.ones_like(mass), np.tile(np.arange(mass.shape[1]), (len(mass), 1))
    rows = np.arange(len(mass))
    for _ in range(mass.shape[1]):
        low, high = mass.argmin(1), mass.argmax(1)
        need = mass[rows, low] < 1 - 1e-12
        if not need.any():
            break
        levels, low, high = rows[need], low[need], high[need]
        thresholds[levels, low], aliases[levels, low] = mass[levels, low], high
        mass[levels, high] -= 1 - mass[levels, low]
        mass[levels, low] = 1
    return thresholds, aliases
