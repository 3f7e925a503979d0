"""`Predictions`: predictions of any model in a file, with their targets, read some rows at a time.

`open_predictions` reads names, shapes, targets and groups; the numbers stay in the file.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from murmuration.data.npz import Archive, naming, open_archive, open_array
from murmuration.evaluation.audit.arrays import archive_outputs, class_names
from murmuration.evaluation.audit.outputs import Outputs, Rows
from murmuration.evaluation.audit.tables import Sheet, open_sheet, sheet_outputs, target_names
from murmuration.evaluation.audit.targets import (
    NamedValues,
    Targets,
    checked_labels,
    checked_values,
    read_groups,
    read_targets,
)
from murmuration.likelihoods import CLASSIFICATION, REGRESSION
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse, unknown

TASKS = (CLASSIFICATION, REGRESSION)  # that files of predictions may have
OPENERS: dict[str, Callable[[Path], Archive | Sheet]] = {
    ".npz": open_archive,
    ".npy": lambda path: open_array(path, "probs"),
    ".csv": open_sheet,
    ".parquet": open_sheet,
}
ELEMENTS = 2**21  # of (S, n, K) in one chunk: 16 MB in float64, enough for every core to have a piece
MOST_ROWS = 8192  # of one chunk
SAME_NUMBER = 1e-6  # relative: texts of a number may be rounded


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of any model for N rows, with their targets.

    Predictions stay in their file. A chunk is checked whenever it is read, so only a complete pass over `chunks` (or
    `pairs`) has checked the file; an invalid row raises `Misuse`.
    """

    name: str  # the file's, without its suffix
    task: str  # classification or regression
    classes: tuple[str, ...]  # names; empty for a regression
    members: int
    rows: int
    targets: np.ndarray  # (N,) int64 labels, or (N, K) float64
    groups: dict[str, np.ndarray]  # column -> (N,) texts
    form: str  # probabilities, logits, moments or samples
    take: Callable[[Rows], Predictive] = field(repr=False)

    def chunks(self) -> Iterator[Predictive]:
        """Predictives of successive rows, a few thousand at a time, covering all."""
        return map(self.take, self.slices())

    def pairs(self) -> Iterator[tuple[Predictive, np.ndarray]]:
        """Predictives of successive rows with their targets, as `ExampleScores.from_chunks` takes them."""
        for rows in self.slices():
            yield self.take(rows), self.targets[rows]

    def slices(self) -> Iterator[slice]:
        """The rows of every chunk; the last may have fewer."""
        width = len(self.classes) or 2 * self.targets.shape[1]
        count = max(1, min(MOST_ROWS, ELEMENTS // (self.members * width)))
        return (slice(start, min(start + count, self.rows)) for start in range(0, self.rows, count))

    def rows_at(self, indices: np.ndarray) -> Predictive:
        """The predictive of the rows at indices, from 0 in increasing order; held in memory as a whole."""
        chosen = np.asarray(indices)
        increasing = chosen.ndim == 1 and len(chosen) and (np.diff(chosen) > 0).all()
        if not increasing or chosen.dtype.kind not in "iu" or chosen[0] < 0 or chosen[-1] >= self.rows:
            raise Misuse(f"rows of '{self.name}': expected indices from 0 to {self.rows - 1} in increasing order")
        return self.take(chosen)


def check_same_targets(a: Predictions, b: Predictions) -> None:
    """Refuse two files that predict different rows: other tasks, classes or targets, or another order.

    Classes without names (0, 1, ...) match any names of as many classes.
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
            f"row {row + 1} is {target_text(a, row)} in '{a.name}' and {target_text(b, row)} in '{b.name}': {same}"
        )


def check_same_classes(a: Predictions, b: Predictions) -> None:
    """Refuse different classes, or another order of them; unnamed classes match as many named ones."""
    expected = "expected the same classes in the same order"
    if len(a.classes) != len(b.classes):
        raise Misuse(f"'{a.name}' has {len(a.classes)} classes and '{b.name}' has {len(b.classes)}: {expected}")
    numbered = tuple(map(str, range(len(a.classes))))
    if a.classes != b.classes and numbered not in (a.classes, b.classes):
        place = next(i for i, name in enumerate(a.classes) if name != b.classes[i])
        names = f"'{a.classes[place]}' in '{a.name}' and '{b.classes[place]}' in '{b.name}'"
        raise Misuse(f"class {place} is {names}: {expected}")


def differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Which rows (N,) of two arrays of labels or values differ by more than the rounding of a text."""
    if a.shape != b.shape:
        return np.ones(len(a), dtype=bool)
    return ~np.isclose(a, b, rtol=SAME_NUMBER, atol=0).reshape(len(a), -1).all(axis=1)


def target_text(predictions: Predictions, row: int) -> str:
    """The target of a row, as text."""
    found = predictions.targets[row]
    if predictions.task == "classification":
        return f"'{predictions.classes[int(found)]}'"
    return ", ".join(f"{value:.9g}" for value in found)


# Opening a file


def open_predictions(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    label: str | None = None,
    groups: Sequence[str] = (),
    task: str | None = None,
) -> Predictions:
    """The predictions in an .npz, .npy, .csv or .parquet file, with the target of every row.

    `labels` is another file that holds the targets, `label` the name of their column or array, `groups` the names of
    columns with the group of each row. The task follows from the contents. Names, shapes, targets, groups and the first
    rows are checked here, all other rows when they are read.
    """
    if task is not None and task not in TASKS:
        raise unknown("task", task, TASKS)
    place = existing(path)
    if place.suffix.lower() not in OPENERS:
        raise Misuse(f"'{place}' has the suffix '{place.suffix}': expected a file {', '.join(OPENERS)}")
    found = OPENERS[place.suffix.lower()](place)
    source = named_values(found)
    with naming(place):
        if isinstance(found, Archive):
            outputs_of, names = partial(archive_outputs, found), class_names(found) or ()
        else:
            outputs_of, names = partial(sheet_outputs, found), target_names(found.names)
    other = source if labels is None else label_source(existing(labels))
    with naming(Path(labels or place)):
        targets = read_targets(other, label, names, alone=labels is not None)
    if labels is not None:
        targets = replace(targets, name=f"{targets.name} of '{labels}'", sources=())
    with naming(place):
        grouped = read_groups([source, other], groups, targets.rows)
        outputs = outputs_of(targets, (*targets.sources, *grouped), task)
        predictions = join(place, outputs, targets, grouped)
    predictions.take(next(predictions.slices()))
    return predictions


def join(path: Path, outputs: Outputs, targets: Targets, groups: dict[str, np.ndarray]) -> Predictions:
    """The outputs joined with their targets, as class indices or values."""
    members, rows, width = outputs.shape
    if outputs.task == "classification":
        classes = outputs.names or tuple(map(str, range(width)))
        true = checked_labels(targets, classes, named=outputs.names is not None)
    else:
        classes, true = (), checked_values(targets, width)

    def take(chosen: Rows) -> Predictive:
        with naming(path):
            return outputs.take(chosen)

    return Predictions(path.stem, outputs.task, classes, members, rows, true, groups, outputs.form, take)


def existing(path: str | Path) -> Path:
    """The path, if it is an existing file."""
    place = Path(path)
    if place.is_dir():
        raise Misuse(f"'{place}' is a folder: expected a file of predictions or labels")
    if not place.exists():
        raise Misuse(f"no file '{place}': expected a file {', '.join(OPENERS)}")
    return place


def named_values(found: Archive | Sheet) -> NamedValues:
    """The arrays or columns of a file by name."""
    return NamedValues(found.noun, found.names, found.values)


def label_source(path: Path) -> NamedValues:
    """The columns or arrays of a file of labels; for any other suffix, its lines."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return named_values(open_array(path, "y"))
    return named_values(OPENERS[suffix](path)) if suffix in OPENERS else lines_of(path)


def lines_of(path: Path) -> NamedValues:
    """The lines of a text file as one column of labels; blank lines are allowed at the end only."""
    try:
        texts = [line.strip() for line in path.read_text(encoding="utf-8-sig").rstrip().splitlines()]
    except UnicodeDecodeError:
        raise Misuse(
            f"'{path}' is not text in UTF-8: expected one label a line, or a file {', '.join(OPENERS)}"
        ) from None
    except OSError as error:
        raise Failure(f"cannot read '{path}': {error}") from None
    if "" in texts:
        raise Misuse(f"line {texts.index('') + 1} of '{path}' is blank: expected a label")
    return NamedValues("line", ("y",), lambda name: np.array(texts, dtype=str))
