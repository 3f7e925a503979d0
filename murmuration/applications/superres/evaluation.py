"""Evaluation of a run on whole photographs that it was not trained on, beside bicubic interpolation.

Quality of the reconstructed image, and whether its standard deviations tell where the errors are.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from murmuration.applications.subpixel import enlarged
from murmuration.applications.superres.training import downscaled, luma_of, patches_of, photographs, trimmed
from murmuration.applications.superres.upscale import scale_of, upscale
from murmuration.likelihoods import Gaussian
from murmuration.prediction.ensemble import Ensemble
from murmuration.system.errors import Misuse

WINDOW, SIGMA = 11, 1.5  # pixels: the Gaussian window of SSIM
NORMAL = 1.959963984540054  # 95 % of a Gaussian lie within so many standard deviations
BINS = 10
CROP = 40  # side of the window that is shown, in pixels of the small image
MOST_PIXELS = 200_000  # of a photograph, for errors against standard deviations


def psnr(made: Tensor, truth: Tensor) -> float:
    """Return the peak signal-to-noise ratio in decibels of an image (H, W) from 0 to 1; infinite without any error.

    >>> psnr(torch.zeros(2, 2), torch.full((2, 2), 0.5, dtype=torch.float64)).__round__(4)
    6.0206
    """
    error = float((made.double() - truth.double()).square().mean())
    return math.inf if error == 0 else -10 * math.log10(error)


def ssim(made: Tensor, truth: Tensor) -> float:
    """Return structural similarity of two images (H, W) from 0 to 1 (Wang et al. 2004), at most 1.

    Nan below 11 pixels a side.

    Computed by scikit-image with an 11 x 11 Gaussian window of deviation 1.5.
    """
    try:
        from skimage.metrics import structural_similarity
    except ImportError:
        raise Misuse("SSIM needs scikit-image: pip install 'torch-murmuration[images]'") from None
    if min(made.shape) < WINDOW:
        return math.nan
    images = (image.double().numpy() for image in (made, truth))
    settings = {"gaussian_weights": True, "sigma": SIGMA, "use_sample_covariance": False}
    return float(structural_similarity(*images, data_range=1.0, **settings))


def score_uncertainty(std: Tensor, error: Tensor, plain: Tensor, noise_std: float) -> dict[str, float]:
    """Score standard deviations of pixels against the errors that were made.

    Args:
        std: Standard deviations (H, W) over draws.
        error: Absolute errors (H, W).
        plain: The bicubic image (H, W).
        noise_std: Standard deviation of the likelihood.

    Returns:
        Fractions of the squared error that are variance over draws and variance of the likelihood, which may add up to
        more than 1; the correlation of standard deviations and errors, nan if draws do not differ, and that of ranks
        (Spearman); the rank correlation of the gradient of the bicubic image with the errors, as a baseline; and the
        fraction of pixels within the 95 % interval.
    """
    from scipy.stats import pearsonr, spearmanr

    down, across = torch.gradient(plain.double())
    total, variance = error.double().square().mean().item(), std.double().square()
    inside = error.double() <= NORMAL * (variance + noise_std**2).sqrt()
    return {
        "epistemic_fraction": variance.mean().item() / total if total else math.nan,
        "noise_fraction": noise_std**2 / total if total else math.nan,
        "correlation": correlation(pearsonr, std, error),
        "rank_correlation": correlation(spearmanr, std, error),
        "edge_correlation": correlation(spearmanr, (down.square() + across.square()).sqrt(), error),
        "coverage": inside.double().mean().item(),
    }


def correlation(kind: Callable, a: Tensor, b: Tensor) -> float:
    """Return the correlation of two tensors by a function of `scipy.stats`; nan if one of them is constant."""
    x, y = (values.double().flatten() for values in (a, b))
    constant = any(bool((values == values[0]).all()) for values in (x, y))
    return math.nan if constant else float(kind(x.numpy(), y.numpy()).statistic)


def error_by_std(std: Tensor, error: Tensor) -> list[tuple[float, float]]:
    """Return root mean squares of standard deviations and of errors, in ten equal bins of pixels, lowest std first."""
    order = std.flatten().argsort(stable=True)
    bins = (values.flatten()[order].chunk(BINS) for values in (std, error))
    stds, errors = ([float(rows.double().square().mean().sqrt()) for rows in parts] for parts in bins)
    return list(zip(stds, errors, strict=True))


@dataclass(frozen=True)
class Reconstruction:
    """One photograph downscaled, and upscaled again by bicubic interpolation and by the ensemble; all from 0 to 1."""

    name: str
    small: Tensor  # (H, W)
    truth: Tensor  # (r H, r W)
    bicubic: Tensor
    mean: Tensor
    std: Tensor

    @property
    def error(self) -> Tensor:
        return (self.mean - self.truth).abs()

    @property
    def scale(self) -> int:
        return len(self.truth) // len(self.small)


@dataclass(frozen=True)
class PhotoScores:
    """The scores of a photograph, and the window that is shown: many photographs need not fit into memory."""

    crop: Reconstruction  # the window in which bicubic errs most
    std: Tensor  # (P,) of pixels on a regular grid
    error: Tensor  # (P,)
    scores: dict[str, float]  # of the bicubic and the mean image, and those of `score_uncertainty`

    def to_json(self) -> dict[str, Any]:
        return {"photograph": self.crop.name, **self.scores}


def evaluate(
    ensemble: Ensemble,
    *,
    draws: int | None = None,
    show: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> list[PhotoScores]:
    """Return scores of a run's test photographs, one at a time, so that memory stays small."""
    patches, scores = patches_of(ensemble.manifest), []
    files, scale = photographs(patches.folder, patches.seed)["test"], scale_of(ensemble)
    assert isinstance(ensemble.likelihood, Gaussian)  # as `scale_of` made sure
    for done, path in enumerate(files):
        show(path.name, done, len(files))
        truth = trimmed(luma_of(path), scale)
        small = downscaled(truth, scale)
        plain = enlarged(small[None, None], scale)[0, 0].clamp(0, 1)
        reconstruction = Reconstruction(path.stem, small, truth, plain, *upscale(ensemble, small, draws=draws))
        scores.append(score_photograph(reconstruction, ensemble.likelihood.noise_std))
    return scores


def score_photograph(seen: Reconstruction, noise_std: float) -> PhotoScores:
    """Return the scores of one photograph."""
    every = -(-seen.std.numel() // MOST_PIXELS)
    std, error = (values.flatten()[::every].clone() for values in (seen.std, seen.error))
    before, after = psnr(seen.bicubic, seen.truth), psnr(seen.mean, seen.truth)
    scores = {"psnr_bicubic": before, "psnr": after, "gain": after - before}
    scores |= {"ssim_bicubic": ssim(seen.bicubic, seen.truth), "ssim": ssim(seen.mean, seen.truth)}
    scores |= score_uncertainty(seen.std, seen.error, seen.bicubic, noise_std)
    return PhotoScores(worst_window(seen), std, error, scores)


def worst_window(seen: Reconstruction) -> Reconstruction:
    """Return the window of a regular grid with the largest bicubic error."""
    height, width = (min(CROP, side) for side in seen.small.shape)
    errors = (seen.bicubic - seen.truth).double().square()
    tall, wide = seen.scale * height, seen.scale * width
    sums = errors.unfold(0, tall, tall).unfold(1, wide, wide).sum((-2, -1))
    row, column = divmod(int(sums.argmax()), sums.shape[1])

    def cut(name: str) -> Tensor:
        image = getattr(seen, name)
        scale = len(image) // len(seen.small)
        rows, columns = scale * height, scale * width
        return image[rows * row : rows * (row + 1), columns * column : columns * (column + 1)].clone()

    return Reconstruction(seen.name, *map(cut, ("small", "truth", "bicubic", "mean", "std")))


def mean_scores(scores: Sequence[PhotoScores]) -> dict[str, float]:
    """Return means of all scores over photographs."""
    return {name: sum(photograph.scores[name] for photograph in scores) / len(scores) for name in scores[0].scores}


def error_bins(scores: Sequence[PhotoScores]) -> list[tuple[float, float]]:
    """Return `error_by_std` over the pixels of all photographs."""
    stds, errors = ([getattr(photograph, name) for photograph in scores] for name in ("std", "error"))
    return error_by_std(torch.cat(stds), torch.cat(errors))
