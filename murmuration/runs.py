"""The run directory: what is written, in which order, and how it is read back.

    run.json              the manifest: recipe, plan, net, data, engine, versions, command; rewritten last of all
    members.safetensors   the ensemble
    history.jsonl         one record an epoch
    checkpoints/          the state of a run in progress; latest.json names the file and is written after it
    posthoc.json       the calibrator, the sets and the rules for declining, if some were fitted
    metrics.json, report.html   what `evaluate` found

Every file is written beside its place, flushed to the disk and renamed, so a killed run leaves either the old file or
the new one. Tensors are safetensors and the rest is JSON: nothing is ever unpickled.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from murmuration.errors import Failure, Misuse
from murmuration.population import Population, population_from_tensors
from murmuration.training import Progress
from murmuration.training.step import State

FORMAT = 1
MANIFEST, MEMBERS, HISTORY, POSTHOC = "run.json", "members.safetensors", "history.jsonl", "posthoc.json"
BACKBONE = "backbone.safetensors"  # what a run with a frozen one needs to go on
CHECKPOINTS, LATEST = "checkpoints", "latest.json"


def create_run(path: Path, manifest: dict[str, Any]) -> Path:
    """Make a run directory that appears with its manifest in it, or nothing; returns the topmost directory made."""
    require_free(path)
    missing = [parent for parent in path.parents if not parent.exists()]
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for stale in path.parent.glob(f".{path.name}.*.partial"):
            shutil.rmtree(stale, ignore_errors=True)
        temporary.mkdir()
        write_json(temporary / MANIFEST, {"format": FORMAT, "status": "training", **manifest})
        os.rename(temporary, path)
    except (OSError, Failure) as error:
        for directory in (temporary, *missing):
            shutil.rmtree(directory, ignore_errors=True)
        raise _cannot_write(path, error) from error
    return missing[-1] if missing else path


def require_free(path: Path) -> None:
    """Refuse a directory that already holds a run, or anything else."""
    if (path / MANIFEST).exists():
        raise Misuse(f"{path} already holds a run: choose another --out, or continue it with murmur resume {path}")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise Misuse(f"{path} exists and is not an empty directory: choose another --out")


def forget(path: Path, made: Path) -> None:
    """Remove a run that holds nothing to go on from, with the directories that were made for it."""
    if not (path / CHECKPOINTS / LATEST).exists():
        shutil.rmtree(made, ignore_errors=True)


def sweep(path: Path) -> None:
    """Remove what a killed process was in the middle of writing."""
    for stale in [*path.glob(".*.partial"), *(path / CHECKPOINTS).glob(".*.partial")]:
        stale.unlink(missing_ok=True)


def read_run(path: Path) -> dict[str, Any]:
    """The manifest of a run."""
    if not path.exists():
        raise Misuse(f"no run at {path}: the directory does not exist")
    if not (path / MANIFEST).is_file():
        raise Misuse(f"no run at {path}: it holds no {MANIFEST}")
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        raise Failure(f"{path / MANIFEST}: format {found}, expected {FORMAT}; written by another version?")
    return manifest


def save_members(path: Path, population: Population, manifest: dict[str, Any], history: list[dict]) -> None:
    """Close a run: members, then history, then the manifest that declares it complete."""
    write_tensors(path / MEMBERS, population.to_tensors())
    write_history(path, history)
    complete = {**manifest, "format": FORMAT, "status": "complete", "members_sha256": _digest(path / MEMBERS)}
    write_json(path / MANIFEST, complete)
    shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)


def load_members(path: Path) -> tuple[Population, dict[str, Any]]:
    """The members and the manifest of a complete run."""
    manifest = read_run(path)
    if manifest["status"] != "complete":
        raise Misuse(f"{path} is not finished: continue it with murmur resume {path}")
    tensors = read_tensors(path / MEMBERS, manifest.get("members_sha256"))
    return population_from_tensors(tensors), manifest


def write_history(path: Path, history: list[dict[str, Any]]) -> None:
    write_bytes(path / HISTORY, "".join(json.dumps(record) + "\n" for record in history).encode())


def read_history(path: Path) -> list[dict[str, Any]]:
    file = path / HISTORY
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def save_checkpoint(path: Path, progress: Progress) -> None:
    """The state of a run in progress: tensors first, then the small file that names them, then the old ones go."""
    state, folder = progress.state, path / CHECKPOINTS
    folder.mkdir(exist_ok=True)
    file = folder / f"step-{state.step:09d}.safetensors"
    tensors = _progress_tensors(progress)
    write_tensors(file, tensors)
    latest = {
        "file": file.name,
        "order": list(tensors),  # the file has another; sums over tensors are rounded by it
        "sha256": _digest(file),
        "step": state.step,
        "seconds": progress.seconds,
        "trouble": {str(member): text for member, text in state.trouble.items()},
        "felt": state.felt,
        "points": len(progress.path),
        "history": progress.history,
    }
    write_json(folder / LATEST, latest)
    write_history(path, progress.history)
    for old in folder.iterdir():
        if old.name not in (file.name, LATEST):
            old.unlink()


def load_checkpoint(path: Path) -> Progress | None:
    """Where a run stands according to its last whole checkpoint; None before the first."""
    folder = path / CHECKPOINTS
    if not (folder / LATEST).exists():
        return None
    latest = read_json(folder / LATEST)
    found = read_tensors(folder / latest["file"], latest["sha256"])
    tensors = {name: found[name] for name in latest.get("order", found)}
    state = State(
        _population(tensors, "population"),
        _moments(tensors, "moments"),
        _moments(tensors, "shared_moments"),
        tensors["active"],
        latest["step"],
        {int(member): text for member, text in latest["trouble"].items()},
        latest.get("felt", {}),
    )
    return Progress(
        state,
        _population(tensors, "kept"),
        tensors["loss_sum"],
        tensors["best"],
        tensors["waited"],
        latest["history"],
        [_population(tensors, f"path/{i}") for i in range(latest["points"])],
        latest["seconds"],
    )


def _progress_tensors(progress: Progress) -> dict[str, Tensor]:
    state = progress.state
    populations = {"population": state.population, "kept": progress.kept}
    populations |= {f"path/{i}": point for i, point in enumerate(progress.path)}
    moments = {"moments": state.moments, "shared_moments": state.shared_moments}
    tensors = {f"{key}/{name}": t for key, p in populations.items() for name, t in p.to_tensors().items()}
    tensors |= {
        f"{key}/{kind}/{name}": tensor
        for key, kinds in moments.items()
        for kind, named in kinds.items()
        for name, tensor in named.items()
    }
    small = {"active": state.active, "best": progress.best, "waited": progress.waited}
    return {**tensors, **small, "loss_sum": progress.loss_sum}


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key[len(prefix) + 1 :]: t for key, t in tensors.items() if key.startswith(prefix + "/")}


def _population(tensors: dict[str, Tensor], prefix: str) -> Population:
    return population_from_tensors(_below(tensors, prefix))


def _moments(tensors: dict[str, Tensor], prefix: str) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in _below(tensors, prefix).items():
        kind, _, name = key.partition("/")
        found.setdefault(kind, {})[name] = tensor
    return found


def finite(record: Any) -> Any:
    """The record with None for every number that JSON cannot hold.

    >>> finite({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(record, dict):
        return {key: finite(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [finite(value) for value in record]
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


def read_tensors(path: Path, digest: str | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, after a check that it is the file that was written."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise Failure(f"{path} is missing: the run is damaged")
    if digest is not None and _digest(path) != digest:
        raise Failure(f"{path} has changed since it was written: the run is damaged")
    try:
        return load_file(str(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise Failure(f"{path} is not a readable safetensors file: {error}") from error


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file by a function that gets a temporary path beside it; it takes its place whole or not at all."""
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
        raise _cannot_write(path, error) from error


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _cannot_write(path: Path, error: Exception) -> Failure:
    if isinstance(error, Failure):
        return error
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
    return Failure(f"cannot write {path}: " + ("the disk is full" if full else str(error)))


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
