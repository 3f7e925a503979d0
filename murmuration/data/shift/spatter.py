"""Spatter: drops of water or mud on the lens.

The drops of water follow the recipe of CIFAR-10-C step by step (edges by Canny 1986, distance by Borgefors' chamfer
1986, histogram equalisation, embossing), for many pictures (N, H, W) at once.
"""

import numpy as np

from murmuration.data.shift.blurs import smoothed
from murmuration.data.shift.randomness import Draws

WATER = np.array([175, 238, 238], dtype=np.float32) / 255  # pale turquoise
MUD = np.array([63, 42, 20], dtype=np.float32) / 255  # brown
FAR = 20.0  # pixels; all distances beyond count the same
EMBOSS = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
Neighbours = list[list[np.ndarray]]


def spatter(x: np.ndarray, how: tuple[float, ...], draws: Draws) -> np.ndarray:
    """x (N, H, W, C) under drops of liquid: N(m, s²), smoothed by σ, zero below t; w is how much water hides.

    Water is added, mud (`how` ends with 1) hides what is behind it. On pictures of one channel, drops are the mean
    of their colour.
    """
    mean, deviation, spread, threshold, weight, is_mud = how
    layer = np.float32(mean) + np.float32(deviation) * draws.normals(x.shape[1:3])
    layer = smoothed(layer, spread)
    layer[layer < threshold] = 0
    colour = MUD if is_mud else WATER
    colour = colour if x.shape[3] == 3 else colour.mean(keepdims=True)
    if is_mud:
        mask = smoothed((layer > threshold).astype(np.float32), weight)[..., None]
        mask[mask < 0.8] = 0
        return x * (1 - mask) + colour * mask
    x += (np.float32(weight) * drops(np.floor(layer * 255) % 256))[..., None] * colour
    return x


def drops(layer: np.ndarray) -> np.ndarray:
    """How much light each drop adds (N, H, W), 1 at most in every picture, given the layer of liquid in 0..255."""
    distance = np.minimum(chamfer(edges(layer)), FAR)
    height = equalised(np.floor(mean_of_nine(distance) + np.float32(1e-4)).astype(np.intp))
    relief = sum(
        weight * near
        for row, line in zip(EMBOSS, around(height), strict=True)
        for weight, near in zip(row, line, strict=True)
    )
    light = layer * np.rint(mean_of_nine(np.clip(relief, 0, 255)))
    brightest = light.max(axis=(1, 2), keepdims=True)
    return light / np.where(brightest > 0, brightest, 1)


def around(x: np.ndarray, border: str = "reflect") -> Neighbours:
    """The three by three neighbours of all pixels, each (N, H, W): around(x)[1][1] is x."""
    fill = np.pad(x, ((0, 0), (1, 1), (1, 1)), mode=border)  # type: ignore[call-overload]
    height, width = x.shape[1:]
    return [[fill[:, i : i + height, j : j + width] for j in range(3)] for i in range(3)]


def mean_of_nine(x: np.ndarray) -> np.ndarray:
    """The mean (N, H, W) of each pixel and its eight neighbours."""
    return sum(near for line in around(x) for near in line) / np.float32(9)  # type: ignore[return-value]


def edges(layer: np.ndarray, low: float = 50, high: float = 150) -> np.ndarray:
    """Where Canny's method sees edges (N, H, W) in pictures 0..255: ridges of the gradient joined to a high one."""
    (a, b, c), (d, _, f), (g, h, i) = around(layer, "edge")
    right = (c + 2 * f + i) - (a + 2 * d + g)
    down = (g + 2 * h + i) - (a + 2 * b + c)
    size = np.abs(right) + np.abs(down)
    ridge = (size > low) & is_ridge(size, right, down)
    found = ridge & (size > high)
    while True:
        grown = ridge & np.logical_or.reduce([near for line in around(found, "constant") for near in line])
        if (grown == found).all():
            return found
        found = grown


def is_ridge(size: np.ndarray, right: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Whether a gradient (N, H, W) is the largest along its own direction, rounded to 45 degrees."""
    (a, b, c), (d, _, f), (g, h, i) = around(size, "constant")
    flat = np.abs(down) < np.abs(right) * np.tan(np.pi / 8)
    steep = np.abs(down) > np.abs(right) * np.tan(3 * np.pi / 8)
    across = np.where(right * down < 0, (size > c) & (size > g), (size > a) & (size > i))
    return np.where(flat, (size > d) & (size >= f), np.where(steep, (size > b) & (size >= h), across))


def chamfer(marked: np.ndarray) -> np.ndarray:
    """About how far each pixel (N, H, W) is from the nearest marked one, in steps of 1, 1.4 and 2.1969 (a knight's).

    Two passes, down and up; inside a row a running minimum of (distance - column) takes care of the steps of 1.
    """
    far = np.float32(4 * FAR)
    width = marked.shape[2]
    count, height = marked.shape[:2]
    ramp = np.arange(width, dtype=np.float32)
    out = np.full((height + 2, count, width + 4), far, dtype=np.float32)  # two rows above, two columns on either side
    rows = np.where(marked, np.float32(0), far).transpose(1, 0, 2)
    for _ in range(2):
        out[:2] = far
        for row in range(height):
            before, above = out[row], out[row + 1]
            best = rows[row]
            for step, line, shift in STEPS:
                best = np.minimum(best, (above if line == 1 else before)[:, 2 + shift : 2 + shift + width] + step)
            best = np.minimum.accumulate(best - ramp, axis=1) + ramp
            out[row + 2, :, 2:-2] = best
        rows = out[2:, :, 2:-2][::-1, :, ::-1].copy()
    return rows.transpose(1, 0, 2)


STEPS = (  # cost, rows above, columns aside
    (np.float32(1), 1, 0),
    (np.float32(1.4), 1, -1),
    (np.float32(1.4), 1, 1),
    (np.float32(2.1969), 1, -2),
    (np.float32(2.1969), 1, 2),
    (np.float32(2.1969), 2, -1),
    (np.float32(2.1969), 2, 1),
)


def equalised(levels: np.ndarray) -> np.ndarray:
    """Integers (N, H, W) in 0..FAR spread over 0..255 by their rank in the picture; a picture of one level keeps it."""
    count, pixels, bins = len(levels), levels[0].size, int(FAR) + 1
    flat = (levels + bins * np.arange(count)[:, None, None]).ravel()
    histogram = np.bincount(flat, minlength=count * bins).reshape(count, bins)
    below = histogram.cumsum(axis=1)
    lowest = np.take_along_axis(histogram, (histogram > 0).argmax(axis=1)[:, None], axis=1)
    rank = np.rint((below - lowest) * (255 / np.maximum(pixels - lowest, 1)))
    rank = np.where(lowest == pixels, np.arange(bins), np.maximum(rank, 0))
    return rank.astype(np.float32).ravel()[flat].reshape(levels.shape)
