"""Inputs that stay in files until some rows are asked for: arrays, images, and how they are reduced piece by piece.

Sums, extremes and quantiles of rows in files come from the same blocks of rows as those of arrays in memory, so the
statistics of a preparation are equal bit for bit.
"""

import math
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from murmuration.system.errors import Failure, Misuse

STREAMED_BYTES = 2**30  # of inputs in single precision; files with more are read when their rows are needed
UNPACKED_BYTES = 2**30  # of compressed arrays, which cannot be read row by row; larger ones are refused
BLOCK = 1 << 18  # values held in float64 at once: 2 MB, about what a core caches
COLUMN_BYTES = 2**28  # of columns in double precision that are sorted at once
MOST_WORKERS = 4  # processes that decode images
FEWEST_DECODED = 512  # images that are worth the start of such processes
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
        """Some of the rows, still in the file."""
        return replace(self, places=self.places[rows])

    def __getitem__(self, rows: Any) -> np.ndarray:
        chosen = self.places[rows]
        if self.workers and len(chosen) >= FEWEST_DECODED:
            out = np.empty((len(chosen), *self.example), self.dtype)
            parts = [slice(at, at + READ_AT_ONCE) for at in range(0, len(chosen), READ_AT_ONCE)]
            for rows_of, part in zip(parts, self.batches(chosen[part] for part in parts), strict=True):
                out[rows_of] = part
            return out
        return self.read(chosen)

    def batches(self, requests: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """The rows at each of the places (n,) asked for; worker processes read ahead."""
        if not self.workers:
            yield from map(self.read, requests)
            return
        from torch import Generator
        from torch.utils.data import DataLoader

        loader: DataLoader = DataLoader(
            Batches(self.read),  # type: ignore[arg-type]
            batch_sampler=requests,  # type: ignore[arg-type]  # any iterable will do
            num_workers=self.workers,
            collate_fn=as_read,  # type: ignore[arg-type]
            generator=Generator(),  # or torch's global one would be drawn from
            multiprocessing_context="fork",
        )
        for batch in loader:
            if isinstance(batch, Exception):
                raise batch
            yield batch

    def then(self, change: Callable[[np.ndarray], np.ndarray], example: tuple[int, ...]) -> "FileRows":
        """The same rows with their arrays changed whenever they are read."""
        return replace(self, read=partial(_changed, self.read, change), example=example)


@dataclass(frozen=True)
class Batches:
    """A torch data set of which whole batches are asked for: `__getitems__` instead of one example at a time."""

    read: Callable[[np.ndarray], np.ndarray]

    def __getitems__(self, places: np.ndarray) -> np.ndarray | Exception:
        """The rows; or the error, which torch would wrap in a traceback of the worker process."""
        try:
            return self.read(places)
        except (Misuse, Failure) as error:
            return error


def as_read(batch: np.ndarray) -> np.ndarray:
    """A batch as it was read: there is nothing to collate."""
    return batch


def _changed(
    read: Callable[[np.ndarray], np.ndarray], change: Callable[[np.ndarray], np.ndarray], places: np.ndarray
) -> np.ndarray:
    return change(read(places))


def rows_of(values: np.ndarray) -> FileRows:
    """An array (N, ...), in memory or memory-mapped, as rows of which some are copied when they are asked for."""
    return FileRows(values.__getitem__, values.shape[1:], values.dtype, np.arange(len(values)))


def joined_rows(parts: list[FileRows]) -> FileRows:
    """The rows of several parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *map(len, parts)])

    def read(places: np.ndarray) -> np.ndarray:
        out = np.empty((len(places), *parts[0].example), parts[0].dtype)
        for part, first, last in zip(parts, starts[:-1], starts[1:], strict=True):
            inside = (places >= first) & (places < last)
            if inside.any():
                out[inside] = part.read(part.places[places[inside] - first])
        return out

    return replace(parts[0], read=read, places=np.arange(starts[-1]))


def decoding_workers() -> int:
    """The number of processes that decode images: one for each core up to four, where processes can be forked."""
    return min(MOST_WORKERS, os.cpu_count() or 1) if "fork" in multiprocessing.get_all_start_methods() else 0


def is_streamed(in_memory: bool | None, values: int) -> bool:
    """Whether a file of so many input values is read when rows are needed: as asked, or by its size."""
    return 4 * values > STREAMED_BYTES if in_memory is None else not in_memory


def require_unpacked(place: str, size: int) -> None:
    """Refuse compressed contents that unpack to more bytes than are read into memory."""
    if size > UNPACKED_BYTES:
        raise Misuse(
            f"{place} is compressed and unpacks to {size / 2**30:.1f} GiB: expected at most {UNPACKED_BYTES / 2**30:g};"
            " write it uncompressed (np.savez), and it is read as its rows are needed"
        )


# Reductions


def blocks(values: Any) -> Iterator[slice]:
    """Slices of rows that cover an array (N, ...)."""
    rows = max(1, BLOCK * len(values) // max(values.size, 1))
    return (slice(start, start + rows) for start in range(0, len(values), rows))


def pieces(values: Any) -> Iterator[np.ndarray]:
    """The blocks of an array (N, ...), or of rows in files, one after the other."""
    if isinstance(values, FileRows):
        return values.batches(values.places[rows] for rows in blocks(values))
    return (values[rows] for rows in blocks(values))


def extremes(values: Any) -> tuple[Any, Any]:
    """The smallest and the largest value of an array (N, ...), or of rows in files; NaN if there is one."""
    if not isinstance(values, FileRows):
        return values.min(), values.max()
    found = [(part.min(), part.max()) for part in pieces(values)]
    return np.min([low for low, _ in found]), np.max([high for _, high in found])


def column_groups(values: Any) -> Iterator[np.ndarray]:
    """Columns (N, d) in double precision of an array (N, D), or of rows in files as many as fit into memory."""
    if not isinstance(values, FileRows):
        yield values.astype(np.float64)
        return
    width = max(1, COLUMN_BYTES // (8 * max(1, len(values))))
    for first in range(0, values.shape[1], width):
        yield np.concatenate([part[:, first : first + width].astype(np.float64) for part in pieces(values)])
