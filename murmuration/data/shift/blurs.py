"""Blurs: every pixel becomes a weighted mean of its neighbours; an image of one colour does not change."""

from functools import lru_cache
from typing import Any

import numpy as np

from murmuration.data.shift.randomness import Draws

NEGLIGIBLE = 1e-6  # a weight that moves no number by a visible amount


def smooth(x: np.ndarray, deviation: float) -> np.ndarray:
    """Smooth x (N, H, W, ...) by a Gaussian of this standard deviation in pixels, cut at 4 of it, edges repeated."""
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(x, (0.0, deviation, deviation, 0.0)[: x.ndim], mode="nearest", truncate=4)


def gaussian_blur(x: np.ndarray, deviation: float, draws: Draws) -> np.ndarray:
    """Smooth x (N, H, W, C) by a Gaussian of standard deviation c pixels."""
    return smooth(x, deviation)


def glass_blur(x: np.ndarray, parameters: tuple[float, int], draws: Draws) -> np.ndarray:
    """Smooth x (N, H, W, C), store it in 8 bits, scatter its pixels n times, and smooth it again.

    CIFAR-10-C visits rows and columns from the last to the third and exchanges each pixel with one up to a step above
    or to the left. That exchange only copies from pixels not yet visited, so one pass reads every pixel from the image
    before the pass.
    """
    deviation, passes = parameters
    x = np.floor(smooth(x, deviation) * np.float32(255) + np.float32(2e-4))
    count, height, width, _ = x.shape
    image, rows, columns = np.ogrid[:count, 2:height, 2:width]
    words = draws.words((passes, height - 2, width - 2))
    for step in range(passes):
        up, back = ((words[:, step] >> np.uint32(bit)) & np.uint32(1) for bit in (0, 1))
        x[:, 2:, 2:] = x[image, rows - up.astype(np.intp), columns - back.astype(np.intp)]
    return smooth(x / np.float32(255), deviation)


def apply_map(x: np.ndarray, pixels: Any) -> np.ndarray:
    """Apply a sparse linear map (H W, H W) to the pixels of x (N, H, W, C)."""
    count, height, width, colours = x.shape
    columns = np.ascontiguousarray(x.transpose(1, 2, 0, 3)).reshape(height * width, count * colours)
    return np.ascontiguousarray((pixels @ columns).reshape(height, width, count, colours).transpose(2, 0, 1, 3))


def defocus_blur(x: np.ndarray, parameters: tuple[float, float], draws: Draws) -> np.ndarray:
    """Filter x (N, H, W, C) with a disk, mirrored at the border pixel."""
    return apply_map(x, defocus_map(x.shape[1], x.shape[2], parameters))


def disk(radius: float, softness: float) -> np.ndarray:
    """Return the kernel (5, 5) of a disk of radius r < 2 pixels, under a 3 x 3 Gaussian of standard deviation b.

    >>> round(float(disk(0.3, 0.4).sum()), 12), int((disk(1.0, 0.2) > 1e-3).sum())
    (1.0, 5)
    """
    from scipy.ndimage import convolve1d

    steps = np.arange(-2, 3)
    inside = (steps[:, None] ** 2 + steps**2 <= radius**2).astype(np.float64)
    weights = np.exp(-(np.arange(-1, 2) ** 2) / (2 * softness**2))
    weights /= weights.sum()
    for axis in (0, 1):
        inside = convolve1d(inside, weights, axis=axis, mode="constant")
    return inside / inside.sum()


@lru_cache(maxsize=32)
def defocus_map(height: int, width: int, parameters: tuple[float, float]) -> Any:
    """Return the filter with a soft disk as a sparse map (H W, H W) of pixels."""
    from scipy.sparse import csr_array, kron

    total = csr_array((height * width, height * width))
    for row, weights in zip(range(-2, 3), disk(*parameters), strict=True):
        across = sum(weight * mirrored_shift(width, step) for step, weight in zip(range(-2, 3), weights, strict=True))
        total = total + kron(mirrored_shift(height, row), across)
    return single_precision(total)


def mirrored_shift(size: int, step: int) -> np.ndarray:
    """Return the matrix (size, size) that takes entry i from i + step, mirrored at the first and last entry."""
    source = np.abs(np.arange(size) + step)
    return np.eye(size)[np.minimum(source, 2 * (size - 1) - source)]


def single_precision(total: Any) -> Any:
    """Convert a sparse map to float32 in compressed rows without explicit zeros, the fastest form to multiply with."""
    from scipy.sparse import csr_array

    result = csr_array(total.astype(np.float32))
    result.eliminate_zeros()
    return result


def zoom_blur(x: np.ndarray, end: float, draws: Draws) -> np.ndarray:
    """Average x (N, H, W, C) with its enlargements by 1, 1.01, 1.02, ... up to `end`."""
    return apply_map(x, zoom_map(x.shape[1], x.shape[2], tuple(np.arange(1, end, 0.01).tolist()), keep=1))


@lru_cache(maxsize=32)
def zoom_map(height: int, width: int, factors: tuple[float, ...], keep: int = 0) -> Any:
    """Return the mean of enlargements by the factors, and of `keep` copies of the image, as a sparse map (H W, H W)."""
    from scipy.sparse import csr_array, eye_array, kron

    total = keep * csr_array(eye_array(height * width))
    for factor in factors:
        total = total + kron(csr_array(zoom_matrix(height, factor)), csr_array(zoom_matrix(width, factor)))
    return single_precision(total / (len(factors) + keep))


def zoom_matrix(side: int, factor: float) -> np.ndarray:
    """Return the matrix (side, side) that enlarges the middle of a line by a factor, bilinear.

    The middle ceil(side / z) entries are stretched to round(ceil(side / z) z) and the middle of those kept.
    """
    from scipy.ndimage import zoom

    middle = int(np.ceil(side / factor))
    start = (side - middle) // 2
    stretched = zoom(np.eye(middle), (factor, 1), order=1)
    trim = (len(stretched) - side) // 2
    out = np.zeros((side, side))
    out[:, start : start + middle] = stretched[trim : trim + side]
    return out


def motion_blur(x: np.ndarray, parameters: tuple[int, float], draws: Draws) -> np.ndarray:
    """Smear each image of x (N, H, W, C) along a random direction within 45 degrees of the horizontal."""
    return smear(x, parameters, 90 * draws.uniforms(()) - 45)


def smear(x: np.ndarray, parameters: tuple[int, float], degrees: np.ndarray) -> np.ndarray:
    """Sum copies of x (N, H, W, C) shifted by 0 .. 2 r pixels along the angles (N,), weighted, edges repeated.

    The weights are proportional to exp(-i² / 2σ²) and shifts are rounded to whole pixels, as in ImageMagick's motion
    blur, whose other rounding is not reproduced.
    """
    radius, deviation = parameters
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * deviation**2))
    weights = weights[weights >= NEGLIGIBLE * weights.sum()]
    weights /= weights.sum()
    (count, height, width, colours), reach = x.shape, len(weights) - 1
    border = ((0, 0), (reach, reach), (reach, reach), (0, 0))
    lines = np.pad(x, border, mode="edge").reshape(count, height + 2 * reach, -1)  # (N, H', W' C)
    windows = np.lib.stride_tricks.sliding_window_view(lines, (height, width * colours), axis=(1, 2))
    angle = np.deg2rad(degrees.astype(np.float64))
    out = np.zeros_like(x)
    for i, weight in enumerate(weights):
        # rounded to whole pixels, halves down
        down, right = (reach + np.ceil(i * part - 0.5).astype(np.intp) for part in (np.sin(angle), np.cos(angle)))
        out += np.float32(weight) * windows[np.arange(count), down, colours * right].reshape(x.shape)
    return out
