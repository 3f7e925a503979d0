"""Files of tables -> pandas tables: `.csv` and `.tsv`, also compressed, `.xlsx` and `.parquet`."""

import csv
import gzip
import importlib.util
import io
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from murmuration.data.columns import is_numeric, to_numbers
from murmuration.data.file_rows import require_unpacked
from murmuration.data.local_forms import MIN_NUMBERS, forms_of, is_number
from murmuration.data.parquet import read_frame
from murmuration.system.errors import Failure, Misuse, first_line, listed, warn

SEPARATORS = (",", ";", "\t")
BLANKS = [" ", "  "]  # cells that pandas does not take for missing
CHUNK = 1 << 20  # bytes unpacked at a time


def is_table_file(source: Any) -> bool:
    """Return whether a source is the path of a file of a table, by its name."""
    return isinstance(source, Path) and source.is_file() and ending(source) is not None


def ending(path: Path) -> str | None:
    """Return the ending of a file in `TABLE_FILES`, or None.

    >>> ending(Path("a.b.CSV.gz")), ending(Path("a.csv.zip"))
    ('.csv.gz', None)
    """
    return next((suffix for suffix in TABLE_FILES if path.name.lower().endswith(suffix)), None)


def read_table_file(path: Path) -> Any:
    """Return the pandas table in a file."""
    return TABLE_FILES[ending(path) or ".csv"](path)


def read_csv(path: Path) -> Any:
    """Return the pandas table in a text file with a header line, separated by commas, semicolons or tabs."""
    import pandas as pd

    try:
        contents = unpacked(path) if path.suffix.lower() == ".gz" else None
        with opened(path, contents) as lines:
            header = lines.readline()
        separator = max(SEPARATORS, key=header.count)
        with opened(path, contents) as lines:
            names = [name.strip() for name in next(csv.reader(lines, delimiter=separator), [])]
        source = path if contents is None else io.BytesIO(contents)
        reading: Any = {"encoding": "utf-8-sig", "low_memory": False, "na_values": BLANKS}
        table = pd.read_csv(source, sep=separator, **reading)
    except pd.errors.EmptyDataError:
        raise Misuse(f"'{path}' is empty: expected a header line and rows") from None
    except UnicodeDecodeError:
        raise Misuse(f"'{path}' is not text in UTF-8: expected a CSV file") from None
    except pd.errors.ParserError as error:
        raise Misuse(f"'{path}' is not a CSV file: {str(error).strip().splitlines()[-1]}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise Failure(f"cannot read '{path}': {first_line(error)}") from None
    repeated = [name for name, count in Counter(filter(None, names)).items() if count > 1]
    if repeated:  # pandas would rename it, and a second target would become an input
        raise Misuse(f"'{path}' has two columns '{repeated[0]}': expected every name once")
    if not isinstance(table.index, pd.RangeIndex):
        raise Misuse(f"'{path}' is not a CSV file: its rows have more fields than its header has names")
    if all(is_number(str(name)) for name in table.columns):
        raise Misuse(f"the first line of '{path}' holds numbers: expected a header line with column names")
    return with_decimal_commas(table) if separator == ";" else table


def opened(path: Path, contents: bytes | None) -> Any:
    """Open the text of a file, or of its contents if they were unpacked."""
    if contents is None:
        return path.open(encoding="utf-8-sig", newline="")
    return io.TextIOWrapper(io.BytesIO(contents), encoding="utf-8-sig", newline="")


def unpacked(path: Path) -> bytes:
    """Unpack a gzip file; refuse one that unpacks to more than `UNPACKED_BYTES`."""
    parts, size = [], 0
    with gzip.open(path) as file:
        while part := file.read(CHUNK):
            size += len(part)
            require_unpacked(f"'{path}'", size, "write .parquet, of which rows are read when they are needed")
            parts.append(part)
    return b"".join(parts)


def with_decimal_commas(table: Any) -> Any:
    """Read 1,234 as a decimal number where semicolons separate the columns: nothing else would tell it from 1234."""
    texts = {name: table[name].dropna().unique().tolist() for name in table.columns if not is_numeric(table[name])}
    both = [name for name, cells in texts.items() if forms_of(list(map(str, cells))) == ["decimal comma", "thousands"]]
    both = [name for name in both if len(texts[name]) >= MIN_NUMBERS]
    return table.assign(**{name: to_numbers(table[name], "decimal comma") for name in both}) if both else table


def read_excel(path: Path) -> Any:
    """Return the pandas table in the first sheet of an Excel file; its first row holds the names of the columns."""
    import pandas as pd

    if importlib.util.find_spec("openpyxl") is None:
        raise Misuse(f"reading '{path}' needs openpyxl: pip install openpyxl")
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            require_unpacked(f"'{path}'", size, "write .parquet, of which rows are read when they are needed")
        with pd.ExcelFile(path, engine="openpyxl") as book:
            sheets, table = book.sheet_names, book.parse(0, na_values=BLANKS)
    except Misuse:
        raise
    except Exception as error:  # openpyxl raises errors of many types for damaged files
        raise Failure(f"cannot read '{path}' as .xlsx: {first_line(error)}") from None
    if len(sheets) > 1:
        warn(f"'{path}' has {len(sheets)} sheets ({listed(map(str, sheets))}): the first is read")
    table = table.dropna(how="all").reset_index(drop=True)
    if not len(table.columns):
        raise Misuse(f"'{path}' is empty: expected a row of column names and rows")
    return table


# Ending of a file -> what reads it. The first that fits is taken.
TABLE_FILES: dict[str, Callable[[Path], Any]] = {
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), read_csv),
    ".xlsx": read_excel,
    ".parquet": read_frame,
}
