"""From a file of anyone's predictions to `Predictions`: what they mean and what was true, or a line why not."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from murmuration.audit.array_outputs import archive_outputs, class_names
from murmuration.audit.checks import Rows
from murmuration.audit.csv_tables import Sheet, open_sheet, sheet_outputs, target_names
from murmuration.audit.npz import Archive, open_archive, open_array
from murmuration.audit.outputs import Outputs
from murmuration.audit.predictions import Predictions
from murmuration.audit.truth import Named, Truth, checked_labels, checked_numbers, read_groups, read_truth
from murmuration.errors import Failure, Misuse, unknown
from murmuration.predictive import Predictive

TASKS = ("classification", "regression")
OPENERS: dict[str, Callable[[Path], Archive | Sheet]] = {
    ".npz": open_archive,
    ".npy": lambda path: open_array(path, "probs"),
    ".csv": open_sheet,
    ".parquet": open_sheet,
}


def open_predictions(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    label: str | None = None,
    groups: Sequence[str] = (),
    task: str | None = None,
) -> Predictions:
    """The predictions in an .npz, .npy, .csv or .parquet file, with what was true of every row.

    `labels` is another file with the truth, `label` the name of its column or array, `groups` the names of columns
    that say to which group a row belongs. The task follows from what the file holds. Names, shapes, labels, groups
    and the first rows are checked here, all other rows when they are read.
    """
    if task is not None and task not in TASKS:
        raise unknown("task", task, TASKS)
    place = existing(path)
    if place.suffix.lower() not in OPENERS:
        raise Misuse(f"'{place}' has the suffix '{place.suffix}': expected a file {', '.join(OPENERS)}")
    found = opened(place)
    source = named(found)
    other = source if labels is None else label_source(existing(labels))
    with naming(Path(labels or place)):
        truth = read_truth(other, label, predicted_names(found), alone=labels is not None)
    if labels is not None:
        truth = replace(truth, name=f"{truth.name} of '{labels}'", sources=())
    with naming(place):
        grouped = read_groups([source, other], groups, truth.rows)
        outputs = outputs_of(found, truth, (*truth.sources, *grouped), task)
        predictions = assembled(place, outputs, truth, grouped)
        predictions.take(next(predictions.slices()))
    return predictions


def opened(path: Path) -> Archive | Sheet:
    """The arrays or columns of a file."""
    with naming(path):
        return OPENERS[path.suffix.lower()](path)


def assembled(path: Path, outputs: Outputs, truth: Truth, groups: dict[str, np.ndarray]) -> Predictions:
    """Predictions with their targets, as labels of classes or as numbers."""
    members, rows, width = outputs.shape
    if outputs.task == "classification":
        classes = outputs.names or tuple(map(str, range(width)))
        targets = checked_labels(truth, classes, named=outputs.names is not None)
    else:
        classes, targets = (), checked_numbers(truth, width)

    def take(chosen: Rows) -> Predictive:
        with naming(path):
            return outputs.take(chosen)

    return Predictions(path.stem, outputs.task, classes, members, rows, targets, groups, outputs.form, take)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """A refusal that names the file, once."""
    try:
        yield
    except Misuse as error:
        raise error if f"'{path}'" in str(error) else Misuse(f"'{path}': {error}") from None


def existing(path: str | Path) -> Path:
    """The path of a file that is there."""
    place = Path(path)
    if place.is_dir():
        raise Misuse(f"'{place}' is a folder: expected a file of predictions or labels")
    if not place.exists():
        raise Misuse(f"no file '{place}': expected a file {', '.join(OPENERS)}")
    return place


def named(found: Archive | Sheet) -> Named:
    """The arrays or columns of a file by name."""
    return Named(found.noun, found.names, found.values)


def outputs_of(found: Archive | Sheet, truth: Truth, taken: tuple[str, ...], task: str | None) -> Outputs:
    """What a file predicts."""
    if isinstance(found, Archive):
        return archive_outputs(found, truth, taken, task)
    return sheet_outputs(found, truth, taken, task)


def predicted_names(found: Archive | Sheet) -> tuple[str, ...]:
    """The names of what is predicted, if the file says: the truth may stand in columns of these names."""
    return class_names(found) or () if isinstance(found, Archive) else target_names(found.names)


def label_source(path: Path) -> Named:
    """The columns or arrays of a file of labels; of any other suffix, its lines."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return named(open_array(path, "y"))
    return named(opened(path)) if suffix in OPENERS else lines_of(path)


def lines_of(path: Path) -> Named:
    """The lines of a text as one column of labels; blank ones may only stand at the end."""
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
    return Named("line", ("y",), lambda name: np.array(texts, dtype=str))
