"""Arrays: `.npz` and `.npy` files, and tensors in memory."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.data.file_rows import is_streamed, rows_of
from murmuration.data.npz import Archive, naming, open_archive, open_array
from murmuration.data.numpy_arrays import as_array
from murmuration.data.preparation import checked_array
from murmuration.data.raw import LoadOptions, RawData, RawPart, is_table, several_inputs
from murmuration.data.tables import table_raw
from murmuration.system.errors import Misuse, listed, warn


def load_npz(path: Path, options: LoadOptions) -> RawData:
    """Load the arrays `x`, `y` of a file, or `x_train`, `y_train`, `x_test`, ... of one with parts.

    Large inputs stay in the file; see `is_streamed`.
    """
    archive = open_archive(path)
    part_suffixes = {part: f"_{part}" for part in ("train", "val", "test") if f"x_{part}" in archive.names}
    if "x" in archive.names and part_suffixes:
        parts_too = listed("x" + suffix for suffix in part_suffixes.values())
        raise Misuse(f"'{path}' holds x and also {parts_too}: expected one or the other")
    suffixes = {"all": ""} if "x" in archive.names else part_suffixes
    if not suffixes:
        raise Misuse(f"'{path}' has no array x (or x_train): found {listed(archive.names) or 'nothing'}")
    with naming(path):
        values = sum(math.prod(archive.header(f"x{suffix}").shape) for suffix in suffixes.values())
        streamed = is_streamed(options.in_memory, values)
        parts = {part: npz_part(archive, suffix, options.labelled, streamed) for part, suffix in suffixes.items()}
        classes = npz_classes(archive, parts) if options.labelled else None
    return RawData(parts, None if classes is None else "classification", classes)


def npz_classes(archive: Archive, parts: dict[str, RawPart]) -> tuple[str, ...] | None:
    """Return the array `classes`, the names of integer labels, if the archive has it."""
    labels = [part.targets for part in parts.values() if part.targets is not None]
    if "classes" not in archive.names or any(targets.dtype.kind not in "iu" or targets.ndim > 1 for targets in labels):
        return None
    names, highest = tuple(map(str, archive.values("classes").ravel())), max(int(y.max()) for y in labels)
    if highest >= len(names):
        problem = f"'{archive.path}' has the label {highest} and {len(names)} classes"
        raise Misuse(f"{problem}: expected a name for every label")
    return names


def npz_part(archive: Archive, suffix: str, labelled: bool, streamed: bool) -> RawPart:
    """Load the arrays x and y with one suffix."""
    name = f"y{suffix}"
    if labelled and name not in archive.names:
        raise Misuse(f"'{archive.path}' has no array {name}: found {listed(archive.names)}")
    x, y = stored_inputs(archive, f"x{suffix}", streamed), archive.array(name) if labelled else None
    return checked_part(x, y, f"x{suffix}")


def stored_inputs(archive: Archive, name: str, streamed: bool) -> Any:
    """Load one array of inputs into memory, or as rows that stay in the file if `streamed`."""
    if not streamed or not archive.header(name).shape:  # a single number has no rows, and is refused later
        return archive.array(name)
    return rows_of(archive.array(name)) if archive.is_compressed(name) else archive.stored(name).rows()


def load_npy(path: Path, options: LoadOptions) -> RawData:
    """Load the inputs of an .npy file; `target` names the .npy file of their targets, relative to its folder."""
    archive = open_array(path, "x")
    with naming(path):
        x = stored_inputs(archive, "x", is_streamed(options.in_memory, math.prod(archive.header("x").shape)))
        if not options.labelled:
            return RawData({"all": checked_part(x, None, "x")})
    if not isinstance(options.target, str) or not options.target.endswith(".npy"):
        raise Misuse(f"'{path}' holds inputs alone: write target='y.npy', the file of their targets beside it")
    labels = path.parent / options.target
    if not labels.is_file():
        raise Misuse(f"no file '{labels}' of the targets of '{path}': write target='y.npy', a file beside it")
    with naming(path):
        return RawData({"all": checked_part(x, open_array(labels, "y").array("y"), "x")})


def checked_part(x: Any, y: Any, name: str) -> RawPart:
    """Check inputs (N, ...), an array or rows in files, and targets (N,) or (N, K); refuse unequal lengths."""
    inputs = checked_array(x, name)
    if not inputs.size:
        raise Misuse(f"{name} has the shape {inputs.shape}: expected at least one row and one value a row")
    if y is None:
        return RawPart(inputs)
    targets = as_array(y)
    count = len(inputs)
    if targets.ndim not in (1, 2) or targets.dtype.kind not in "iufbUO":
        problem = f"targets have type {targets.dtype} and shape {targets.shape}"
        raise Misuse(f"{problem}: expected ({count},) labels or numbers, or ({count}, K) numbers")
    if len(targets) != count:
        raise Misuse(f"{name} has {count} rows but its targets have {len(targets)}: expected equal numbers")
    return RawPart(inputs, targets)


def is_array(source: Any) -> bool:
    """Return whether an object is a tensor or array of inputs."""
    return isinstance(source, torch.Tensor | np.ndarray)


def is_pair(source: Any) -> bool:
    """Return whether an object is a pair (inputs, targets); two numbers are not."""
    return isinstance(source, tuple | list) and len(source) == 2 and not all(map(np.isscalar, source))


def are_pairs(source: Any) -> bool:
    """Return whether an object is two or three pairs (x, y): the parts of a data set."""
    are_several = isinstance(source, tuple | list) and len(source) in (2, 3)
    return are_several and all(is_pair(part) and not isinstance(part[1], tuple | list | dict) for part in source)


def load_pairs(source: Any, options: LoadOptions) -> RawData:
    """Load three pairs (x, y): those that train, validate and test."""
    if len(source) == 2:
        raise Misuse("two pairs (x, y): whether the second validates or tests is not known; give it as val= or test=")
    loaded = [load_pair(pair, options) for pair in source]
    parts = {name: raw.parts["all"] for name, raw in zip(("train", "val", "test"), loaded, strict=True)}
    return replace(loaded[0], parts=parts)


def load_pair(source: Any, options: LoadOptions) -> RawData:
    """Load a pair (x, y) of tensors, arrays, or a pandas table and its targets."""
    if options.drop and not is_table(source[0]):
        raise Misuse(f"drop={options.drop[0]!r} names a column, and x is not a table: leave it out")
    x, y = source[0], source[1] if options.labelled else None
    if isinstance(x, torch.utils.data.Dataset | torch.utils.data.DataLoader):
        write = "give (train, val) data sets, or the other as val= or test="
        raise Misuse(f"a data set beside a {type(y).__name__}: {write}")
    if (inputs := several_inputs(x)) is not None:
        parts = [checked_part(values, y, f"x[{name}]") for name, values in inputs.arrays.items()]
        return RawData({"all": RawPart(inputs, parts[0].targets)})
    if not is_table(x):
        return RawData({"all": checked_part(x, y, "x")})
    if y is None:
        return table_raw(x, options)
    name = str(getattr(y, "name", None) or "y")
    if name in x.columns:
        raise Misuse(f"the targets are named '{name}' like a column of x: give the table alone with target={name!r}")
    if len(targets := as_array(y)) != len(x):
        raise Misuse(f"x has {len(x)} rows but its targets have {len(targets)}: expected equal numbers")
    if is_permuted(getattr(y, "index", None), x.index):
        advice = "write y.loc[x.index] if it says which belong together"
        warn(f"the targets have the index of x in another order, and are taken by position: {advice}")
    return table_raw(x.assign(**{name: targets}), replace(options, target=name))


def is_permuted(index: Any, other: Any) -> bool:
    """Return whether two pandas indices hold the same labels, each once, in another order."""
    if not hasattr(index, "is_unique") or len(index) != len(other) or index.equals(other):
        return False
    return bool(index.is_unique and other.is_unique and index.isin(other).all())


def load_array(source: Any, options: LoadOptions) -> RawData:
    """Load inputs without targets, for prediction only."""
    if options.labelled:
        raise Misuse(f"one array of shape {tuple(source.shape)}: expected a pair (x, y) of inputs and targets")
    return RawData({"all": checked_part(source, None, "x")})
