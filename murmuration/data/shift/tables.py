"""Shifts of prepared tables: noise, drift, missing cells and miscoded levels, five severities of each.

What happens to a row follows from (seed, name of the shift, the row's index) alone, so tables may be shifted in batches
of any size. The severities of one shift share their random numbers: a cell that is missing at severity 2 is missing at
severity 3 too, and noise only grows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from murmuration.data.columns import NumberColumn
from murmuration.data.names import listed
from murmuration.data.preparation import ArrayPreparation, TablePreparation, wrong_shape
from murmuration.data.shift.randomness import Draws, draws_for
from murmuration.data.shift.severities import check_place
from murmuration.data.statistics import blocks
from murmuration.errors import Misuse, unknown

Kind = Literal["numbers", "levels", "cells"]


# Where the raw cells are


@dataclass(frozen=True)
class Levels:
    """The prepared columns of one level column: the levels seen in training, then missing (if it was seen), unseen."""

    start: int
    count: int  # of levels seen in training
    width: int
    absent: int  # the column that says missing, or else unseen


@dataclass(frozen=True)
class Layout:
    """Where the raw cells of a table stand among its D prepared columns."""

    width: int  # D
    numbers: np.ndarray  # (P,) places of the scaled numbers
    flags: np.ndarray  # (P,) places of their missing flags, -1 for none
    medians: np.ndarray  # (P,) what a missing number becomes
    levels: tuple[Levels, ...]  # (Q,)

    def missing(self, values: np.ndarray) -> np.ndarray:
        """Whether each number (N, P) of prepared rows (N, D) is known to have been missing."""
        return (self.flags >= 0) & (values[:, self.flags] == 1)


def layout_of(preparation: Any) -> Layout:
    """The layout of a table's prepared columns, or of an array (N, D), whose columns are all numbers.

    The preparation of an array knows no medians: there a missing number becomes the mean.
    """
    if isinstance(preparation, ArrayPreparation) and len(preparation.shape) == 1:
        count = preparation.shape[0]
        return Layout(count, np.arange(count), np.full(count, -1), np.zeros(count), ())
    if not isinstance(preparation, TablePreparation):
        raise Misuse(f"inputs of shape {preparation.shape} are no table: expected rows of D columns, (D,)")
    numbers: list[tuple[int, int, float]] = []
    levels: list[Levels] = []
    start = 0
    for column in preparation.columns:
        width = len(column.prepared_names)
        if isinstance(column, NumberColumn):
            flag = start + 1 if column.flags_missing else -1
            numbers.append((start, flag, (column.median - column.mean) / column.std))
        else:
            count = len(column.levels)
            levels.append(Levels(start, count, width, start + (count if column.has_missing else width - 1)))
        start += width
    table = np.array(numbers, dtype=np.float64).reshape(-1, 3)
    return Layout(start, table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2], tuple(levels))


# The shifts: each changes rows (N, D) that are its own to change


def column_signs(draws: Draws, count: int) -> np.ndarray:
    """Numbers (count,) of -1 and 1, one a column, the same for all rows."""
    once = replace(draws, first=0, count=1).uniforms((count,), purpose=1)[0]
    return np.where(once < 0.5, -1.0, 1.0)


def feature_noise(values: np.ndarray, layout: Layout, strength: float, draws: Draws) -> None:
    """Add N(0, strength^2) to every number that is there, in units of its training deviation."""
    noise = strength * draws.normals((len(layout.numbers),))
    values[:, layout.numbers] += np.where(layout.missing(values), 0.0, noise)


def covariate_drift(values: np.ndarray, layout: Layout, strength: float, draws: Draws) -> None:
    """Move every number that is there by `strength` training deviations, up or down as its column does."""
    step = strength * column_signs(draws, len(layout.numbers))
    values[:, layout.numbers] += np.where(layout.missing(values), 0.0, step)


def scale_drift(values: np.ndarray, layout: Layout, strength: float, draws: Draws) -> None:
    """Stretch the distance of every number from its training mean by `strength` or 1 / `strength`, by column."""
    gain = strength ** column_signs(draws, len(layout.numbers))
    values[:, layout.numbers] *= np.where(layout.missing(values), 1.0, gain)


def missing_values(values: np.ndarray, layout: Layout, strength: float, draws: Draws) -> None:
    """Lose every cell with probability `strength`, and prepare what is left as a missing cell is prepared."""
    lost = draws.uniforms((len(layout.numbers) + len(layout.levels),)) < strength
    numbers, levels = np.split(lost, [len(layout.numbers)], axis=1)
    values[:, layout.numbers] = np.where(numbers, layout.medians, values[:, layout.numbers])
    flagged = layout.flags >= 0
    values[:, layout.flags[flagged]] = np.maximum(values[:, layout.flags[flagged]], numbers[:, flagged])
    for q, block in enumerate(layout.levels):
        values[levels[:, q], block.start : block.start + block.width] = 0.0
        values[levels[:, q], block.absent] = 1.0


def category_swaps(values: np.ndarray, layout: Layout, strength: float, draws: Draws) -> None:
    """Replace every known level with probability `strength` by another of its column's, all equally likely."""
    swaps, picks = np.split(draws.uniforms((2 * len(layout.levels),)), 2, axis=1)
    for q, block in enumerate(layout.levels):
        if block.count < 2:
            continue
        hot = values[:, block.start : block.start + block.count]  # (N, levels), a view; all 0 for missing and unseen
        rows = np.flatnonzero((swaps[:, q] < strength) & hot.any(axis=1))
        old = hot[rows].argmax(axis=1)
        step = 1 + (picks[rows, q] * (block.count - 1)).astype(np.int64)
        hot[rows, old] = 0.0
        hot[rows, (old + step) % block.count] = 1.0


Change = Callable[[np.ndarray, Layout, float, Draws], None]


@dataclass(frozen=True)
class TableShift:
    """One way a table can change after training."""

    name: str
    kind: Kind  # the cells it changes
    about: str
    severities: tuple[float, ...]  # its parameter at severity 1 .. 5
    change: Change = field(repr=False)

    def applies(self, layout: Layout) -> bool:
        """Whether a table has cells that this shift can change."""
        has_levels = any(block.count > 1 for block in layout.levels)
        return {"numbers": len(layout.numbers) > 0, "levels": has_levels, "cells": layout.width > 0}[self.kind]


PROBABILITIES = (0.05, 0.1, 0.2, 0.3, 0.5)
TABLE_SHIFTS = {
    shift.name: shift
    for shift in (
        TableShift(
            "feature_noise",
            "numbers",
            "Gaussian noise on every number, in training deviations",
            (0.1, 0.2, 0.4, 0.7, 1.0),
            feature_noise,
        ),
        TableShift(
            "covariate_drift",
            "numbers",
            "every number column moves up or down, by training deviations",
            (0.25, 0.5, 1.0, 1.5, 2.0),
            covariate_drift,
        ),
        TableShift(
            "scale_drift",
            "numbers",
            "every number column is stretched or squeezed around its training mean, by a factor",
            (1.1, 1.25, 1.5, 2.0, 3.0),
            scale_drift,
        ),
        TableShift(
            "missing_values", "cells", "every cell goes missing with a probability", PROBABILITIES, missing_values
        ),
        TableShift(
            "category_swaps",
            "levels",
            "every level is replaced by another with a probability",
            PROBABILITIES,
            category_swaps,
        ),
    )
}


def table_shifts_for(preparation: Any) -> dict[str, TableShift]:
    """The shifts that can be done to the inputs of such a table."""
    layout = layout_of(preparation)
    return {name: shift for name, shift in TABLE_SHIFTS.items() if shift.applies(layout)}


def shift_table(x: Tensor, preparation: Any, name: str, severity: int, *, seed: int = 0, first: int = 0) -> Tensor:
    """Prepared rows (N, D) after one shift of severity 1 .. 5, as a new tensor.

    Numbers move in units of the training deviation, except where the preparation left an array in its own units:
    there one unit is 1. Numbers that are flagged as missing stay so. `first` is the index of the first row, for tables
    that come in batches.
    """
    if name not in TABLE_SHIFTS:
        raise unknown("corruption", name, TABLE_SHIFTS)
    shift, layout = TABLE_SHIFTS[name], layout_of(preparation)
    if not shift.applies(layout):
        known = listed(table_shifts_for(preparation))
        raise Misuse(f"{name} changes {shift.kind} and this table has none to change: expected one of {known}")
    check_place(severity, seed, first)
    if tuple(x.shape[1:]) != (layout.width,):
        raise wrong_shape(x, (layout.width,))
    values = x.detach().cpu().numpy().copy()
    for rows in blocks(values):
        block, start = values[rows], first + rows.start
        draws = draws_for(seed, name, 0, range(start, start + len(block)))  # the same for every severity
        shift.change(block, layout, shift.severities[severity - 1], draws)
    return torch.from_numpy(values).to(x.device)
