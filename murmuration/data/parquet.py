"""Parquet tables that stay in their file: columns are read one at a time, rows by row groups.

Statistics need whole columns, and one column fits into memory where a table does not. Training draws rows in random
order, which Parquet cannot give, so prepared rows are first written to a temporary file.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.data.file_rows import FileRows
from murmuration.data.npz import Folder, Header, Stored
from murmuration.system.errors import Failure, first_line

PREPARED_AT_ONCE = 8192  # rows of a table


@dataclass(frozen=True, eq=False)
class FileTable:
    """A table in a Parquet file: `table[name]` reads a column, `read` reads rows; `iloc` and `drop` select."""

    path: Path
    columns: Any  # pandas.Index of those that were not dropped
    places: np.ndarray  # (N,) rows of the file

    def __len__(self) -> int:
        return len(self.places)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.columns)

    @property
    def size(self) -> int:
        return len(self) * len(self.columns)

    def __getitem__(self, name: str) -> Any:
        """Read one column as a pandas Series, whose index are the rows of the file."""
        return read_frame(self.path, [name])[name].iloc[self.places]

    @cached_property
    def texts(self) -> list[str]:
        """The columns that hold texts."""
        import pyarrow.types as types

        with opened(self.path) as file:
            schema = file.schema_arrow
        kinds = {name: schema.field(name).type for name in self.columns}
        return [name for name, kind in kinds.items() if types.is_string(kind) or types.is_large_string(kind)]

    @property
    def iloc(self) -> "Rows":
        return Rows(self)

    def subset(self, rows: Any) -> "FileTable":
        """Select rows, still in the file."""
        return replace(self, places=self.places[rows])

    def drop(self, columns: list[str]) -> "FileTable":
        """Remove columns."""
        return replace(self, columns=self.columns.drop(columns))

    def read(self, places: np.ndarray) -> Any:
        """Read the rows (n,) of the file as a pandas table; fast for consecutive rows."""
        import pandas as pd

        groups = np.searchsorted(self.ends, places, side="right")
        starts = np.concatenate([[0], self.ends[:-1]])
        orders, parts = [], []
        for group in dict.fromkeys(groups.tolist()):
            orders.append(order := np.flatnonzero(groups == group))
            frame = read_group(self.path, group, tuple(self.columns))
            parts.append(frame.iloc[places[order] - starts[group]].set_axis(places[order]))
        return parts[0] if len(parts) == 1 else pd.concat(parts).iloc[np.argsort(np.concatenate(orders))]

    @cached_property
    def ends(self) -> np.ndarray:
        """The row after the last one of every row group (G,)."""
        with opened(self.path) as file:
            return np.cumsum([file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)])


@dataclass(frozen=True)
class Rows:
    """`table.iloc`: selection of rows by their positions."""

    table: FileTable

    def __getitem__(self, rows: Any) -> FileTable:
        return self.table.subset(rows)


def opened(path: Path) -> Any:
    """Open a Parquet file; a damaged one raises a one-line `Failure`."""
    import pyarrow.parquet as parquet

    try:
        return parquet.ParquetFile(path)
    except Exception as error:  # pyarrow raises errors of many types for damaged files
        raise Failure(f"cannot read '{path}' as parquet: {first_line(error)}") from None


def read_frame(path: Path, columns: list[str] | None = None) -> Any:
    """Read columns of a Parquet file, all by default, as a pandas table."""
    import pandas as pd

    try:
        return pd.read_parquet(path, columns=columns)
    except Exception as error:  # as above
        raise Failure(f"cannot read '{path}' as parquet: {first_line(error)}") from None


@lru_cache(maxsize=1)
def read_group(path: Path, group: int, columns: tuple[str, ...]) -> Any:
    """Read one row group as a pandas table; the last one is cached, for consecutive rows."""
    with opened(path) as file:
        try:
            return file.read_row_group(group, columns=list(columns)).to_pandas(ignore_metadata=False)
        except Exception as error:  # as above
            raise Failure(f"cannot read row group {group} of '{path}': {first_line(error)}") from None


def size_of(path: Path) -> tuple[int, int]:
    """Return the numbers of rows and of columns in a Parquet file."""
    with opened(path) as file:
        return file.metadata.num_rows, len(file.schema_arrow.names)


def open_file_table(path: Path) -> tuple[FileTable, Any]:
    """Open the table in a Parquet file without reading it, and return it with its pandas index."""
    import pandas as pd

    frame = read_frame(path, [])
    with opened(path) as file:
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_")]
        columns, rows = pd.Index([name for name in names if name not in frame.index.names]), file.metadata.num_rows
    index = frame.index if len(frame.index) == rows else pd.RangeIndex(rows)
    return FileTable(path, columns, np.arange(rows)), index


def prepared_rows(table: FileTable, apply: Callable[[Any], Any], width: int) -> FileRows:
    """Write the prepared rows (N, width) float32 of a table to a temporary file, which is deleted when unused."""
    folder = Folder()
    file = folder.path / "prepared.bin"
    try:
        with open(file, "wb") as out:
            for first in range(0, len(table), PREPARED_AT_ONCE):
                frame = table.read(table.places[first : first + PREPARED_AT_ONCE])
                out.write(np.ascontiguousarray(apply(frame).numpy(), dtype=np.float32).tobytes())
    except OSError as error:
        failed = f"cannot write prepared rows to {folder.path}: {first_line(error)}"
        raise Failure(f"{failed}; set TMPDIR to a larger disk") from None
    return Stored(file, 0, Header((len(table), width), np.dtype(np.float32), False, 0), folder).rows()
