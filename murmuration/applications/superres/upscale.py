"""Upscaling of images of any size: mean and standard deviation of every pixel, from tensors or from files."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from murmuration.applications.superres.image_files import compose, read_image, to_bytes, write_png
from murmuration.ensemble import Ensemble
from murmuration.errors import Misuse
from murmuration.likelihoods import Gaussian
from murmuration.nets.subpixel import REACH
from murmuration.predictive import Predictive

TILE = 64  # side of the tiles that are upscaled at once, in pixels: bounds memory
WHITE_QUANTILE = 0.995  # the quantile of standard deviations that is white in a map


@dataclass(frozen=True)
class PixelPrediction:
    """The predicted luma of the larger image."""

    mean: Tensor  # (r H, r W), from 0 to 1
    std: Tensor  # (r H, r W), over draws: epistemic


def is_superres(ensemble: Ensemble) -> bool:
    """Whether the ensemble maps images to images."""
    return isinstance(ensemble.likelihood, Gaussian) and ensemble.likelihood.targets is not None


def scale_of(ensemble: Ensemble) -> int:
    """The factor by which the ensemble upscales; other ensembles are refused."""
    shape = ensemble.manifest.get("input_shape", ())
    if not is_superres(ensemble) or len(shape) != 3:
        raise Misuse("the run does not map images to images: train one with murmur superres train")
    assert isinstance(ensemble.likelihood, Gaussian)
    return math.isqrt(ensemble.likelihood.width // (shape[1] * shape[2]))


def predict_image(ensemble: Ensemble, small: Tensor, draws: int | None = None) -> Predictive:
    """Predictions for a whole image (H, W) at once: outputs (S, 1, r^2 H W).

    A draw of the weights depends on its number alone: it is the same for every image, and for every tile of one.
    """
    likelihood = ensemble.likelihood
    assert isinstance(likelihood, Gaussian)
    fitting = replace(likelihood, targets=small.numel() * scale_of(ensemble) ** 2)
    return replace(ensemble, likelihood=fitting).predict(small[None, None], draws=draws, calibrated=False)


def upscale(ensemble: Ensemble, small: Tensor, *, draws: int | None = None, tile: int = TILE) -> PixelPrediction:
    """The prediction for an image (H, W), tile by tile; tiles overlap by the network's receptive field."""
    scale = scale_of(ensemble)
    mean, variance = (torch.empty(scale * small.shape[0], scale * small.shape[1]) for _ in range(2))
    for rows, above in tiles(small.shape[0], tile):
        for columns, left in tiles(small.shape[1], tile):
            seen = small[with_margin(rows), with_margin(columns)]
            predictive = predict_image(ensemble, seen, draws)
            shape = (scale * seen.shape[0], scale * seen.shape[1])
            here = scaled(rows, scale), scaled(columns, scale)
            inside = (
                slice(scale * above, scale * above + here[0].stop - here[0].start),
                slice(scale * left, scale * left + here[1].stop - here[1].start),
            )
            mean[here] = predictive.mean.view(shape)[inside].float()
            variance[here] = predictive.epistemic_var.view(shape)[inside].float()
    return PixelPrediction(mean.clamp(0, 1), variance.clamp_min(0).sqrt())


def tiles(length: int, tile: int) -> Iterator[tuple[slice, int]]:
    """The tiles of one side, each with the width of the margin before it.

    >>> list(tiles(10, 8))
    [(slice(0, 8, None), 0), (slice(8, 10, None), 7)]
    """
    for start in range(0, length, tile):
        yield slice(start, min(start + tile, length)), min(start, REACH)


def with_margin(window: slice) -> slice:
    """A tile with all inputs that its outputs depend on."""
    return slice(max(0, window.start - REACH), window.stop + REACH)


def scaled(window: slice, scale: int) -> slice:
    return slice(scale * window.start, scale * window.stop)


def upscale_files(
    ensemble: Ensemble,
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    draws: int | None = None,
    show: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> list[dict[str, Any]]:
    """Write each image file upscaled, with a map of its standard deviations; returns a record for each."""
    scale = scale_of(ensemble)
    names = {Path(path): f"{Path(path).stem}-x{scale}" for path in paths}
    repeated = [name for name in names.values() if list(names.values()).count(name) > 1]
    if repeated:
        raise Misuse(f"two of the images would be written as {repeated[0]}.png: upscale them into two directories")
    for path in names:
        read_image(path)  # refused before anything is written; not kept, for there may be many
    place = Path(out)
    place.mkdir(parents=True, exist_ok=True)
    records = []
    for done, (path, name) in enumerate(names.items()):
        show(path.name, done, len(names))
        planes = read_image(path)
        prediction = upscale(ensemble, planes.luma, draws=draws)
        record = record_of(path, planes.luma, prediction)
        write_png(place / f"{name}.png", compose(planes, prediction.mean, scale))
        write_png(place / f"{name}-std.png", to_bytes(prediction.std, record["white_std"]))
        records.append({**record, "upscaled": f"{name}.png", "map": f"{name}-std.png"})
    return records


def record_of(path: Path, small: Tensor, prediction: PixelPrediction) -> dict[str, Any]:
    """Sizes, and quantiles of the standard deviations, in units of white."""
    std = prediction.std.flatten().double()
    ordered = std.sort().values

    def quantile(level: float) -> float:  # torch's own refuses more than 16 million values
        return float(ordered[min(int(level * len(ordered)), len(ordered) - 1)])

    return {
        "image": str(path),
        "width": small.shape[1],
        "height": small.shape[0],
        "upscaled_width": prediction.mean.shape[1],
        "upscaled_height": prediction.mean.shape[0],
        "std": {"mean": float(std.mean()), "median": quantile(0.5), "q95": quantile(0.95), "max": quantile(1.0)},
        "white_std": quantile(WHITE_QUANTILE),
    }
