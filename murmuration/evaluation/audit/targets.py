"""Targets and groups of every row, from the file of the predictions or another one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from murmuration.data.targets import as_text, as_values, label_names, refuse_missing
from murmuration.system.errors import Misuse, did_you_mean, listed

LABELS = ("label", "labels", "y", "y_true", "target", "targets", "class")
GROUPS = ("group", "groups")  # taken as groups without being asked for
MOST_GROUPS = 1000  # more is an identifier or a quantity
BOOLEAN_LABELS = {"False": "0", "True": "1"}


@dataclass(frozen=True)
class NamedValues:
    """Values by name: the arrays of an archive, the columns of a table, the lines of a text."""

    noun: str  # array, column
    names: tuple[str, ...]
    values: Callable[[str], np.ndarray]  # name -> (N,) or (N, K), as found


@dataclass(frozen=True)
class Targets:
    """The targets of every row as found: labels as text or numbers (N,), or values (N, K)."""

    name: str  # "column label", "array y"
    values: np.ndarray
    sources: tuple[str, ...]  # the names they were read from, if in the file of the predictions

    @property
    def rows(self) -> int:
        return len(self.values)


def names_among(known: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the known names that occur, in the order of `known`."""
    return tuple(name for name in known if name in names)


def find(source: NamedValues, name: str, what: str) -> str:
    """Return the name, if the source has it; the refusal suggests the nearest one."""
    if name in source.names:
        return name
    hint = did_you_mean(name, source.names)
    raise Misuse(f"no {source.noun} '{name}' for the {what}: {hint}found {listed(source.names)}")


def read_targets(source: NamedValues, label: str | None, targets: tuple[str, ...], *, alone: bool) -> Targets:
    """Return the targets under the given names, or the usual ones, or the names of the predicted targets.

    `alone`: the source is a file of labels, and its only column or array is taken whatever its name.
    """
    if label is not None:
        columns = (label,) if label in source.names else tuple(part.strip() for part in label.split(","))
        return joined(source, tuple(find(source, name, "labels") for name in columns))
    usual = names_among(LABELS, source.names)
    if len(usual) > 1:
        raise Misuse(f"{source.noun}s {' and '.join(usual[:2])} could both be the labels: say which, label=NAME")
    if usual or (alone and len(source.names) == 1):
        return joined(source, usual or source.names)
    if targets and set(targets) <= set(source.names):
        return joined(source, targets)
    expected = f"a{'n' if source.noun == 'array' else ''} {source.noun} {', '.join(LABELS[:-1])}"
    hint = "name another, label=NAME, or a file of them, labels=FILE"
    raise Misuse(f"no labels: expected {expected}; {hint}; found {listed(source.names)}")


def joined(source: NamedValues, names: tuple[str, ...]) -> Targets:
    """Return one or several columns of targets, side by side."""
    description = f"{source.noun} {', '.join(names)}"
    columns = [source.values(name) for name in names]
    for values in columns:
        if not values.ndim or not values.size:
            raise Misuse(f"{description} of shape {values.shape}: expected at least one row")
        refuse_missing(values, description)
    if len(columns) == 1:
        return Targets(description, columns[0], names)
    if len({values.shape for values in columns}) > 1 or columns[0].ndim > 1:
        shapes = listed(str(values.shape) for values in columns)
        raise Misuse(f"{description} of shapes {shapes}: expected one value a row each")
    return Targets(description, np.concatenate([as_values(values, description) for values in columns], axis=1), names)


def checked_values(targets: Targets, width: int) -> np.ndarray:
    """Return the values (N, K) of as many targets as are predicted."""
    values = as_values(targets.values, targets.name)
    if values.shape[1] != width:
        raise Misuse(f"{targets.name} has {values.shape[1]} targets but {width} are predicted: expected as many")
    return values


def checked_labels(targets: Targets, classes: tuple[str, ...], *, named: bool) -> np.ndarray:
    """Return the class index (N,) of every label: labels are names of classes, or else 0, 1, ... in their order.

    Names take precedence: with classes named 1 and 2, the label 1 is the first class.
    """
    values = targets.values
    if values.ndim > 2 or values.shape[1:] not in ((), (1,)):
        expected = "expected one label a row; write y.argmax(1) of one-hot rows"
        raise Misuse(f"{targets.name} of shape {values.shape}: {expected}")
    levels, places = label_names(values, None)
    index = {name: i for i, name in enumerate(classes)}
    if not set(levels) <= set(index):
        numbered = {str(i): i for i in range(len(classes))}
        plain = [BOOLEAN_LABELS.get(level, level) for level in levels]
        if not set(plain) <= set(numbered):
            row = int(np.array([level not in classes for level in levels])[places].argmax())
            label = f"label '{levels[places[row]]}' (row {row + 1}) of {targets.name}"
            if named:
                hint = did_you_mean(levels[places[row]], classes)
                raise Misuse(f"{label} is not among the classes: {hint}Known: {listed(classes)}")
            hint = "or an array names that names the classes in their order"
            raise Misuse(f"{label}: expected 0 to {len(classes) - 1} for {len(classes)} classes, {hint}")
        levels, index = plain, numbered
    return np.array([index[level] for level in levels], dtype=np.int64)[places]


def read_groups(sources: Sequence[NamedValues], names: Sequence[str], rows: int) -> dict[str, np.ndarray]:
    """Return the group (N,) of every row as text, by column name; from the first source that has the column."""
    if not names:
        names = names_among(GROUPS, sources[0].names)
    holders = {name: next((s for s in sources if name in s.names), sources[-1]) for name in names}
    return {name: group_texts(source, find(source, name, "groups"), rows) for name, source in holders.items()}


def group_texts(source: NamedValues, name: str, rows: int) -> np.ndarray:
    """Return the groups (N,) of one column as text; 'missing' where there is none."""
    values, description = source.values(name), f"{source.noun} {name}"
    if values.shape != (rows,):
        raise Misuse(f"{description} of shape {values.shape} for the groups: expected ({rows},), one a row")
    if values.dtype.kind == "f":
        rough = np.isfinite(values) & (values % 1 != 0)
        if rough.any():
            row, expected = int(rough.argmax()), "expected texts or whole numbers for groups"
            raise Misuse(f"{description} holds {values[row]:g} in row {row + 1}: {expected}")
    if values.dtype.kind == "O":
        values = np.array(["missing" if value is None else value for value in values.tolist()], dtype=str)
    levels, places = np.unique(values, return_inverse=True)
    if len(levels) > MOST_GROUPS:
        expected = f"expected at most {MOST_GROUPS} groups; bin them first"
        raise Misuse(f"{description} has {len(levels)} distinct values: {expected}")
    texts = ["missing" if level != level else as_text(level) for level in levels]
    return np.array(texts, dtype=str)[places.reshape(-1)]
