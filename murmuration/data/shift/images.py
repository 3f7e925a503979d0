"""The nineteen corruptions of CIFAR-10-C (Hendrycks and Dietterich 2019), for images of any size.

They are computed here with the constants of CIFAR-10-C, not read from its files: random numbers differ, and the
corruptions that end in `_approximate` also use other formulas. Constants are in pixels of 32 x 32 images and do not
change with the size, except that `elastic_transform` scales with the shorter side.

A new corruption is one function and one row of `TABLE`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import murmuration.data.shift.digital as digital
from murmuration.data.shift.blurs import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from murmuration.data.shift.randomness import SEVERITIES, Draws, check_arguments, draws_for
from murmuration.data.shift.weather import fog, frost, snow, spatter
from murmuration.system.errors import Misuse, unknown

AT_ONCE = 1 << 17  # pixels corrupted at a time, so that they stay in the processor's cache
ALLOWANCE = np.float32(2e-4)  # of a grey level: truncation must not turn a rounding error into a darker level
MIN_SIDE = 4  # pixels
APPROXIMATE = "_approximate"
VISIBLE = 64  # pixels a side to which small images are enlarged, by whole multiples
GAP, LABEL, LINE = 4, 152, 16  # pixels between images, for a name beside them, for a line of text
PAPER, INK = 255, 40


@dataclass(frozen=True)
class Corruption:
    """One corruption of images: apply(x (N, H, W, C) float32 in 0..1, parameters, draws) -> the same shape."""

    name: str  # ends in _approximate if the formula of CIFAR-10-C is not reproduced exactly
    kind: str  # noise, blur, weather, digital
    about: str
    severities: tuple[Any, ...]  # the parameters of severities 1 to 5
    apply: Callable[[np.ndarray, Any, Draws], np.ndarray]
    alias: str = ""  # its name in TensorFlow Datasets, where that differs from CIFAR-10-C
    needs_colour: bool = False  # leaves grey images unchanged

    @property
    def exact(self) -> bool:
        """Whether the formula of CIFAR-10-C is reproduced, random numbers aside."""
        return not self.name.endswith(APPROXIMATE)

    @property
    def names(self) -> set[str]:
        """Every name that selects it: the name here, in CIFAR-10-C, and in TensorFlow Datasets."""
        return {self.name, self.name.removesuffix(APPROXIMATE), self.alias} - {""}


DEFOCUS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))  # radius and softness of a disk
GLASS = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))  # standard deviation and passes
MOTION = ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))  # radius and standard deviation
SNOW = (  # mean, standard deviation, zoom, threshold, radius and length of the smear, weight of the image
    (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
    (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
)
FROST = ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))  # weights of the image and of the frost
FOG = ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))  # thickness and decay of the roughness
ELASTIC = ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
SPATTER = (  # mean, standard deviation, smoothing, threshold, opacity, and 1 for mud
    (0.62, 0.1, 0.7, 0.7, 0.5, 0),
    (0.65, 0.1, 0.8, 0.7, 0.5, 0),
    (0.65, 0.3, 1, 0.69, 0.5, 0),
    (0.65, 0.1, 0.7, 0.69, 0.6, 1),
    (0.65, 0.1, 0.5, 0.68, 0.6, 1),
)
SATURATE = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))  # factor and summand of the saturation

TABLE = (
    Corruption("gaussian_noise", "noise", "Gaussian noise", (0.04, 0.06, 0.08, 0.09, 0.10), digital.gaussian_noise),
    Corruption("shot_noise", "noise", "Poisson noise of few photons", (500, 250, 100, 75, 50), digital.shot_noise),
    Corruption("impulse_noise", "noise", "salt and pepper", (0.01, 0.02, 0.03, 0.05, 0.07), digital.impulse_noise),
    Corruption("defocus_blur", "blur", "a lens out of focus", DEFOCUS, defocus_blur),
    Corruption("glass_blur", "blur", "seen through frosted glass", GLASS, glass_blur, "frosted_glass_blur"),
    Corruption("motion_blur_approximate", "blur", "a moving camera, unlike ImageMagick's", MOTION, motion_blur),
    Corruption("zoom_blur", "blur", "a camera moving closer", (1.06, 1.11, 1.16, 1.21, 1.26), zoom_blur),
    Corruption("snow_approximate", "weather", "falling snow, smeared unlike ImageMagick", SNOW, snow),
    Corruption("frost_approximate", "weather", "drawn frost, where CIFAR-10-C has photographs", FROST, frost),
    Corruption("fog", "weather", "fog of uneven thickness", FOG, fog),
    Corruption("brightness", "weather", "more light", (0.05, 0.1, 0.15, 0.2, 0.3), digital.brightness),
    Corruption("contrast", "digital", "less contrast", (0.75, 0.5, 0.4, 0.3, 0.15), digital.contrast),
    Corruption("elastic_transform", "digital", "turned and stretched", ELASTIC, digital.elastic_transform, "elastic"),
    Corruption("pixelate", "digital", "fewer pixels", (0.95, 0.9, 0.85, 0.75, 0.65), digital.pixelate),
    Corruption("jpeg_compression", "digital", "JPEG compression", (80, 65, 58, 50, 40), digital.jpeg_compression),
    Corruption("speckle_noise", "noise", "multiplicative noise", (0.06, 0.1, 0.12, 0.16, 0.2), digital.speckle_noise),
    Corruption("gaussian_blur", "blur", "a Gaussian filter", (0.4, 0.6, 0.7, 0.8, 1), gaussian_blur),
    Corruption("spatter", "weather", "drops of water, then of mud", SPATTER, spatter),
    Corruption("saturate", "digital", "less colour, then more", SATURATE, digital.saturate, needs_colour=True),
)
CORRUPTIONS: dict[str, Corruption] = {corruption.name: corruption for corruption in TABLE}


def corruption_named(name: str) -> Corruption:
    """Find a corruption by its name here, in CIFAR-10-C or in TensorFlow Datasets.

    >>> corruption_named("frosted_glass_blur").name, corruption_named("frost").name
    ('glass_blur', 'frost_approximate')
    """
    for corruption in CORRUPTIONS.values():
        if name in corruption.names:
            return corruption
    raise unknown("corruption", name, CORRUPTIONS, see="murmur list corruptions")


def corrupt(images: np.ndarray, name: str, severity: int, *, seed: int = 0, first: int = 0) -> np.ndarray:
    """Return corrupted copies of images.

    The result for an image depends only on (seed, corruption, severity, its index, its pixels), not on other images.

    Args:
        images: (N, H, W), (N, H, W, 1) or (N, H, W, 3), uint8 or floats in 0..1.
        name: One of `CORRUPTIONS`, or its name in CIFAR-10-C or TensorFlow Datasets.
        severity: 1 to 5.
        seed: Seed of the random numbers.
        first: Index of images[0] in its data set.

    Returns:
        Images of the same shape and type. Bytes are 255 times the result, truncated as in CIFAR-10-C; floats are
        clipped to 0..1.

    Raises:
        Misuse: For an unknown name, another severity, or images of another shape, type or range.

    >>> grey = np.full((2, 4, 4), 100, dtype=np.uint8)
    >>> corrupt(grey, "brightness", 4)[0, 0]
    array([151, 151, 151, 151], dtype=uint8)
    """
    corruption = corruption_named(name)
    check_arguments(severity, seed, first)
    check_images(images)
    parameters = corruption.severities[severity - 1]
    planes = images[..., None] if images.ndim == 3 else images  # (N, H, W, C)
    out = np.empty(planes.shape, dtype=images.dtype)
    step = max(1, AT_ONCE // (images.shape[1] * images.shape[2]))
    for start in range(0, len(planes), step):
        part = slice(start, min(start + step, len(planes)))
        draws = draws_for(seed, corruption.name, severity, range(first + part.start, first + part.stop))
        out[part] = from_unit(corruption.apply(to_unit(planes[part]), parameters, draws), images.dtype)
    return out.reshape(images.shape)


def to_unit(images: np.ndarray) -> np.ndarray:
    """Copy images in uint8 or floats as (N, H, W, C) float32 in 0..1."""
    if images.dtype == np.uint8:
        return np.divide(images, np.float32(255), dtype=np.float32)
    return np.array(images, dtype=np.float32)


def from_unit(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Clip x (N, H, W, C) to 0..1 and convert it to floats or, truncated, to bytes."""
    x = np.clip(x, 0, 1)
    if dtype != np.uint8:
        return x.astype(dtype)
    return (x * np.float32(255) + ALLOWANCE).astype(np.uint8)


def check_images(images: np.ndarray) -> None:
    """Refuse images of other shapes or types than `corrupt` takes, and floats outside 0..1."""
    if not isinstance(images, np.ndarray) or (images.dtype != np.uint8 and images.dtype.kind != "f"):
        dtype = images.dtype if isinstance(images, np.ndarray) else type(images).__name__
        raise Misuse(f"images of type {dtype}: expected an array of uint8 in 0..255 or of floats in 0..1")
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] not in (1, 3)):
        raise Misuse(f"images of shape {images.shape}: expected (N, H, W), (N, H, W, 1) or (N, H, W, 3)")
    if min(images.shape[1:3]) < MIN_SIDE:
        raise Misuse(f"images of {images.shape[1]} x {images.shape[2]} pixels: expected {MIN_SIDE} a side at least")
    if images.dtype.kind == "f" and images.size and not (images.min() >= 0 and images.max() <= 1):
        raise Misuse(f"images from {images.min():g} to {images.max():g}: expected floats in 0..1, or bytes (uint8)")


# A contact sheet of corrupted images


def sheet(
    images: np.ndarray,
    *,
    names: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    blocks: int = 1,
    seed: int = 0,
) -> np.ndarray:
    """Draw a contact sheet (H, W, 3) uint8 with one row per corruption: the clean image, then each severity.

    Row i shows image i modulo N of images (N, H, W), (N, H, W, 1) or (N, H, W, 3). The rows are laid out in `blocks`
    side by side. Small images are enlarged by whole multiples. By default, all corruptions that change such images.
    """
    grey = images.ndim == 3 or images.shape[-1] == 1
    usual = [name for name, corruption in CORRUPTIONS.items() if not (grey and corruption.needs_colour)]
    selected = [corruption_named(name).name for name in (usual if names is None else names)]
    if not selected or not len(images) or blocks < 1:
        contents = f"{len(selected)} corruptions of {len(images)} images in {blocks} blocks"
        raise Misuse(f"a sheet of {contents}: expected at least one of each")
    rows = []
    for number, name in enumerate(selected):
        index = number % len(images)
        clean = images[index : index + 1]
        corrupted = [corrupt(clean, name, severity, seed=seed, first=index) for severity in severities]
        rows.append([enlarge(image[0]) for image in (clean, *corrupted)])
    heads = ["clean", *map(str, severities)]
    depth = -(-len(rows) // blocks)
    parts = [slice(start, start + depth) for start in range(0, len(rows), depth)]
    return np.concatenate([block(selected[part], heads, rows[part], depth) for part in parts], axis=1)


def enlarge(image: np.ndarray) -> np.ndarray:
    """Enlarge an image (H, W) or (H, W, C) of bytes or floats to (k H, k W, 3) uint8 by repeating pixels."""
    levels = image if image.dtype == np.uint8 else np.rint(255 * image.astype(np.float64)).astype(np.uint8)
    colours = np.broadcast_to(levels.reshape(*levels.shape[:2], -1), (*levels.shape[:2], 3))
    times = max(1, VISIBLE // max(levels.shape[:2]))
    return colours.repeat(times, axis=0).repeat(times, axis=1)


def block(names: Sequence[str], heads: Sequence[str], rows: list[list[np.ndarray]], depth: int) -> np.ndarray:
    """Draw one block (h, w, 3) with space for `depth` rows: names to the left of the images, column heads above."""
    from PIL import Image, ImageDraw

    height, width = rows[0][0].shape[:2]
    down, across = max(height, LINE) + GAP, width + GAP
    page = Image.new("RGB", (LABEL + len(heads) * across + GAP, LINE + depth * down + GAP), (PAPER,) * 3)
    pen = ImageDraw.Draw(page)
    for column, head in enumerate(heads):
        pen.text((LABEL + column * across, 2), head, fill=(INK,) * 3)
    for row, (name, images) in enumerate(zip(names, rows, strict=True)):
        top = LINE + row * down
        pen.text((GAP, top + height // 2 - LINE // 2), name, fill=(INK,) * 3)
        for column, image in enumerate(images):
            page.paste(Image.fromarray(image), (LABEL + column * across, top))
    return np.asarray(page)
