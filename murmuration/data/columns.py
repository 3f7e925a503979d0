"""Columns of pandas tables as numpy arrays: numbers (dates included) or texts."""

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np

from murmuration.data.local_forms import FORMS, form_of, is_date, is_decimal_point, plain_text
from murmuration.data.targets import LARGEST, as_text, is_number
from murmuration.system.errors import Misuse, listed

ISO_DATE = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"


def find_column(table: Any, name: str) -> Any:
    """Return the pandas column called `name`; the refusal lists the columns that exist."""
    if name not in table.columns:
        raise Misuse(f"no column '{name}' in the table: expected it; found {listed(map(str, table.columns))}")
    if (count := int((table.columns == name).sum())) > 1:
        raise Misuse(f"the table has {count} columns '{name}': expected every name once")
    return table[name]


def column_values(values: Any) -> np.ndarray:
    """Convert a pandas column to float64 with NaN for missing, or to strings (objects) with None for missing."""
    return to_numbers(values) if is_numeric(values) else to_texts(values)


def is_numeric(values: Any) -> bool:
    """Return whether a pandas column holds numbers, decimals, dates, durations or ISO dates as strings."""
    from pandas.api import types

    if types.is_bool_dtype(values) or isinstance(values.dtype, types.CategoricalDtype):
        return False
    if types.is_numeric_dtype(values) or is_time(values):
        return True
    present = values.dropna()
    if len(present) and all(isinstance(value, Decimal | int | float | date) for value in present):
        return not any(isinstance(value, bool) for value in present)
    return len(present) == 0 or iso_seconds(present) is not None


def is_time(values: Any) -> bool:
    """Return whether a pandas column has a type of dates or durations."""
    from pandas.api import types

    return bool(types.is_datetime64_any_dtype(values) or types.is_timedelta64_dtype(values))


def quantity_of(values: Any) -> str | None:
    """Return whether a column that is numeric holds "numbers", "dates" or "durations"; None if it is empty.

    The first value of a column of objects decides: `to_numbers` refuses those that mix dates and numbers.
    """
    from pandas.api import types

    present = values.dropna().iloc[:1]
    if not len(present):
        return None
    if types.is_timedelta64_dtype(values):
        return "durations"
    written = values.dtype.kind == "O" and (iso_seconds(present) is not None or is_date(str(present.iloc[0])))
    return "dates" if written or is_time(values) else "numbers"


def to_numbers(values: Any, form: str | None = None, expected: str = "") -> np.ndarray:
    """Convert a pandas column (N,) to float64, NaN where missing; dates become seconds since 1970 (UTC).

    Texts are numbers or dates in the local form that is given, or else in the only one that fits all of them.
    `expected` says in a refusal how a cell is written.
    """
    from pandas.api import types

    if is_time(values):
        return seconds(values)
    if types.is_numeric_dtype(values) and not types.is_complex_dtype(values):
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        numbers = parsed_numbers(values, form, expected)
    if (beyond := np.abs(numbers) > LARGEST).any():
        position = int(beyond.argmax())
        text = "infinite" if np.isinf(numbers[position]) else f"{numbers[position]:g}"
        expected = f"expected finite numbers up to {LARGEST:.2g}"
        raise Misuse(f"column '{values.name}' is {text} in row {row_number(values, position)}: {expected}")
    return numbers


def row_number(values: Any, position: int) -> int:
    """Return the row in the file, counted from 1, of a position in a pandas column or a selection of its rows."""
    label = values.index[position]
    return int(label) + 1 if isinstance(label, int | np.integer) else position + 1


def parsed_numbers(values: Any, form: str | None, expected: str) -> np.ndarray:
    """Parse a pandas column of objects as numbers (N,): decimals, strings of numbers, or dates.

    No number with a decimal point is read beside others with decimal commas.
    """
    present, out = values.dropna(), np.full(len(values), np.nan)
    if (numbers := iso_seconds(present)) is None:
        cells = present.tolist()
        if form is None and all(isinstance(cell, str) and not is_decimal_point(cell) for cell in cells):
            form = form_of(cells)
        points = [form == "decimal comma" and isinstance(cell, str) and is_decimal_point(cell, form) for cell in cells]
        plain = present.astype(object).map(lambda cell: plain_text(cell, form) if isinstance(cell, str) else cell)
        if (numbers := iso_seconds(plain)) is None:
            refuse_other_than_dates(plain, cells, expected)
            for position, value in enumerate(plain.tolist()):
                if points[position] or not is_number(str(value)):
                    held = f"holds '{cells[position]}' in row {row_number(present, position)}"
                    raise Misuse(f"column '{values.name}' {held}: expected {expected or 'a number'}")
            numbers = np.array([float(str(value)) for value in plain], dtype=np.float64)  # inf: int of 400 digits
    out[values.notna().to_numpy()] = numbers
    return out


def local_form(values: Any, fewest: int = 1) -> str | None:
    """Return the local form of a pandas column of texts, see `form_of`; None of other columns."""
    from pandas.api import types

    if isinstance(values.dtype, types.CategoricalDtype) or is_numeric(values):
        return None
    cells = values.dropna().tolist()
    return form_of(list(dict.fromkeys(cells)), fewest) if all(isinstance(cell, str) for cell in cells) else None


def in_plain_form(values: Any, form: str) -> Any:
    """Return a pandas column of texts in a local form as one of numbers, or of dates."""
    import pandas as pd

    numbers = pd.Series(to_numbers(values, form, FORMS[form].example), index=values.index, name=values.name)
    return pd.to_datetime(numbers, unit="s") if FORMS[form].dates else numbers


def refuse_other_than_dates(present: Any, cells: list[Any], expected: str = "") -> None:
    """Refuse the first value that is not a date, in a column where other values are dates; `cells` are as written."""
    import pandas as pd

    texts = present.astype(str)
    if (dates := texts.str.fullmatch(ISO_DATE)).any():
        odd = pd.to_datetime(texts.where(dates), format="ISO8601", utc=True, errors="coerce").isna().to_numpy()
        position = int(odd.argmax())
        row, value = row_number(present, position), cells[position]
        expected = expected or "a date such as 2024-01-31"
        raise Misuse(f"column '{present.name}' holds '{value}' in row {row}: expected {expected}")


def iso_seconds(present: Any) -> np.ndarray | None:
    """Convert a column of dates or ISO dates without missing values to seconds since 1970; None if it is not one."""
    import pandas as pd

    if any(isinstance(value, bytes) for value in present.tolist()):  # which pandas would decode
        return None
    texts = present.astype(str)
    if not len(texts) or not texts.str.fullmatch(ISO_DATE).all():
        return None
    times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    return None if times.isna().any() else seconds(times)


def seconds(values: Any) -> np.ndarray:
    """Convert dates to seconds (N,) float64 since 1970, durations to their length; NaN where missing."""
    import pandas as pd

    if isinstance(values.dtype, pd.DatetimeTZDtype):
        values = values.dt.tz_convert("UTC").dt.tz_localize(None)
    ticks = values.to_numpy().astype("datetime64[us]" if values.dtype.kind == "M" else "timedelta64[us]")
    return np.where(np.isnat(ticks), np.nan, ticks.astype(np.int64) / 1e6)


def to_texts(values: Any) -> np.ndarray:
    """Convert a pandas column (N,) to strings, None where missing."""
    missing = values.isna().to_numpy()
    out = np.empty(len(values), dtype=object)
    for i, value in enumerate(values.tolist()):
        if isinstance(value, list | dict | tuple | set | np.ndarray | bytes):
            row, kind = row_number(values, i), "bytes" if isinstance(value, bytes) else f"a {type(value).__name__}"
            raise Misuse(f"column '{values.name}' holds {kind} in row {row}: expected text")
        out[i] = None if missing[i] else as_text(value)
    return out
