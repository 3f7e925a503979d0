"""The range of every input in the training rows, and how far prepared inputs lie outside of it.

Ranges belong to rows of numbers and to tables; images, tokens, features of a network, several inputs and inputs that
are not prepared have none. A value that is beyond its range by less than `MARGIN` of the width of the range counts, but
adds nothing to the distance. The mark of an unknown category has the range 0 to 0, unless training had rare categories,
which share it: a network has learnt about those. A missing value counts only where training had none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.data.file_rows import BLOCK
from murmuration.data.preparation import ArrayPreparation, CategoricalColumn, NumericColumn, TablePreparation

MARGIN = 0.1  # of the width of a range


@dataclass(frozen=True, eq=False)
class Ranges:
    """Ranges of prepared inputs in single precision, and the inputs that mark a rare category.

    Attributes:
        low: Smallest training values (P,) of the inputs at `places`, or (C, 1, ...) of channels.
        high: Largest training values.
        places: Positions (P,) among the inputs; None: all.
        flags: Positions (F,) of marks, which are 1 or 0.
        clip: Bound of robust scaling.
    """

    low: Tensor
    high: Tensor
    places: Tensor | None = None
    flags: Tensor | None = None
    clip: float | None = None

    def outside(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Count the values of every row (N,) outside of their ranges, and return how far the row is from them (N,).

        The distance is the root of the mean square, over all values that have a range, of the excess beyond a range
        and its margin, in widths of the range.
        """
        rows = x.detach().flatten(1)
        if self.places is None:
            values, low, high = rows, *(end.expand(x.shape[1:]).reshape(-1) for end in (self.low, self.high))
        else:
            values, low, high = rows[:, self.places], self.low, self.high
        beyond = (values < low) | (values > high)
        count = beyond.sum(1)
        if self.flags is not None:
            count = count + (rows[:, self.flags] > 0.5).sum(1)
        if torch.compiler.is_exporting():  # an exported module has no branches
            return count, self._distance(values, low, high)
        distance = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        for part in beyond.any(1).nonzero()[:, 0].split(max(1, BLOCK // max(1, len(low)))):
            distance[part] = self._distance(values[part], low, high)
        return count, distance

    def places_outside(self, x: Tensor) -> list[int]:
        """Return the positions of prepared inputs (N, ...) that are outside of their ranges in a row at least."""
        rows = x.detach().flatten(1)
        places = torch.arange(rows.shape[1]) if self.places is None else self.places
        low, high = (
            (self.low, self.high)
            if self.places is not None
            else (end.expand(x.shape[1:]).reshape(-1) for end in (self.low, self.high))
        )
        values = rows[:, places]
        beyond = places[((values < low) | (values > high)).any(0)].tolist()
        flags = [] if self.flags is None else self.flags[(rows[:, self.flags] > 0.5).any(0)].tolist()
        return sorted([*beyond, *flags])

    def _distance(self, values: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return the distance (n,) of values (n, P) from their ranges."""
        values, low, high = (self._linear(part) for part in (values, low, high))
        width = torch.where(high > low, high - low, 1.0)
        excess = (torch.maximum(low - values, values - high) / width - MARGIN).clamp_min(0)
        return excess.square().mean(1).sqrt()

    def _linear(self, values: Tensor) -> Tensor:
        """Return scaled values in float64, without the smooth clipping of robust scaling; see `smooth_unclip`."""
        exact = values.double()
        if self.clip is None:
            return exact
        bound = self.clip * (1 - 2**-24)
        inside = exact.clamp(-bound, bound)
        return inside / (1 - (inside / self.clip).square()).sqrt()


def ranges_of(preparation: Any) -> Ranges | None:
    """Return the ranges that a preparation keeps; None if it has none."""
    if isinstance(preparation, ArrayPreparation):
        return array_ranges(preparation)
    if not isinstance(preparation, TablePreparation):
        return None
    start, places, ends, flags = 0, list[int](), list[np.ndarray](), list[int]()
    for column in preparation.columns:
        width = len(column.prepared_names)
        if isinstance(column, NumericColumn):
            if column.low is not None:
                places.append(start)
                ends.append(column.scaling.exact(np.array([[column.low], [column.high]]))[:, 0])
        elif isinstance(column, CategoricalColumn):
            unseen = start + width - 1
            if column.has_rare:
                flags.append(unseen)
            if not column.has_rare:  # in training always 0
                places.append(unseen)
                ends.append(np.zeros(2))
        start += width
    low, high = torch.from_numpy(np.array(ends).reshape(-1, 2).T.astype(np.float32))
    clip = next((column.clip for column in preparation.columns if isinstance(column, NumericColumn)), None)
    return Ranges(low, high, torch.tensor(places, dtype=torch.long), torch.tensor(flags, dtype=torch.long), clip)


def columns_at(preparation: Any, places: Sequence[int]) -> list[str]:
    """Return the columns of a table, or of an array with names, at positions of prepared inputs, each once."""
    if isinstance(preparation, TablePreparation):
        owners = [column.name for column in preparation.columns for _ in column.prepared_names]
    else:
        owners = list(preparation.names)
    return list(dict.fromkeys(owners[place] for place in places if place < len(owners)))


def array_ranges(preparation: ArrayPreparation) -> Ranges | None:
    """Return the ranges of the columns or channels of arrays."""
    if not preparation.low:
        return None
    channels = len(preparation.low), *[1] * (len(preparation.shape) - 1)
    ends = np.array([preparation.low, preparation.high])  # (2, C)
    with np.errstate(over="ignore"):
        scaled = preparation.scaling.exact(ends.reshape(2, *channels)).astype(np.float32)
    low, high = torch.from_numpy(scaled)
    return Ranges(low, high, clip=preparation.clip)
