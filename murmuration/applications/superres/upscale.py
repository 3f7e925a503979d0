"""Upscaling of images of any size: mean and standard deviation of every pixel, from tensors or from files.

Files are read as luma, chroma and transparency: luma is the network's, the rest is upscaled bicubically.
"""

import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from murmuration.applications.subpixel import REACH, enlarged
from murmuration.applications.superres.training import LUMA, luma, unit_pixels
from murmuration.data.images import GREY_MODES, damaged_image, open_image
from murmuration.likelihoods import Gaussian
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse
from murmuration.system.files import write_bytes

RED, BLUE = 2 * (1 - LUMA[0]), 2 * (1 - LUMA[2])  # 1.402 and 1.772: full ranges of R - Y and B - Y
TILE = 64  # side of the tiles that are upscaled at once, in pixels: bounds memory
WHITE_QUANTILE = 0.995  # the quantile of standard deviations that is white in a map


@dataclass(frozen=True)
class ImagePlanes:
    """The planes of an image, from 0 to 1."""

    luma: Tensor  # (H, W)
    chroma: Tensor | None = None  # (2, H, W), blue and red difference from -1/2 to 1/2; None for a grey image
    alpha: Tensor | None = None  # (H, W), 1 where opaque; None if the image is opaque everywhere


def read_image(path: Path) -> ImagePlanes:
    """Return the planes of an image file, rotated as its EXIF orientation says; 16-bit greys keep their upper byte."""
    from PIL import Image, ImageOps

    if path.is_dir() or not path.exists():
        raise Misuse(f"no image '{path}': expected a file such as photo.png")
    with open_image(path) as opened:
        try:
            picture = ImageOps.exif_transpose(opened)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise damaged_image(str(path), error) from None
        if picture.mode == "F":
            raise Misuse(f"'{path}' holds fractions without a known white: expected an image of 8 or 16 bits")
        clear = "A" in picture.getbands() or "transparency" in picture.info
        alpha = unit_pixels(picture.convert("RGBA").getchannel("A"), True, path)[0] if clear else None
        grey = picture.mode in GREY_MODES
        colours = unit_pixels(picture, grey, path)
    if grey:
        return ImagePlanes(colours[0], None, alpha)
    bright = luma(colours)
    return ImagePlanes(bright, torch.stack([(colours[2] - bright) / BLUE, (colours[0] - bright) / RED]), alpha)


def compose(planes: ImagePlanes, mean: Tensor, scale: int) -> np.ndarray:
    """Return the upscaled image in bytes, (r H, r W) or (r H, r W, C): luma as given, chroma and alpha bicubic."""
    colours = mean[None]
    if planes.chroma is not None:
        blue, red = enlarged(planes.chroma[None], scale)[0]
        reds, blues = mean + RED * red, mean + BLUE * blue
        colours = torch.stack([reds, (mean - LUMA[0] * reds - LUMA[2] * blues) / LUMA[1], blues])
    if planes.alpha is not None:
        colours = torch.cat([colours, enlarged(planes.alpha[None, None], scale)[0]])
    pixels = to_bytes(colours).transpose(1, 2, 0)
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def to_bytes(values: Tensor, white: float = 1.0) -> np.ndarray:
    """Return values as bytes, 0 black and `white` or more 255; all black where white is 0."""
    return (values / white if white else values * 0).mul(255).round().clamp(0, 255).to(torch.uint8).numpy()


def write_png(path: Path, pixels: np.ndarray) -> None:
    """Write bytes (H, W), (H, W, 2), (H, W, 3) or (H, W, 4) as a PNG file, whole or not at all."""
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(content, format="PNG")
    write_bytes(path, content.getvalue())


class PixelPrediction(NamedTuple):
    """The predicted luma of the larger image."""

    mean: Tensor  # (r H, r W), from 0 to 1
    std: Tensor  # (r H, r W), over draws: epistemic


def is_superres(ensemble: Ensemble) -> bool:
    """Return whether the ensemble maps images to images."""
    return isinstance(ensemble.likelihood, Gaussian) and ensemble.likelihood.targets is not None


def scale_of(ensemble: Ensemble) -> int:
    """Return the factor by which the ensemble upscales; other ensembles are refused."""
    shape = ensemble.manifest.input_shape
    if not is_superres(ensemble) or len(shape) != 3:
        raise Misuse("the run does not map images to images: train one with murmur superres train")
    assert isinstance(ensemble.likelihood, Gaussian)
    return math.isqrt(ensemble.likelihood.width // (shape[1] * shape[2]))


def predict_image(ensemble: Ensemble, small: Tensor, draws: int | None = None) -> Predictive:
    """Return predictions for a whole image (H, W) at once: outputs (S, 1, r^2 H W).

    A draw of the weights depends on its number alone: it is the same for every image, and for every tile of one.
    """
    assert isinstance(ensemble.likelihood, Gaussian)
    fitting = replace(ensemble.likelihood, targets=small.numel() * scale_of(ensemble) ** 2)
    manifest = replace(ensemble.manifest, input_shape=[1, *small.shape])
    sized = replace(ensemble, likelihood=fitting, manifest=manifest)
    return sized.predict(small[None, None], draws=draws, calibrated=False, prepared=True)


def upscale(ensemble: Ensemble, small: Tensor, *, draws: int | None = None, tile: int = TILE) -> PixelPrediction:
    """Return the prediction for an image (H, W), tile by tile; tiles overlap by the network's receptive field."""
    scale = scale_of(ensemble)
    mean, variance = torch.empty(2, scale * small.shape[0], scale * small.shape[1])
    for rows, above in tiles(small.shape[0], tile):
        for columns, beside in tiles(small.shape[1], tile):
            window = small[tuple(slice(max(0, side.start - REACH), side.stop + REACH) for side in (rows, columns))]
            predictive = predict_image(ensemble, window, draws)
            shape = (scale * window.shape[0], scale * window.shape[1])
            target = tuple(slice(scale * side.start, scale * side.stop) for side in (rows, columns))
            for image, part in ((mean, predictive.mean), (variance, predictive.epistemic_var)):
                part = part.view(shape)[scale * above :, scale * beside :]
                image[target] = part[: target[0].stop - target[0].start, : target[1].stop - target[1].start].float()
    return PixelPrediction(mean.clamp(0, 1), variance.clamp_min(0).sqrt())


def tiles(length: int, tile: int) -> Iterator[tuple[slice, int]]:
    """Yield the tiles of one side, each with the width of the margin before it.

    >>> list(tiles(10, 8))
    [(slice(0, 8, None), 0), (slice(8, 10, None), 7)]
    """
    for start in range(0, length, tile):
        yield slice(start, min(start + tile, length)), min(start, REACH)


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
    ensemble.recipe.weights.resolve_draws(draws)  # refused before anything is written
    names = {Path(path): f"{Path(path).stem}-x{scale}" for path in paths}
    repeated = [name for name, count in Counter(names.values()).items() if count > 1]
    if repeated:
        raise Misuse(f"two of the images would be written as {repeated[0]}.png: upscale them into two directories")
    for path in names:
        read_image(path)  # refused before anything is written; not kept, for there may be many
    place, records = Path(out), []
    place.mkdir(parents=True, exist_ok=True)
    for done, (path, name) in enumerate(names.items()):
        show(path.name, done, len(names))
        planes = read_image(path)
        prediction = upscale(ensemble, planes.luma, draws=draws)
        record = record_of(path, planes.luma, prediction)
        record |= {"upscaled": f"{name}.png", "map": f"{name}-std.png"}
        write_png(place / record["upscaled"], compose(planes, prediction.mean, scale))
        write_png(place / record["map"], to_bytes(prediction.std, record["white_std"]))
        records.append(record)
    return records


def record_of(path: Path, small: Tensor, prediction: PixelPrediction) -> dict[str, Any]:
    """Return sizes, and quantiles of the standard deviations, in units of white."""
    std = prediction.std.flatten().double()
    ordered = std.sort().values

    def quantile(level: float) -> float:  # torch's own refuses more than 16 million values
        return float(ordered[min(int(level * len(ordered)), len(ordered) - 1)])

    (height, width), (upscaled_height, upscaled_width) = small.shape, prediction.mean.shape
    sizes = {"width": width, "height": height, "upscaled_width": upscaled_width, "upscaled_height": upscaled_height}
    stds = {"mean": float(std.mean()), "median": quantile(0.5), "q95": quantile(0.95), "max": quantile(1.0)}
    return {"image": str(path), **sizes, "std": stds, "white_std": quantile(WHITE_QUANTILE)}
