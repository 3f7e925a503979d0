"""How raw inputs become what a network sees, written down so that it can be done again on another file.

Every preparation is a frozen record with `apply(raw) -> (N, ...) float32`, `names` of the prepared columns
where they have some, and `to_json`. Its statistics are those of the training split.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from murmuration.data.columns import TablePreparation, fit_table, table_from_json
from murmuration.data.names import listed
from murmuration.data.raw import as_array, fields_of, is_table, refuse_nonfinite
from murmuration.data.statistics import moments, standardise
from murmuration.errors import Misuse, unknown

Pixels = Literal["standardise", "unit", "raw"]
COLOURS = (1, 3, 4)  # numbers of channels by which a last axis is recognised as colour


@dataclass(frozen=True)
class ImagePreparation:
    """Pictures -> (N, C, H, W): (pixel - mean) / std for each channel, in the units of the raw pixels."""

    shape: tuple[int, int, int]  # (C, H, W)
    peak: float  # the value of a white pixel
    mean: tuple[float, ...]  # (C,)
    std: tuple[float, ...]  # (C,)

    @property
    def names(self) -> tuple[str, ...]:
        return ()

    @property
    def black(self) -> tuple[float, ...]:
        """What a black pixel becomes, for each channel (C,): the fill for padding a prepared picture."""
        return tuple(-mean / std for mean, std in zip(self.mean, self.std, strict=True))

    def apply(self, raw: Any, peak: float | None = None) -> Tensor:
        """Prepared pictures (N, C, H, W) of raw ones (N, H, W), (N, H, W, C) or (N, C, H, W).

        `peak` is the raw white where it is known to differ from training's. Grey pictures serve a network
        trained on colour.
        """
        planes = planes_like(checked_array(raw, "x"), self.shape)
        ratio = 1.0 if peak is None else peak / self.peak
        scaled = standardise(planes, np.array(self.mean) * ratio, np.array(self.std) * ratio)
        return torch.from_numpy(scaled)

    def pixels_of(self, x: Tensor) -> np.ndarray:
        """Pictures (N, H, W, C) uint8, black 0 and white 255, from prepared ones (N, C, H, W)."""
        mean, std = (torch.tensor(v, dtype=torch.float64).view(1, -1, 1, 1) for v in (self.mean, self.std))
        pixels = (x.detach().cpu().double() * std + mean) * (255 / self.peak)
        return pixels.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()

    def to_json(self) -> dict[str, Any]:
        return {"kind": "image", **asdict(self)}


@dataclass(frozen=True)
class ArrayPreparation:
    """Arrays (N, D) or (N, C, ...) -> the same shape: (value - mean) / std for each column or channel."""

    shape: tuple[int, ...]  # of one example
    mean: tuple[float, ...]  # (D,) or (C,)
    std: tuple[float, ...]
    names: tuple[str, ...] = ()  # of the columns, where they have some

    def apply(self, raw: Any) -> Tensor:
        """Prepared inputs (N, D) or (N, C, ...) of an array, or of a table that has the named columns."""
        values = checked_array(self.columns_of(raw) if is_table(raw) else raw, "x")
        values = values[:, None] if values.ndim == 1 else values
        if values.shape[1:] != self.shape:
            raise wrong_shape(values, self.shape)
        return torch.from_numpy(standardise(values, np.array(self.mean), np.array(self.std)))

    def columns_of(self, table: Any) -> np.ndarray:
        """The named columns (N, D) of a table."""
        missing = [name for name in self.names if name not in table.columns]
        if missing or not self.names:
            wanted = listed(self.names) or f"an array of shape {self.shape} an example"
            raise Misuse(
                f"a table with the columns {listed(map(str, table.columns))}"
                f" for a run trained on an array: expected {wanted}"
            )
        return table[list(self.names)].to_numpy(dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "array", **asdict(self)}


Preparation = ImagePreparation | ArrayPreparation | TablePreparation


def preparation_from_json(record: dict[str, Any]) -> Preparation:
    """The preparation that `to_json` wrote down.

    >>> preparation_from_json(ArrayPreparation((1,), (0.5,), (2.0,)).to_json())
    ArrayPreparation(shape=(1,), mean=(0.5,), std=(2.0,), names=())
    """
    makers: dict[str, Callable[[], Preparation]] = {
        "image": lambda: ImagePreparation(**fields_of(record)),
        "array": lambda: ArrayPreparation(**fields_of(record)),
        "table": lambda: table_from_json(record),
    }
    if record["kind"] not in makers:
        raise unknown("preparation", record["kind"], makers)
    return makers[record["kind"]]()


def checked_array(raw: Any, name: str) -> np.ndarray:
    """Raw inputs (N, ...) as an array of finite real numbers."""
    values = as_array(raw)
    if values.dtype.kind not in "iufb" or values.ndim == 0:
        raise Misuse(f"{name} has type {values.dtype} and shape {values.shape}: expected an array of numbers")
    refuse_nonfinite(values, name)
    return values


def wrong_shape(values: np.ndarray | Tensor, shape: tuple[int, ...]) -> Misuse:
    """The error for examples of another shape than training's."""
    return Misuse(f"examples have the shape {tuple(values.shape[1:])}: expected {shape}, as in training")


def planes_like(values: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """Pictures (N, C, H, W) in whatever layout they come, given what shape (C, H, W) they must have."""
    _, height, width = shape
    if values.shape[1:] == (height, width):
        values = values[:, None]
    elif values.ndim == 4 and values.shape[1:] != shape and values.shape[1:3] == (height, width):
        values = np.moveaxis(values, 3, 1)
    if values.ndim == 4 and values.shape[1:] == (1, height, width):
        values = np.broadcast_to(values, (len(values), *shape))
    if values.shape[1:] != shape:
        raise wrong_shape(values, shape)
    return values


def picture_shape(values: np.ndarray) -> tuple[int, int, int]:
    """The shape (C, H, W) of pictures (N, H, W), (N, H, W, C) or (N, C, H, W).

    >>> picture_shape(np.zeros((5, 8, 9, 3))), picture_shape(np.zeros((5, 3, 8, 9)))
    ((3, 8, 9), (3, 8, 9))
    """
    if values.ndim == 3:
        return (1, values.shape[1], values.shape[2])
    first, second, last = values.shape[1:]
    return (last, first, second) if last in COLOURS and first not in COLOURS else (first, second, last)


def pixel_peak(values: np.ndarray) -> float | None:
    """The value of white if an array looks like pictures, else None.

    Pictures are arrays of rank 3 or 4 that are bytes (white is 255), or lie in 0..1 or in 0..255.
    """
    if values.ndim not in (3, 4) or values.size == 0:
        return None
    if values.dtype == np.uint8:
        return 255.0
    if values.min() < 0 or values.max() > 255:
        return None
    return 1.0 if values.max() <= 1 else 255.0


def known_white(values: np.ndarray, stated: float | None) -> float | None:
    """The value of white in an array of pictures: 1 for fractions in 0..1, else what its source states, if it does."""
    return 1.0 if values.dtype.kind == "f" and pixel_peak(values) == 1.0 else stated


def fit_images(values: np.ndarray, peak: float, pixels: Pixels) -> ImagePreparation:
    """The preparation of training pictures: standardised, over white (`unit`), or as they are (`raw`)."""
    shape = picture_shape(values)
    colours = shape[0]
    if pixels == "standardise":
        mean, std = moments(planes_like(values, shape), "x")
    else:
        mean, std = np.zeros(colours), np.full(colours, peak if pixels == "unit" else 1.0)
    return ImagePreparation(shape, float(peak), tuple(mean.tolist()), tuple(std.tolist()))


def fit_array(values: np.ndarray, names: tuple[str, ...], as_is: bool) -> ArrayPreparation:
    """The preparation of training arrays (N,), (N, D) or (N, C, ...): standardised unless `as_is`."""
    values = values[:, None] if values.ndim == 1 else values
    width = values.shape[1]
    mean, std = (np.zeros(width), np.ones(width)) if as_is else moments(values, "x")
    return ArrayPreparation(values.shape[1:], tuple(mean.tolist()), tuple(std.tolist()), names)


def check_pixels(pixels: str) -> None:
    """Refuse an unknown way to prepare pixels."""
    if pixels not in get_args(Pixels):
        raise unknown("pixels", pixels, get_args(Pixels))


__all__ = [
    "ArrayPreparation",
    "ImagePreparation",
    "Pixels",
    "Preparation",
    "TablePreparation",
    "check_pixels",
    "checked_array",
    "fit_array",
    "fit_images",
    "fit_table",
    "known_white",
    "picture_shape",
    "pixel_peak",
    "preparation_from_json",
]
