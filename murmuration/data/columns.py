"""Columns of a table: numbers (dates included) and levels, and how each becomes columns of a tensor."""

from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.data.names import as_text, in_order, is_number, listed
from murmuration.data.raw import fields_of, is_table
from murmuration.data.statistics import moments
from murmuration.errors import Misuse

MOST_LEVELS = 1000  # a one-hot column each: more is an identifier or free text, not a category
ISO_DATE = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: missing values take the median, then all are standardised.

    Where training had missing values, a second column says 1 for missing and 0 for present.
    """

    name: str
    median: float
    mean: float
    std: float
    flags_missing: bool

    @property
    def prepared_names(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} missing") if self.flags_missing else (self.name,)

    def apply(self, values: Any) -> np.ndarray:
        """Columns (N, 1) or (N, 2) float64 of one pandas column."""
        numbers = as_numbers(values)
        missing = np.isnan(numbers)
        scaled = (np.where(missing, self.median, numbers) - self.mean) / self.std
        return np.stack([scaled, missing] if self.flags_missing else [scaled], axis=1)


@dataclass(frozen=True)
class LevelColumn:
    """A column of texts, booleans or categories: one column a level seen in training, and one for the unseen.

    Missing is a level of its own if training had it, else it counts as unseen.
    """

    name: str
    levels: tuple[str, ...]
    has_missing: bool

    @property
    def prepared_names(self) -> tuple[str, ...]:
        missing = (f"{self.name} missing",) if self.has_missing else ()
        return (*(f"{self.name}={level}" for level in self.levels), *missing, f"{self.name} unseen")

    def apply(self, values: Any) -> np.ndarray:
        """Columns (N, levels + 1) or (N, levels + 2) of zeros and a single one, from one pandas column."""
        width = len(self.prepared_names)
        places: dict[str | None, int] = {level: i for i, level in enumerate(self.levels)}
        if self.has_missing:
            places[None] = len(self.levels)
        chosen = [places.get(text, width - 1) for text in as_levels(values).tolist()]
        hot = np.zeros((len(values), width))
        hot[np.arange(len(values)), chosen] = 1.0
        return hot


Column = NumberColumn | LevelColumn


@dataclass(frozen=True)
class TablePreparation:
    """Tables -> (N, D): every column by its own rule, in the training table's order."""

    columns: tuple[Column, ...]
    targets: tuple[str, ...] = ()  # the columns that were predicted, so that a later table finds its own

    @property
    def names(self) -> tuple[str, ...]:
        """Names (D,) of the prepared columns."""
        return tuple(name for column in self.columns for name in column.prepared_names)

    def apply(self, raw: Any) -> Tensor:
        """Prepared inputs (N, D) float32 of a pandas table; columns it does not know are left out."""
        if not is_table(raw):
            raise Misuse(
                f"inputs of shape {tuple(raw.shape)} for a run trained on a table: expected a table with the"
                f" columns {listed(column.name for column in self.columns)}"
            )
        width = len(self.names)
        out = np.empty((len(raw), width), dtype=np.float32)
        start = 0
        for column in self.columns:
            block = column.apply(find_column(raw, column.name))
            out[:, start : start + block.shape[1]] = block
            start += block.shape[1]
        return torch.from_numpy(out)

    def to_json(self) -> dict[str, Any]:
        kinds = {NumberColumn: "number", LevelColumn: "levels"}
        columns = [{"kind": kinds[type(column)], **asdict(column)} for column in self.columns]
        return {"kind": "table", "columns": columns, "targets": list(self.targets)}


def table_from_json(record: dict[str, Any]) -> TablePreparation:
    """The table preparation that `to_json` wrote down."""
    kinds: dict[str, Any] = {"number": NumberColumn, "levels": LevelColumn}
    columns = tuple(kinds[entry["kind"]](**fields_of(entry)) for entry in record["columns"])
    return TablePreparation(columns, tuple(record["targets"]))


def fit_table(table: Any, targets: tuple[str, ...] = ()) -> TablePreparation:
    """The preparation of a training table, statistics and levels taken from its rows alone."""
    if not len(table.columns):
        raise Misuse("the table has no feature columns: expected at least one besides the target")
    return TablePreparation(tuple(fit_column(table[name]) for name in table.columns), targets)


def fit_column(values: Any) -> Column:
    """The rule for one pandas column of the training table."""
    found = column_values(values)
    name = str(values.name)
    if found.dtype.kind == "f":
        missing = np.isnan(found)
        median = float(np.median(found[~missing])) if not missing.all() else 0.0
        mean, std = moments(np.where(missing, median, found)[:, None], name)
        return NumberColumn(name, median, float(mean[0]), float(std[0]), bool(missing.any()))
    present = [text for text in found.tolist() if text is not None]
    levels = in_order(present)
    if len(levels) > MOST_LEVELS:
        raise Misuse(
            f"column '{name}' has {len(levels)} distinct texts in {len(found)} rows: expected at most"
            f" {MOST_LEVELS} levels; remove the column or group its values"
        )
    return LevelColumn(name, levels, len(present) < len(found))


def find_column(table: Any, name: str) -> Any:
    """The pandas column of that name, or an error naming it and the columns there are."""
    if name not in table.columns:
        raise Misuse(f"no column '{name}' in the table: expected it; found {listed(map(str, table.columns))}")
    return table[name]


def column_values(values: Any) -> np.ndarray:
    """A pandas column as float64 with NaN for missing, or as texts (objects) with None for missing."""
    return as_numbers(values) if holds_numbers(values) else as_levels(values)


def holds_numbers(values: Any) -> bool:
    """Whether a pandas column is numeric: numbers, decimals, dates, durations or ISO dates in text."""
    from pandas.api import types

    if types.is_bool_dtype(values) or isinstance(values.dtype, types.CategoricalDtype):
        return False
    if types.is_numeric_dtype(values) or is_time(values):
        return True
    present = values.dropna()
    if len(present) and all(isinstance(value, Decimal | int | float | date) for value in present):
        return not any(isinstance(value, bool) for value in present)
    return len(present) == 0 or iso_seconds(present) is not None


def is_time(values: Any) -> bool:
    """Whether a pandas column has a type of dates or durations."""
    from pandas.api import types

    return bool(types.is_datetime64_any_dtype(values) or types.is_timedelta64_dtype(values))


def as_numbers(values: Any) -> np.ndarray:
    """A pandas column (N,) as float64, NaN where missing; dates become seconds since 1970 (UTC)."""
    from pandas.api import types

    if is_time(values):
        return seconds(values)
    if types.is_numeric_dtype(values) and not types.is_complex_dtype(values):
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        numbers = parsed_numbers(values)
    infinite = np.isinf(numbers)
    if infinite.any():
        row = row_number(values, int(infinite.argmax()))
        raise Misuse(f"column '{values.name}' is infinite in row {row}: expected finite numbers")
    return numbers


def row_number(values: Any, place: int) -> int:
    """The row, counted from 1 in the file, of a place in a pandas column that may be a selection of rows."""
    label = values.index[place]
    return int(label) + 1 if isinstance(label, int | np.integer) else place + 1


def parsed_numbers(values: Any) -> np.ndarray:
    """Numbers (N,) of a pandas column of objects: texts of numbers, decimals, or ISO dates."""
    present = values.dropna()
    out = np.full(len(values), np.nan)
    found = iso_seconds(present)
    if found is None:
        for place, value in enumerate(present.tolist()):
            if not is_number(str(value)):
                row = row_number(present, place)
                raise Misuse(f"column '{values.name}' holds '{value}' in row {row}: expected a number")
        found = np.array([float(value) for value in present], dtype=np.float64)
    out[values.notna().to_numpy()] = found
    return out


def iso_seconds(present: Any) -> np.ndarray | None:
    """Seconds since 1970 of a column of dates or ISO texts without missing values; None if it is not one."""
    import pandas as pd

    texts = present.astype(str)
    if not len(texts) or not texts.str.fullmatch(ISO_DATE).all():
        return None
    times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    return None if times.isna().any() else seconds(times)


def seconds(values: Any) -> np.ndarray:
    """Seconds (N,) float64 since 1970 of dates, or the length of durations; NaN where missing."""
    import pandas as pd

    if isinstance(values.dtype, pd.DatetimeTZDtype):
        values = values.dt.tz_convert("UTC").dt.tz_localize(None)
    kind = "datetime64[us]" if values.dtype.kind == "M" else "timedelta64[us]"
    ticks = values.to_numpy().astype(kind)
    return np.where(np.isnat(ticks), np.nan, ticks.astype(np.int64) / 1e6)


def as_levels(values: Any) -> np.ndarray:
    """A pandas column (N,) as texts, None where missing."""
    missing = values.isna().to_numpy()
    out = np.empty(len(values), dtype=object)
    for i, value in enumerate(values.tolist()):
        if isinstance(value, list | dict | tuple | np.ndarray):
            row = row_number(values, i)
            raise Misuse(f"column '{values.name}' holds a {type(value).__name__} in row {row}: expected text")
        out[i] = None if missing[i] else as_text(value)
    return out
