"""How close a picture comes to the truth, and whether its standard deviations tell where it does not."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW, SIGMA = 11, 1.5  # pixels: the Gaussian through which SSIM looks
C1, C2 = 0.01**2, 0.03**2  # for pictures from 0 to 1
LEVEL, NORMAL = 0.95, 1.959963984540054
BINS = 10


def psnr(squared_error: float) -> float:
    """The peak signal-to-noise ratio in decibels of pictures from 0 to 1, from their mean squared error alone.

    >>> psnr(0.01)
    20.0
    """
    return math.inf if squared_error == 0 else -10 * math.log10(squared_error)


def squared_error(made: Tensor, truth: Tensor) -> float:
    """The mean squared error of a picture (H, W)."""
    return float((made.double() - truth.double()).square().mean())


def ssim(made: Tensor, truth: Tensor) -> float:
    """Structural similarity of two pictures (H, W) from 0 to 1 (Wang et al. 2004), at most 1.

    Through an 11 x 11 Gaussian of deviation 1.5, averaged over the places where it lies wholly inside; nan for pictures
    smaller than that.
    """
    if min(made.shape) < WINDOW:
        return math.nan
    a, b = made.double(), truth.double()
    mean_a, mean_b, aa, bb, ab = smoothed(torch.stack([a, b, a * a, b * b, a * b]))
    likeness = (2 * mean_a * mean_b + C1) * (2 * (ab - mean_a * mean_b) + C2)
    spread = (mean_a**2 + mean_b**2 + C1) * (aa - mean_a**2 + bb - mean_b**2 + C2)
    return float((likeness / spread).mean())


def smoothed(pictures: Tensor) -> Tensor:
    """Weighted means (n, H - 10, W - 10) of pictures (n, H, W) around every place."""
    bell = torch.exp(-(torch.arange(WINDOW, dtype=pictures.dtype) - WINDOW // 2).square() / (2 * SIGMA**2))
    bell = bell / bell.sum()
    down = F.conv2d(pictures[:, None], bell.view(1, 1, -1, 1))
    return F.conv2d(down, bell.view(1, 1, 1, -1))[:, 0]


class Doubt(NamedTuple):
    """What standard deviations say of the errors that were made."""

    weights_share: float  # of the squared error that the spread of the draws accounts for
    noise_share: float  # and that the noise of the likelihood does; the two may add up to more than 1
    correlation: float  # of standard deviations and absolute errors; nan where the draws do not differ
    rank_correlation: float  # the same by ranks (Spearman)
    edges: float  # rank correlation of the steepness of the bicubic picture, which costs nothing, with the errors
    coverage: float  # share of pixels within the 95 % interval


def doubt(std: Tensor, error: Tensor, plain: Tensor, noise_std: float) -> Doubt:
    """What standard deviations (H, W) over draws say of absolute errors (H, W), beside the edges of `plain`."""
    total, spread = error.double().square().mean().item(), std.double().square()
    inside = error.double() <= NORMAL * (spread + noise_std**2).sqrt()
    return Doubt(
        spread.mean().item() / total if total else math.nan,
        noise_std**2 / total if total else math.nan,
        correlation(std, error),
        correlation(ranks(std), ranks(error)),
        correlation(ranks(steepness(plain)), ranks(error)),
        inside.double().mean().item(),
    )


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's correlation of two tensors; nan if one does not vary."""
    x, y = (values.double().flatten() - values.double().mean() for values in (a, b))
    size = float(x.norm() * y.norm())
    return float(x @ y) / size if size > 0 else math.nan


def ranks(values: Tensor) -> Tensor:
    """The mean rank of every value among all: equal values have equal ranks.

    >>> ranks(torch.tensor([3.0, 1.0, 3.0]))
    tensor([1.5000, 0.0000, 1.5000], dtype=torch.float64)
    """
    _, place, count = values.flatten().unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    return (last - (count.double() + 1) / 2)[place].reshape(values.shape)


def steepness(picture: Tensor) -> Tensor:
    """The length (H, W) of the gradient of a picture."""
    down, across = torch.gradient(picture.double())
    return (down.square() + across.square()).sqrt()


def by_doubt(std: Tensor, error: Tensor) -> list[tuple[float, float]]:
    """Root mean square of standard deviations and of errors, in ten bins of as many pixels, least doubtful first."""
    order = std.flatten().argsort(stable=True)
    pairs = zip(std.flatten()[order].chunk(BINS), error.flatten()[order].chunk(BINS), strict=True)
    return [(root_mean_square(some), root_mean_square(wrong)) for some, wrong in pairs]


def root_mean_square(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())
