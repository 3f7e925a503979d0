"""Arrays: `.npz` files and tensors in memory."""

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.data.preparation import checked_array
from murmuration.data.raw import LoadOptions, RawData, RawPart, as_array, is_table, several_inputs
from murmuration.data.tables import load_frame
from murmuration.errors import Failure, Misuse, first_line, listed


def load_npz(path: Path, options: LoadOptions) -> RawData:
    """The arrays `x`, `y` of a file, or `x_train`, `y_train`, `x_test` ... of one with parts."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise Misuse(f"'{path}' holds a single array: expected an npz archive with x and y")
        with found as archive:
            parts = npz_parts(archive, path, options.labelled)
            classes = npz_classes(archive, parts, path) if options.labelled else None
            return RawData(parts, None if classes is None else "classification", classes)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise Failure(f"cannot read '{path}': {first_line(error)}") from None
    except ValueError as error:
        if isinstance(error, Misuse):
            raise
        raise Failure(f"'{path}' is not an npz archive of arrays: {first_line(error)}") from None


def npz_parts(archive: Any, path: Path, labelled: bool) -> dict[str, RawPart]:
    """The parts of an open archive."""
    found = {part: f"_{part}" for part in ("train", "val", "test") if f"x_{part}" in archive.files}
    if "x" in archive.files and found:
        raise Misuse(f"'{path}' holds x and also {listed('x' + s for s in found.values())}: expected one or the other")
    suffixes = {"all": ""} if "x" in archive.files else found
    if not suffixes:
        raise Misuse(f"'{path}' has no array x (or x_train): found {listed(archive.files) or 'nothing'}")
    return {part: npz_part(archive, suffix, path, labelled) for part, suffix in suffixes.items()}


def npz_classes(archive: Any, parts: dict[str, RawPart], path: Path) -> tuple[str, ...] | None:
    """The names `classes` of whole-number labels, where the archive has them."""
    labels = [part.targets for part in parts.values() if part.targets is not None]
    if "classes" not in archive.files or any(each.dtype.kind not in "iu" or each.ndim > 1 for each in labels):
        return None
    names, highest = tuple(map(str, read_array(archive, "classes", path))), max(int(each.max()) for each in labels)
    if highest >= len(names):
        raise Misuse(f"'{path}' has the label {highest} and {len(names)} classes: expected a name for every label")
    return names


def npz_part(archive: Any, suffix: str, path: Path, labelled: bool) -> RawPart:
    """The arrays x and y with one suffix."""
    if not labelled:
        return checked_part(read_array(archive, f"x{suffix}", path), None, f"x{suffix}")
    if f"y{suffix}" not in archive.files:
        raise Misuse(f"'{path}' has no array y{suffix}: found {listed(archive.files)}")
    x, y = (read_array(archive, name + suffix, path) for name in "xy")
    return checked_part(x, y, f"x{suffix}")


def read_array(archive: Any, name: str, path: Path) -> np.ndarray:
    """One array of an archive; arrays of Python objects would have to be unpickled and are refused."""
    try:
        return archive[name]
    except ValueError as error:
        if "pickle" not in str(error).lower():
            raise
        raise Misuse(f"{name} in '{path}' holds Python objects: expected numbers or texts") from None


def checked_part(x: Any, y: Any, name: str) -> RawPart:
    """Inputs (N, ...) and targets (N,) or (N, K) as arrays of equal length."""
    inputs = checked_array(x, name)
    if not inputs.size:
        raise Misuse(f"{name} has the shape {inputs.shape}: expected at least one row and one value a row")
    if y is None:
        return RawPart(inputs)
    targets = as_array(y)
    if targets.ndim not in (1, 2) or targets.dtype.kind not in "iufbUO":
        raise Misuse(
            f"targets have type {targets.dtype} and shape {targets.shape}: expected ({len(inputs)},)"
            f" labels or numbers, or ({len(inputs)}, K) numbers"
        )
    if len(targets) != len(inputs):
        raise Misuse(f"{name} has {len(inputs)} rows but its targets have {len(targets)}: expected equal numbers")
    return RawPart(inputs, targets)


def is_array(source: Any) -> bool:
    """Whether an object is a tensor or array of inputs."""
    return isinstance(source, torch.Tensor | np.ndarray)


def is_pair(source: Any) -> bool:
    """Whether an object is a pair (inputs, targets); two numbers are not."""
    return isinstance(source, tuple | list) and len(source) == 2 and not all(map(np.isscalar, source))


def are_pairs(source: Any) -> bool:
    """Whether an object is two or three pairs (x, y): the parts of a data set."""
    if not isinstance(source, tuple | list) or len(source) not in (2, 3):
        return False
    return all(is_pair(each) and not isinstance(each[1], tuple | list | dict) for each in source)


def load_pairs(source: Any, options: LoadOptions) -> RawData:
    """Three pairs (x, y): those that train, validate and test."""
    if len(source) == 2:
        raise Misuse("two pairs (x, y): whether the second validates or tests is not known; give it as val= or test=")
    parts = dict(zip(("train", "val", "test"), source, strict=True))
    loaded = {name: load_pair(pair, options) for name, pair in parts.items()}
    return replace(loaded["train"], parts={name: raw.parts["all"] for name, raw in loaded.items()})


def load_pair(source: Any, options: LoadOptions) -> RawData:
    """A pair (x, y) of tensors, arrays, or a pandas table and its targets."""
    if options.drop and not is_table(source[0]):
        raise Misuse(f"drop={options.drop[0]!r} names a column, and x is not a table: leave it out")
    x, y = source[0], source[1] if options.labelled else None
    if isinstance(x, torch.utils.data.Dataset | torch.utils.data.DataLoader):
        raise Misuse(
            f"a data set beside a {type(y).__name__}: give (train, val) data sets, or the other as val= or test="
        )
    several = several_inputs(x)
    if several is not None:
        parts = {name: checked_part(values, y, f"x[{name}]") for name, values in several.arrays.items()}
        return RawData({"all": RawPart(several, next(iter(parts.values())).targets)})
    if not is_table(x):
        return RawData({"all": checked_part(x, y, "x")})
    named = "".join(map(str, [getattr(y, "name", None) or "y"]))
    if y is None:
        return load_frame(x, options)
    if named in x.columns:
        raise Misuse(f"the targets are named '{named}' like a column of x: give the table alone with target={named!r}")
    return load_frame(x.assign(**{named: as_array(y)}), replace(options, target=named))


def load_array(source: Any, options: LoadOptions) -> RawData:
    """Inputs without targets, for prediction only."""
    if options.labelled:
        raise Misuse(f"one array of shape {tuple(source.shape)}: expected a pair (x, y) of inputs and targets")
    return RawData({"all": checked_part(source, None, "x")})
