"""Notes on training tables that would teach something else than meant: copies of the target, codes, repeated rows."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from murmuration.data.column_roles import MIN_ROWS
from murmuration.data.columns import column_values, is_numeric, quantity_of
from murmuration.system.errors import warn

NINES = re.compile(r"-?99+")  # -999, 9999: numbers that stand for a missing value
FAR, FAR_NINES = 10.0, 1.0  # distance from the other values, in their range, from which a number is a code
MIN_CODES, MIN_OTHERS = 3, 10  # rows of such a number, and distinct other values
MIN_REPEATED, REPEATED_SHARE = 3, 0.01  # rows that are held out and repeat a training row
CHANCE = 10.0  # times as many rows as repeat by chance


def note_traps(splits: Mapping[str, Any], y: np.ndarray, names: Sequence[str]) -> None:
    """Warn of columns and rows that look like mistakes.

    Args:
        splits: Pandas tables of the inputs by split: train, val and test.
        y: Training labels (N,), int64, or targets (N, K), float64.
        names: The columns that are inputs.
    """
    columns = {name: {column: column_values(table[column]) for column in names} for name, table in splits.items()}
    train = columns["train"]
    if len(y) < MIN_ROWS:
        return
    note_copied_target(train, y)
    for name in names:
        if is_numeric(splits["train"][name]) and quantity_of(splits["train"][name]) == "numbers":
            note_code(name, train[name])
    note_repeated_rows(columns)


def note_copied_target(columns: Mapping[str, np.ndarray], y: np.ndarray) -> None:
    """Warn of columns (N,) that are labels or targets, or a one-to-one recoding of them."""
    if y.ndim == 2 and y.shape[1] > 1:
        return
    target = y.reshape(len(y))
    is_copy = recodes_numbers if target.dtype.kind == "f" else recodes_labels
    for name, values in columns.items():
        if is_copy(values, target):
            again = f"is the target over again: leave it out with drop='{name}'"
            warn(f"column '{name}' determines the target in every training row, as if it {again}", f"copy {name}")


def recodes_labels(values: np.ndarray, labels: np.ndarray) -> bool:
    """Return whether values (N,) and labels (N,) determine each other; missing values count as one value.

    >>> recodes_labels(np.array(["a", "b", None, "a"], object), np.array([0, 1, 2, 0]))
    True
    >>> recodes_labels(np.array([1.0, 2.0, 2.0]), np.array([0, 0, 1]))
    False
    """
    pairs: dict[Any, Any] = {}
    plain = [None if value != value else value for value in values.tolist()]
    if any(pairs.setdefault(value, label) != label for value, label in zip(plain, labels.tolist(), strict=True)):
        return False
    return len(set(pairs.values())) == len(pairs) > 1


def recodes_numbers(values: np.ndarray, targets: np.ndarray) -> bool:
    """Return whether numbers (N,) rise or fall strictly with the targets (N,).

    >>> recodes_numbers(np.array([3.0, 1.0, 2.0]), np.array([9.0, 1.0, 4.0]))
    True
    """
    if values.dtype.kind != "f" or np.isnan(values).any():
        return False
    order = np.argsort(targets, kind="stable")
    steps, rises = np.sign(np.diff(values[order])), np.sign(np.diff(targets[order]))
    return bool(rises.any() and ((steps == rises).all() or (steps == -rises).all()))


def note_code(name: str, values: np.ndarray) -> None:
    """Warn of the smallest or largest number (N,) of a column if it is a code."""
    distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    for end, others in ((0, distinct[1:]), (-1, distinct[:-1])):
        if len(others) < 2 or counts[end] < MIN_CODES:
            continue
        spread = others[-1] - others[0]
        gap = others[0] - distinct[0] if end == 0 else distinct[-1] - others[-1]
        nines = NINES.fullmatch(f"{distinct[end]:.0f}") is not None and float(distinct[end]).is_integer()
        if gap > spread * (FAR_NINES if nines else FAR) and (nines or len(others) >= MIN_OTHERS):
            many = f"holds {distinct[end]:g} in {counts[end]:,} rows"
            far = f"far from all others ({others[0]:g} to {others[-1]:g})"
            warn(
                f"column '{name}' {many}, {far}: leave the cells empty if it stands for a missing value", f"code {name}"
            )


def note_repeated_rows(splits: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Warn of held-out rows whose inputs are those of a training row, if chance does not explain them.

    Args:
        splits: The columns (N,) of the inputs by split: train, val and test.
    """
    import pandas as pd

    tables = {name: pd.DataFrame(columns) for name, columns in splits.items()}
    train, *others = (pd.util.hash_pandas_object(tables[name], index=False) for name in ("train", "val", "test"))
    held_out = pd.concat(others)
    repeated = int(held_out.isin(set(train)).sum())
    if repeated < max(MIN_REPEATED, REPEATED_SHARE * len(held_out)):
        return
    shares = [values.value_counts(normalize=True, dropna=False).to_numpy() for _, values in tables["train"].items()]
    alike = math.prod(float(np.square(share).sum()) for share in shares)  # of two rows with independent columns
    if repeated > CHANCE * len(held_out) * min(1.0, len(train) * alike):
        keep = "drop the copies, or write groups= with a column that keeps them in one split"
        many = f"{repeated:,} of {len(held_out):,} rows held out repeat a training row"
        warn(f"{many} and test nothing new: {keep}", "repeats")
