"""What a loader hands over: examples as they were found, before any preparation."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from murmuration.errors import Misuse

Task = Literal["classification", "regression"]
PARTS = ("all", "train", "val", "test")


@dataclass(frozen=True)
class Part:
    """Examples that belong together: an array (N, ...) or a pandas table, and their targets if any."""

    inputs: Any  # np.ndarray or pandas.DataFrame
    targets: np.ndarray | None = None  # (N,) labels or numbers, or (N, K) numbers

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Raw:
    """One source: a single part `all`, or the parts it came in (`train`, `val`, `test`)."""

    parts: Mapping[str, Part]
    task: Task | None = None  # None: to be inferred from the targets
    names: tuple[str, ...] | None = None  # names[k] is the class that the integer target k means
    features: tuple[str, ...] = ()  # names of the columns of (N, D) inputs
    targets: tuple[str, ...] = ()  # names of a table's target columns
    peak: float | None = None  # the value of a white pixel; None where the source does not say
    as_is: bool = False  # inputs are already in the units a network should see


@dataclass(frozen=True)
class Request:
    """What the caller wants of a source besides its name."""

    target: str | tuple[str, ...] | None = None
    seed: int = 0
    labelled: bool = True  # False: inputs only, targets need not be there
    size: tuple[int, int] | None = None  # (H, W) to which picture files are resized; None: all must have one size


def fields_of(record: dict[str, Any]) -> dict[str, Any]:
    """The fields of a frozen record from its JSON: all but the kind, lists as tuples."""
    return {key: tuple(v) if isinstance(v, list) else v for key, v in record.items() if key != "kind"}


def is_table(inputs: Any) -> bool:
    """Whether inputs are a pandas table (asked without importing pandas)."""
    return hasattr(inputs, "columns") and hasattr(inputs, "iloc")


def as_array(values: Any) -> np.ndarray:
    """The numpy array of a tensor, an array or a nest of lists; tensors come detached, on the CPU."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype is torch.bfloat16 else values).numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise Misuse(f"examples have different shapes: expected one array of numbers ({error})") from None


def take(inputs: Any, rows: np.ndarray) -> Any:
    """The chosen rows of an array or a table, in the order asked for."""
    return inputs.iloc[rows] if is_table(inputs) else inputs[rows]


def refuse_nonfinite(values: np.ndarray, name: str) -> None:
    """Refuse the first NaN or infinity of an array (N, ...), with its position."""
    if values.dtype.kind != "f":
        return
    bad = ~np.isfinite(values)
    if bad.any():
        position = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), values.shape))
        where = ", ".join(map(str, position))
        raise Misuse(f"{name}[{where}] is {values[position]} ({int(bad.sum())} such values): expected finite numbers")


def fingerprint(raw: Raw) -> str:
    """The sha256 (hex) of all inputs and targets, with types and shapes, in the order of PARTS.

    A table counts by the values of its columns, so the same table as CSV and as parquet has one fingerprint.
    """
    digest = hashlib.sha256()
    for name in PARTS:
        if name in raw.parts:
            part = raw.parts[name]
            digest.update(name.encode())
            hash_inputs(digest, part.inputs)
            if part.targets is not None:
                hash_array(digest, part.targets)
    return digest.hexdigest()


def hash_inputs(digest: Any, inputs: Any) -> None:
    """Feed an array or a table, column by column, to the digest."""
    if not is_table(inputs):
        return hash_array(digest, inputs)
    from murmuration.data.columns import column_values

    for name in inputs.columns:
        digest.update(json.dumps(str(name)).encode())
        hash_array(digest, column_values(inputs[name]))


def hash_array(digest: Any, values: np.ndarray) -> None:
    """Feed type, shape and bytes of one array to the digest; texts go in as JSON."""
    if values.dtype.kind in "OU":
        texts = [None if value is None else str(value) for value in values.ravel().tolist()]
        digest.update(f"text{values.shape}{json.dumps(texts)}".encode())
        return
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    digest.update(f"{little.dtype.str}{little.shape}".encode())
    digest.update(little.reshape(-1).view(np.uint8).data)
