"""Inputs that stay in files until rows are needed (arrays, images), and their reduction block by block.

Sums, extremes and quantiles of rows in files come from the same blocks of rows as those of arrays in memory, so the
statistics of a preparation are bit-identical.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from murmuration.system.errors import Failure, Misuse

STREAMED_BYTES = 2**30  # of inputs in single precision; files with more are read when their rows are needed
UNPACKED_BYTES = 2**30  # of compressed arrays, which cannot be read row by row; larger ones are refused
BLOCK = 1 << 18  # values held in float64 at once: 2 MB, about what a core caches
COLUMN_BYTES = 2**28  # of columns in double precision that are sorted at once

MIN_DECODED_IN_WORKERS = 512  # images; for fewer, starting processes takes longer than decoding
READ_AT_ONCE = 64  # images that a process decodes at a time


@dataclass(frozen=True, eq=False)
class FileRows:
    """Inputs (N, ...) in files; `rows[:64]` and `rows[indices]` are arrays in memory, `subset` is still to be read."""

    read: Callable[[np.ndarray], np.ndarray]  # places (n,) in the file -> (n, ...)
    example: tuple[int, ...]  # the shape of one of them
    dtype: np.dtype
    places: np.ndarray  # (N,) int64
    workers: int = 0  # processes that read; 0: this one

    def __len__(self) -> int:
        return len(self.places)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.example)

    @property
    def ndim(self) -> int:
        return 1 + len(self.example)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def subset(self, rows: Any) -> "FileRows":
        """Select rows, still in the file."""
        return replace(self, places=self.places[rows])

    def __getitem__(self, rows: Any) -> np.ndarray:
        places = self.places[rows]
        if not self.workers or len(places) < MIN_DECODED_IN_WORKERS:
            return self.read(places)
        out = np.empty((len(places), *self.example), self.dtype)
        parts = [slice(at, at + READ_AT_ONCE) for at in range(0, len(places), READ_AT_ONCE)]
        for part, values in zip(parts, self.batches(places[part] for part in parts), strict=True):
            out[part] = values
        return out

    def batches(self, requests: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the rows at the places (n,) of each request; worker processes read ahead."""
        if not self.workers:
            yield from map(self.read, requests)
            return
        from torch import Generator
        from torch.utils.data import DataLoader

        # any iterable of batches will do; without a generator, torch's global one would advance
        sampling: Any = {"batch_sampler": requests, "generator": Generator(), "collate_fn": lambda batch: batch}
        rows: Any = Batches(self.read)
        for batch in DataLoader(rows, num_workers=self.workers, multiprocessing_context="fork", **sampling):
            if isinstance(batch, Exception):
                raise batch
            yield batch

    def then(self, change: Callable[[np.ndarray], np.ndarray], example: tuple[int, ...]) -> "FileRows":
        """Apply `change` to the rows whenever they are read; `example` is the shape of one result."""
        return replace(self, read=lambda places: change(self.read(places)), example=example)


@dataclass(frozen=True)
class Batches:
    """A torch data set that is read by batches: `__getitems__` instead of one example at a time."""

    read: Callable[[np.ndarray], np.ndarray]

    def __getitems__(self, places: np.ndarray) -> np.ndarray | Exception:
        """Read rows, or return the error, which torch would wrap in a traceback of the worker process."""
        try:
            return self.read(places)
        except (Misuse, Failure) as error:
            return error


def rows_of(values: np.ndarray) -> FileRows:
    """Wrap an array (N, ...), in memory or memory-mapped, as rows that are copied when they are read."""
    return FileRows(values.__getitem__, values.shape[1:], values.dtype, np.arange(len(values)))


def joined_rows(parts: list[FileRows]) -> FileRows:
    """Concatenate the rows of parts."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *map(len, parts)])

    def read(places: np.ndarray) -> np.ndarray:
        out = np.empty((len(places), *parts[0].example), parts[0].dtype)
        for part, first, last in zip(parts, starts[:-1], starts[1:], strict=True):
            if (inside := (places >= first) & (places < last)).any():
                out[inside] = part.read(part.places[places[inside] - first])
        return out

    return replace(parts[0], read=read, places=np.arange(starts[-1]))


def is_streamed(in_memory: bool | None, values: int) -> bool:
    """Return whether a file with this number of input values is read row by row: by the option, or else by its size."""
    return 4 * values > STREAMED_BYTES if in_memory is None else not in_memory


UNCOMPRESSED = "write it uncompressed (np.savez), and it is read as its rows are needed"


def require_unpacked(place: str, size: int, write: str = UNCOMPRESSED) -> None:
    """Refuse compressed contents that unpack to more bytes than are read into memory; `write` says what to do."""
    if size > UNPACKED_BYTES:
        problem, most = f"{place} is compressed and unpacks to {size / 2**30:.1f} GiB", UNPACKED_BYTES / 2**30
        raise Misuse(f"{problem}: expected at most {most:g}; {write}")


# Reductions


def blocks(values: Any) -> Iterator[slice]:
    """Cut an array (N, ...) into slices of rows of at most `BLOCK` values."""
    rows = max(1, BLOCK * len(values) // max(values.size, 1))
    return (slice(start, start + rows) for start in range(0, len(values), rows))


def pieces(values: Any) -> Iterator[np.ndarray]:
    """Iterate over the blocks of an array (N, ...), or of rows in files."""
    if isinstance(values, FileRows):
        return values.batches(values.places[rows] for rows in blocks(values))
    return (values[rows] for rows in blocks(values))


def extremes(values: Any) -> tuple[Any, Any]:
    """Return the smallest and the largest value of an array (N, ...), or of rows in files; NaN if there is one."""
    if not isinstance(values, FileRows):
        return values.min(), values.max()
    bounds = [(part.min(), part.max()) for part in pieces(values)]
    return np.min([low for low, _ in bounds]), np.max([high for _, high in bounds])


def channel_extremes(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest values (C,) of columns or channels of an array (N, C, ...), or rows in files."""
    axes = (0, *range(2, values.ndim))
    bounds = [(part.min(axis=axes), part.max(axis=axes)) for part in pieces(values)]
    return np.min([low for low, _ in bounds], axis=0), np.max([high for _, high in bounds], axis=0)


def column_groups(values: Any) -> Iterator[np.ndarray]:
    """Yield columns (N, d) in double precision of an array (N, D), or of rows in files as many as fit into memory."""
    if not isinstance(values, FileRows):
        return iter([values.astype(np.float64)])
    width = max(1, COLUMN_BYTES // (8 * max(1, len(values))))
    groups = (slice(first, first + width) for first in range(0, values.shape[1], width))
    return (np.concatenate([part[:, group].astype(np.float64) for part in pieces(values)]) for group in groups)
