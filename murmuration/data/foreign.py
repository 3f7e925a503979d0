"""Pictures of any size and colour as inputs for an earlier run: does it notice that they are foreign?"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.data.images import resized
from murmuration.data.opening import open_inputs, read, same_preparation, test_parts
from murmuration.data.preparation import (
    ImagePreparation,
    Preparation,
    known_white,
    picture_shape,
    pixel_peak,
    planes_like,
)
from murmuration.data.raw import Request, is_table
from murmuration.data.records import Data
from murmuration.data.statistics import blocks
from murmuration.errors import Misuse

LUMA = (0.299, 0.587, 0.114)  # of red, green, blue in grey (ITU-R BT.601)


def open_foreign(source: Any, *, preparation: Preparation, seed: int = 0) -> Tensor:
    """Prepared inputs (N, ...) of a source's own test part, or else of all its rows, fitted to an earlier run.

    Pictures of other sizes are stretched to the run's, grey becomes colour by repeating, colour becomes grey by its
    luma, and white becomes the run's white; opacity is dropped. Pictures that fit already, tables and arrays are opened
    as `open_inputs` does: they need the columns, or the width, of training.
    """
    if not isinstance(preparation, ImagePreparation):
        return open_inputs(source, preparation=preparation, seed=seed)
    if isinstance(source, Data):
        if source.preparation == preparation or not isinstance(source.preparation, ImagePreparation):
            return same_preparation(source, preparation, None).test.x
        pixels = source.preparation.pixels_of(source.test.x)
        return fitted_pictures(pixels.transpose(0, 3, 1, 2), 255.0, preparation)
    _, raw = read(source, Request(None, seed, labelled=False, size=preparation.shape[1:]))
    found = [raw.parts[name].inputs for name in test_parts(raw)]
    return torch.cat([fitted_pictures(inputs, raw.peak, preparation) for inputs in found])


def fitted_pictures(inputs: Any, stated: float | None, preparation: ImagePreparation) -> Tensor:
    """Prepared pictures (N, C, H, W) of raw ones of any size and colour; `stated` is their white, where it is known."""
    if is_table(inputs) or inputs.ndim not in (3, 4):
        kind = "a table" if is_table(inputs) else f"examples of shape {inputs.shape[1:]}"
        raise Misuse(f"{kind} for a run trained on pictures: expected pictures, of any size")
    white = white_of(inputs, stated, preparation)
    if fits(inputs, preparation.shape):
        return preparation.apply(inputs, peak=white)
    planes = planes_like(inputs, picture_shape(inputs))  # (N, c, h, w)
    channels, *size = preparation.shape
    done = [
        preparation.apply(recoloured(resized(planes[rows], (size[0], size[1])), channels), peak=white)
        for rows in blocks(planes)
    ]
    return torch.cat(done)


def white_of(inputs: np.ndarray, stated: float | None, preparation: ImagePreparation) -> float | None:
    """The white of foreign pictures; None means the run's.

    Where the source does not say, values that do not exceed the run's white are in its units; larger ones are guessed.
    """
    white = known_white(inputs, stated)
    low, high = inputs.min(), inputs.max()
    if white is not None or 0 <= low <= high <= preparation.peak:
        return white
    guess = pixel_peak(inputs)
    if guess is None:
        raise Misuse(f"pictures with values from {low:g} to {high:g}: expected pixels in 0..1 or 0..255")
    return guess


def fits(inputs: np.ndarray, shape: tuple[int, int, int]) -> bool:
    """Whether pictures have a layout that a preparation of this shape (C, H, W) takes as it is."""
    channels, *size = shape
    return inputs.shape[1:] in {(*size,), shape, (*size, channels), (1, *size), (*size, 1)}


def recoloured(planes: np.ndarray, channels: int) -> np.ndarray:
    """Pictures (N, C, H, W) of the given number of channels, or with one plane for all of them, from (N, c, H, W).

    >>> recoloured(np.array([10.0, 20.0, 30.0]).reshape(1, 3, 1, 1), 1).item()
    18.15
    """
    found = planes.shape[1]
    if found in (1, channels):
        return planes
    if (found, channels) == (4, 3):
        return planes[:, :3]
    if found in (3, 4) and channels == 1:
        red, green, blue = (planes[:, k].astype(np.float64) * weight for k, weight in enumerate(LUMA))
        return (red + green + blue)[:, None]
    wanted = "1, 3 or 4" if channels in (1, 3) else f"1 or {channels}"
    raise Misuse(f"pictures of {found} channels for a run trained on {channels}: expected {wanted}")
