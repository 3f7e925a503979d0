"""Tables: files of `TABLE_FILES` and pandas tables, with the target named by its column."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.data.columns import in_plain_form, is_numeric, local_form, to_numbers, to_texts
from murmuration.data.file_rows import is_streamed
from murmuration.data.images import is_image_file, open_image, stack_images
from murmuration.data.local_forms import FORMS, MIN_NUMBERS
from murmuration.data.parquet import open_file_table, size_of
from murmuration.data.raw import ColumnChoices, Keys, LoadOptions, RawData, RawPart
from murmuration.data.table_files import read_table_file
from murmuration.data.targets import Target, refuse_mixed_labels
from murmuration.system.errors import Misuse, did_you_mean, listed

UNNAMED = "Unnamed: "  # the name that pandas gives to a column without one, before its position


def load_table_file(path: Path, options: LoadOptions) -> RawData:
    """Load the rows of a file of `TABLE_FILES`; those of a large Parquet file stay there, see `is_streamed`."""
    if path.suffix.lower() == ".parquet" and is_streamed(options.in_memory, 2 * math.prod(size_of(path))):
        table, index = open_file_table(path)
        return table_raw(table, options, f"'{path}'", index)
    raw = table_raw(read_table_file(path, options.as_text), options, f"'{path}'")
    table = raw.parts["all"].inputs
    listing = next((name for name in table.columns if lists_images(table[name], path.parent)), None)
    if listing is None:
        return raw
    other_columns = [name for name in table.columns if name != listing]
    if other_columns and options.labelled:
        problem = f"'{path}' lists images in '{listing}' beside other columns"
        raise Misuse(f"{problem}: leave them out, drop={other_columns[0]!r}")
    names = [str(name) for name in table[listing]]
    paths = [path.parent / name for name in names]
    if missing := [image_path for image_path in paths if not image_path.is_file()]:
        raise Misuse(f"'{path}' lists '{missing[0]}', which is not a file: {len(missing)} of {len(paths)} are missing")
    planes, resized = stack_images([str(path) for path in paths], lambda i: open_image(paths[i]), options)
    part = replace(raw.parts["all"], inputs=planes, keys={"file": np.array(names)})
    return RawData({"all": part}, peak=255.0, resized=resized)


def lists_images(values: Any, folder: Path) -> bool:
    """Return whether a column holds the paths of image files, by their names."""
    if is_numeric(values) or values.isna().any() or not len(values):
        return False
    return all(is_image_file(folder / text) for text in to_texts(values))


def table_raw(table: Any, options: LoadOptions, place: str = "the table", index: Any = None) -> RawData:
    """Split a pandas table, or one that stays in a file and has this `index`, into features and targets.

    A row index that `to_csv` wrote is dropped.
    """
    keys = index_keys(table.index if index is None else index)
    if index is None:
        table = table.reset_index(drop=True)
        table.columns = [str(name) for name in table.columns]
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()]
        raise Misuse(f"{place} has two columns '{twice[0]}': expected every name once")
    for name in [name for name in table.columns if name.startswith(UNNAMED)]:
        values = table[name]
        if (values.astype(str) == values.index.astype(str)).all():  # it numbers the rows
            table = table.drop(columns=[name])
    if not len(table):
        raise Misuse(f"{place} has no rows: expected a header line and rows")
    if not options.labelled:
        return RawData({"all": RawPart(table, keys=keys)})
    names = target_columns(table, options.target, place)
    roles = {role: str(column) for role, column in options.roles.items() if isinstance(column, str)}
    ignored = tuple(dict.fromkeys([*options.drop, *roles.values()]))
    for name in ignored:
        require_column(table, name, place)
        if name in names:
            raise Misuse(f"'{name}' is the target: it cannot be dropped, group, order or weigh the rows")
    for option in ("keep", "text"):
        for name in getattr(options, option):
            require_column(table, name, place)
            if name in (*names, *ignored):
                raise Misuse(f"{option}='{name}', which is the target or left out: name columns that are inputs")
    if both := set(options.keep) & set(options.text):
        raise Misuse(f"keep='{min(both)}' and text='{min(both)}': give one of them")
    extra = {role: role_values(table[name], role) for role, name in roles.items()}
    forms = options.target_forms or {name: target_form(table[name]) for name in names}
    part = RawPart(table.drop(columns=[*names, *ignored]), target_values(table, names, forms), extra, keys)
    choices = ColumnChoices(options.keep, options.text, {name: form for name, form in forms.items() if form})
    return RawData({"all": part}, target_names=names, ignored=ignored, choices=choices)


def index_keys(index: Any) -> Keys:
    """Convert the index of a pandas table to a column `index` (N,) of integers or strings; none for 0 to N - 1.

    Several levels become the columns `index_<name>`, or `index_<position>` where a level has no name.
    """
    import pandas as pd

    if index.equals(pd.RangeIndex(len(index))):
        return {}
    levels = [index.get_level_values(i) for i in range(index.nlevels)]
    values = [level.to_numpy() if level.dtype.kind in "iu" else np.array([str(v) for v in level]) for level in levels]
    names = [f"index_{i if name is None else name}" for i, name in enumerate(index.names)]
    return dict(zip(names if len(names) > 1 else ["index"], values, strict=True))


def role_values(values: Any, role: str) -> np.ndarray:
    """Convert a column (N,) that groups rows to strings, one that orders or weighs them to numbers."""
    converted = to_texts(values) if role == "groups" else to_numbers(values)
    if (missing := values.isna().to_numpy()).any():
        raise Misuse(f"column '{values.name}' is missing in row {int(missing.argmax()) + 1}: {role}= needs every row")
    return np.array([str(text) for text in converted]) if role == "groups" else converted


def require_column(table: Any, name: str, place: str) -> None:
    """Refuse the name of a column that a table does not have."""
    if name not in table.columns:
        near = did_you_mean(name, table.columns)
        if len(table.columns) == 1 and ";" in str(table.columns[0]):
            near = "the columns are separated by semicolons: read the file with sep=';'. "
        raise Misuse(f"no column '{name}' in {place}: {near}Columns: {listed(table.columns)}")


def target_columns(table: Any, target: Target, place: str) -> tuple[str, ...]:
    """Return the names of the target columns: one name, several separated by commas, or a tuple of names."""
    if not target:
        raise Misuse(f"which column of {place} is the target? Write target=..., one of {listed(table.columns)}")
    if isinstance(target, str):
        target = (target,) if target in table.columns else tuple(name.strip() for name in target.split(","))
    for name in target:
        require_column(table, name, place)
    return tuple(dict.fromkeys(target))


def target_values(table: Any, names: tuple[str, ...], forms: Mapping[str, str | None]) -> np.ndarray:
    """Return the targets (N,) of one column in its type, or numbers (N, K) of several columns."""
    columns = [plain_target(table[name], forms.get(name)) for name in names]
    if len(columns) == 1:
        return one_target(columns[0])
    if texts := [name for name, values in zip(names, columns, strict=True) if not is_numeric(values)]:
        raise Misuse(f"target column '{texts[0]}' is not numeric: expected numbers if there are several targets")
    return np.stack([to_numbers(values) for values in columns], axis=1)


def target_form(values: Any) -> str | None:
    """Return the local form of a target column of texts that are numbers; None of dates and other columns."""
    form = local_form(values, MIN_NUMBERS)
    return None if form is None or FORMS[form].dates else form


def plain_target(values: Any, form: str | None) -> Any:
    """Return a target column of texts in a local form as numbers."""
    return values if form is None or is_numeric(values) else in_plain_form(values, form)


def one_target(values: Any) -> np.ndarray:
    """Convert one target column (N,) to int64 or float64 if numeric, else to strings with None for missing."""
    from pandas.api import types

    if types.is_integer_dtype(values) and not values.isna().any():
        return values.to_numpy(dtype=np.int64)
    numeric = types.is_numeric_dtype(values) and not types.is_bool_dtype(values)
    if numeric:
        return to_numbers(values)
    refuse_mixed_labels(values.dropna())
    return to_texts(values)
