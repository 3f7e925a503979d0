"""The nineteen corruptions of CIFAR-10-C (Hendrycks and Dietterich 2019), for pictures of any size.

They are made here, with the constants of CIFAR-10-C, not read from its files: random numbers differ, and the
corruptions that end in `_approximate` also differ in what they compute. Constants are in pixels of 32 x 32 pictures
and stay so for other sizes, except that `elastic_transform` scales with the shorter side.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import murmuration.data.shift.blurs as blurs
import murmuration.data.shift.digital as digital
import murmuration.data.shift.noise as noise
import murmuration.data.shift.spatter as spatter
import murmuration.data.shift.weather as weather
from murmuration.data.shift.randomness import Draws, draws_for
from murmuration.data.shift.severities import check_place
from murmuration.errors import Misuse, unknown

AT_ONCE = 1 << 17  # pixels worked on at a time, so that they stay near the processor
ALLOWANCE = np.float32(2e-4)  # of a grey level: truncation must not take rounding errors for a darker level
SMALLEST = 4  # pixels a side
APPROXIMATE = "_approximate"
ALIASES = {"frosted_glass_blur": "glass_blur", "elastic": "elastic_transform"}  # names in TensorFlow Datasets


@dataclass(frozen=True)
class Corruption:
    """One way to spoil pictures: apply(x (N, H, W, C) float32 in 0..1, parameters, draws) -> the same shape."""

    name: str
    kind: str  # noise, blur, weather, digital
    about: str
    exact: bool  # whether the formula of CIFAR-10-C is reproduced, random numbers aside
    severities: tuple[Any, ...]  # five parameters
    apply: Callable[[np.ndarray, Any, Draws], np.ndarray]


FLAKES = (
    (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
    (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
)
STRETCHES = ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
LIQUIDS = (
    (0.62, 0.1, 0.7, 0.7, 0.5, 0),
    (0.65, 0.1, 0.8, 0.7, 0.5, 0),
    (0.65, 0.3, 1, 0.69, 0.5, 0),
    (0.65, 0.1, 0.7, 0.69, 0.6, 1),
    (0.65, 0.1, 0.5, 0.68, 0.6, 1),
)


def entry(name: str, about: str, severities: tuple[Any, ...], apply: Callable[..., np.ndarray]) -> Corruption:
    """A corruption of the table; its kind and whether it is exact follow from its name."""
    kind = next(kind for kind, names in KINDS.items() if name.removesuffix(APPROXIMATE) in names)
    return Corruption(name, kind, about, not name.endswith(APPROXIMATE), severities, apply)


KINDS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
}

TABLE = (
    entry("gaussian_noise", "noise of one size everywhere", (0.04, 0.06, 0.08, 0.09, 0.10), noise.gaussian_noise),
    entry("shot_noise", "too few photons: Poisson counts", (500, 250, 100, 75, 50), noise.shot_noise),
    entry("impulse_noise", "single numbers black or white", (0.01, 0.02, 0.03, 0.05, 0.07), noise.impulse_noise),
    entry(
        "defocus_blur",
        "a lens out of focus",
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        blurs.defocus_blur,
    ),
    entry(
        "glass_blur",
        "seen through frosted glass",
        ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2)),
        blurs.glass_blur,
    ),
    entry(
        "motion_blur_approximate",
        "a moving camera; ImageMagick's rounding is not reproduced",
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        blurs.motion_blur,
    ),
    entry("zoom_blur", "a camera moving closer", (1.06, 1.11, 1.16, 1.21, 1.26), blurs.zoom_blur),
    entry("snow_approximate", "falling snow; flakes are smeared without ImageMagick", FLAKES, weather.snow),
    entry(
        "frost_approximate",
        "ice on the lens; drawn, where CIFAR-10-C has photographs",
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        weather.frost,
    ),
    entry("fog", "fog of uneven thickness", ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)), weather.fog),
    entry("brightness", "more light", (0.05, 0.1, 0.15, 0.2, 0.3), digital.brightness),
    entry("contrast", "less contrast", (0.75, 0.5, 0.4, 0.3, 0.15), digital.contrast),
    entry("elastic_transform", "turned, sheared and stretched", STRETCHES, digital.elastic_transform),
    entry("pixelate", "fewer pixels", (0.95, 0.9, 0.85, 0.75, 0.65), digital.pixelate),
    entry("jpeg_compression", "compressed with loss", (80, 65, 58, 50, 40), digital.jpeg_compression),
    entry("speckle_noise", "noise that grows with the light", (0.06, 0.1, 0.12, 0.16, 0.2), noise.speckle_noise),
    entry("gaussian_blur", "a Gaussian filter", (0.4, 0.6, 0.7, 0.8, 1), blurs.gaussian_blur),
    entry("spatter", "drops of water, then of mud", LIQUIDS, spatter.spatter),
    entry(
        "saturate",
        "less colour, then more; grey pictures stay",
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        digital.saturate,
    ),
)
CORRUPTIONS: dict[str, Corruption] = {corruption.name: corruption for corruption in TABLE}


def corruption_named(name: str) -> Corruption:
    """The corruption of that name, which may also be the name in CIFAR-10-C or in TensorFlow Datasets.

    >>> corruption_named("frosted_glass_blur").name, corruption_named("frost").name
    ('glass_blur', 'frost_approximate')
    """
    plain = ALIASES.get(name, name)
    for known in (plain, plain + APPROXIMATE):
        if known in CORRUPTIONS:
            return CORRUPTIONS[known]
    raise unknown("corruption", name, CORRUPTIONS)


def corrupt(images: np.ndarray, name: str, severity: int, *, seed: int = 0, first: int = 0) -> np.ndarray:
    """Spoilt copies of pictures (N, H, W), (N, H, W, 1) or (N, H, W, 3), bytes or floats in 0..1, same shape and type.

    Severity is 1 to 5. `first` is the place of images[0] in its data set: what becomes of a picture follows from
    (seed, corruption, severity, place, picture), never from the pictures around it. Bytes are 255 times the result,
    truncated as in CIFAR-10-C; floats are clipped to 0..1.

    >>> grey = np.full((2, 4, 4), 100, dtype=np.uint8)
    >>> corrupt(grey, "brightness", 4)[0, 0]
    array([151, 151, 151, 151], dtype=uint8)
    """
    corruption = corruption_named(name)
    check(images, severity, seed, first)
    parameters = corruption.severities[severity - 1]
    pictures = images[..., None] if images.ndim == 3 else images
    out = np.empty(pictures.shape, dtype=images.dtype)
    step = max(1, AT_ONCE // (images.shape[1] * images.shape[2]))
    for start in range(0, len(pictures), step):
        part = slice(start, min(start + step, len(pictures)))
        draws = draws_for(seed, corruption.name, severity, range(first + part.start, first + part.stop))
        out[part] = stored(corruption.apply(units(pictures[part]), parameters, draws), images.dtype)
    return out.reshape(images.shape)


def units(pictures: np.ndarray) -> np.ndarray:
    """A copy (N, H, W, C) float32 in 0..1 of pictures in bytes or floats."""
    if pictures.dtype == np.uint8:
        return np.divide(pictures, np.float32(255), dtype=np.float32)
    return np.array(pictures, dtype=np.float32)


def stored(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """x (N, H, W, C) clipped to 0..1, as floats or as bytes, which are truncated."""
    x = np.clip(x, 0, 1)
    if dtype != np.uint8:
        return x.astype(dtype)
    x *= np.float32(255)
    x += ALLOWANCE
    return x.astype(np.uint8)


def check(images: np.ndarray, severity: int, seed: int, first: int) -> None:
    """Refuse what cannot be spoilt: other shapes, other types, numbers outside 0..1, severities outside 1..5."""
    check_place(severity, seed, first)
    if not isinstance(images, np.ndarray) or (images.dtype != np.uint8 and images.dtype.kind != "f"):
        got = images.dtype if isinstance(images, np.ndarray) else type(images).__name__
        raise Misuse(f"pictures of type {got}: expected an array of uint8 in 0..255 or of floats in 0..1")
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] not in (1, 3)):
        raise Misuse(f"pictures of shape {images.shape}: expected (N, H, W), (N, H, W, 1) or (N, H, W, 3)")
    if min(images.shape[1:3]) < SMALLEST:
        raise Misuse(f"pictures of {images.shape[1]} x {images.shape[2]} pixels: expected {SMALLEST} a side at least")
    if images.dtype.kind == "f" and images.size and not (images.min() >= 0 and images.max() <= 1):
        raise Misuse(f"pictures from {images.min():g} to {images.max():g}: expected floats in 0..1, or bytes (uint8)")
