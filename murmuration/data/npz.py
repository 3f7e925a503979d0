"""Arrays in `.npz` and `.npy` files, read a few rows at a time; nothing in them is ever unpickled.

An .npz is a zip archive of .npy files. An uncompressed array (`np.savez`) is memory-mapped inside the archive. A
compressed one (`np.savez_compressed`) is first unpacked to a temporary file, which is deleted with the last object that
reads it.
"""

import contextlib
import math
import shutil
import struct
import sys
import tempfile
import tokenize
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar

import numpy as np

from murmuration.data.file_rows import FileRows, require_unpacked
from murmuration.system.errors import Failure, Misuse, first_line

LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a file in a zip: signature, ..., lengths of its name and its extra field
ROWS_AT_ONCE = 64  # of scattered rows: for each member each brings 64 kB of the file into memory
COPIED_AT_ONCE = 2**20  # bytes
Rows = slice | np.ndarray  # a range of rows, or their indices
MAGIC = b"\x93NUMPY"  # that an .npy file begins with
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# that numpy does not catch when it parses a damaged header
HEADER_ERRORS = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError)


class Folder:
    """A temporary folder that is removed with the last reference to it, or when Python ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="murmur-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class Stored:
    """An uncompressed array inside a file."""

    path: Path
    start: int  # of the .npy file, in bytes
    header: "Header"
    folder: Folder | None = None  # keeps an unpacked file alive

    def read(self, rows: Rows, axis: int) -> np.ndarray:
        """Copy rows along an axis as float64.

        The file is mapped again each time: otherwise pages that were read would stay in the process.
        """
        if isinstance(rows, slice) or len(rows) <= ROWS_AT_ONCE:
            mapped = self.mapped()
            return np.array(mapped[rows] if axis == 0 else mapped[:, rows], dtype=np.float64)
        parts = np.split(rows, range(ROWS_AT_ONCE, len(rows), ROWS_AT_ONCE))
        return np.concatenate([self.read(part, axis) for part in parts], axis=axis)

    def at(self, places: np.ndarray) -> np.ndarray:
        """Copy the rows (n, ...) at these indices in their type; the file is mapped again each time."""
        return np.ascontiguousarray(self.mapped()[places])

    def rows(self) -> FileRows:
        """Wrap the array as rows that stay in the file."""
        return FileRows(self.at, self.header.shape[1:], self.header.dtype, np.arange(self.header.shape[0]))

    def mapped(self) -> np.ndarray:
        """Map the array into memory."""
        head, order = self.header, "F" if self.header.fortran else "C"
        try:
            return np.memmap(self.path, head.dtype, "r", self.start + head.length, head.shape, order)  # type: ignore[call-overload]
        except (OSError, ValueError) as error:
            raise Failure(f"cannot read '{self.path}': {error}".splitlines()[0]) from None


@dataclass(frozen=True)
class Header:
    """The header of an .npy file."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool  # the first axis varies fastest
    length: int  # of the header itself, in bytes

    @property
    def end(self) -> int:
        """The end of the array, in bytes from the start of the .npy file."""
        return self.length + math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Archive:
    """The arrays of an .npz by name, or the only one of an .npy."""

    path: Path
    members: dict[str, zipfile.ZipInfo | None]  # None: the file itself is an .npy
    noun: ClassVar[str] = "array"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.members)

    def header(self, name: str) -> Header:
        """Read the shape and type of one array of numbers or strings."""
        with self.opened(name) as file:
            header = read_header(file, name)
            size = self.path.stat().st_size if (info := self.members[name]) is None else info.file_size
        if header.end != size:
            expected = f"{header.dtype} {header.shape}"
            raise Failure(f"array {name} of '{self.path}' is cut off: {size} bytes where {expected} needs {header.end}")
        return header

    def values(self, name: str) -> np.ndarray:
        """Read one small array (N,) or (N, K), or a number (), in its type."""
        header = self.header(name)
        if len(header.shape) > 2:
            raise Misuse(f"array {name} of shape {header.shape}: expected one value a row, (N,)")
        return self.array(name)

    def array(self, name: str) -> np.ndarray:
        """Read one array in its type, strings as str; refuse a compressed one that unpacks to too many bytes."""
        header = self.header(name)
        if self.is_compressed(name):
            require_unpacked(f"array {name} of '{self.path}'", header.end)
        with self.opened(name) as file:
            values = np.lib.format.read_array(file, allow_pickle=False)
        if values.dtype.kind == "U" and values.nbytes:  # four bytes a character
            codes = np.ascontiguousarray(values, values.dtype.newbyteorder("=")).reshape(-1).view(np.uint32)
            if codes.max() > sys.maxunicode:
                raise Failure(f"array {name} of '{self.path}' is damaged: it contains an invalid Unicode code point")
        return np.char.decode(values, "utf-8", "replace") if values.dtype.kind == "S" else values

    def is_compressed(self, name: str) -> bool:
        """Return whether an array is compressed in the archive, so that it cannot be read row by row."""
        info = self.members[name]
        return info is not None and info.compress_type != zipfile.ZIP_STORED

    def stored(self, name: str) -> Stored:
        """Open one array of numbers to be read a few rows at a time; unpack a compressed one to a temporary file."""
        header, info = self.header(name), self.members[name]
        if header.dtype.kind not in "iufb":
            raise Misuse(f"array {name} holds {kind_of(header.dtype)}: expected numbers")
        if self.is_compressed(name):
            folder = Folder()
            self.unpack(name, folder.path / "array.npy")
            return Stored(folder.path / "array.npy", 0, header, folder)
        start = 0 if info is None else start_of(self.path, info)
        if start + header.end > self.path.stat().st_size:
            raise Failure(f"array {name} of '{self.path}' is cut off: the file ends before it")
        return Stored(self.path, start, header)

    def unpack(self, name: str, path: Path) -> None:
        """Unpack the .npy file of one array to `path`, a piece at a time."""
        hint = "free some space, set TMPDIR to a larger disk, or write the file with np.savez"
        with self.opened(name) as packed, contextlib.ExitStack() as stack:
            try:
                shutil.copyfileobj(packed, stack.enter_context(open(path, "wb")), COPIED_AT_ONCE)
            except OSError as error:
                failed = f"cannot unpack array {name} of '{self.path}' to {path.parent}"
                raise Failure(f"{failed}: {error}; {hint}") from None

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        """Open the .npy file of one array for reading; a damaged one raises a one-line `Failure`."""
        with readable(self.path), contextlib.ExitStack() as stack:
            if (info := self.members[name]) is None:
                yield stack.enter_context(open(self.path, "rb"))
            else:
                yield stack.enter_context(stack.enter_context(zipfile.ZipFile(self.path)).open(info))


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn the errors of damaged files into a one-line `Failure`."""
    try:
        yield
    except MemoryError:
        raise Failure(f"cannot read '{path}': not enough memory for its arrays") from None
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, ValueError, OverflowError) as error:
        if isinstance(error, Misuse | Failure):
            raise
        raise Failure(f"cannot read '{path}': {first_line(error)}") from None


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Prefix a refusal with the name of the file, unless it contains it already."""
    try:
        yield
    except Misuse as error:
        raise error if f"'{path}'" in str(error) else Misuse(f"'{path}': {error}") from None


def open_archive(path: Path) -> Archive:
    """Open an .npz file and list its arrays by name."""
    if not path.stat().st_size:
        raise Misuse(f"'{path}' is empty: expected arrays, as np.savez writes them")
    if not zipfile.is_zipfile(path):
        with readable(path), open(path, "rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                raise Misuse(f"'{path}' holds a single array: expected an npz archive; a file of one array is .npy")
        raise Failure(f"'{path}' is not an npz archive, or is cut off: expected what np.savez writes; write it again")
    with readable(path), zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist() if info.file_size}
    if not members:
        raise Misuse(f"'{path}' holds no arrays: expected them as np.savez writes them")
    return Archive(path, dict(members))


def open_array(path: Path, name: str) -> Archive:
    """Open an .npy file as an archive of one array with this name."""
    if not path.stat().st_size:
        raise Misuse(f"'{path}' is empty: expected an array, as np.save writes it")
    return Archive(path, {name: None})


def read_header(file: IO[bytes], name: str) -> Header:
    """Read the header of an open .npy file; refuse Python objects, which would have to be unpickled."""
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"array {name} is of npy version {version}")
    try:
        shape, fortran, dtype = HEADERS[version](file)
    except HEADER_ERRORS:
        raise ValueError(f"the head of array {name} is damaged; write it again") from None
    if dtype.kind not in "iufbUS":
        expected = "expected numbers or texts, such as np.array(values.tolist())"
        raise Misuse(f"array {name} holds {kind_of(dtype)}: {expected}")
    return Header(shape, dtype, fortran, file.tell())


def kind_of(dtype: np.dtype) -> str:
    """Describe the contents of an array of this type."""
    return {"O": "Python objects", "U": "texts", "S": "texts", "c": "complex numbers"}.get(dtype.kind, f"{dtype}")


def start_of(path: Path, info: zipfile.ZipInfo) -> int:
    """Return the offset of a stored file's bytes in a zip archive: after its local header of variable length."""
    with readable(path), open(path, "rb") as file:
        file.seek(info.header_offset)
        head = file.read(30)
        if len(head) < 30 or (lengths := LOCAL_HEADER.unpack(head))[0] != b"PK\x03\x04":
            raise Failure(f"'{path}' is damaged: no file begins where its list says; write it again")
    return info.header_offset + 30 + lengths[1] + lengths[2]
