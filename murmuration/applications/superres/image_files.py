"""Image files as luma, chroma and transparency, and back: luma is the network's, the rest is upscaled bicubically."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.applications.superres.patches import LUMA, luma
from murmuration.data.images import GREY_MODES, decode, open_image
from murmuration.errors import Failure, Misuse, first_line
from murmuration.files import write_bytes
from murmuration.nets.subpixel import enlarged

RED, BLUE = 2 * (1 - LUMA[0]), 2 * (1 - LUMA[2])  # 1.402 and 1.772: full ranges of R - Y and B - Y


@dataclass(frozen=True)
class ImagePlanes:
    """The planes of an image, from 0 to 1."""

    luma: Tensor  # (H, W)
    chroma: Tensor | None = None  # (2, H, W), blue and red difference from -1/2 to 1/2; None for a grey image
    alpha: Tensor | None = None  # (H, W), 1 where opaque; None if the image is opaque everywhere


def read_image(path: Path) -> ImagePlanes:
    """The planes of an image file, rotated as its EXIF orientation says; 16-bit greys keep their upper byte."""
    if path.is_dir() or not path.exists():
        raise Misuse(f"no image '{path}': expected a file such as photo.png")
    with open_image(path) as opened:
        picture = upright(opened, path)
        if picture.mode == "F":
            raise Misuse(f"'{path}' holds fractions without a known white: expected an image of 8 or 16 bits")
        clear = "A" in picture.getbands() or "transparency" in picture.info
        alpha = to_unit(decode(picture.convert("RGBA").getchannel("A"), True, str(path)))[0] if clear else None
        grey = picture.mode in GREY_MODES
        colours = to_unit(decode(picture, grey, str(path)))
    if grey:
        return ImagePlanes(colours[0], None, alpha)
    bright = luma(colours)
    return ImagePlanes(bright, torch.stack([(colours[2] - bright) / BLUE, (colours[0] - bright) / RED]), alpha)


def upright(picture: Any, path: Path) -> Any:
    """The image rotated by its EXIF orientation."""
    from PIL import Image, ImageOps

    try:
        return ImageOps.exif_transpose(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise Failure(f"cannot read the image '{path}': {first_line(error)}") from None


def to_unit(pixels: np.ndarray) -> Tensor:
    """Bytes as float32 from 0 to 1."""
    return torch.from_numpy(pixels / np.float32(255))


def compose(planes: ImagePlanes, mean: Tensor, scale: int) -> np.ndarray:
    """The upscaled image in bytes, (r H, r W) or (r H, r W, C): luma as given, chroma and alpha bicubic."""
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
    """Values as bytes, 0 black and `white` or more 255; all black where white is 0."""
    return (values / white if white else values * 0).mul(255).round().clamp(0, 255).to(torch.uint8).numpy()


def write_png(path: Path, pixels: np.ndarray) -> None:
    """Write bytes (H, W), (H, W, 2), (H, W, 3) or (H, W, 4) as a PNG file, whole or not at all."""
    from PIL import Image

    held = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(held, format="PNG")
    write_bytes(path, held.getvalue())
