"""Targets: what is to be predicted, labels or numbers, and how they become tensors."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from murmuration.data.names import as_text, in_order, is_number, listed
from murmuration.data.records import Task
from murmuration.errors import Misuse

MOST_LEVELS = 20  # more distinct integers than this are quantities


def refuse_missing(targets: np.ndarray, name: str) -> None:
    """Refuse targets (N,) or (N, K) with missing values, saying how many there are and where."""
    if targets.dtype.kind in "iub":
        return
    missing = np.array([value is None or value != value for value in targets.ravel().tolist()], dtype=bool)
    rows = np.flatnonzero(missing.reshape(len(targets), -1).any(axis=1)) if len(targets) else missing
    if len(rows):
        where = listed([str(row + 1) for row in rows], most=5)
        raise Misuse(f"{name} is missing in {len(rows)} of {len(targets)} rows (row {where}): remove them")


def infer_task(targets: np.ndarray, pictures: bool) -> Task:
    """The task that targets (N,) or (N, K) suggest.

    Classification: texts, booleans, and integers with few distinct values L among N rows, namely
    L <= min(20, max(N / 20, 10), N / 2); for pictures any integers. Everything else is regression. Floats
    are numbers even when whole, so a file can say which is meant.
    """
    if targets.ndim == 2 and targets.shape[1] > 1:
        return "regression"
    if targets.dtype.kind in "OUb":
        return "classification"
    if targets.dtype.kind == "f":
        return "regression"
    rows, levels = len(targets), len(np.unique(targets))
    few = levels <= min(MOST_LEVELS, max(rows / 20, 10), rows / 2)
    return "classification" if few or pictures else "regression"


def refuse_free_text(targets: np.ndarray, name: str) -> None:
    """Refuse texts that hardly ever repeat: a stray word in a column of numbers, or an identifier."""
    if targets.dtype.kind not in "OU" or len(targets) < 20:
        return
    texts = [as_text(value) for value in targets.ravel().tolist()]
    levels = sorted(set(texts), key=lambda text: (is_number(text), text))
    if len(levels) > len(texts) / 2:
        raise Misuse(
            f"{name} has {len(levels)} distinct texts in {len(texts)} rows (such as '{levels[0]}'): expected"
            " numbers or labels that repeat; write task='classification' if these are labels"
        )


def label_names(targets: np.ndarray, names: tuple[str, ...] | None) -> tuple[list[str], np.ndarray]:
    """The distinct label names (L,) among targets (N,), and for each target its place (N,) in that list."""
    flat = targets.ravel()
    if len(targets) != len(flat):
        raise Misuse(f"labels of shape {targets.shape}: expected one label a row, ({len(targets)},)")
    if flat.dtype.kind == "O":
        flat = np.array([as_text(value) for value in flat.tolist()], dtype=str)
    levels, places = np.unique(flat, return_inverse=True)
    return [name_of(level, names) for level in levels], places.reshape(-1)


def name_of(level: object, names: tuple[str, ...] | None) -> str:
    """The name of one label: looked up if the source names its classes, else its text."""
    if names is None:
        return as_text(level)
    index = int(level)  # type: ignore[call-overload]
    if not 0 <= index < len(names):
        raise Misuse(f"label {index} has no name: expected 0 to {len(names) - 1}")
    return names[index]


def class_list(parts: Sequence[np.ndarray], names: tuple[str, ...] | None) -> tuple[str, ...]:
    """The classes of a source in the order of their labels; at least two must occur."""
    found = {name for targets in parts for name in label_names(targets, names)[0]}
    if len(found) < 2:
        raise Misuse(f"every row has the label '{found.pop()}': expected at least two classes")
    return names if names is not None else in_order(found)


def encode_labels(targets: np.ndarray, names: tuple[str, ...] | None, classes: tuple[str, ...]) -> Tensor:
    """Label indices (N,) int64 of targets (N,) among `classes`."""
    levels, places = label_names(targets, names)
    index = {name: i for i, name in enumerate(classes)}
    for k, name in enumerate(levels):
        if name not in index:
            row = int((places == k).argmax()) + 1
            raise Misuse(f"label '{name}' (row {row}) is not among the classes: expected {listed(classes)}")
    table = np.array([index[name] for name in levels], dtype=np.int64)
    return torch.from_numpy(table[places])


def encode_numbers(targets: np.ndarray, name: str) -> Tensor:
    """Targets (N, K) float32 in their own units, from numbers (N,) or (N, K)."""
    if targets.dtype.kind not in "iufb":
        example = next((v for v in targets.ravel().tolist() if not is_number(as_text(v))), None)
        if example is not None:
            raise Misuse(f"{name} holds '{example}': expected numbers for task 'regression'")
    numbers = targets.reshape(len(targets), -1).astype(np.float64)
    bad = ~np.isfinite(numbers).all(axis=1)
    if bad.any():
        raise Misuse(f"{name} is infinite in row {int(bad.argmax()) + 1}: expected finite numbers")
    return torch.from_numpy(numbers.astype(np.float32))


def refuse_constant(targets: Tensor, name: str) -> None:
    """Refuse targets (N, K) one of which never changes: there is no spread to scale by."""
    constant = (targets == targets[:1]).all(0)
    if constant.any():
        value = targets[0, constant.int().argmax()].item()
        raise Misuse(f"{name} is {value:g} in every row: expected a target that varies")
