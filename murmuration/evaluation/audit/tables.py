"""Predictions in a `.csv` or `.parquet` table: which columns. Tables are read whole, 8 bytes a number."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import murmuration.evaluation.audit.outputs as outputs
from murmuration.data.columns import is_numeric, to_numbers
from murmuration.data.parquet import read_frame
from murmuration.data.raw import LoadOptions
from murmuration.data.table_files import read_csv
from murmuration.data.tables import one_target, table_raw
from murmuration.data.targets import label_names, sort_names
from murmuration.evaluation.audit.outputs import MEANS, STDS, VARIANCES, WITHOUT_NOISE, Block, Outputs, Rows
from murmuration.evaluation.audit.targets import Targets, names_among
from murmuration.prediction.checks import SUM_TOLERANCE
from murmuration.prediction.prediction_files import plain_text
from murmuration.system.errors import Misuse, listed

PROBABILITY, LOGIT = ("prob_", "proba_", "p_"), ("logit_",)  # before the name of a class; the first that is there
SECOND_OF_TWO = ("prob", "probability", "proba")
MEMBER = re.compile(r"(?:m|member_?)(\d+)_(.+)")
QUANTILE = re.compile(r"(?:q|quantile|pctl|percentile)_?\d*\.?\d+%?", re.IGNORECASE)
LOGITS_HINT = "if these are logits, name the columns logit_<class>"
EXPECTED = {"classification": "prob_<class> or prob", "regression": "mean and std"}

Members = Mapping[int, Mapping[str, str]]  # member -> column name without the member's prefix -> column name


@dataclass(frozen=True)
class Sheet:
    """The columns of a table."""

    path: Path
    table: Any  # pandas.DataFrame
    noun: ClassVar[str] = "column"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.table.columns)

    def values(self, name: str) -> np.ndarray:
        """Return one column (N,) with its type: int64 or float64, else texts, with None for missing."""
        column = one_target(self.table[name])
        if column.dtype.kind != "O" or self.path.suffix.lower() != ".csv":
            return column
        return np.array([plain_text(text) if isinstance(text, str) else text for text in column], dtype=object)


def open_sheet(path: Path) -> Sheet:
    """Return the columns of a .csv or .parquet file, every name once."""
    return as_sheet(read_frame(path) if path.suffix.lower() == ".parquet" else read_csv(path), path)


def as_sheet(table: Any, path: Path) -> Sheet:
    """Return the columns of a pandas table, every name once; messages call it `path`."""
    return Sheet(path, table_raw(table, LoadOptions(labelled=False), f"'{path}'").parts["all"].inputs)


def sheet_outputs(sheet: Sheet, targets: Targets, taken: tuple[str, ...], task: str | None) -> Outputs:
    """Return the predictions of a table for the rows of the targets; `taken` columns hold something else."""
    if len(sheet.table) != targets.rows:
        raise Misuse(f"the table has {len(sheet.table)} rows, but {targets.name} has {targets.rows}: expected as many")
    names = tuple(name for name in sheet.names if name not in taken)
    members = members_among(names)
    class_predictions = None if task == "regression" else class_outputs(sheet, members, targets)
    moments = None
    if task != "classification":
        moments = regression_outputs(sheet, members, strict=class_predictions is None)
    if class_predictions and moments and task is None:
        raise Misuse("columns of class probabilities and also a mean with its std: say which, task=TASK")
    if predictions := class_predictions or moments:
        return predictions
    if quantiles := [name for name in names if QUANTILE.fullmatch(name)]:
        raise Misuse(f"quantiles ({listed(quantiles, most=3)}) are not read: expected columns mean and std instead")
    for_task = f" for task '{task}'" if task else ""
    expected = EXPECTED.get(task or "", f"{' (classification), or '.join(EXPECTED.values())} (regression)")
    raise Misuse(f"no predictions{for_task}: expected columns {expected}; found {listed(names) or 'no other columns'}")


def members_among(names: Sequence[str]) -> Members:
    """Return the columns of every member (m0_..., member_0_...), or all columns as those of a single model."""
    columns: dict[int, dict[str, str]] = {}
    for name in names:
        if match := MEMBER.fullmatch(name):
            columns.setdefault(int(match[1]), {})[match[2]] = name
    members = sorted(m for m, own in columns.items() if prefixed(own, PROBABILITY + LOGIT) or {*MEANS} & {*own})
    return {member: columns[member] for member in members} or {0: {name: name for name in names}}


def prefixed(names: Sequence[str] | Mapping[str, str], prefixes: Sequence[str]) -> tuple[str, ...]:
    """Return the names with the first prefix that occurs."""
    for prefix in prefixes:
        if matching := tuple(name for name in names if name.startswith(prefix) and name != prefix):
            return matching
    return ()


def class_outputs(sheet: Sheet, members: Members, targets: Targets) -> Outputs | None:
    """Return the class probabilities or logits of a table, if it has any."""
    columns = next(iter(members.values()))
    for kind, prefixes in ((outputs.probabilities, PROBABILITY), (outputs.logits, LOGIT)):
        if matching := prefixed(columns, prefixes):
            classes = class_names_of(sheet, [name.split("_", 1)[1] for name in matching], targets)
            if len(matching) == 1:
                hint = "expected two or more; if it is the larger of two labels name it prob"
                raise Misuse(f"column '{columns[matching[0]]}' is for only one class: {hint}")
            return kind(column_block(sheet, members, matching), classes)
    if single := names_among(SECOND_OF_TWO, tuple(columns)):
        return outputs.probabilities(column_block(sheet, members, single[:1]), two_classes(targets, single[0]))
    if named := named_like_labels(sheet, tuple(columns), targets):
        return outputs.probabilities(column_block(sheet, members, named), tuple(map(whole_number, named)))
    return None


def class_names_of(sheet: Sheet, names: Sequence[str], targets: Targets) -> tuple[str, ...]:
    """Return the classes that columns are named after; an apostrophe that labels of a .csv file lost is removed."""
    marked = sheet.path.suffix.lower() == ".csv" and any(name.startswith("'") for name in names)
    levels = set(label_names(targets.values, None)[0]) if marked and targets.values.ndim == 1 else set()
    plain = (name if name in levels or plain_text(name) not in levels else plain_text(name) for name in names)
    return tuple(map(whole_number, plain))


def whole_number(name: str) -> str:
    """Return the name of a class spelt like labels: 1 for 1.0.

    >>> whole_number("1.0"), whole_number("1.5"), whole_number("cat")
    ('1', '1.5', 'cat')
    """
    return name[:-2] if re.fullmatch(r"-?\d+\.0", name) else name


def two_classes(targets: Targets, name: str) -> tuple[str, ...]:
    """Return the two labels that occur, in order."""
    levels = sort_names(label_names(targets.values, None)[0])
    if len(levels) != 2:
        labels = f"{targets.name} has {len(levels)} distinct labels ({listed(levels, most=5)})"
        single = f"column '{name}' is the probability of one of two classes"
        raise Misuse(f"{single} but {labels}: write columns prob_<class>")
    return levels


def named_like_labels(sheet: Sheet, names: tuple[str, ...], targets: Targets) -> tuple[str, ...]:
    """Return all numeric columns, if they are named like the labels.

    A class without a label may have a column, if the first row sums to one.
    """
    if targets.values.ndim > 1 or targets.values.dtype.kind == "f":
        return ()
    numeric = tuple(name for name in names if is_numeric(sheet.table[name]))
    levels, named = set(label_names(targets.values, None)[0]), set(map(whole_number, numeric))
    if len(numeric) < 2 or not levels <= named:
        return ()
    total = sum(float(to_numbers(sheet.table[name].iloc[:1])[0]) for name in numeric)
    return numeric if levels == named or abs(total - 1) <= SUM_TOLERANCE else ()


def regression_outputs(sheet: Sheet, members: Members, *, strict: bool) -> Outputs | None:
    """Return means with standard deviations or variances, if the table has any; `strict` refuses a mean without one."""
    names = tuple(next(iter(members.values())))
    means = names_among(MEANS, names)[:1] or prefixed(names, ("mean_",))
    suffixes = [name.removeprefix("mean") for name in means] if means and means[0].startswith("mean") else [""]
    for noise in STDS + VARIANCES:
        noises = tuple(noise + suffix for suffix in suffixes)
        if means and set(noises) <= set(names):
            blocks = column_block(sheet, members, means), column_block(sheet, members, noises)
            return outputs.moments(*blocks, squared=noise in VARIANCES)
    if means and strict:
        expected = f"expected std{suffixes[0]} beside it"
        raise Misuse(f"column '{means[0]}' but not its std: {expected}; {WITHOUT_NOISE}; found {listed(names)}")
    return None


def target_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of several predicted targets, from columns mean_<target>."""
    return tuple(name.removeprefix("mean_") for name in prefixed(names, ("mean_",)))


def column_block(sheet: Sheet, members: Members, chosen: Sequence[str]) -> Block:
    """Return the named columns of every member as a block (S, N, K)."""
    for member, columns in members.items():
        if missing := [name for name in chosen if name not in columns]:
            example = next(iter(members.values()))[missing[0]]
            raise Misuse(f"member {member} has no column of '{missing[0]}': expected one as '{example}' is for another")
    grid = [[columns[name] for name in chosen] for columns in members.values()]
    numbers = [[to_numbers(sheet.table[name]) for name in row] for row in grid]

    def read(rows: Rows) -> np.ndarray:
        return np.stack([np.stack([column[rows] for column in row], axis=-1) for row in numbers])

    def entry_name(member: int, row: int, column: int | None) -> str:
        names = grid[member] if column is None else grid[member][column : column + 1]
        return f"row {row + 1} of column{'s' * (len(names) > 1)} {listed(names, most=4)}"

    name = f"columns {listed(chosen, most=4)}"
    return Block(name, (len(members), len(sheet.table), len(chosen)), read, entry_name, LOGITS_HINT)
