"""Why some rows of a file are no predictions: one line that says where, what stands there and what to write instead."""

from collections.abc import Callable

import numpy as np

from murmuration.errors import Misuse
from murmuration.predictive import SUM_TOLERANCE

Rows = slice | np.ndarray  # a range of rows, or their indices in rising order
Where = Callable[[int, int, int | None], str]
FINITE = "expected a finite number"


def row_in_file(rows: Rows, place: int) -> int:
    """The row of a file, from 0, that stands at a place among the rows read."""
    return int(rows.start or 0) + place if isinstance(rows, slice) else int(rows[place])


def first(bad: np.ndarray) -> tuple[int, int, int]:
    """The first (member, row, column) of a mask (S, n, K) that is set, by row first."""
    row = int(bad.any((0, 2)).argmax())
    member = int(bad[:, row].any(-1).argmax())
    return member, row, int(bad[member, row].argmax())


def named(where: Where, rows: Rows, spot: tuple[int, int, int]) -> str:
    """What one number is called in its file."""
    member, place, column = spot
    return where(member, row_in_file(rows, place), column)


def bad_probability(values: np.ndarray, where: Where, rows: Rows, where_logits_go: str) -> Misuse:
    """The refusal of the first row of (S, n, K) that is no distribution, or of (S, n, 1) that is not in 0..1."""
    single = values.shape[-1] == 1
    sums = np.ones((*values.shape[:2], 1)) if single else values.sum(-1, keepdims=True)
    wrong = ~np.isfinite(values) | (values < 0) | (single & (values > 1))
    member, place, _ = first(wrong | ~(np.abs(sums - 1) <= SUM_TOLERANCE))
    row, number = values[member, place], row_in_file(rows, place)
    if wrong[member, place].any():
        column = int(wrong[member, place].argmax())
        hint = f"; {where_logits_go}" if np.isfinite(row[column]) else ""
        return Misuse(f"{where(member, number, column)} is {row[column]:.6g}: expected 0 to 1{hint}")
    total = sums[member, place, 0]
    hint = sum_hint(row, total, where_logits_go)
    return Misuse(f"{where(member, number, None)} sums to {total:.6g}: expected probabilities that sum to 1; {hint}")


def sum_hint(row: np.ndarray, total: float, where_logits_go: str) -> str:
    """What to do about numbers (K,), none negative, that do not sum to one."""
    if abs(total - 100) < 1:
        return "these look like per cent, divide them by 100"
    if row.max() > 1:
        return where_logits_go
    return "divide each row by its sum if exactly one class is true of it"


def bad_logit(values: np.ndarray, where: Where, rows: Rows) -> Misuse:
    """The refusal of the first logit of (S, n, K) that is not finite."""
    spot = first(~np.isfinite(values))
    hint = "; write the logarithm of zero as -700" if values[spot] == -np.inf else ""
    return Misuse(f"{named(where, rows, spot)} is {values[spot]}: {FINITE}{hint}")


def bad_moments(
    values: tuple[np.ndarray, np.ndarray], where: tuple[Where, Where | None], rows: Rows, *, squared: bool
) -> Misuse:
    """The refusal of the first mean of (S, n, K) that is not finite, or else the first spread that is not positive."""
    means, spreads = values
    if not np.isfinite(means).all():
        spot = first(~np.isfinite(means))
        return Misuse(f"{named(where[0], rows, spot)} is {means[spot]}: {FINITE}")
    spot = first(~(np.isfinite(spreads) & (spreads > 0)))
    name = named(where[1], rows, spot) if where[1] else "the one spread for all rows"
    noise = "variance" if squared else "standard deviation"
    hint = "without one take that of the errors on other data"
    return Misuse(f"{name} is {spreads[spot]:.6g}: expected a positive {noise} of the prediction's error; {hint}")


def bad_sample(values: np.ndarray, where: Where, rows: Rows) -> Misuse:
    """The refusal of the first draw of (S, n, K) that is not finite, or the first row whose draws are all the same."""
    if not np.isfinite(values).all():
        spot = first(~np.isfinite(values))
        return Misuse(f"{named(where, rows, spot)} is {values[spot]}: {FINITE}")
    spot = first((values.max(0) == values.min(0))[None])
    number = row_in_file(rows, spot[1]) + 1
    return Misuse(
        f"all {len(values)} samples of row {number} are {values[0, spot[1], spot[2]]:.6g}: expected draws of y "
        "that differ; add the noise of y to draws of its mean"
    )
