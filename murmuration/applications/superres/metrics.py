"""Quality of a reconstructed image, and whether its standard deviations tell where the errors are."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from murmuration.errors import Misuse

WINDOW, SIGMA = 11, 1.5  # pixels: the Gaussian window of SSIM
NORMAL = 1.959963984540054  # 95 % of a Gaussian lie within so many standard deviations
BINS = 10


def psnr(squared_error: float) -> float:
    """The peak signal-to-noise ratio in decibels of images from 0 to 1, from their mean squared error.

    >>> psnr(0.01)
    20.0
    """
    return math.inf if squared_error == 0 else -10 * math.log10(squared_error)


def squared_error(made: Tensor, truth: Tensor) -> float:
    """The mean squared error of an image (H, W)."""
    return float((made.double() - truth.double()).square().mean())


def ssim(made: Tensor, truth: Tensor) -> float:
    """Structural similarity of two images (H, W) from 0 to 1 (Wang et al. 2004), at most 1; nan below 11 pixels a side.

    Computed by scikit-image with an 11 x 11 Gaussian window of deviation 1.5.
    """
    try:
        from skimage.metrics import structural_similarity
    except ImportError:
        raise Misuse("SSIM needs scikit-image: pip install 'murmuration[images]'") from None
    if min(made.shape) < WINDOW:
        return math.nan
    images = (image.double().numpy() for image in (made, truth))
    settings = {"gaussian_weights": True, "sigma": SIGMA, "use_sample_covariance": False}
    return float(structural_similarity(*images, data_range=1.0, **settings))


class UncertaintyScores(NamedTuple):
    """How the standard deviations of pixels relate to the errors that were made."""

    epistemic_fraction: float  # of the squared error: variance over draws
    noise_fraction: float  # of the squared error: variance of the likelihood; the two may add up to more than 1
    correlation: float  # of standard deviations and absolute errors; nan if the draws do not differ
    rank_correlation: float  # the same by ranks (Spearman)
    edge_correlation: float  # rank correlation of the gradient of the bicubic image with the errors, as a baseline
    coverage: float  # fraction of pixels within the 95 % interval


def score_uncertainty(std: Tensor, error: Tensor, plain: Tensor, noise_std: float) -> UncertaintyScores:
    """Scores of standard deviations (H, W) over draws against absolute errors (H, W); `plain` is the bicubic image."""
    from scipy.stats import pearsonr, spearmanr

    total, variance = error.double().square().mean().item(), std.double().square()
    inside = error.double() <= NORMAL * (variance + noise_std**2).sqrt()
    return UncertaintyScores(
        variance.mean().item() / total if total else math.nan,
        noise_std**2 / total if total else math.nan,
        correlation(pearsonr, std, error),
        correlation(spearmanr, std, error),
        correlation(spearmanr, gradient_length(plain), error),
        inside.double().mean().item(),
    )


def correlation(kind: Callable, a: Tensor, b: Tensor) -> float:
    """The correlation of two tensors by a function of `scipy.stats`; nan if one of them is constant."""
    x, y = (values.double().flatten() for values in (a, b))
    constant = any(bool((values == values[0]).all()) for values in (x, y))
    return math.nan if constant else float(kind(x.numpy(), y.numpy()).statistic)


def gradient_length(image: Tensor) -> Tensor:
    """The length (H, W) of the gradient of an image."""
    down, across = torch.gradient(image.double())
    return (down.square() + across.square()).sqrt()


def error_by_std(std: Tensor, error: Tensor) -> list[tuple[float, float]]:
    """Root mean squares of standard deviations and of errors, in ten bins of equally many pixels, lowest std first."""
    order = std.flatten().argsort(stable=True)
    pairs = zip(std.flatten()[order].chunk(BINS), error.flatten()[order].chunk(BINS), strict=True)
    return [(root_mean_square(predicted), root_mean_square(made)) for predicted, made in pairs]


def root_mean_square(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())
