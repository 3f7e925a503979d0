"""Predictions of anything, with what was true: read some rows at a time, as often as needed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from murmuration.audit.checks import Rows
from murmuration.errors import Misuse
from murmuration.predictive import Predictive

ELEMENTS = 2**21  # of (S, n, K) in one chunk: 16 MB in float64, enough for every core to have a piece
MOST_ROWS = 8192  # of one chunk
SAME_NUMBER = 1e-6  # relative: texts of a number may be rounded


@dataclass(frozen=True, eq=False)
class Predictions:
    """What anything predicted for N rows, and what was true of them.

    Predictions stay in their file. A chunk is checked whenever it is read, so a complete pass over `chunks` (or
    `pairs`) is needed before anything is said of the file; a wrong row ends it with `Misuse`.
    """

    name: str  # the file's, without its suffix
    task: str  # classification or regression
    classes: tuple[str, ...]  # names; empty for a regression
    members: int
    rows: int
    targets: np.ndarray  # (N,) int64 labels, or (N, K) float64 numbers
    groups: dict[str, np.ndarray]  # column -> (N,) texts
    form: str  # probabilities, logits, moments or samples
    take: Callable[[Rows], Predictive] = field(repr=False)

    @property
    def chunk_rows(self) -> int:
        """How many rows a chunk has, but for the last."""
        width = len(self.classes) or 2 * self.targets.shape[1]
        return max(1, min(MOST_ROWS, ELEMENTS // (self.members * width)))

    def chunks(self) -> Iterator[Predictive]:
        """Predictives of successive rows, all of them, some thousand at a time."""
        for rows in self.slices():
            yield self.take(rows)

    def pairs(self) -> Iterator[tuple[Predictive, np.ndarray]]:
        """Predictives of successive rows with what was true of them, as `Evaluation.from_chunks` takes them."""
        for rows in self.slices():
            yield self.take(rows), self.targets[rows]

    def slices(self) -> Iterator[slice]:
        """The rows of every chunk."""
        for start in range(0, self.rows, self.chunk_rows):
            yield slice(start, min(start + self.chunk_rows, self.rows))

    def rows_at(self, indices: np.ndarray) -> Predictive:
        """The predictive of some rows, given by their indices from 0 in rising order; held in memory as a whole."""
        chosen = np.asarray(indices)
        rising = chosen.ndim == 1 and len(chosen) and (np.diff(chosen) > 0).all()
        if not rising or chosen.dtype.kind not in "iu" or chosen[0] < 0 or chosen[-1] >= self.rows:
            raise Misuse(f"rows of '{self.name}': expected indices from 0 to {self.rows - 1} in rising order, some")
        return self.take(chosen)


def check_same_targets(a: Predictions, b: Predictions) -> None:
    """Nothing, if two files predict the same rows: the same task, classes and true values, in one order.

    Classes without names (0, 1, ...) agree with any names of as many classes.
    """
    same = "expected predictions of the same rows in the same order"
    if a.task != b.task:
        raise Misuse(f"'{a.name}' is a {a.task} and '{b.name}' a {b.task}: expected one task")
    if a.rows != b.rows:
        raise Misuse(f"'{a.name}' has {a.rows} rows and '{b.name}' has {b.rows}: {same}")
    check_same_classes(a, b)
    differ = differing(a.targets, b.targets)
    if differ.any():
        row = int(differ.argmax())
        raise Misuse(
            f"row {row + 1} is {true_value(a, row)} in '{a.name}' and {true_value(b, row)} in '{b.name}': {same}"
        )


def check_same_classes(a: Predictions, b: Predictions) -> None:
    """Nothing, if two files have the same classes in the same order, or as many and one of them does not name them."""
    expected = "expected the same classes in the same order"
    if len(a.classes) != len(b.classes):
        raise Misuse(f"'{a.name}' has {len(a.classes)} classes and '{b.name}' has {len(b.classes)}: {expected}")
    numbered = tuple(map(str, range(len(a.classes))))
    if a.classes != b.classes and numbered not in (a.classes, b.classes):
        place = next(i for i, name in enumerate(a.classes) if name != b.classes[i])
        names = f"'{a.classes[place]}' in '{a.name}' and '{b.classes[place]}' in '{b.name}'"
        raise Misuse(f"class {place} is {names}: {expected}")


def differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Which rows (N,) of two arrays of labels or numbers are not the same, numbers up to the rounding of a text."""
    if a.shape != b.shape:
        return np.ones(len(a), dtype=bool)
    return ~np.isclose(a, b, rtol=SAME_NUMBER, atol=0).reshape(len(a), -1).all(axis=1)


def true_value(predictions: Predictions, row: int) -> str:
    """What was true of a row, as a text."""
    found = predictions.targets[row]
    if predictions.task == "classification":
        return f"'{predictions.classes[int(found)]}'"
    return ", ".join(f"{value:.9g}" for value in found)
