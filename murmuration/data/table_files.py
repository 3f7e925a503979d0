"""Files of tables -> pandas tables: `.csv` and `.tsv`, also compressed, `.xlsx` and `.parquet`."""

import codecs
import csv
import gzip
import importlib.util
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from murmuration.data.columns import is_numeric
from murmuration.data.file_rows import require_unpacked
from murmuration.data.local_forms import MIN_NUMBERS, forms_of, is_number
from murmuration.data.parquet import read_frame
from murmuration.system.errors import Failure, Misuse, first_line, listed, warn

SEPARATORS = (",", ";", "\t")
EXCEL_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)  # the first line that Excel writes or asks for
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


def read_table_file(path: Path, as_text: Sequence[str] = ()) -> Any:
    """Return the pandas table in a file; cells of the columns `as_text` of a text file are not parsed."""
    reader = TABLE_FILES[ending(path) or ".csv"]
    return read_csv(path, as_text) if reader is read_csv else reader(path)


def is_text_file(source: Any) -> bool:
    """Return whether a source is the path of a text file of a table, by its name."""
    return is_table_file(source) and TABLE_FILES[ending(source) or ""] is read_csv


def read_cells(path: Path, names: Sequence[str]) -> Any:
    """Return columns of a text file as they stand there, "NA" and "007" too."""
    return read_csv(path, names, missing=False)[list(names)]


def read_csv(path: Path, as_text: Sequence[str] = (), missing: bool = True) -> Any:
    """Return the pandas table in a text file with a header line, separated by commas, semicolons or tabs.

    The text is UTF-8, UTF-16 with a byte-order mark, or else Windows-1252, with a note. Cells of the columns `as_text`
    are not parsed; with `missing=False`, no cell is missing.
    """
    try:
        contents = unpacked(path) if path.suffix.lower() == ".gz" else None
        with path.open("rb") if contents is None else io.BytesIO(contents) as file:
            marked = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        try:
            return parsed_csv(path, contents, "utf-16" if marked else "utf-8-sig", as_text, missing)
        except UnicodeError:
            if marked:
                raise
        table = parsed_csv(path, contents, "cp1252", as_text, missing)
    except UnicodeError:
        raise Misuse(f"'{path}' is not text in UTF-8, UTF-16 or Windows-1252: expected a CSV file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise Failure(f"cannot read '{path}': {first_line(error)}") from None
    warn(f"'{path}' is not text in UTF-8: it is read as Windows-1252; save it as UTF-8 if letters look wrong")
    return table


def parsed_csv(path: Path, contents: bytes | None, encoding: str, as_text: Sequence[str], missing: bool) -> Any:
    """Return the pandas table in a file, or in its contents if they were unpacked, with text in this encoding."""
    import pandas as pd

    with opened(path, contents, encoding) as lines:
        header = lines.readline()
        stated = EXCEL_SEPARATOR.fullmatch(header.strip("\r\n"))
        header = lines.readline() if stated else header
        separator = stated[1] if stated else max(SEPARATORS, key=header.count)
        names = [name.strip() for name in next(csv.reader(chain([header], lines), delimiter=separator), [])]
    if "\0" in header:
        raise UnicodeError
    source = path if contents is None else io.BytesIO(contents)
    reading: Any = {"encoding": encoding, "low_memory": False, "na_values": BLANKS, "skiprows": int(bool(stated))}
    reading |= {"dtype": dict.fromkeys(as_text, str), "na_filter": missing}
    first = "expected the header in the first line, with a name for each column"
    try:
        table = pd.read_csv(source, sep=separator, **reading)
    except pd.errors.EmptyDataError:
        raise Misuse(f"'{path}' is empty: expected a header line and rows") from None
    except pd.errors.ParserError as error:
        if fields := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error)):
            raise Misuse(
                f"'{path}' has {fields[3]} fields in line {fields[2]} and {fields[1]} before: {first}"
            ) from None
        raise Misuse(f"'{path}' is not a CSV file: {str(error).strip().splitlines()[-1]}") from None
    repeated = [name for name, count in Counter(filter(None, names)).items() if count > 1]
    if repeated:  # pandas would rename it, and a second target would become an input
        raise Misuse(f"'{path}' has two columns '{repeated[0]}': expected every name once")
    if not isinstance(table.index, pd.RangeIndex):
        raise Misuse(f"the rows of '{path}' have more fields than its first line has names: {first}")
    if all(is_number(str(name)) for name in table.columns):
        raise Misuse(f"the first line of '{path}' holds numbers: expected a header line with column names")
    return with_decimal_commas(table, as_text) if separator == ";" else table


def opened(path: Path, contents: bytes | None, encoding: str) -> Any:
    """Open the text of a file, or of its contents if they were unpacked."""
    if contents is None:
        return path.open(encoding=encoding, newline="")
    return io.TextIOWrapper(io.BytesIO(contents), encoding=encoding, newline="")


def unpacked(path: Path) -> bytes:
    """Unpack a gzip file; refuse one that unpacks to more than `UNPACKED_BYTES`."""
    parts, size = [], 0
    with gzip.open(path) as file:
        while part := file.read(CHUNK):
            size += len(part)
            require_unpacked(f"'{path}'", size, "write .parquet, of which rows are read when they are needed")
            parts.append(part)
    return b"".join(parts)


def with_decimal_commas(table: Any, as_text: Sequence[str]) -> Any:
    """Write 1,234 as 1,2340 where semicolons separate the columns: nothing else would tell it from 1234."""
    parsed = [name for name in table.columns if name not in as_text and not is_numeric(table[name])]
    texts = {name: table[name].dropna().unique().tolist() for name in parsed}
    both = [name for name, cells in texts.items() if forms_of(list(map(str, cells))) == ["decimal comma", "thousands"]]
    both = [name for name in both if len(texts[name]) >= MIN_NUMBERS]
    longer = {name: table[name].str.replace(r"(,\d+)", r"\g<1>0", regex=True) for name in both}
    return table.assign(**longer) if both else table


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
