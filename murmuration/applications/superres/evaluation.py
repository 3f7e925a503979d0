"""Evaluation of a run on whole photographs that it was not trained on, beside bicubic interpolation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from murmuration.applications.superres.metrics import (
    UncertaintyScores,
    error_by_std,
    psnr,
    score_uncertainty,
    squared_error,
    ssim,
)
from murmuration.applications.superres.patches import downscaled, luma_of, photographs, trimmed
from murmuration.applications.superres.training import patches_of
from murmuration.applications.superres.upscale import scale_of, upscale
from murmuration.ensemble import Ensemble
from murmuration.likelihoods import Gaussian
from murmuration.nets.subpixel import enlarged

CROP = 40  # side of the window that is shown, in pixels of the small image
MOST_PIXELS = 200_000  # of a photograph, for errors against standard deviations


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

    def window(self, top: int, left: int, height: int, width: int) -> "Reconstruction":
        """A window of it, in pixels of the small image."""

        def cut(picture: Tensor, each: int) -> Tensor:
            return picture[each * top : each * (top + height), each * left : each * (left + width)].clone()

        large = {name: cut(getattr(self, name), self.scale) for name in ("truth", "bicubic", "mean", "std")}
        return Reconstruction(self.name, cut(self.small, 1), **large)


@dataclass(frozen=True)
class PhotoScores:
    """The scores of a photograph, and the window that is shown: many photographs need not fit into memory."""

    crop: Reconstruction  # the window in which bicubic errs most
    std: Tensor  # (P,) of pixels on a regular grid
    error: Tensor  # (P,)
    psnr_bicubic: float
    psnr: float
    ssim_bicubic: float
    ssim: float
    uncertainty: UncertaintyScores

    @property
    def gain(self) -> float:
        return self.psnr - self.psnr_bicubic

    def to_json(self) -> dict[str, Any]:
        scores = ("psnr_bicubic", "psnr", "gain", "ssim_bicubic", "ssim")
        return {
            "photograph": self.crop.name,
            **{name: getattr(self, name) for name in scores},
            **self.uncertainty._asdict(),
        }


def held_out_files(manifest: dict[str, Any]) -> list[Path]:
    """The files of the photographs that a run neither trained nor validated on."""
    patches = patches_of(manifest)
    return photographs(patches.folder, patches.seed)["test"]


def evaluate(
    ensemble: Ensemble,
    *,
    draws: int | None = None,
    show: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> list[PhotoScores]:
    """Scores of a run's test photographs, one at a time, so that memory stays small."""
    found = []
    files = held_out_files(ensemble.manifest)
    for done, path in enumerate(files):
        show(path.name, done, len(files))
        found.append(score_photograph(reconstruct(ensemble, path.stem, luma_of(path), draws), noise_of(ensemble)))
    return found


def reconstruct(ensemble: Ensemble, name: str, picture: Tensor, draws: int | None = None) -> Reconstruction:
    """A photograph (H, W) downscaled by the ensemble's scale and upscaled by it, and by bicubic interpolation."""
    scale = scale_of(ensemble)
    truth = trimmed(picture, scale)
    small = downscaled(truth, scale)
    plain = enlarged(small[None, None], scale)[0, 0].clamp(0, 1)
    prediction = upscale(ensemble, small, draws=draws)
    return Reconstruction(name, small, truth, plain, prediction.mean, prediction.std)


def noise_of(ensemble: Ensemble) -> float:
    assert isinstance(ensemble.likelihood, Gaussian)  # as `scale_of` made sure
    return ensemble.likelihood.noise_std


def score_photograph(seen: Reconstruction, noise_std: float) -> PhotoScores:
    """The scores of one photograph."""
    every = -(-seen.std.numel() // MOST_PIXELS)
    return PhotoScores(
        worst_window(seen),
        seen.std.flatten()[::every].clone(),
        seen.error.flatten()[::every].clone(),
        psnr(squared_error(seen.bicubic, seen.truth)),
        psnr(squared_error(seen.mean, seen.truth)),
        ssim(seen.bicubic, seen.truth),
        ssim(seen.mean, seen.truth),
        score_uncertainty(seen.std, seen.error, seen.bicubic, noise_std),
    )


def worst_window(seen: Reconstruction) -> Reconstruction:
    """The window of a regular grid with the largest bicubic error."""
    height, width = (min(CROP, side) for side in seen.small.shape)
    errors = (seen.bicubic - seen.truth).double().square()
    tall, wide = seen.scale * height, seen.scale * width
    sums = errors.unfold(0, tall, tall).unfold(1, wide, wide).sum((-2, -1))
    row, column = divmod(int(sums.argmax()), sums.shape[1])
    return seen.window(row * height, column * width, height, width)


def mean_scores(found: Sequence[PhotoScores]) -> dict[str, float]:
    """Means of all scores over photographs."""
    records = [each.to_json() for each in found]
    return {name: sum(record[name] for record in records) / len(records) for name in records[0] if name != "photograph"}


def error_bins(found: Sequence[PhotoScores]) -> list[tuple[float, float]]:
    """`error_by_std` over the pixels of all photographs."""
    return error_by_std(torch.cat([each.std for each in found]), torch.cat([each.error for each in found]))
