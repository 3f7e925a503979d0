"""Kernel bandwidths: the denominator c of k = exp(-d² / c), by the conventions of the published methods.

The papers that write "the median heuristic" mean different things by it, and their released code others still. With
exactly the same distances the similarity of two members at the median distance differs from 1/M² to 1/M.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from murmuration.system.errors import Misuse, unknown

MAX_TORCH_ROW, MAX_TORCH_VALUES = 16, 1024  # numbers of a row, or of all rows, that torch sorts as fast as NumPy
FLOOR = 1e-12  # keeps the kernel finite where all distances are zero; the constant of FoRDE's released code
FIXED = "fixed:"


@dataclass(frozen=True)
class Bandwidth:
    """A convention for the bandwidth of a kernel.

    Attributes:
        about: The convention in one line, with its source.
        of: Maps squared distances (B, M, M), M > 1, to denominators that broadcast to them.
    """

    about: str
    of: Callable[[Tensor], Tensor]


def denominator(name: str, squared: Tensor) -> Tensor:
    """Compute the denominators c of exp(-d² / c); no gradient flows through them.

    Args:
        name: A row of `BANDWIDTHS`, or `fixed:L`.
        squared: Squared distances between members, (B, M, M).

    Returns:
        Denominators that broadcast to (B, M, M): one per sample, at least 1e-12, so that identical members have a
        kernel of one.

    Raises:
        Misuse: If no bandwidth has this name.


    >>> squared = torch.tensor([[[0.0, 3.0], [3.0, 0.0]]])
    >>> round(math.exp(-3.0 / denominator("rde", squared).item()), 4)  # the median of 0 0 3 3 is 1.5: k = 1/(M+1)²
    0.1111
    """
    convention = find_bandwidth(name)
    if squared.shape[-1] < 2:  # a single member has no pairs: any value will do
        return torch.ones_like(squared)
    return convention.of(squared.detach()).clamp_min(FLOOR)


def find_bandwidth(name: str) -> Bandwidth:
    """Return the bandwidth of this name; `fixed:L` is one of lengthscale L. Raise Misuse if there is none.

    >>> find_bandwidth("fixed:0.5").about
    'c = 2 L² with L = 0.5'
    """
    if name.startswith(FIXED):
        text = name.removeprefix(FIXED)
        try:
            length = float(text)
        except ValueError:
            length = math.nan
        if not 0 < length < math.inf:
            problem = f"'{text}' is not a lengthscale; write a positive number, as in 'fixed:0.5'"
            raise Misuse(f"bandwidth '{name}': {problem}")
        return Bandwidth(f"c = 2 L² with L = {length:g}", lambda squared: squared.new_full((1, 1, 1), 2 * length**2))
    if name not in BANDWIDTHS:
        raise unknown("bandwidth", name, [*BANDWIDTHS, f"{FIXED}L"])
    return BANDWIDTHS[name]


def median(values: Tensor) -> Tensor:
    """Return the true median of the last axis, (..., n) -> (...): the mean of the two middle values where n is even.

    >>> median(torch.tensor([4.0, 1.0, 2.0, 9.0]))
    tensor(3.)
    """
    count = values.shape[-1]
    if values.device.type == "cpu" and count > MAX_TORCH_ROW and values.numel() > MAX_TORCH_VALUES:
        ordered = torch.from_numpy(np.sort(values.detach().numpy(), -1))  # faster for many rows of moderate length
    else:
        ordered = values.sort(-1).values
    return (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2


def _all_entries(squared: Tensor) -> Tensor:
    """Return medians (B, 1, 1) over all M² entries, including the zeros on the diagonal."""
    return median(squared.flatten(1))[:, None, None]


def _pairs(squared: Tensor) -> Tensor:
    """Return medians (B, 1, 1) over the M (M - 1) / 2 pairs."""
    members = squared.shape[-1]
    row, column = torch.triu_indices(members, members, offset=1, device=squared.device)
    return median(squared[:, row, column])[:, None, None]


def _columns(squared: Tensor) -> Tensor:
    """Return medians (B, 1, M) over i, including the zero at i = j: one for each member j, so k_ij and k_ji differ."""
    return median(squared)[:, None, :]  # distances are the same both ways


BANDWIDTHS: dict[str, Bandwidth] = {
    "rde": Bandwidth(
        "median of all M² entries / ln(M+1): the library of D'Angelo and Fortuin (2021)",
        lambda squared: _all_entries(squared) / math.log(squared.shape[-1] + 1),
    ),
    "all": Bandwidth(
        "median of all M² entries / ln M: their notebook, and FoRDE's kernel made symmetric",
        lambda squared: _all_entries(squared) / math.log(squared.shape[-1]),
    ),
    "off": Bandwidth(
        "median of the pairs / ln M: Liu and Wang (2016), FoRDE's equation 17",
        lambda squared: _pairs(squared) / math.log(squared.shape[-1]),
    ),
    "algorithm-1": Bandwidth(
        "median of all M² entries / (2 ln M): the algorithm Trinh et al. (2024) print, half of their equation 17",
        lambda squared: _all_entries(squared) / (2 * math.log(squared.shape[-1])),
    ),
    "code": Bandwidth(
        "for each member j, median over i / ln M + 1e-12: what FoRDE's released code does",
        lambda squared: _columns(squared) / math.log(squared.shape[-1]) + FLOOR,
    ),
    "featurepi": Bandwidth(
        "for each member j, (median over i)² / ln M + 1e-12: the released code of Yashima et al. (2022)",
        lambda squared: _columns(squared).square() / math.log(squared.shape[-1]) + FLOOR,
    ),
}
