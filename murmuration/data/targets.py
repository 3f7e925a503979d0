"""Targets: the task they imply, the spelling and order of class names, and their encoding as tensors."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.data.local_forms import form_of, is_number, plain_text
from murmuration.data.numpy_arrays import as_array, dense, to_tensor
from murmuration.data.options import Task
from murmuration.system.errors import Misuse, listed, warn

Target = str | tuple[str, ...] | None  # one or several columns of a table
LARGEST = float(np.finfo(np.float32).max)  # of inputs and targets: networks compute in single precision
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # which torch cannot compare
NOTED_NUMBERS = 100  # distinct integers: for more, a note that they are quantities would be noise
MIN_REFUSED_CLASSES, ROWS_PER_CLASS = 100, 10  # more classes than either, of numbers, are refused
MOST_LABELS = 20  # more distinct integers than this are a quantity


def as_text(value: Any) -> str:
    """Spell a label or category in the same way whatever type a file stores it as.

    >>> as_text(3.0), as_text(np.int8(3)), as_text(True), as_text("a")
    ('3', '3', 'True', 'a')
    """
    return str(int(value) if (isinstance(value, float | np.floating) and float(value).is_integer()) else value)


def sort_names(names: Iterable[str]) -> tuple[str, ...]:
    """Sort the distinct names, by value if all are numbers, else alphabetically.

    >>> sort_names(["10", "9", "9"]), sort_names(["b", "10", "9"])
    (('9', '10'), ('10', '9', 'b'))
    """
    distinct = sorted(set(names))
    return tuple(sorted(distinct, key=float) if all(map(is_number, distinct)) else distinct)


def refuse_missing(targets: np.ndarray, name: str) -> None:
    """Refuse targets (N,) or (N, K) with missing values; the message counts them and names their rows."""
    if targets.dtype.kind in "iub":
        return
    missing = np.array([value is None or value != value for value in targets.ravel().tolist()], dtype=bool)
    rows = np.flatnonzero(missing.reshape(len(targets), -1).any(axis=1)) if len(targets) else missing
    if len(rows):
        row_list = listed([str(row + 1) for row in rows], most=5)
        raise Misuse(f"{name} is missing in {len(rows)} of {len(targets)} rows (row {row_list}): remove them")


def infer_task(targets: np.ndarray, images: bool, name: str = "target") -> Task:
    """Infer the task from targets (N,) or (N, K); refuse targets that could mean either.

    Classification: strings, booleans, and integers with few distinct values L among N rows, namely
    L <= min(20, max(N / 20, 10), N / 2); for images any integers. Everything else is regression. Floats mean regression
    even if all are whole numbers, so that a file can state the task by the type of its targets; only zeros and ones of
    that type are refused.
    """
    write = "write task='classification' if they are classes, task='regression' if they are quantities"
    if targets.ndim == 2 and targets.shape[1] > 1:
        if targets.dtype.kind in "iubf" and np.isin(targets, (0, 1)).all():
            problem = f"{name} of shape {targets.shape} holds zeros and ones"
            other = "give one column of class indices for one, or write task='regression'"
            raise Misuse(f"{problem}: write task='multi-label' for several labels an example, {other}")
        return "regression"
    if targets.dtype.kind in "OUb":
        return "classification"
    if targets.dtype.kind == "f":
        if len(targets) > 2 and np.array_equal(np.unique(targets), (0.0, 1.0)):
            raise Misuse(f"{name} holds 0.0 and 1.0 as floats: {write}")
        return "regression"
    rows, labels = len(targets), len(np.unique(targets))
    is_small = labels <= min(MOST_LABELS, max(rows / 20, 10), rows / 2)
    if not is_small and not images and rows >= 5 * labels and targets.min() in (0, 1) and np.ptp(targets) == labels - 1:
        raise Misuse(f"{name} holds the {labels} whole numbers {targets.min()} to {targets.max()}: {write}")
    task: Task = "classification" if is_small or images else "regression"
    counts = labels < 3 or np.array_equal(np.unique(targets), np.arange(labels))  # the indices of classes
    if not images and not (is_small and counts) and labels <= NOTED_NUMBERS:
        kind, other = (f"{labels} classes", "regression") if is_small else ("quantities", "classification")
        numbers = f"{name} holds {labels} distinct whole numbers, {targets.min()} to {targets.max()}"
        warn(f"{numbers}: they are taken as {kind}; write task='{other}' if that is wrong", f"task of {name}")
    return task


def refuse_many_classes(targets: np.ndarray, name: str) -> None:
    """Refuse numbers (N,) as classes where they are too many: a quantity that is called a classification."""
    if targets.dtype.kind not in "iuf":
        return
    rows, labels = len(targets), len(np.unique(targets))
    if labels > MIN_REFUSED_CLASSES and labels > rows / ROWS_PER_CLASS:
        most = max(MIN_REFUSED_CLASSES, rows // ROWS_PER_CLASS)
        problem = f"task='classification' and {name} has {labels:,} distinct numbers in {rows:,} rows"
        raise Misuse(f"{problem}: expected at most {most:,} classes; write task='regression' for a quantity")


def refuse_free_text(targets: np.ndarray, name: str) -> None:
    """Refuse strings most of which occur once: identifiers, or numbers with a stray word among them."""
    if targets.dtype.kind not in "OU" or len(targets) < 20:
        return
    texts = [as_text(value) for value in targets.ravel().tolist()]
    labels = sorted(set(texts), key=lambda text: (is_number(text), text))
    if len(labels) > len(texts) / 2:
        problem = f"{name} has {len(labels)} distinct texts in {len(texts)} rows (such as '{labels[0]}')"
        write = "write task='classification' if these are labels"
        raise Misuse(f"{problem}: expected numbers or labels that repeat; {write}")


def refuse_mixed_labels(labels: Iterable[Any]) -> None:
    """Refuse a text among labels that is spelt like a label of another type: True and "True" would be one class."""
    spelt: dict[str, bool] = {}
    for label in labels:
        if spelt.setdefault(as_text(label), isinstance(label, str)) is not isinstance(label, str):
            raise Misuse(f"labels hold {as_text(label)} and also the text '{as_text(label)}': write them alike")


def refuse_texts_among_numbers(labels: Iterable[Any]) -> None:
    """Refuse labels of which some are texts and others are not: they have no order, and predictions need one type."""
    kinds: dict[bool, Any] = {}
    for label in labels:
        kinds.setdefault(isinstance(label, str), label)
    if len(kinds) > 1:
        write = "write them all as texts, y.astype(str), or all as numbers"
        raise Misuse(f"labels hold the text '{kinds[True]}' and also {kinds[False]}, which is none: {write}")


def label_names(targets: np.ndarray, names: tuple[str, ...] | None) -> tuple[list[str], np.ndarray]:
    """Return the distinct label names (L,) among targets (N,), and the index (N,) of each target in that list."""
    flat = targets.ravel()
    if len(targets) != len(flat):
        raise Misuse(f"labels of shape {targets.shape}: expected one label a row, ({len(targets)},)")
    for row, value in enumerate(flat.tolist() if flat.dtype.kind in "fO" else ()):
        if isinstance(value, float) and not math.isfinite(value):
            raise Misuse(f"label {value} in row {row + 1}: expected the name or number of a class")
    if flat.dtype.kind == "O":
        refuse_mixed_labels(flat.tolist())
        flat = np.array([as_text(value) for value in flat.tolist()], dtype=str)
    labels, indices = np.unique(flat, return_inverse=True)
    if names is None:
        return [as_text(label) for label in labels], indices.reshape(-1)
    for index in map(int, labels):
        if not 0 <= index < len(names):
            raise Misuse(f"label {index} has no name: expected 0 to {len(names) - 1}")
    return [names[int(label)] for label in labels], indices.reshape(-1)


def class_list(parts: Sequence[np.ndarray], names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the class names of a source in the order of their labels; refuse fewer than two classes."""
    labels = {name for targets in parts for name in label_names(targets, names)[0]}
    if len(labels) < 2:
        raise Misuse(f"every row has the label '{labels.pop()}': expected at least two classes")
    note_alike_labels(sorted(labels))
    return names if names is not None else sort_names(labels)


def note_alike_labels(names: Sequence[str]) -> None:
    """Warn of labels of two letters or more that differ in case or surrounding blanks alone."""
    spellings: dict[str, list[str]] = defaultdict(list)
    for name in names:
        spellings[name.strip().casefold()].append(f"'{name}'")
    if alike := [" and ".join(same) for folded, same in spellings.items() if len(same) > 1 and len(folded) > 1]:
        warn(
            f"labels differ in case or blanks alone and are classes of their own: {listed(alike, 3)}; write them alike"
        )


def encode_labels(targets: np.ndarray, names: tuple[str, ...] | None, classes: tuple[str, ...]) -> Tensor:
    """Encode targets (N,) as indices (N,) int64 into `classes`."""
    labels, indices = label_names(targets, names)
    index = {name: i for i, name in enumerate(classes)}
    for k, name in enumerate(labels):
        if name not in index:
            row = int((indices == k).argmax()) + 1
            raise Misuse(f"label '{name}' (row {row}) is not among the classes: expected {listed(classes)}")
    return torch.from_numpy(np.array([index[name] for name in labels], dtype=np.int64)[indices])


def as_values(targets: np.ndarray, name: str) -> np.ndarray:
    """Convert numbers, or strings of numbers, (N,) or (N, K), to regression targets (N, K) float64 in their units."""
    if targets.ndim > 2:
        raise Misuse(f"{name} of shape {targets.shape}: expected one row of numbers a row")
    if targets.dtype.kind not in "iufb":
        texts = [as_text(value) for value in targets.ravel().tolist()]
        form = form_of(texts)
        for position, text in enumerate(texts):
            if not is_number(plain_text(text, form)):
                row = position * len(targets) // targets.size + 1
                raise Misuse(f"{name} holds '{text}' in row {row}: expected a number for a regression")
        targets = np.array([plain_text(text, form) for text in texts]).reshape(targets.shape)
    numbers = targets.reshape(len(targets), -1).astype(np.float64)
    if (bad := ~(np.abs(numbers) <= LARGEST).all(axis=1)).any():
        row = int(bad.argmax())
        value = numbers[row][~(np.abs(numbers[row]) <= LARGEST)][0]
        text = "infinite" if np.isinf(value) else f"{value:g}"
        raise Misuse(f"{name} is {text} in row {row + 1}: expected finite numbers up to {LARGEST:.2g}")
    return numbers


def refuse_constant(targets: Tensor, name: str) -> None:
    """Refuse targets (N, K) with a constant column: its standard deviation is 0, so it cannot be standardised."""
    if (constant := (targets == targets[:1]).all(0)).any():
        value = targets[0, constant.int().argmax()].item()
        raise Misuse(f"{name} is {value:g} in every row: expected a target that varies")


def as_numbers(y: Any, otherwise: str) -> Tensor:
    """Convert targets to a tensor; refuse strings and objects with the message `otherwise`."""
    if isinstance(y, Tensor):
        y = dense(y).detach()
        return y if y.dtype not in UNSIGNED else y.double() if y.dtype is torch.uint64 else y.long()
    values = as_array(y)
    if values.dtype.kind not in "iufb":
        raise Misuse(otherwise)
    return to_tensor(values)
