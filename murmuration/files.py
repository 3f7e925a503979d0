"""Files written whole or not at all: JSON, bytes and tensors.

Every file is written beside its place, flushed to the disk and renamed, so that a killed process leaves either the old
file or the new one. Tensors are safetensors and the rest is JSON: nothing is ever unpickled.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from murmuration.errors import Failure, Misuse

ALIGNMENT = 64  # bytes: the addresses of torch's own tensors on a CPU


def json_numbers(record: Any) -> Any:
    """The record as JSON holds it: objects by their `to_json`, else by their fields; None for numbers not finite.

    >>> json_numbers({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if hasattr(record, "to_json"):
        return json_numbers(record.to_json())
    if is_dataclass(record):
        record = vars(record)
    if isinstance(record, dict):
        return {key: json_numbers(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [json_numbers(value) for value in record]
    return None if isinstance(record, float) and not math.isfinite(record) else record


def write_json(path: Path, record: Any) -> None:
    write_bytes(path, (json.dumps(record, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Failure(f"{path} cannot be read: {error}") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    write_whole(path, lambda temporary: temporary.write_bytes(content))


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file

    plain = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    write_whole(path, lambda temporary: save_file(plain, str(temporary)))


def aligned(tensor: Tensor) -> Tensor:
    """The tensor at an address like those of torch's own ones, a copy if need be: products may round by the address."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor


def read_tensors(path: Path, digest: str | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, after a check that it is the file that was written."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise Failure(f"{path} is missing: the run is damaged")
    if digest is not None and digest_of(path) != digest:
        raise Failure(f"{path} has changed since it was written: the run is damaged")
    try:
        return {name: aligned(tensor) for name, tensor in load_file(str(path)).items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise Failure(f"{path} is not a readable safetensors file: {error}") from error


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file by a function that gets a temporary path beside it; the file is replaced whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        temporary.touch()
        usual = temporary.stat().st_mode  # some writers would narrow the permissions
        write(temporary)
        temporary.chmod(usual)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except BaseException as error:  # Ctrl-C too leaves nothing behind
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, Misuse) or not isinstance(error, Exception):
            raise
        raise cannot_write(path, error) from error


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cannot_write(path: Path, error: Exception) -> Failure:
    """The failure that names a file and why it could not be written."""
    if isinstance(error, Failure):
        return error
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
    return Failure(f"cannot write {path}: " + ("the disk is full" if full else str(error)))


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
