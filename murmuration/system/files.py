"""Atomic writing of files: JSON, bytes and tensors.

Every file is written under a temporary name beside it, `.FILE.PROCESS.partial`, flushed to the disk and renamed, so
that a killed process leaves either the old file or the new one. The next writer of the file removes what processes that
have ended left under such names. Tensors are safetensors and the rest is JSON: nothing is ever unpickled. A JSON
record may hold the digest of its other entries, which is checked on reading.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from murmuration.system.errors import Failure, Misuse
from murmuration.system.process_names import has_ended, process_name

DAMAGED = "the run is damaged"
ALIGNMENT = 64  # bytes: the addresses of torch's own tensors on a CPU
PARTIAL = re.compile(r"\.(?P<file>.+?)(?:\.parts)?\.(?P<machine>[A-Za-z0-9-]+)\.(?P<process>\d+)\.partial", re.DOTALL)
SEAL = "record_sha256"  # in a JSON record: the SHA-256 of its other entries
UNSUPPORTED = {  # errors of systems that cannot flush a directory, or a file, to the disk
    getattr(errno, name, -1)
    for name in ("EINVAL", "ENOSYS", "ENOTSUP", "EOPNOTSUPP", "EACCES", "EPERM", "EISDIR", "EBADF")
}
ON_WINDOWS = os.name == "nt"
ATTEMPTS, PAUSE = 10, 0.05  # at replacing a file that another program has open, where that is refused; seconds between


def require_regular(path: Path) -> None:
    """Refuse a path that is not a regular file: a folder, a pipe, a device, or a broken link."""
    if path.is_file():
        return
    kind = "a link that leads nowhere" if path.is_symlink() and not path.exists() else "a pipe or device"
    raise Failure(f"cannot read '{path}': it is {'a folder' if path.is_dir() else kind}, not a file")


def write_json(path: Path, record: Any) -> None:
    """Write a JSON file atomically."""
    write_bytes(path, json_bytes(record))


def json_bytes(record: Any) -> bytes:
    """Return the content of a JSON file."""
    return (json.dumps(record, indent=2) + "\n").encode()


def read_json(path: Path) -> Any:
    """Read a JSON file; an unreadable one raises a one-line `Failure`."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError):  # not UTF-8, or not JSON
        raise Failure(f"{path} is not valid JSON; the file may be damaged") from None


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a JSON record with the digest of its entries, which `read_record` checks."""
    plain = json.loads(json.dumps({key: value for key, value in record.items() if key != SEAL}))
    write_json(path, {**plain, SEAL: record_digest(plain)})


def read_record(path: Path) -> dict[str, Any]:
    """Read a record of `write_record`; refuse one that has changed since."""
    return unsealed(path, read_json(path))


def unsealed(path: Path, record: Any) -> dict[str, Any]:
    """Check the digest of a record that was read from `path`, and return its other entries."""
    plain = {key: value for key, value in record.items() if key != SEAL} if isinstance(record, dict) else {}
    if not isinstance(record, dict) or record.get(SEAL) != record_digest(plain):
        raise changed(path)
    return plain


def record_digest(record: dict[str, Any]) -> str:
    """Compute the SHA-256 of the entries of a JSON record, whatever their order and layout."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def changed(path: Path) -> Failure:
    """Return the failure for a file whose content has changed."""
    return Failure(f"{path} has changed since it was written: {DAMAGED}")


def require_digest(path: Path, *accepted: str | None) -> Path:
    """Refuse a file that is missing, or whose SHA-256 is not among those accepted; return its path."""
    if not path.is_file():
        raise Failure(f"{path} is missing: {DAMAGED}")
    try:
        digest = digest_of(path)
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror or error}") from error
    if digest not in accepted:
        raise changed(path)
    return path


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    write_whole(path, lambda temporary: temporary.write_bytes(content))


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file atomically."""
    from safetensors.torch import save_file  # not `save`, which copies all tensors twice

    plain = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    write_named(path, lambda file: save_file(plain, str(file)))


def aligned(tensor: Tensor) -> Tensor:
    """Copy the tensor if its address is not aligned as torch aligns tensors: rounding may depend on the alignment."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor


def read_tensors(path: Path, digest: str | None = None) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file; with `digest`, refuse a file that has changed."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if digest is not None or not path.is_file():
        require_digest(path, digest)
    try:
        return {name: aligned(tensor) for name, tensor in load_file(str(path)).items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise Failure(f"{path} is not a readable safetensors file: {error}") from error


def write_named(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically by a function that needs its name, or makes temporary files of its own beside it."""

    def write_inside(temporary: Path) -> None:
        with partial_folder(path) as folder:
            write(folder / path.name)
            os.replace(folder / path.name, temporary)

    write_whole(path, write_inside)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically by a function that gets a temporary path beside it."""
    temporary = path.with_name(f".{path.name}.{process_name()}.partial")
    try:
        remove_dead_partials(path)
        temporary.touch()
        usual = temporary.stat().st_mode  # some writers would narrow the permissions
        write(temporary)
        temporary.chmod(usual)
        _sync(temporary, os.O_RDWR)  # writable: Windows flushes no other
        _replace(temporary, path)
        _sync(path.parent, os.O_RDONLY)
    except BaseException as error:  # Ctrl-C too leaves nothing behind
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, Misuse) or not isinstance(error, Exception):
            raise
        raise cannot_write(path, error) from error


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """Make a folder beside a file for the parts it is made of; at the end it is removed with all that is in it."""
    folder = path.with_name(f".{path.name}.parts.{process_name()}.partial")
    remove_partial(folder)
    try:
        folder.mkdir()
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    remove_partial(folder)


def remove_dead_partials(path: Path) -> None:
    """Remove what processes that have ended left of writing a file."""
    for stale in partials(path.parent):
        parts = PARTIAL.fullmatch(stale.name)
        if parts and parts["file"] == path.name and has_ended(parts["machine"], int(parts["process"]), stale):
            with contextlib.suppress(PermissionError):  # it may be another user's
                remove_partial(stale)


def partials(folder: Path) -> list[Path]:
    """Return the files and folders of a folder that are not finished."""
    return [file for file in folder.glob(".*.partial") if PARTIAL.fullmatch(file.name)]


def remove_partial(path: Path) -> None:
    """Remove a file or folder that is not finished."""
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(FileNotFoundError):  # another process removes it too
            shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path, flags: int) -> None:
    """Flush a file, or the names in a directory, to the disk on systems that can; Windows cannot open a directory."""
    try:
        handle = os.open(path, flags)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


def _replace(temporary: Path, path: Path) -> None:
    """Rename over a file; where an open file cannot be replaced (Windows), retry for half a second."""
    for attempt in range(ATTEMPTS):
        try:
            return os.replace(temporary, path)
        except PermissionError:
            if not ON_WINDOWS or attempt == ATTEMPTS - 1:
                raise
            time.sleep(PAUSE)


def cannot_write(path: Path, error: Exception) -> Failure:
    """Return the failure that says why a file could not be written."""
    if isinstance(error, Failure):
        return error
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
    return Failure(f"cannot write {path}: " + ("the disk is full" if full else str(error)))


def digest_of(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
