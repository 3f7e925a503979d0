"""The data formats: one row of `FORMATS` each.

A new format is a loader `(source, LoadOptions) -> RawData` and a row here. Error messages, `murmur list data` and the
help of the command line are made from this table. Loaders are imported when they are first called, so that the help
does not load torch.
"""

import os.path
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from murmuration.system.errors import Misuse, unknown, warn

if TYPE_CHECKING:
    from murmuration.data.raw import LoadOptions, RawData

Kind = Literal["name", "path", "object"]


@dataclass(frozen=True)
class Format:
    """One kind of data source: how it is written, described, recognised and loaded."""

    usage: str  # how a user writes it
    about: str
    matches: Callable[[Any], bool]
    load: Callable[[Any, "LoadOptions"], "RawData"]
    kind: Kind = "path"  # a text that is not a path, a path, or an object in memory
    takes_target: bool = False  # whether target= names a column
    name: str = ""  # of data that has no name of its own


class Lazy:
    """A module of this package that is imported when one of its functions is first called."""

    def __init__(self, module: str) -> None:
        self.module = f"murmuration.data.{module}"

    def __getattr__(self, function: str) -> Callable[..., Any]:
        if function.startswith("__"):  # what inspection asks any object for
            raise AttributeError(function)
        return lambda *arguments: getattr(import_module(self.module), function)(*arguments)


def has_suffix(*suffixes: str) -> Callable[[Any], bool]:
    """Return a test whether a source is a file with one of these suffixes."""
    return lambda source: isinstance(source, Path) and source.is_file() and source.suffix.lower() in suffixes


def is_hub_name(source: Any) -> bool:
    """Return whether a source is the name of a data set of the Hugging Face hub."""
    return isinstance(source, str) and source.startswith("hf:")


def is_folder(test: Callable[[Path], bool] = lambda folder: True) -> Callable[[Any], bool]:
    """Return a test whether a source is a folder that passes `test`."""
    return lambda source: isinstance(source, Path) and source.is_dir() and test(source)


HUB = "a data set of the Hugging Face hub (needs the extra hf)"
TABLE_FILES = "FILE.csv, FILE.tsv, FILE.xlsx or FILE.parquet"
TABLE = "a table, .csv and .tsv also as .gz; the target is the name of a column"
NPY = "an array of inputs; the target is the .npy file of the targets beside it"
CIFAR = "CIFAR-10 (data_batch_1.bin, ...) or CIFAR-100 (train.bin, test.bin)"
IDX = "MNIST, Fashion-MNIST: train-images-idx3-ubyte, ..., also as .gz"
CLASSES = "one folder per class, or such folders below train/, val/ and test/"
PANDAS = "target= names the column(s) to predict"
IMAGES = "paths of image files or PIL images, for prediction"
STREAMS = "pairs (x, y), read when they are needed; also (train, val) or (train, val, test)"
builtin, hub, raw, tables, streamed = map(Lazy, ("builtin", "hub", "raw", "tables", "streamed"))
arrays, images, table_files = map(Lazy, ("arrays", "images", "table_files"))
named, in_memory = partial(Format, kind="name"), partial(Format, kind="object")
with_target, tensors = partial(Format, takes_target=True), partial(in_memory, name="tensors")
FORMATS = (  # the first that matches is used
    named("a built-in name", "a data set that needs no file, such as digits", builtin.is_builtin, builtin.load_builtin),
    named("hf:NAME", HUB, is_hub_name, hub.load_hub, takes_target=True),
    with_target(
        "FILE.csv, FILE.tsv, FILE.xlsx or FILE.parquet", TABLE, table_files.is_table_file, tables.load_table_file
    ),
    Format("FILE.npz", "arrays x and y, or x_train, y_train, ...", has_suffix(".npz"), arrays.load_npz),
    with_target("FILE.npy", NPY, has_suffix(".npy"), arrays.load_npy),
    Format("a folder of CIFAR binaries", CIFAR, is_folder(images.is_cifar_folder), images.load_cifar_folder),
    Format("a folder of idx files", IDX, is_folder(images.is_idx_folder), images.load_idx_folder),
    Format("a folder of class folders of images", CLASSES, is_folder(), images.load_image_folder),
    in_memory("a pandas table", PANDAS, raw.is_table, tables.table_raw, takes_target=True, name="table"),
    tensors("an array", "inputs only, for prediction", arrays.is_array, arrays.load_array),
    in_memory("a list of images", IMAGES, images.is_image_list, images.load_image_list, name="images"),
    in_memory("a torch Dataset or DataLoader", STREAMS, streamed.is_streamable, streamed.load_stream, name="dataset"),
    tensors("three pairs (x, y)", "those that train, validate and test", arrays.are_pairs, arrays.load_pairs),
    tensors("a pair (x, y)", "tensors or arrays of inputs and targets", arrays.is_pair, arrays.load_pair),
)


def format_usage(*kinds: Kind) -> str:
    """Describe in one line how sources of these kinds are written.

    >>> format_usage("name")
    'a built-in name or hf:NAME'
    """
    *most, last = (entry.usage for entry in FORMATS if entry.kind in kinds)
    return f"{', '.join(most)} or {last}"


def resolve(source: Any) -> Any:
    """Convert a string that names an existing path to a Path; return other sources unchanged."""
    if not isinstance(source, str | Path) or any(entry.kind == "name" and entry.matches(source) for entry in FORMATS):
        return source
    path, text = Path(source).expanduser(), str(source)
    if os.path.exists(path):  # False for a name that is too long, of which Path.exists raises an error
        return path
    require_path(source)
    from murmuration.data.builtin import BUILTINS

    raise unknown("data", text, BUILTINS, see="murmur list data")


def require_path(source: str | Path) -> None:
    """Refuse a source that is written as a path and is none; a name is looked up later, where torch is loaded."""
    text, path = str(source), Path(source).expanduser()
    is_path = isinstance(source, Path) or path.suffix or "/" in text or "\\" in text
    if is_path and not is_hub_name(source) and not os.path.exists(path):
        raise Misuse(f"no file or folder '{text}': expected {format_usage('name', 'path')}")


def format_of(source: Any) -> Format:
    """Return the format of a resolved source."""
    for entry in FORMATS:
        if entry.matches(source):
            return entry
    from murmuration.data.images import is_image

    if is_image(source):
        name, write = (f"'{source}'", f"['{source}']") if isinstance(source, Path) else ("a PIL object", "[image]")
        raise Misuse(f"{name} is a single image: give a folder of images, or in Python a list, {write}")
    if isinstance(source, Path):
        raise Misuse(f"'{source}' has the suffix '{source.suffix}': expected {format_usage('path')}")
    if (advice := other_form(source)) is not None:
        raise Misuse(f"a {type(source).__name__} is not data: write {advice}")
    raise Misuse(f"a {type(source).__name__} is not data: expected {format_usage('name', 'path', 'object')}")


def other_form(source: Any) -> str | None:
    """Return what to write for rows or columns in lists and dicts, and for an iterator; None for other objects."""
    first = source[0] if isinstance(source, list) and source else None
    if isinstance(source, dict) or isinstance(first, dict):
        return "pandas.DataFrame(data), or a pair (x, y)"
    if isinstance(first, tuple | list) and len(first) == 2:
        return "a pair of all inputs and all targets, (x, y), or a torch Dataset"
    return "the DataLoader, or a pair (x, y), which can be read again" if hasattr(source, "__next__") else None


def with_roles(raw: "RawData", options: "LoadOptions", name: str) -> "RawData":
    """Add groups, times and weights that were given as arrays (N,) to the raw data."""
    from murmuration.data.numpy_arrays import as_array

    arrays = {role: as_array(v) for role, v in options.roles.items() if v is not None and not isinstance(v, str)}
    named = {role for role, v in options.roles.items() if isinstance(v, str)} if options.labelled else set()
    for role in named - set(raw.parts.get("all", next(iter(raw.parts.values()))).extra):
        raise Misuse(f"{role}='{options.roles[role]}' names a column, but {name} is not a table: give an array (N,)")
    if not arrays:
        return raw
    if "all" not in raw.parts:
        raise Misuse(f"{', '.join(arrays)}= with {name}, which comes in parts: leave it out")
    part = raw.parts["all"]
    for role, values in arrays.items():
        if values.shape != (len(part),):
            raise Misuse(f"{role}= has the shape {values.shape}: expected ({len(part)},), one value a row")
        wrong = role != "groups" and values.dtype.kind not in "iufbmM"
        if wrong or (values.dtype.kind in "fmM" and (values != values).any()):
            raise Misuse(f"{role}= holds {'text' if wrong else 'missing values'}: expected a number in every row")
    return replace(raw, parts={"all": replace(part, extra={**part.extra, **arrays})})


def load_source(source: Any, options: "LoadOptions") -> tuple[str, "RawData"]:
    """Load a source.

    Args:
        source: Anything that `FORMATS` lists.
        options: Arguments of its loader.

    Returns:
        The name of the source and its raw data.

    Raises:
        Misuse: If no format matches, the source has no rows, or an option does not fit its format.
        Failure: For damaged or unreadable files.
    """
    from murmuration.data.raw import is_table

    resolved = resolve(source)
    entry = format_of(resolved)
    name = entry.name or str(source)
    if options.target is not None and not entry.takes_target:
        raise Misuse(f"target='{options.target}' names the column of a table, but {name} is not one: leave it out")
    raw = with_roles(entry.load(resolved, options), options, name)
    for option in ("keep", "text"):
        if getattr(options, option) and not is_table(next(iter(raw.parts.values())).inputs):
            raise Misuse(f"{option}= names columns of a table, but {name} is not one: leave it out")
    for part, rows in raw.parts.items():
        if not len(rows):
            raise Misuse(f"{name} has no rows{'' if part == 'all' else f' in its part {part}'}: expected at least one")
    return name, stream_if_large(raw, options, name, entry.kind)


def stream_if_large(raw: "RawData", options: "LoadOptions", name: str, kind: Kind) -> "RawData":
    """Turn arrays into rows that are prepared when needed, if `in_memory` says so or, with a warning, by their size."""
    import numpy as np

    from murmuration.data.file_rows import STREAMED_BYTES, FileRows, is_streamed, rows_of
    from murmuration.data.parquet import FileTable
    from murmuration.data.raw import is_table

    inputs = [part.inputs for part in raw.parts.values()]
    if options.in_memory is False and any(is_table(values) and not isinstance(values, FileTable) for values in inputs):
        raise Misuse(f"{name} is a table that is read whole: give a .parquet file to read rows when they are needed")
    if options.in_memory is None and kind != "path":
        return raw
    in_arrays = all(isinstance(values, np.ndarray) for values in inputs)
    if in_arrays and is_streamed(options.in_memory, sum(values.size for values in inputs)):
        raw = replace(raw, parts={k: replace(part, inputs=rows_of(part.inputs)) for k, part in raw.parts.items()})
        inputs = [part.inputs for part in raw.parts.values()]
    if options.in_memory is None and isinstance(inputs[0], FileRows | FileTable):
        size, limit = 4 * sum(values.size for values in inputs) / 2**30, f"above {STREAMED_BYTES / 2**30:g} GiB"
        change = f"rows are read and prepared when they are needed, as {limit}; write in_memory=True to hold all"
        warn(f"{name} would take {size:.1f} GiB as prepared inputs: {change}")
    return raw
