"""An ensemble of picture networks on a picture of any size."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from murmuration.ensemble import Ensemble
from murmuration.errors import Misuse
from murmuration.likelihoods import Gaussian
from murmuration.nets.subpixel import REACH
from murmuration.predictive import Predictive

TILE = 64  # pixels of a side that are enlarged at once: bounds memory, whatever the picture's size


@dataclass(frozen=True)
class Enlarged:
    """What draws of a network say of every pixel of the larger picture."""

    mean: Tensor  # (r H, r W), brightness from 0 to 1
    std: Tensor  # (r H, r W), over draws: what the weights do not know


def enlarges(ensemble: Ensemble) -> bool:
    """Whether the ensemble makes pictures of pictures."""
    return isinstance(ensemble.likelihood, Gaussian) and ensemble.likelihood.targets is not None


def scale_of(ensemble: Ensemble) -> int:
    """By how much the ensemble enlarges pictures; refused if it does something else."""
    shape = ensemble.manifest.get("input_shape", ())
    if not enlarges(ensemble) or len(shape) != 3:
        raise Misuse("the run does not make pictures of pictures: train one with murmur superres train")
    assert isinstance(ensemble.likelihood, Gaussian)
    return math.isqrt(ensemble.likelihood.width // (shape[1] * shape[2]))


def answer(ensemble: Ensemble, small: Tensor, draws: int | None = None) -> Predictive:
    """What an ensemble says of a whole picture (H, W) at once: outputs (S, 1, r^2 H W).

    A draw of weights follows from its number alone: it is the same for every picture, and for every part of one.
    """
    likelihood = ensemble.likelihood
    assert isinstance(likelihood, Gaussian)
    fitting = replace(likelihood, targets=small.numel() * scale_of(ensemble) ** 2)
    return replace(ensemble, likelihood=fitting).predict(small[None, None], draws=draws, calibrated=False)


def enlarge(ensemble: Ensemble, small: Tensor, *, draws: int | None = None, tile: int = TILE) -> Enlarged:
    """The larger picture of a small one (H, W), tile by tile; tiles see enough beyond their edges to fit together."""
    scale = scale_of(ensemble)
    mean, variance = (torch.empty(scale * small.shape[0], scale * small.shape[1]) for _ in range(2))
    for rows, above in windows(small.shape[0], tile):
        for columns, left in windows(small.shape[1], tile):
            seen = small[widened(rows), widened(columns)]
            said = answer(ensemble, seen, draws)
            shape = (scale * seen.shape[0], scale * seen.shape[1])
            here = scaled(rows, scale), scaled(columns, scale)
            inside = (
                slice(scale * above, scale * above + here[0].stop - here[0].start),
                slice(scale * left, scale * left + here[1].stop - here[1].start),
            )
            mean[here] = said.mean.view(shape)[inside].float()
            variance[here] = said.epistemic_var.view(shape)[inside].float()
    return Enlarged(mean.clamp(0, 1), variance.clamp_min(0).sqrt())


def windows(length: int, tile: int) -> Iterator[tuple[slice, int]]:
    """The tiles of a side, each with how many pixels are seen before it.

    >>> list(windows(10, 8))
    [(slice(0, 8, None), 0), (slice(8, 10, None), 7)]
    """
    for start in range(0, length, tile):
        yield slice(start, min(start + tile, length)), min(start, REACH)


def widened(window: slice) -> slice:
    """A tile with all that its outputs depend on."""
    return slice(max(0, window.start - REACH), window.stop + REACH)


def scaled(window: slice, scale: int) -> slice:
    return slice(scale * window.start, scale * window.stop)
