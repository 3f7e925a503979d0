"""Noise and digital corruptions: every pixel by itself, by its neighbours in 8 bits, or moved.

In all files of corruptions, images are x (N, H, W, C) float32 in 0..1, a copy that a corruption may overwrite; it
returns an array of the same shape, which `corrupt` clips and converts. The constants are those of CIFAR-10-C
(Hendrycks and Dietterich 2019).
"""

from functools import lru_cache
from io import BytesIO

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


def brightness(x: np.ndarray, added: float, draws: Draws) -> np.ndarray:
    """Replace V by V + c in the HSV colour space of x (N, H, W, C): hue and saturation stay.

    V is the largest channel; the others keep their ratio to it. Black has no ratio and becomes grey. A grey image
    equals its V.
    """
    value = largest(x)
    brighter = np.minimum(value + np.float32(added), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(value > 0, x * (brighter / value), brighter)


def saturate(x: np.ndarray, scale: tuple[float, float], draws: Draws) -> np.ndarray:
    """Replace the saturation S by S c0 + c1 in the HSV colour space of x (N, H, W, C): hue and V stay.

    With V the largest and m the smallest channel, S = (V - m) / V, and every channel's distance below V grows by the
    same ratio. A grey pixel has the hue of red in HSV, so that c1 > 0 colours it red, as in CIFAR-10-C. Images of one
    channel are returned unchanged.
    """
    if x.shape[3] == 1:
        return x
    value = largest(x)
    below = value - x
    chroma = largest(below)
    with np.errstate(divide="ignore", invalid="ignore"):
        saturation = np.where(value > 0, chroma / value, 0)
        target = np.clip(saturation * np.float32(scale[0]) + np.float32(scale[1]), 0, 1)
        below *= np.where(chroma > 0, target / saturation, 0)
    below[..., 1:] += (chroma == 0) * target * value
    return value - below


def largest(x: np.ndarray) -> np.ndarray:
    """Return the largest channel (N, H, W, 1) of images (N, H, W, C)."""
    value = x[..., :1]
    for channel in range(1, x.shape[3]):
        value = np.maximum(value, x[..., channel : channel + 1])
    return value


def contrast(x: np.ndarray, factor: float, draws: Draws) -> np.ndarray:
    """Return (x - m) c + m, (N, H, W, C), with m the mean of the image's channel."""
    mean = x.mean(axis=(1, 2), keepdims=True, dtype=np.float64).astype(np.float32)
    return (x - mean) * np.float32(factor) + mean


def levels_of(x: np.ndarray) -> np.ndarray:
    """Round numbers in 0..1 to grey levels (...) uint8."""
    return np.rint(x * np.float32(255)).astype(np.uint8)


def pixelate(x: np.ndarray, scale: float, draws: Draws) -> np.ndarray:
    """Shrink x (N, H, W, C) to (int(H c), int(W c)) and enlarge it again, both by Pillow's box filter in 8 bits.

    Shrinking by up to two, the box filter averages one or two pixels and rounds halves up; enlarging repeats pixels.
    """
    levels: np.ndarray = levels_of(x).astype(np.uint16)
    for axis in (2, 1):  # columns first, as Pillow does: the rounding in between is seen
        low, high = box_pairs(x.shape[axis], int(x.shape[axis] * scale))
        levels = (levels.take(low, axis) + levels.take(high, axis) + 1) >> 1
    return levels / np.float32(255)


@lru_cache(maxsize=64)
def box_pairs(side: int, small: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each of `side` pixels, the first and last pixel (side,) whose mean it becomes via `small` pixels.

    A pixel belongs to a cell if its centre lies in the cell, the right edge included.

    >>> [pair.tolist() for pair in box_pairs(6, 4)]
    [[0, 2, 2, 3, 5, 5], [1, 2, 2, 4, 5, 5]]
    """
    step = side / small
    cell = ((np.arange(side) + 0.5) * (small / side)).astype(int)  # the cell a pixel is repeated from
    centre = (cell + 0.5) * step
    low, end = ((centre + sign * (0.5 * step) + 0.5).astype(int) for sign in (-1, 1))
    # Pillow decides ties by this very arithmetic, rounding errors included.
    first, last = ((pixel - centre + 0.5) * (1 / step) for pixel in (low, end - 1))
    return low + (first <= -0.5), end - 1 - (last > 0.5)


def jpeg_compression(x: np.ndarray, quality: int, draws: Draws) -> np.ndarray:
    """Compress x (N, H, W, C) to JPEG of this quality and decode it, in 8 bits, by Pillow's defaults."""
    from PIL import Image

    out = np.empty(x.shape, dtype=np.uint8)
    for image, result in zip(levels_of(x), out, strict=True):
        file = BytesIO()
        Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(file, "JPEG", quality=quality)
        result[:] = np.asarray(Image.open(file, formats=["JPEG"])).reshape(result.shape)
    return out / np.float32(255)


def elastic_transform(x: np.ndarray, parameters: tuple[float, float, float], draws: Draws) -> np.ndarray:
    """Apply a random affine map to x (N, H, W, C), then stretch it locally.

    Three points around the centre are jittered by U(-f, f) and the affine map that moves them so is applied
    (bilinear, mirrored at the border pixel). Then each pixel is taken from a place α G_σ(U(-1, 1)) away (bilinear,
    mirrored at the border). The parameters (α, σ, f) are fractions of the shorter side. Positions of the affine map are
    rounded to 1/32 of a pixel, as OpenCV's warp did until its version 4.
    """
    from scipy.ndimage import gaussian_filter

    height, width = x.shape[1:3]
    strength, sigma, jitter = (amount * min(height, width) for amount in parameters)
    rows, columns = affine_positions(height, width, jitter * (2 * draws.uniforms((3, 2)) - 1))
    x = sample_bilinear(x, rows, columns, edge_twice=False)
    if strength == 0:
        return x
    moves = 2 * draws.uniforms((2, height, width), purpose=1) - 1
    moves = strength * gaussian_filter(moves, (0, 0, sigma, sigma), mode="reflect", truncate=3)
    y, z = np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)
    return sample_bilinear(x, y + moves[:, 0], z + moves[:, 1], edge_twice=True)


def affine_positions(height: int, width: int, jitter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns (N, H, W) from which an affine map takes its pixels, by the shifts (N, 3, 2) of (x, y).

    The points are centre + (s, s), centre + (s, -s), centre - (s, s), with s a third of the shorter side: two sides of
    a square, so that the map's columns are differences of the moved points over 2 s.
    """
    third = min(height, width) // 3
    centre = np.array([width // 2, height // 2], dtype=np.float64)
    moved = jitter.astype(np.float64) + centre + third * np.array([[1, 1], [1, -1], [-1, -1]])  # (N, 3, 2)
    along_x = (moved[:, 1] - moved[:, 2]) / (2 * third)  # (N, 2): where a step to the right leads
    along_y = (moved[:, 0] - moved[:, 1]) / (2 * third)
    origin = moved[:, 0] - (centre[0] + third) * along_x - (centre[1] + third) * along_y
    turn = along_x[:, 0] * along_y[:, 1] - along_x[:, 1] * along_y[:, 0]

    def place(for_x: np.ndarray, for_y: np.ndarray) -> np.ndarray:
        """Apply one row (for_x, for_y) / determinant of the inverse map to every pixel, rounded."""
        a, b = ((v / turn)[:, None, None] for v in (for_x, for_y))
        columns, rows = np.arange(width), np.arange(height)[:, None]
        start = a * origin[:, :1, None] + b * origin[:, 1:, None]
        exact = np.rint(1024 * (b * rows - start)) + np.rint(1024 * a * columns)
        return (np.floor(exact / 32 + 0.5) / 32).astype(np.float32)

    return place(-along_x[:, 1], along_x[:, 0]), place(along_y[:, 1], -along_y[:, 0])


def mirror_index(index: np.ndarray, size: int, edge_twice: bool) -> np.ndarray:
    """Mirror indices into 0..size-1, at the border pixel or (`edge_twice`) at the border behind it.

    >>> outside = np.array([-2, -1, 0, 3, 4])
    >>> mirror_index(outside, 4, edge_twice=False), mirror_index(outside, 4, edge_twice=True)
    (array([2, 1, 0, 3, 2]), array([1, 0, 0, 3, 3]))
    """
    period = 2 * size if edge_twice else 2 * size - 2
    index = index % period
    return np.minimum(index, period - int(edge_twice) - index)


def sample_bilinear(x: np.ndarray, rows: np.ndarray, columns: np.ndarray, *, edge_twice: bool) -> np.ndarray:
    """Interpolate x (N, H, W, C) at fractional rows and columns (N, H, W), bilinear."""
    count, height, width, colours = x.shape
    first_row, first_column = np.floor(rows), np.floor(columns)
    down, right = (rows - first_row)[..., None], (columns - first_column)[..., None]
    first_row, first_column = first_row.astype(np.intp), first_column.astype(np.intp)
    pixels = x.reshape(-1, colours)
    start = np.arange(count)[:, None, None] * (height * width)
    above, below = (start + mirror_index(first_row + i, height, edge_twice) * width for i in (0, 1))
    west, east = (mirror_index(first_column + i, width, edge_twice) for i in (0, 1))
    upper = pixels.take(above + west, 0) * (1 - right) + pixels.take(above + east, 0) * right
    lower = pixels.take(below + west, 0) * (1 - right) + pixels.take(below + east, 0) * right
    return upper * (1 - down) + lower * down
