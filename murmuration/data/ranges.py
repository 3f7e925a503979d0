"""The range of every input in the training rows, and how far prepared inputs lie outside of it.

Ranges belong to rows of numbers and to tables; images, tokens, features of a network, several inputs and inputs that
are not prepared have none. A value that is beyond its range by less than `MARGIN` of the width of the range counts, but
adds nothing to the distance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.data.preparation import ArrayPreparation, CategoricalColumn, NumericColumn, TablePreparation
from murmuration.data.scaling import smooth_unclip

MARGIN = 0.1  # of the width of a range


@dataclass(frozen=True, eq=False)
class Ranges:
    """Ranges of D prepared inputs, or of C channels; `flags` are the inputs that mark a missing or unknown value."""

    low: Tensor  # (D,) or (C, 1, ...), of prepared inputs in single precision; infinite without a range
    high: Tensor
    flags: Tensor  # (F,) positions
    clip: float | None = None  # of robust scaling

    def outside(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Count the values of every row (N,) outside of their ranges, and return how far the row is from them (N,).

        The distance is the root of the mean square, over all values that have a range, of the excess beyond a range
        and its margin, in widths of the range.
        """
        rows = x.detach().cpu().flatten(1)
        low, high = (end.expand(x.shape[1:]).reshape(-1) for end in (self.low, self.high))
        ranged = low.isfinite()
        values, low, high = rows[:, ranged], low[ranged], high[ranged]
        count = ((values < low) | (values > high)).sum(1) + (rows[:, self.flags] > 0.5).sum(1)
        if not len(low):
            return count, torch.zeros(len(x), dtype=torch.float64)
        values, low, high = (self._linear(part) for part in (values, low, high))
        width = torch.where(high > low, high - low, 1.0)
        excess = (torch.maximum(low - values, values - high) / width - MARGIN).clamp_min(0)
        return count, excess.square().mean(1).sqrt()

    def _linear(self, values: Tensor) -> Tensor:
        """Return scaled values in float64, without the smooth clipping of robust scaling."""
        exact = values.double()
        return exact if self.clip is None else torch.from_numpy(smooth_unclip(exact.numpy(), self.clip))


def ranges_of(preparation: Any) -> Ranges | None:
    """Return the ranges that a preparation keeps; None if it has none."""
    if isinstance(preparation, ArrayPreparation):
        return array_ranges(preparation)
    if not isinstance(preparation, TablePreparation):
        return None
    low, high, flags = list[float](), list[float](), list[int]()
    for column in preparation.columns:
        start, width = len(low), len(column.prepared_names)
        ends: Any = (-np.inf, np.inf)
        if isinstance(column, NumericColumn):
            flags += [start + 1] * column.flags_missing
            if column.low is not None:
                ends = column.scaling.exact(np.array([[column.low], [column.high]]))[:, 0]
        elif isinstance(column, CategoricalColumn):
            flags += range(start + len(column.categories), start + width)
        low += [ends[0], *[-np.inf] * (width - 1)]
        high += [ends[1], *[np.inf] * (width - 1)]
    clip = next((column.clip for column in preparation.columns if isinstance(column, NumericColumn)), None)
    return Ranges(torch.tensor(low).float(), torch.tensor(high).float(), torch.tensor(flags, dtype=torch.long), clip)


def array_ranges(preparation: ArrayPreparation) -> Ranges | None:
    """Return the ranges of the columns or channels of arrays."""
    if not preparation.low:
        return None
    channels = len(preparation.low), *[1] * (len(preparation.shape) - 1)
    ends = np.array([preparation.low, preparation.high])  # (2, C)
    with np.errstate(over="ignore"):
        scaled = preparation.scaling.exact(ends.reshape(2, *channels)).astype(np.float32)
    low, high = torch.from_numpy(scaled)
    return Ranges(low, high, torch.zeros(0, dtype=torch.long), preparation.clip)
