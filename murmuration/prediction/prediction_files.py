"""Predictions as .csv, .parquet and .npz files, written a few rows at a time in constant memory."""

import contextlib
import csv
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.data.inputs import KeyedInputs
from murmuration.data.local_forms import forms_of
from murmuration.data.ranges import columns_at
from murmuration.data.raw import Keys, take_keys
from murmuration.data.targets import is_number
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse, listed, names_of, notes_once, warn
from murmuration.system.files import write_named

Columns = dict[str, np.ndarray]
NAMED_ROWS = 1000  # rows outside of training whose columns are named
FORMULA = re.compile(r"[\s\ufeff\u200b-\u200f\u2060]*[=+@'-]|[\t\r\n]")  # cells that are computed; or our mark


@dataclass(frozen=True)
class Predictions:
    """Predictives of successive inputs, to be written to a file.

    Attributes:
        parts: The predictives.
        rows: Number of inputs.
        names: Names of the classes, or of the targets of a regression.
        members: Number of members.
        per_member: Whether to write the predictions of every member.
        keys: Names of all inputs: `index` of a table, `file` of images.
    """

    parts: Iterator[Predictive]
    rows: int
    names: tuple[str, ...]
    members: int
    per_member: bool = False
    keys: Keys = field(default_factory=dict)

    def tables(self) -> Iterator[Columns]:
        """Yield the columns (n,) of successive inputs."""
        for first, part in self.located():
            keys = take_keys(self.keys, slice(first, first + part.outputs.shape[1]))
            yield replace(part, names=self.names, keys=keys).columns(first=first)

    def located(self) -> Iterator[tuple[int, Predictive]]:
        """Yield every predictive with the index of its first input."""
        first = 0
        for part in self.parts:
            yield first, part
            first += part.outputs.shape[1]


def predictions_of(
    ensemble: Ensemble,
    x: Any,
    *,
    per_member: bool = False,
    in_memory: bool | None = None,
    keep: str | Sequence[str] = (),
) -> Predictions:
    """Predict inputs as `predict` takes them, batch by batch when the result is consumed."""
    opened = ensemble.keyed_inputs(x, in_memory, names_of("keep", keep))
    parts = with_note(ensemble.stream(opened), ensemble, opened)
    return Predictions(parts, len(opened.x), ensemble.names, ensemble.members, per_member, opened.keys)


def with_note(parts: Iterator[Predictive], ensemble: Ensemble, opened: KeyedInputs) -> Iterator[Predictive]:
    """Yield predictives, and before the last one warn if rows have inputs outside of training."""
    outside = np.zeros(len(opened.x), dtype=bool)
    first = 0
    for part in parts:
        rows = slice(first, first := first + part.outputs.shape[1])
        outside[rows] = False if part.outside is None else (part.outside.count > 0).numpy(force=True)
        if first == len(outside) and outside.any() and ensemble.ranges is not None:
            places = ensemble.ranges.places_outside(opened.x[np.flatnonzero(outside)[:NAMED_ROWS]])
            columns = columns_at(ensemble.preparation, places)
            named = f" ({'columns' if len(columns) > 1 else 'column'} {listed(columns, most=5)})" if columns else ""
            rows_outside = f"{int(outside.sum()):,} of {len(outside):,} rows have inputs outside of training"
            warn(f"{rows_outside}{named}; see the column outside", "rows outside of training")
        yield part


@notes_once
def save_predictions(
    ensemble: Ensemble,
    x: Any,
    path: str | Path,
    *,
    per_member: bool = False,
    in_memory: bool | None = None,
    keep: str | Sequence[str] = (),
) -> Predictions:
    """Write the predictions of an ensemble and their uncertainty to a .csv, .parquet or .npz file.

    The first column is `index`, that of a pandas table unless it is 0 to N - 1, or `file`, the names of image files.

    Args:
        ensemble: The ensemble.
        x: Inputs as `predict` takes them: an array, a table, a path, a split.
        path: The file, replaced if it exists; its suffix is the format.
        per_member: Whether a .npz also holds the predictions (S, N, K) of every member.
        in_memory: None reads and prepares rows of large files when they are needed, False those of all files; results
            are the same.
        keep: Columns of a table that are copied into the file, such as an identifier.

    Returns:
        The predictions that were written, with their number of rows.

    Raises:
        Misuse: If the suffix is unknown, or `per_member` is given for a table.
        Failure: If the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in WRITERS:
        raise Misuse(f"{path} has the suffix '{path.suffix}': write a name that ends in {' or '.join(WRITERS)}")
    if per_member and path.suffix.lower() != ".npz":
        raise Misuse(f"per_member=True with {path.name}: a table has one row per input; write {path.stem}.npz")
    predictions = predictions_of(ensemble, x, per_member=per_member, in_memory=in_memory, keep=keep)
    write_predictions(path, predictions)
    return predictions


def safe_text(text: str) -> str:
    """Return text for a CSV file that no spreadsheet takes for a formula: an apostrophe before = + - @.

    Blanks and invisible characters before them do not matter, as some spreadsheets remove them.
    Numbers stay as they are. A text that begins with an apostrophe gets another, so that `plain_text` is the inverse.

    >>> [safe_text(text) for text in ("cat", "=1+1", "-1,5", "-a", "'n")]
    ['cat', "'=1+1", '-1,5', "'-a", "''n"]
    """
    plain = is_number(text) or forms_of([text])
    return f"'{text}" if FORMULA.match(text) and not plain else text


def plain_text(text: str) -> str:
    """Return the text that `safe_text` wrote.

    >>> [plain_text(safe_text(text)) for text in ("cat", "=1+1", "-1", "'=1", "''")]
    ['cat', '=1+1', '-1', "'=1", "''"]
    """
    return text[1:] if text.startswith("'") and FORMULA.match(text[1:]) else text


def as_cell(value: Any) -> str:
    """Format a value for a CSV file: integers in full, floats in nine significant digits, booleans as 0 and 1."""
    if isinstance(value, str):
        return safe_text(value)
    return str(int(value)) if isinstance(value, int) else f"{value:.9g}"


def write_csv(path: Path, predictions: Predictions) -> None:
    """Write a table with a header; numbers in nine significant digits."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for turn, columns in enumerate(predictions.tables()):
            if turn == 0:
                writer.writerow(map(safe_text, columns))
            texts = [[as_cell(value) for value in values.tolist()] for values in columns.values()]
            writer.writerows(zip(*texts, strict=True))


def write_parquet(path: Path, predictions: Predictions) -> None:
    """Write a Parquet table, one row group for each batch."""
    import pyarrow
    import pyarrow.parquet

    tables = map(pyarrow.table, predictions.tables())
    first = next(tables)
    with pyarrow.parquet.ParquetWriter(str(path), first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def write_npz(path: Path, predictions: Predictions) -> None:
    """Write arrays of all inputs: they grow in .npy files in a folder beside `path`, which are then packed."""
    folder = path.with_suffix("")
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        files: dict[str, NpyFile] = {}
        for start, part in predictions.located():
            for key, values in part.arrays(per_member=predictions.per_member, first=start).items():
                if key not in files:
                    files[key] = NpyFile(folder / f"{key}.npy", values, predictions.rows)
                    stack.enter_context(files[key].file)
                files[key].write(values, start)
    for key, values in {"names": np.array(predictions.names), **predictions.keys}.items():
        np.save(folder / f"{key}.npy", values)
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, file.name)


class NpyFile:
    """An .npy file with room for all rows of an array, filled row by row; no memory map, which a full disk would kill.

    Attributes:
        file: The open file, for the caller to close.
    """

    def __init__(self, path: Path, values: np.ndarray, rows: int) -> None:
        """Create the file for the type and shape of the first rows."""
        self.rows, self.axis = rows, 1 if path.name.startswith("member_") else 0  # axis 1 where members come first
        shape = (*values.shape[: self.axis], rows, *values.shape[self.axis + 1 :])
        self.file = open(path, "w+b")  # noqa: SIM115 - closed by the caller's stack
        descr = np.lib.format.dtype_to_descr(values.dtype)
        np.lib.format.write_array_header_1_0(self.file, {"descr": descr, "fortran_order": False, "shape": shape})
        self.origin = self.file.tell()  # where the values begin

    def write(self, values: np.ndarray, start: int) -> None:
        """Write values (n, ...) or (S, n, ...) as the rows from `start` on."""
        for turn, block in enumerate(values if self.axis else values[None]):
            size = block.itemsize * int(np.prod(block.shape[1:]))  # of one row
            self.file.seek(self.origin + (turn * self.rows + start) * size)
            self.file.write(np.ascontiguousarray(block).tobytes())


WRITERS = {".csv": write_csv, ".parquet": write_parquet, ".npz": write_npz}


def write_predictions(path: Path, predictions: Predictions) -> None:
    """Write the file, whole or not at all."""
    write_named(path, lambda file: WRITERS[path.suffix.lower()](file, predictions))
