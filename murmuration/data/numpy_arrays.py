"""Numpy arrays of what users give: tensors, arrays, nested lists. What numpy would misread is refused."""

from typing import Any

import numpy as np
import torch

from murmuration.system.errors import Misuse


def as_array(values: Any) -> np.ndarray:
    """Return the numpy array of a tensor (detached, on the CPU), an array or nested lists."""
    if isinstance(values, torch.Tensor):
        values = dense(values).detach().cpu()
        return (values.float() if values.dtype is torch.bfloat16 else values).resolve_conj().resolve_neg().numpy()
    plain = unmasked(values)
    try:
        array = np.asarray(plain)
    except ValueError as error:
        raise Misuse(f"examples have different shapes: expected one array of numbers ({error})") from None
    if array.ndim == 1 and array.dtype.kind == "U" and not all(isinstance(value, str) for value in plain):
        return np.array(plain, dtype=object)  # numpy would spell numbers among texts: None stays missing, NaN too
    return array


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """Convert an array of numbers to a tensor, of a type that torch has and computes with."""
    kind = array.dtype.kind
    if (array.dtype.itemsize > 8 and kind == "f") or (kind == "u" and array.dtype.itemsize == 8):
        array = array.astype(np.float64)
    elif kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    array = array.astype(array.dtype.newbyteorder("="), copy=not array.flags.writeable)  # no view of a pandas column
    return torch.as_tensor(array.copy() if any(stride < 0 for stride in array.strides) else array)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor unchanged; refuse a sparse, nested or quantised one, and one without data."""
    kinds = {
        "nested": tensor.is_nested,
        "sparse": tensor.layout is not torch.strided,
        "quantized": tensor.is_quantized,
        "meta": tensor.is_meta,
    }
    if any(kinds.values()):
        kind = next(kind for kind, is_so in kinds.items() if is_so)
        write = "x.to_dense()" if kind == "sparse" else "an array of numbers"
        raise Misuse(f"a {kind} tensor: expected a dense one with data, write {write}")
    return tensor


def unmasked(values: Any) -> Any:
    """Return values unchanged; refuse masked values of an array, or of arrays in a list, which numpy would reveal."""
    parts = values if isinstance(values, list | tuple) else (values,)
    hidden = sum(int(np.ma.count_masked(part)) for part in parts if isinstance(part, np.ma.MaskedArray))
    if hidden:
        write = "fill them, x.filled(0.0), or give a pandas table with NaN for missing values"
        raise Misuse(f"a masked array with {hidden} masked value{'s'[: hidden > 1]}: {write}")
    return values
