"""A run on whole photographs that it never saw, beside bicubic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from murmuration.applications.superres.enlarging import enlarge, scale_of
from murmuration.applications.superres.measures import Doubt, by_doubt, doubt, psnr, squared_error, ssim
from murmuration.applications.superres.patches import luma_of, photographs, shrunk, trimmed
from murmuration.applications.superres.training import patches_of
from murmuration.ensemble import Ensemble
from murmuration.likelihoods import Gaussian
from murmuration.nets.subpixel import enlarged

CROP = 40  # pixels of a side of the small picture that are shown
MOST_PIXELS = 200_000  # of a photograph that errors are compared with doubts on


@dataclass(frozen=True)
class Photograph:
    """One photograph shrunk, and enlarged again in two ways; all from 0 to 1."""

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

    def window(self, top: int, left: int, height: int, width: int) -> "Photograph":
        """A part of it, in pixels of the small picture."""

        def cut(picture: Tensor, each: int) -> Tensor:
            return picture[each * top : each * (top + height), each * left : each * (left + width)].clone()

        large = {name: cut(getattr(self, name), self.scale) for name in ("truth", "bicubic", "mean", "std")}
        return Photograph(self.name, cut(self.small, 1), **large)


@dataclass(frozen=True)
class Judged:
    """The scores of a photograph, and as much of it as is shown: a folder of many need not fit into memory."""

    shown: Photograph  # the window in which bicubic errs most
    std: Tensor  # (P,) of pixels taken from all over the photograph
    error: Tensor  # (P,)
    psnr_bicubic: float
    psnr: float
    ssim_bicubic: float
    ssim: float
    doubt: Doubt

    @property
    def gain(self) -> float:
        return self.psnr - self.psnr_bicubic

    def to_json(self) -> dict[str, Any]:
        scores = ("psnr_bicubic", "psnr", "gain", "ssim_bicubic", "ssim")
        return {
            "photograph": self.shown.name,
            **{name: getattr(self, name) for name in scores},
            **self.doubt._asdict(),
        }


def held_out(manifest: dict[str, Any]) -> list[Path]:
    """The files of the photographs that a run was not trained on."""
    patches = patches_of(manifest)
    return photographs(patches.folder, patches.seed)["test"]


def judge(
    ensemble: Ensemble,
    *,
    draws: int | None = None,
    show: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> list[Judged]:
    """The test photographs of a run, each enlarged and scored; one at a time, so that memory stays small."""
    found = []
    files = held_out(ensemble.manifest)
    for done, path in enumerate(files):
        show(path.name, done, len(files))
        found.append(judged(enlarged_again(ensemble, path.stem, luma_of(path), draws), noise_of(ensemble)))
    return found


def enlarged_again(ensemble: Ensemble, name: str, picture: Tensor, draws: int | None = None) -> Photograph:
    """A photograph (H, W) shrunk by the ensemble's scale and enlarged by it, and by bicubic interpolation."""
    scale = scale_of(ensemble)
    truth = trimmed(picture, scale)
    small = shrunk(truth, scale)
    plain = enlarged(small[None, None], scale)[0, 0].clamp(0, 1)
    made = enlarge(ensemble, small, draws=draws)
    return Photograph(name, small, truth, plain, made.mean, made.std)


def noise_of(ensemble: Ensemble) -> float:
    assert isinstance(ensemble.likelihood, Gaussian)  # as `scale_of` made sure
    return ensemble.likelihood.noise_std


def judged(seen: Photograph, noise_std: float) -> Judged:
    """The scores of one photograph."""
    every = -(-seen.std.numel() // MOST_PIXELS)
    return Judged(
        worst_window(seen),
        seen.std.flatten()[::every].clone(),
        seen.error.flatten()[::every].clone(),
        psnr(squared_error(seen.bicubic, seen.truth)),
        psnr(squared_error(seen.mean, seen.truth)),
        ssim(seen.bicubic, seen.truth),
        ssim(seen.mean, seen.truth),
        doubt(seen.std, seen.error, seen.bicubic, noise_std),
    )


def worst_window(seen: Photograph) -> Photograph:
    """The window of a grid in which bicubic errs most."""
    height, width = (min(CROP, side) for side in seen.small.shape)
    errors = (seen.bicubic - seen.truth).double().square()
    tall, wide = seen.scale * height, seen.scale * width
    sums = errors.unfold(0, tall, tall).unfold(1, wide, wide).sum((-2, -1))
    row, column = divmod(int(sums.argmax()), sums.shape[1])
    return seen.window(row * height, column * width, height, width)


def averages(found: Sequence[Judged]) -> dict[str, float]:
    """Means over photographs of all scores."""
    records = [each.to_json() for each in found]
    return {name: sum(record[name] for record in records) / len(records) for name in records[0] if name != "photograph"}


def bins(found: Sequence[Judged]) -> list[tuple[float, float]]:
    """Standard deviations and errors of pixels of all photographs, by how doubtful they are."""
    return by_doubt(torch.cat([each.std for each in found]), torch.cat([each.error for each in found]))
