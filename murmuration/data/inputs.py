"""Inputs and labelled examples for networks that are trained already: other sources with the preparation of a run."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from murmuration.data.arrays import checked_part, is_array
from murmuration.data.columns import find_column, to_texts
from murmuration.data.dataset import Data, Split
from murmuration.data.file_rows import FileRows, joined_rows
from murmuration.data.formats import TABLE_FILES, format_of, load_source, resolve
from murmuration.data.images import adaptation, image_files, is_image_file, is_image_list
from murmuration.data.numpy_arrays import as_array, dense, unmasked
from murmuration.data.options import Task
from murmuration.data.parquet import FileTable
from murmuration.data.preparation import (
    ImagePreparation,
    Preparation,
    SeveralPreparation,
    TablePreparation,
    TokenPreparation,
    before_features,
)
from murmuration.data.raw import Keys, LoadOptions, RawData, is_series, is_table, join_keys, require_shape
from murmuration.data.streamed import Streamed, as_given, is_reordered, is_streamable, stream_part, streamed_rows
from murmuration.data.table_files import is_text_file, read_cells
from murmuration.data.targets import Target
from murmuration.system.errors import Misuse, described, listed


def input_dtype(preparation: Preparation | None) -> torch.dtype:
    """Return the type of prepared inputs: int64 for tokens, else float32."""
    return torch.int64 if isinstance(preparation, TokenPreparation) else torch.float32


class KeyedInputs(NamedTuple):
    """Prepared inputs, what their rows are called, and what the preparation filled in.

    Attributes:
        x: Prepared inputs (N, ...).
        keys: Names (N,) of the rows: `index` of a table, `file` of images, columns to keep.
        imputed: Missing values (N,) of every row that prepared inputs do not show; None: none.
    """

    x: Tensor
    keys: Keys = MappingProxyType({})
    imputed: np.ndarray | None = None


def prepare_inputs(
    source: Any,
    preparation: Preparation | None,
    *,
    shape: tuple[int, ...] | None = None,
    in_memory: bool | None = None,
    keep: Sequence[str] = (),
) -> KeyedInputs:
    """Open inputs of any kind and prepare them as the networks of a run take them.

    Args:
        source: An array, tensor, pandas table, path, list of image files, torch dataset or loader, split of a `Data`,
            or a `Data`, which stands for its test split.
        preparation: Preparation of the run; None takes inputs as they are.
        shape: Expected shape of one input without a preparation; None accepts any.
        in_memory: As for `open_data`, for files and arrays.
        keep: Columns of a table that become keys.

    Returns:
        Prepared inputs (N, ...) with their keys.

    Raises:
        Misuse: If the inputs are of another kind or shape than those of training.
    """
    if isinstance(source, Data):
        source = source.test
    if keep and not isinstance(preparation, TablePreparation):
        raise Misuse(f"keep={keep[0]!r} names a column of a table, and this run was trained on other inputs")
    if isinstance(source, Streamed) and preparation is not None:
        return KeyedInputs(source.prepared(preparation))  # type: ignore[arg-type]
    if is_streamable(source):
        return KeyedInputs(_open_stream(source, preparation))
    if isinstance(source, Split):
        if preparation is None:
            return KeyedInputs(check_prepared(source.prepared, None, shape), source.keys)
        if isinstance(source.x, Streamed) and source.x.preparation == preparation:
            return KeyedInputs(source.prepared, source.keys)
        if source.x is None:
            raise Misuse("the split holds prepared inputs only: write predict(split.prepared, prepared=True)")
        opened = prepare_inputs(source.x, preparation, keep=keep)
        return opened._replace(keys={**source.keys, **{name: opened.keys[name] for name in keep}})
    if preparation is None:
        return KeyedInputs(check_prepared(_as_arrays(source, labelled=False)[0], None, shape))
    if isinstance(preparation, SeveralPreparation):  # a tuple of two arrays is not a pair (x, y) here
        return KeyedInputs(preparation.apply(source))
    if isinstance(source, list) and not is_image_list(source):
        source = as_array(source)
    if is_series(source):
        if isinstance(preparation, TablePreparation) or preparation.shape != (1,):
            raise Misuse("one row as a pandas Series: write frame.iloc[[0]], a table of one row")
        source = source.to_numpy()
    return open_keyed_inputs(source, preparation=preparation, in_memory=in_memory, keep=keep)


def _open_stream(source: Any, preparation: Preparation | None, ordered: bool = True) -> Tensor:
    """Return the inputs of a torch dataset or data loader, read when needed; refuse a loader in another order."""
    if ordered and isinstance(source, DataLoader) and is_reordered(source):
        write = "write shuffle=False to keep the order of predictions"
        raise Misuse(f"a DataLoader with shuffle=True or a sampler: {write}")
    if preparation is not None:
        return open_keyed_inputs(source, preparation=preparation).x
    inputs = stream_part(source, LoadOptions(labelled=False)).inputs
    return inputs.prepared(as_given(inputs, None))


def _as_arrays(source: Any, labelled: bool) -> tuple[Any, Any]:
    """Return the inputs and targets of a file as they are stored; anything else is inputs."""
    if not isinstance(source, str | Path):
        return source, None
    _, raw = load_source(source, LoadOptions(labelled=labelled, in_memory=True))
    part = raw.test_parts()[0]
    if not isinstance(part.inputs, np.ndarray):
        raise Misuse(f"{source} holds no array of inputs, and these networks have no preparation: give a .npz file")
    return part.inputs, raw.checked_targets(part) if labelled else None


def check_prepared(x: Any, preparation: Preparation | None, shape: tuple[int, ...] | None) -> Tensor:
    """Check prepared inputs (N, ...) and convert them to the type that networks take.

    Args:
        x: A tensor or array.
        preparation: Preparation of the run; without one, inputs keep their type.
        shape: Expected shape of one input; None accepts any.

    Returns:
        The inputs (N, ...).

    Raises:
        Misuse: If they are not numbers, not finite, of another shape, or not token indices where those are expected.
    """
    if isinstance(x, Streamed):
        return x  # type: ignore[return-value]  # reads like a tensor
    x = dense(x) if isinstance(x, Tensor) else unmasked(x)
    try:
        inputs = torch.as_tensor(x)
    except (TypeError, ValueError, LookupError, RuntimeError):  # torch raises any of them
        raise Misuse(f"inputs of type {type(x).__name__}: expected a tensor or array (N, ...) of numbers") from None
    if not inputs.ndim:
        raise Misuse(f"one number, {inputs.item()}: expected inputs (N, ...)")
    if not inputs.is_floating_point() and inputs.dtype not in (torch.int64, torch.int32):
        expected = "floating-point numbers, or int64 for tokens"
        raise Misuse(f"inputs of type {str(inputs.dtype).removeprefix('torch.')}: expected {expected}; write x.float()")
    dtype = input_dtype(preparation)
    if inputs.is_floating_point() and not dtype.is_floating_point:
        raise Misuse(f"prepared inputs of type {inputs.dtype} for a run trained on tokens: expected whole numbers")
    inputs = inputs if preparation is None else inputs.to(dtype)
    if inputs.is_floating_point() and not (math.isfinite(inputs.sum()) or inputs.isfinite().all()):
        raise Misuse("the inputs hold NaN or infinite values: expected finite numbers")
    if shape is not None:
        require_shape(inputs, shape)
    return inputs


def open_labelled(
    source: Any,
    preparation: Preparation | None,
    *,
    task: Task,
    classes: tuple[str, ...] = (),
    target: Target = None,
    shape: tuple[int, ...] | None = None,
) -> Split:
    """Open labelled examples as a split with the preparation and classes of a run.

    Args:
        source: A split, a pair (x, y), a table with its target, a path, or a `Data`, which stands for its test split.
        preparation: Preparation of the run; None takes inputs as they are and labels as class indices.
        task: "classification", "multi-label" or "regression".
        classes: Names of the classes, with a preparation.
        target: Target column or columns of a table.
        shape: Expected shape of one input without a preparation; None accepts any.

    Returns:
        A split with prepared inputs.

    Raises:
        Misuse: If inputs or labels are not as the run expects them.
    """
    if isinstance(source, Data):
        source = source.test
    if isinstance(source, Split):
        return replace(source, prepared=prepare_inputs(source, preparation, shape=shape).x)
    if preparation is not None:
        return open_split(source, preparation=preparation, target=target, task=task, classes=classes)
    if is_streamable(source):
        part = stream_part(source, LoadOptions())
        return Split(part.inputs, _plain_targets(part.targets, task), _open_stream(source, None, ordered=False))
    source = _as_arrays(source, labelled=True) if isinstance(source, str | Path) else source
    if not isinstance(source, list | tuple) or len(source) != 2:
        raise Misuse(f"labelled examples are {described(source)}: expected a pair (x, y) of inputs and labels")
    x, y = source
    inputs, targets = check_prepared(x, None, shape), _plain_targets(y, task)
    if len(inputs) != len(targets):
        raise Misuse(f"x has {len(inputs)} rows but its targets have {len(targets)}: expected equal numbers")
    return Split(inputs, targets)


def _plain_targets(y: Any, task: str) -> Tensor:
    """Return labels (N,), or targets (N, K) in double precision, for networks trained elsewhere."""
    targets = torch.as_tensor(as_array(y))
    if task != "classification":
        return (targets[:, None] if targets.ndim == 1 else targets).double()
    if targets.is_floating_point() or targets.ndim != 1:
        layout = f"{targets.dtype} of shape {tuple(targets.shape)}"
        raise Misuse(f"labels are {layout}: expected whole numbers (N,), the places of the classes in the outputs")
    return targets.long()


# Another source with the preparation of an earlier run


def open_split(
    source: Any, *, preparation: Preparation, task: Task, classes: tuple[str, ...], target: Target = None, seed: int = 0
) -> Split:
    """Open the test part of a source, or all its rows if it has none, with the preparation of an earlier run.

    Args:
        source: As for `open_data`.
        preparation: Preparation of the earlier run.
        task: Its task.
        classes: Its class names.
        target: Target columns of a table; by default those of the earlier run.
        seed: Seed of toy data.

    Returns:
        Prepared examples with labels that index `classes`.

    Raises:
        Misuse: If the source has other columns, shapes or classes than the run was trained on.
    """
    if isinstance(source, Data):
        if source.classes != tuple(classes):
            raise Misuse(f"Data '{source.name}' has the classes {listed(source.classes)}: expected {listed(classes)}")
        if source.preparation == preparation:
            return source.test
        return replace(source.test, prepared=open_inputs(source, preparation=preparation))
    if target is None and isinstance(preparation, TablePreparation):
        target = (preparation.targets or None) if format_of(resolve(source)).takes_target else None
    _, raw = load_source(source, LoadOptions(target, seed, **as_trained(preparation)))
    parts, prepared = raw.test_parts(), prepare_parts(raw, preparation)
    ys = torch.cat([raw.encode(part, task, classes) for part in parts])
    x = prepared if isinstance(prepared, Streamed) else join_inputs([part.inputs for part in parts])
    return Split(x, ys, prepared, keys=join_keys([part.keys for part in parts]))


def open_inputs(source: Any, *, preparation: Preparation, seed: int = 0, adapt: bool = False) -> Tensor:
    """Open inputs without targets, with the preparation of an earlier run.

    Args:
        source: As for `open_data`; also a table without its target, an .npz without y, a flat folder of images (in the
            order of their paths), a list of images, or a tensor or array.
        preparation: Preparation of the earlier run.
        seed: Seed of toy data.
        adapt: Whether images of other sizes and colours are resized and recoloured to fit, see `adaptation`.

    Returns:
        Prepared inputs (N, ...) of the test part, or of all rows if there is none.
    """
    return open_keyed_inputs(source, preparation=preparation, seed=seed, adapt=adapt).x


def open_keyed_inputs(
    source: Any,
    *,
    preparation: Preparation,
    seed: int = 0,
    adapt: bool = False,
    in_memory: bool | None = None,
    keep: Sequence[str] = (),
) -> KeyedInputs:
    """Open inputs as `open_inputs` does, and return them with the names of their rows.

    Args:
        source: As for `open_inputs`.
        preparation: Preparation of the earlier run.
        seed: Seed of toy data.
        adapt: As for `open_inputs`.
        in_memory: As for `open_data`: False reads and prepares rows when they are needed, None those of large files.
        keep: Columns of a table that become keys.

    Returns:
        Prepared inputs (N, ...) with their keys.
    """
    first: Any = before_features(preparation)
    adapt = adapt and isinstance(first, ImagePreparation)
    if isinstance(source, Data):
        split, own = source.test, source.preparation
        if adapt and isinstance(own, ImagePreparation) and own.shape != first.shape:
            pixels = own.pixels_of(split.prepared).transpose(0, 3, 1, 2)  # in 256 levels, as they will be rounded
            return KeyedInputs(prepare_raw(pixels, 255.0, preparation, adapt), split.keys)
        if own == preparation:
            return KeyedInputs(split.prepared, split.keys)
        source = split.x
    if isinstance(source, FileRows):
        return KeyedInputs(prepare_raw(source, None, preparation))
    if is_array(source) and not adapt and in_memory is not False:  # fast for one input: no table of formats
        return KeyedInputs(prepare_raw(checked_part(source, None, "x").inputs, None, preparation))
    if isinstance(first, TablePreparation) and isinstance(source, str | Path) and holds_images(Path(source)):
        raise Misuse(f"'{source}' holds images, and this run was trained on a table: expected {TABLE_FILES}")
    size = {"size": first.shape[1:]} if adapt else as_trained(preparation)
    _, raw = load_source(source, LoadOptions(None, seed, labelled=False, in_memory=in_memory, **size))
    x, parts = prepare_parts(raw, preparation, adapt), raw.test_parts()
    keys, tables = join_keys([part.keys for part in parts]), [part.inputs for part in parts]
    if not isinstance(preparation, TablePreparation):
        return KeyedInputs(x, keys)
    columns = {name: np.concatenate([key_column(find_column(table, name)) for table in tables]) for name in keep}
    if keep and is_text_file(path := resolve(source)):
        cells = read_cells(path, keep)
        columns = {name: as_written(values, cells[name].to_numpy(dtype=str)) for name, values in columns.items()}
    return KeyedInputs(x, {**keys, **columns}, np.concatenate([preparation.imputed(table) for table in tables]))


def holds_images(path: Path) -> bool:
    """Return whether a path is an image file, or a folder with one at any depth."""
    return is_image_file(path) if path.is_file() else path.is_dir() and bool(image_files(path))


def key_column(values: Any) -> np.ndarray:
    """Return a pandas column as keys (N,): whole numbers, or texts, which are empty where missing."""
    if values.dtype.kind in "iu":
        return values.to_numpy()
    return np.array(["" if text is None else text for text in to_texts(values).tolist()], dtype=str)


def as_written(values: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the cells (N,) of a column as texts, or its values if they are whole numbers written as such."""
    return values if values.dtype.kind in "iu" and (values.astype(str) == cells).all() else cells


def as_trained(preparation: Preparation | None) -> dict[str, Any]:
    """Return the load options that read columns and resize image files as in training, or refuse other sizes."""
    first = None if preparation is None else before_features(preparation)
    if isinstance(first, TablePreparation):
        return {"as_text": first.text_columns, "target_forms": first.forms_of_targets, "mixed_sizes": False}
    if isinstance(first, ImagePreparation) and first.resized:
        return {"size": first.shape[1:]}
    return {"mixed_sizes": False}


def join_inputs(parts: list[Any]) -> Any:
    """Concatenate the rows of arrays or tables."""
    if is_table(parts[0]) and len(parts) > 1:
        import pandas as pd

        return pd.concat(parts)
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def prepare_parts(raw: RawData, preparation: Preparation, adapt: bool = False) -> Any:
    """Prepare inputs (N, ...) to evaluate on as in an earlier run; those of a dataset are prepared when they are read.

    With `adapt`, images of other sizes and colours are made to fit.
    """
    inputs = [part.inputs for part in raw.test_parts()]
    prepare = partial(prepare_raw, peak=raw.peak, preparation=preparation, adapt=adapt)
    if isinstance(inputs[0], FileRows):
        return prepare(joined_rows(inputs))
    if isinstance(inputs[0], Streamed) and not adapt:
        return inputs[0].prepared(preparation, prepare)
    if isinstance(inputs[0], FileTable) and not adapt:
        return streamed_rows(inputs[0]).prepared(preparation)
    return torch.cat([prepare(x) for x in inputs])


def prepare_raw(inputs: Any, peak: float | None, preparation: Preparation, adapt: bool = False) -> Tensor:
    """Prepare inputs (N, ...) as in an earlier run; rows in files are prepared when they are read.

    Images whose white is known to differ from training's (uint8 in a file, floats in 0..1) are rescaled. With `adapt`,
    images of other sizes and colours are made to fit.
    """
    first = before_features(preparation)
    apply: Callable[..., Tensor] = preparation.apply
    if adapt and isinstance(first, ImagePreparation):
        apply = adaptation(inputs, peak, preparation)
    elif isinstance(first, ImagePreparation):
        if is_table(inputs):
            raise Misuse(f"a table for a run trained on images: expected images of shape {first.shape}")
        apply = partial(preparation.apply, peak=first.white_of(inputs, peak))  # type: ignore[call-arg]
    if isinstance(inputs, FileRows):
        return streamed_rows(inputs).prepared(preparation, apply)  # type: ignore[return-value]
    return apply(inputs)


def visible_inputs(split: Split, preparation: Preparation, rows: Any) -> tuple[Preparation, Tensor]:
    """Return the preparation of inputs that a reader can see (images, not features) and such inputs of `rows`."""
    if (first := before_features(preparation)) is preparation:
        return preparation, split.prepared[rows]
    return first, prepare_raw(split.x.iloc[rows] if is_table(split.x) else split.x[rows], None, first)
