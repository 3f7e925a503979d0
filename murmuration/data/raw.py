"""Raw data: the result of a loader, before any preparation, and its fingerprint."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from murmuration.data.columns import column_values
from murmuration.data.file_rows import FileRows, blocks, pieces
from murmuration.data.numpy_arrays import as_array
from murmuration.data.options import Task
from murmuration.data.targets import LARGEST, Target, as_values, encode_labels, refuse_missing
from murmuration.system.errors import Misuse

PARTS = ("all", "train", "val", "test")
Keys = Mapping[str, np.ndarray]  # the caller's names (N,) of examples: `index` of a table, `file` of images; or none


@dataclass(frozen=True, eq=False)
class SeveralInputs:
    """Several inputs of every example: arrays (N, ...) by name, or by their positions in a tuple."""

    arrays: Mapping[str, np.ndarray]
    positional: bool  # whether a network takes them as net(a, b) or as net(name=a, other=b)

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, rows: Any) -> "SeveralInputs":
        return SeveralInputs({name: values[rows] for name, values in self.arrays.items()}, self.positional)


def several_inputs(x: Any) -> SeveralInputs | None:
    """Return the inputs of a tuple or dict of arrays (N, ...); None if x is neither."""
    if isinstance(x, SeveralInputs):
        return x
    if not isinstance(x, dict | tuple) or len(x) < 2:
        return None
    arrays = {str(name): as_array(item) for name, item in (x.items() if isinstance(x, dict) else enumerate(x))}
    lengths = {name: len(values) if values.ndim else 0 for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{name} {count}" for name, count in lengths.items())
        raise Misuse(f"several inputs with different numbers of examples ({sizes}): expected equal numbers")
    return SeveralInputs(arrays, isinstance(x, tuple))


@dataclass(frozen=True)
class RawPart:
    """One part of a source: inputs as an array (N, ...), several of them, or a pandas table, and their targets."""

    inputs: Any  # np.ndarray, SeveralInputs, pandas.DataFrame; not in memory: FileRows, FileTable, Streamed
    targets: np.ndarray | None = None  # (N,) labels or numbers, or (N, K) numbers
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)  # groups, time and weight (N,), where given
    keys: Keys = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class ColumnChoices:
    """What the caller wants of columns of a table, and what was seen of them before the split."""

    keep: tuple[str, ...] = ()  # inputs even if they look like identifiers
    text: tuple[str, ...] = ()  # free text, whose words are inputs
    forms: Mapping[str, str] = field(default_factory=dict)  # of columns and targets that were not plain


@dataclass(frozen=True)
class RawData:
    """One source: a single part `all`, or the parts it came in (`train`, `val`, `test`)."""

    parts: Mapping[str, RawPart]
    task: Task | None = None  # None: to be inferred from the targets
    class_names: tuple[str, ...] | None = None  # class_names[k] is the class of the integer target k
    feature_names: tuple[str, ...] = ()  # of the columns of (N, D) inputs
    target_names: tuple[str, ...] = ()  # of a table's target columns
    peak: float | None = None  # the value of a white pixel; None if the source does not state it
    as_is: bool = False  # inputs are not to be standardised
    resized: bool = False  # image files were resized and cropped
    ignored: tuple[str, ...] = ()  # columns of a table that are not inputs
    choices: ColumnChoices = field(default_factory=ColumnChoices)

    @property
    def target_name(self) -> str:
        """The name of the targets for messages."""
        return f"target '{', '.join(self.target_names)}'" if self.target_names else "target"

    def test_parts(self) -> list[RawPart]:
        """Return the parts to evaluate on: the test part, or all parts if there is none."""
        return [self.parts["test"]] if "test" in self.parts else list(self.parts.values())

    def checked_targets(self, part: RawPart) -> np.ndarray:
        """Return the targets of a part; refuse missing ones."""
        if part.targets is None:
            raise Misuse("the source has no targets: expected labels or numbers to predict")
        refuse_missing(part.targets, self.target_name)
        return part.targets

    def encode(self, part: RawPart, task: Task, classes: tuple[str, ...]) -> torch.Tensor:
        """Encode the targets of one part: labels (N,) int64, or regression targets (N, K) float64."""
        targets = self.checked_targets(part)
        if task == "classification":
            return encode_labels(targets, self.class_names, classes)
        return torch.from_numpy(as_values(targets, self.target_name))

    def fingerprint(self) -> str:
        """Return the sha256 (hex) of all inputs and targets, with types and shapes, in the order of PARTS.

        A table counts by the values of its columns, so the same table as CSV and as parquet has one fingerprint.
        """
        digest = hashlib.sha256()
        for name in filter(self.parts.__contains__, PARTS):
            inputs, targets = self.parts[name].inputs, self.parts[name].targets
            digest.update(name.encode())
            if hasattr(inputs, "digest"):  # not in memory
                digest.update(inputs.digest.encode())
            elif isinstance(inputs, FileRows):
                hash_kind(digest, inputs.dtype, inputs.shape)
                for piece in pieces(inputs):
                    hash_values(digest, piece)
            elif is_table(inputs):
                for column in inputs.columns:
                    digest.update(json.dumps(str(column)).encode())
                    hash_array(digest, column_values(inputs[column]))
            else:
                hash_inputs(digest, inputs)
            if targets is not None:
                hash_array(digest, targets)
        return digest.hexdigest()


@dataclass(frozen=True)
class LoadOptions:
    """Arguments of a loader besides the source."""

    target: Target = None  # column(s) of a table
    seed: int = 0  # of toy data
    labelled: bool = True  # False: inputs only, targets may be absent
    size: tuple[int, int] | None = None  # (H, W) to which image files are resized and cropped; None: their own
    mixed_sizes: bool = True  # whether image files of different sizes may be resized to a usual one
    drop: tuple[str, ...] = ()  # columns of a table to leave out
    keep: tuple[str, ...] = ()  # columns of a table that are inputs even if they look like identifiers
    text: tuple[str, ...] = ()  # columns of free text, whose words are inputs
    as_text: tuple[str, ...] = ()  # columns of a text file whose cells are not parsed
    strict: bool = False  # whether one damaged image is refused
    in_memory: bool | None = None  # False: rows are read when needed; None: those of large files and torch datasets
    target_forms: Mapping[str, str | None] | None = None  # local forms of targets in training; None: to be found
    roles: Mapping[str, Any] = field(default_factory=dict)  # groups, time, weight: a column's name, or an array (N,)


def is_table(inputs: Any) -> bool:
    """Return whether inputs are a pandas table, without importing pandas."""
    return hasattr(inputs, "columns") and hasattr(inputs, "iloc")


def is_series(inputs: Any) -> bool:
    """Return whether inputs are a pandas Series, without importing pandas."""
    return hasattr(inputs, "to_frame") and hasattr(inputs, "iloc") and not is_table(inputs)


def take_keys(keys: Keys, rows: Any) -> Keys:
    """Select the keys of these rows."""
    return {name: values[rows] for name, values in keys.items()}


def join_keys(parts: Sequence[Keys]) -> Keys:
    """Concatenate the keys that all parts have."""
    names = set.intersection(*(set(part) for part in parts))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name in names}


def take(inputs: Any, rows: np.ndarray | slice) -> Any:
    """Select rows of an array or a table, in this order; inputs that are not in memory are not read."""
    if is_table(inputs):
        return inputs.iloc[rows]
    return inputs.subset(rows) if hasattr(inputs, "subset") else inputs[rows]


def refuse_nonfinite(values: Any, name: str, first: int = 0) -> None:
    """Refuse an array (N, ...), or rows in files, with NaN or numbers that single precision cannot hold.

    The message names the index of the first such number; the index of row 0 is `first`.
    """
    if values.dtype.kind != "f" or not values.size:
        return
    if isinstance(values, FileRows):
        for rows, piece in zip(blocks(values), pieces(values), strict=True):
            refuse_nonfinite(piece, name, rows.start)
        return
    if float(values.min()) >= -LARGEST and float(values.max()) <= LARGEST:  # half precision cannot hold LARGEST
        return
    bad, expected = ~np.isfinite(values), "expected finite numbers"
    if not bad.any():
        bad, expected = np.abs(values) > LARGEST, f"expected numbers up to {LARGEST:.2g}, single precision"
    position = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), values.shape))
    index = ", ".join(map(str, (position[0] + first, *position[1:])))
    raise Misuse(f"{name}[{index}] is {values[position]:g} ({int(bad.sum())} such values): {expected}")


def require_shape(values: np.ndarray | torch.Tensor, shape: tuple[int, ...]) -> None:
    """Refuse examples (N, ...) of another shape than training's."""
    if tuple(values.shape) == shape:
        raise Misuse(f"one example of shape {shape} without an axis for examples: write x[None], shape {(1, *shape)}")
    if tuple(values.shape[1:]) != shape:
        raise Misuse(f"examples have the shape {tuple(values.shape[1:])}: expected {shape}, as in training")


def hash_inputs(digest: Any, inputs: Any) -> Any:
    """Feed an array of inputs, or several of them, to the digest, and return it."""
    for array in inputs.arrays.values() if isinstance(inputs, SeveralInputs) else (inputs,):
        hash_array(digest, array)
    return digest


def hash_array(digest: Any, values: np.ndarray) -> None:
    """Feed type, shape and bytes of one array to the digest; strings are fed as JSON."""
    if values.dtype.kind in "OU":
        texts = [None if value is None else str(value) for value in values.ravel().tolist()]
        digest.update(f"text{values.shape}{json.dumps(texts)}".encode())
        return
    hash_kind(digest, values.dtype, values.shape)
    hash_values(digest, values)


def hash_kind(digest: Any, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """Feed the type, in the byte order of the digest, and the shape of an array of numbers."""
    digest.update(f"{dtype.newbyteorder('<').str}{shape}".encode())


def hash_values(digest: Any, values: np.ndarray) -> None:
    """Feed the bytes of an array of numbers, or of a block of its rows."""
    digest.update(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data)
