"""Inputs and labelled examples for networks that are trained already, from whatever `predict` and `evaluate` take."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from murmuration.data.dataset import Data, Split, open_keyed_inputs, open_split
from murmuration.data.images import is_image_list
from murmuration.data.preparation import Preparation, SeveralPreparation, TablePreparation, TokenPreparation
from murmuration.data.raw import Keys, LoadOptions, as_array, is_series, require_shape
from murmuration.data.streamed import Streamed, as_given, is_reordered, is_streamable, stream_part
from murmuration.data.targets import Task
from murmuration.system.errors import Misuse


def input_dtype(preparation: Preparation | None) -> torch.dtype:
    """Return the type of prepared inputs: int64 for tokens, else float32."""
    return torch.int64 if isinstance(preparation, TokenPreparation) else torch.float32


def prepare_inputs(
    source: Any, preparation: Preparation | None, *, shape: tuple[int, ...] | None = None, in_memory: bool | None = None
) -> tuple[Tensor, Keys]:
    """Open inputs of any kind and prepare them as the networks of a run take them.

    Args:
        source: An array, tensor, pandas table, path, list of image files, torch dataset or loader, split of a `Data`,
            or a `Data`, which stands for its test split.
        preparation: Preparation of the run; None takes inputs as they are.
        shape: Expected shape of one input without a preparation; None accepts any.
        in_memory: As for `open_data`, for files and arrays.

    Returns:
        Prepared inputs (N, ...), and their keys: `index` of a table, `file` of images, or none.

    Raises:
        Misuse: If the inputs are of another kind or shape than those of training.
    """
    if isinstance(source, Data):
        source = source.test
    if isinstance(source, Streamed) and preparation is not None:
        return source.prepared(preparation), {}  # type: ignore[return-value]
    if is_streamable(source):
        return _open_stream(source, preparation), {}
    if isinstance(source, Split):
        if preparation is None:
            return check_prepared(source.prepared, None, shape), source.keys
        if isinstance(source.x, Streamed) and source.x.preparation == preparation:
            return source.prepared, source.keys
        if source.x is None:
            raise Misuse("the split holds prepared inputs only: write predict(split.prepared, prepared=True)")
        return prepare_inputs(source.x, preparation)[0], source.keys
    if preparation is None:
        return check_prepared(source, None, shape), {}
    if isinstance(preparation, SeveralPreparation):  # a tuple of two arrays is not a pair (x, y) here
        return preparation.apply(source), {}
    if isinstance(source, list) and not is_image_list(source):
        source = np.asarray(source)
    if is_series(source):
        if isinstance(preparation, TablePreparation) or preparation.shape != (1,):
            raise Misuse("one row as a pandas Series: write frame.iloc[[0]], a table of one row")
        source = source.to_numpy()
    return open_keyed_inputs(source, preparation=preparation, in_memory=in_memory)


def _open_stream(source: Any, preparation: Preparation | None, ordered: bool = True) -> Tensor:
    """Return the inputs of a torch dataset or data loader, read when needed; refuse a loader in another order."""
    if ordered and isinstance(source, DataLoader) and is_reordered(source):
        write = "write shuffle=False to keep the order of predictions"
        raise Misuse(f"a DataLoader with shuffle=True or a sampler: {write}")
    if preparation is not None:
        return open_keyed_inputs(source, preparation=preparation)[0]
    inputs = stream_part(source, LoadOptions(labelled=False)).inputs
    return inputs.prepared(as_given(inputs, None))


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
    try:
        inputs = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError):  # torch raises any of them
        raise Misuse(f"inputs of type {type(x).__name__}: expected a tensor or array (N, ...) of numbers") from None
    if inputs.is_floating_point() and not (math.isfinite(inputs.sum()) or inputs.isfinite().all()):
        raise Misuse("the inputs hold NaN or infinite values: expected finite numbers")
    if shape is not None:
        require_shape(inputs, shape)
    dtype = input_dtype(preparation)
    if inputs.is_floating_point() and not dtype.is_floating_point:
        raise Misuse(f"prepared inputs of type {inputs.dtype} for a run trained on tokens: expected whole numbers")
    return inputs if preparation is None else inputs.to(dtype)


def open_labelled(
    source: Any,
    preparation: Preparation | None,
    *,
    task: Task,
    classes: tuple[str, ...] = (),
    target: str | tuple[str, ...] | None = None,
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
        return replace(source, prepared=prepare_inputs(source, preparation, shape=shape)[0])
    if preparation is not None:
        return open_split(source, preparation=preparation, target=target, task=task, classes=classes)
    if is_streamable(source):
        part = stream_part(source, LoadOptions())
        return Split(part.inputs, _plain_targets(part.targets, task), _open_stream(source, None, ordered=False))
    x, y = source
    return Split(check_prepared(x, None, shape), _plain_targets(y, task))


def _plain_targets(y: Any, task: str) -> Tensor:
    """Return labels (N,), or targets (N, K) in double precision, for networks trained elsewhere."""
    targets = torch.as_tensor(as_array(y))
    if task != "classification":
        return (targets[:, None] if targets.ndim == 1 else targets).double()
    if targets.is_floating_point() or targets.ndim != 1:
        got = f"{targets.dtype} of shape {tuple(targets.shape)}"
        raise Misuse(f"labels are {got}: expected whole numbers (N,), the places of the classes in the outputs")
    return targets.long()
