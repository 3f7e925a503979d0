"""Shifts of prepared tables: noise, drift, missing cells and swapped categories, five severities of each.

The result for a row depends on (seed, name of the shift, index of the row, its values) alone, so tables may be shifted
in batches of any size. The severities of one shift share their random numbers: a cell that is missing at severity 2 is
missing at severity 3 too, and noise only grows.

A new shift is one function and one row of `TABLE_SHIFTS`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from murmuration.data.file_rows import blocks
from murmuration.data.preparation import (
    ArrayPreparation,
    CategoricalColumn,
    NumericColumn,
    SeveralPreparation,
    TablePreparation,
)
from murmuration.data.raw import require_shape
from murmuration.data.shift.randomness import Draws, check_arguments, draws_for
from murmuration.system.errors import Misuse, listed, unknown

Kind = Literal["numeric", "categorical", "all"]  # the columns that a shift changes


@dataclass(frozen=True)
class OneHot:
    """The prepared columns of a categorical column: the categories of training, missing (if seen there), unseen."""

    start: int
    count: int  # of categories in training
    width: int
    absent: int  # the column that marks a missing value: missing, or else unseen


@dataclass(frozen=True)
class Layout:
    """The positions of a table's raw columns among its D prepared columns."""

    width: int  # D
    numbers: np.ndarray  # (P,) positions of the scaled numeric columns
    flags: np.ndarray  # (P,) positions of their missing flags, -1 for none
    medians: np.ndarray  # (P,) the prepared value of a missing number
    categories: tuple[OneHot, ...]  # (Q,)

    def missing(self, values: np.ndarray) -> np.ndarray:
        """Return whether each number (N, P) of prepared rows (N, D) is flagged as missing."""
        return (self.flags >= 0) & (values[:, self.flags] == 1)


def layout_of(preparation: Any) -> Layout:
    """Find the prepared columns of a table, or of an array (N, D), whose columns are all numeric.

    The preparation of an array has no medians: a missing number becomes the mean.
    """
    if isinstance(preparation, ArrayPreparation) and len(preparation.shape) == 1:
        count = preparation.shape[0]
        return Layout(count, np.arange(count), np.full(count, -1), np.zeros(count), ())
    if isinstance(preparation, SeveralPreparation):
        raise Misuse("several inputs are not a table: corruptions take one, an image or a table")
    if not isinstance(preparation, TablePreparation):
        raise Misuse(f"inputs of shape {preparation.shape} are not a table: expected rows of D columns, (D,)")
    start, numbers, categories = 0, list[tuple[int, int, float]](), list[OneHot]()
    for column in preparation.columns:
        width = len(column.prepared_names)
        if isinstance(column, NumericColumn):
            flag = start + 1 if column.flags_missing else -1
            numbers.append((start, flag, float(column.scaling.exact(np.array([[column.median]]))[0, 0])))
        elif isinstance(column, CategoricalColumn):  # free text is left as it is
            count = len(column.categories)
            categories.append(OneHot(start, count, width, start + (count if column.has_missing else width - 1)))
        start += width
    table = np.array(numbers, dtype=np.float64).reshape(-1, 3)
    return Layout(start, table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2], tuple(categories))


def column_signs(draws: Draws, count: int) -> np.ndarray:
    """Draw random signs (count,), one per column, the same for all rows."""
    return np.where(replace(draws, first=0, count=1).uniforms((count,), purpose=1)[0] < 0.5, -1.0, 1.0)


def feature_noise(values: np.ndarray, layout: Layout, strength: float, draws: Draws) -> None:
    """Add N(0, strength^2) to every number that is not missing, in training standard deviations; in place."""
    noise = strength * draws.normals((len(layout.numbers),))
    values[:, layout.numbers] += np.where(layout.missing(values), 0.0, noise)


def covariate_drift(values: np.ndarray, layout: Layout, strength: float, draws: Draws) -> None:
    """Add ± `strength` training standard deviations, with one sign per column, to every number not missing."""
    step = strength * column_signs(draws, len(layout.numbers))
    values[:, layout.numbers] += np.where(layout.missing(values), 0.0, step)


def scale_drift(values: np.ndarray, layout: Layout, strength: float, draws: Draws) -> None:
    """Multiply the distance from the training mean by `strength` or 1 / `strength`, one of both per column."""
    gain = strength ** column_signs(draws, len(layout.numbers))
    values[:, layout.numbers] *= np.where(layout.missing(values), 1.0, gain)


def missing_values(values: np.ndarray, layout: Layout, strength: float, draws: Draws) -> None:
    """Make every cell missing with probability `strength`, prepared as a missing cell of the raw table would be."""
    lost = draws.uniforms((len(layout.numbers) + len(layout.categories),)) < strength
    numbers, categories = np.split(lost, [len(layout.numbers)], axis=1)
    values[:, layout.numbers] = np.where(numbers, layout.medians, values[:, layout.numbers])
    flagged = layout.flags >= 0
    values[:, layout.flags[flagged]] = np.maximum(values[:, layout.flags[flagged]], numbers[:, flagged])
    for q, block in enumerate(layout.categories):
        values[categories[:, q], block.start : block.start + block.width] = 0.0
        values[categories[:, q], block.absent] = 1.0


def category_swaps(values: np.ndarray, layout: Layout, strength: float, draws: Draws) -> None:
    """Replace every known category with probability `strength` by another of its column, all equally likely."""
    swaps, picks = np.split(draws.uniforms((2 * len(layout.categories),)), 2, axis=1)
    for q, block in enumerate(layout.categories):
        if block.count < 2:
            continue
        # (N, categories), a view; all 0 for missing and unseen
        hot = values[:, block.start : block.start + block.count]
        rows = np.flatnonzero((swaps[:, q] < strength) & hot.any(axis=1))
        old, step = hot[rows].argmax(axis=1), 1 + (picks[rows, q] * (block.count - 1)).astype(np.int64)
        hot[rows, old] = 0.0
        hot[rows, (old + step) % block.count] = 1.0


@dataclass(frozen=True)
class TableShift:
    """One shift of prepared tables; `change` overwrites rows (N, D)."""

    change: Callable[[np.ndarray, Layout, float, Draws], None] = field(repr=False)
    kind: Kind
    severities: tuple[float, ...]  # the parameter of severities 1 to 5
    about: str

    def applies(self, layout: Layout) -> bool:
        """Return whether a table has columns that this shift can change."""
        swappable = any(block.count > 1 for block in layout.categories)
        return {"numeric": len(layout.numbers) > 0, "categorical": swappable, "all": layout.width > 0}[self.kind]


NOISES = (0.1, 0.2, 0.4, 0.7, 1.0)  # standard deviations of the noise
STEPS = (0.25, 0.5, 1.0, 1.5, 2.0)  # in training standard deviations
FACTORS = (1.1, 1.25, 1.5, 2.0, 3.0)
RATES = (0.05, 0.1, 0.2, 0.3, 0.5)  # probabilities

NOISE = "Gaussian noise on numeric columns, in training standard deviations"
DRIFT = "every numeric column moves up or down, by training standard deviations"
SCALE = "every numeric column is scaled around its training mean, by a factor or its inverse"
TABLE = (
    TableShift(feature_noise, "numeric", NOISES, NOISE),
    TableShift(covariate_drift, "numeric", STEPS, DRIFT),
    TableShift(scale_drift, "numeric", FACTORS, SCALE),
    TableShift(missing_values, "all", RATES, "every cell goes missing with a probability"),
    TableShift(category_swaps, "categorical", RATES, "every category is replaced by another with a probability"),
)
TABLE_SHIFTS = {shift.change.__name__: shift for shift in TABLE}


def table_shifts_for(preparation: Any) -> dict[str, TableShift]:
    """Return the shifts that apply to tables of this preparation."""
    layout = layout_of(preparation)
    return {name: shift for name, shift in TABLE_SHIFTS.items() if shift.applies(layout)}


def shift_table(x: Tensor, preparation: Any, name: str, severity: int, *, seed: int = 0, first: int = 0) -> Tensor:
    """Shift the prepared rows of a table.

    Numbers change in units of the training standard deviation, or of 1 where the preparation does not standardise.
    Numbers flagged as missing stay missing.

    Args:
        x: Prepared rows (N, D).
        preparation: Their preparation.
        name: One of `TABLE_SHIFTS`.
        severity: 1 to 5.
        seed: Seed of the random numbers.
        first: Index of the first row, for tables that come in batches.

    Returns:
        A new tensor (N, D).

    Raises:
        Misuse: For an unknown shift, one that changes no column of this table, or rows of another width.
    """
    if name not in TABLE_SHIFTS:
        raise unknown("corruption", name, TABLE_SHIFTS, see="murmur list corruptions")
    shift, layout = TABLE_SHIFTS[name], layout_of(preparation)
    if not shift.applies(layout):
        applicable = listed(table_shifts_for(preparation))
        raise Misuse(f"{name} changes {shift.kind} columns and this table has none: expected one of {applicable}")
    check_arguments(severity, seed, first)
    require_shape(x, (layout.width,))
    values = x.detach().cpu().numpy().copy()
    for rows in blocks(values):
        block, start = values[rows], first + rows.start
        draws = draws_for(seed, name, 0, range(start, start + len(block)))  # the same for every severity
        shift.change(block, layout, shift.severities[severity - 1], draws)
    return torch.from_numpy(values).to(x.device)
