"""The run directory: what is written, in which order, and how it is read back.

    run.json              the manifest: recipe, plan, net, data, engine, versions, command; rewritten last of all
    members.safetensors   the ensemble
    history.jsonl         one record an epoch
    trajectory/           weights of all members along their path, one file a checkpoint, if the plan asks for it
    checkpoints/          the state of a run in progress; latest.json names the file and is written after it
    backbone.safetensors, features.safetensors   a network that is not trained, and its features of the examples
    models/               members that are not networks, each in the format of its package, listed in run.json
    posthoc.json          the calibrator, the conformal rules and the abstention rules, if some were fitted
    metrics.json, report.html   the evaluation

Every file is replaced whole or not at all (`files.py`).
"""

import contextlib
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from murmuration import files
from murmuration.data import Data, Preparation
from murmuration.errors import Failure, Misuse
from murmuration.features import BACKBONE, STORED, remove_pieces, save_features
from murmuration.models.storage import FOLDER as MODELS
from murmuration.population import Named, Population, population_from_tensors

FORMAT = 1
MANIFEST, MEMBERS, HISTORY, POSTHOC = "run.json", "members.safetensors", "history.jsonl", "posthoc.json"
GIVEN = "given"  # recipe of networks trained elsewhere; in their manifest, the names of their classes
GROUPS = "groups"  # in the manifest: the number of groups of networks, if there are several
SWEEP = "sweep.json"  # scores of the candidates of a coupling space
WRITTEN = (MANIFEST, MEMBERS, HISTORY, POSTHOC, BACKBONE, STORED, SWEEP)  # by a run until it is complete
TRAJECTORY, ACTIVE = "trajectory", "active"  # weights along the path; (M,) bool: members that were still trained
CHECKPOINTS, LATEST, STEPS = "checkpoints", "latest.json", "step-*.safetensors"


def create_run(path: Path, manifest: dict[str, Any], preparation: Preparation | None = None) -> Path:
    """Create a run directory, with its manifest in it from the start; returns the topmost directory created.

    The network of a preparation that computes features is in it too, and the features it has computed.
    """
    require_free(path)
    missing = [parent for parent in path.parents if not parent.exists()]
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for stale in path.parent.glob(f".{path.name}.*.partial"):
            remove_files(stale)
        temporary.mkdir()
        files.write_json(temporary / MANIFEST, {"format": FORMAT, "status": "training", **manifest})
        save_features(temporary, preparation)
        os.rename(temporary, path)
        remove_pieces(preparation)
    except (OSError, Failure) as error:
        remove_files(temporary)
        remove_empty(missing)
        raise files.cannot_write(path, error) from error
    return missing[-1] if missing else path


def describe_data(data: Data, task: str) -> dict[str, Any]:
    """The record of the data in a manifest, which is needed to open it again and to prepare inputs."""
    return {
        "name": data.name,
        "source": data.source,
        "task": task,
        "fingerprint": data.fingerprint,
        "classes": list(data.classes),
        "class_counts": data.train.y.bincount(minlength=len(data.classes)).tolist() if data.classes else None,
        "targets": None if data.task == "classification" else data.train.y.shape[1],
        "features": list(data.feature_names),
        "examples": {part: len(getattr(data, part)) for part in ("train", "val", "test")},
        "preparation": data.preparation.to_json(),
    }


def describe_process() -> dict[str, Any]:
    """Versions, command and time of a run, for its manifest."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {"versions": versions(), "command": command, "started": time.strftime("%Y-%m-%dT%H:%M:%S%z")}


def versions() -> dict[str, str]:
    """Versions of the software that the numbers depend on."""
    import numpy

    import murmuration

    return {
        "murmuration": murmuration.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }


def require_free(path: Path) -> None:
    """Refuse a directory that already holds a run, or anything else."""
    if (path / MANIFEST).exists():
        raise Misuse(f"{path} already holds a run: choose another out=..., or continue it with mm.resume('{path}')")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise Misuse(f"{path} exists and is not an empty directory: choose another out=...")


def discard_run(path: Path, made: Path) -> None:
    """Remove the files of a run without a checkpoint, and the directories made for it that are empty now."""
    if not (path / CHECKPOINTS / LATEST).exists():
        remove_files(path)
        remove_empty(parent for parent in path.parents if parent.is_relative_to(made))


def remove_files(path: Path) -> None:
    """Remove the files that a run writes until it is complete, by name, and its directory if nothing else is there."""
    remove_partial_files(path)
    remove_checkpoints(path)
    remove_checkpoints(path, TRAJECTORY)
    for file in (path / MODELS).glob("*-*.*"):
        file.unlink(missing_ok=True)
    remove_empty([path / MODELS])
    for name in WRITTEN:
        with contextlib.suppress(OSError):
            (path / name).unlink()
    remove_empty([path])


def remove_checkpoints(path: Path, where: str = CHECKPOINTS) -> None:
    """Remove the checkpoints of a run, or of its trajectory, and their directory if nothing else is in it."""
    folder = path / where
    for file in [*folder.glob(STEPS), folder / LATEST]:
        file.unlink(missing_ok=True)
    remove_empty([folder])


def remove_empty(directories: Iterable[Path]) -> None:
    """Remove these directories, from the innermost on, as far as they are empty: others may have written there."""
    for directory in directories:
        with contextlib.suppress(OSError):
            directory.rmdir()


def remove_partial_files(path: Path) -> None:
    """Remove files that a killed process had not finished writing."""
    for folder in (path, path / CHECKPOINTS, path / TRAJECTORY):
        for stale in folder.glob(".*.partial"):
            stale.unlink(missing_ok=True)


def read_run(path: Path) -> dict[str, Any]:
    """The manifest of a run."""
    if not path.exists():
        raise Misuse(f"no run at {path}: the directory does not exist")
    if not (path / MANIFEST).is_file():
        raise Misuse(f"no run at {path}: it holds no {MANIFEST}")
    manifest = files.read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        raise Failure(f"{path / MANIFEST}: format {found}, expected {FORMAT}; written by another version?")
    return manifest


def save_members(path: Path, tensors: Named, manifest: dict[str, Any], history: list[dict]) -> None:
    """Close a run: the members' tensors, then history, then the manifest that declares it complete."""
    files.write_tensors(path / MEMBERS, tensors)
    write_history(path, history)
    complete = {**manifest, "format": FORMAT, "status": "complete", "members_sha256": files.digest_of(path / MEMBERS)}
    complete["tensors"] = list(tensors)  # the file has another order; draws may depend on it
    files.write_json(path / MANIFEST, complete)
    remove_checkpoints(path)


def load_tensors(path: Path) -> tuple[Named, dict[str, Any]]:
    """The stored tensors, in their order, and the manifest of a complete run."""
    manifest = read_run(path)
    if manifest["status"] != "complete":
        raise Misuse(f"{path} is not finished: continue it with mm.resume('{path}')")
    found = files.read_tensors(path / MEMBERS, manifest.get("members_sha256"))
    order = manifest.get("tensors", [])
    return {name: found[name] for name in order} if set(order) == set(found) else found, manifest


def group_tensors(tensors: Named, manifest: dict[str, Any]) -> list[Named]:
    """The tensors of every group of networks: none, one, or as many as a run of several folds has."""
    count = manifest.get(GROUPS, 1)
    return [below(tensors, str(group)) for group in range(count)] if count > 1 else [tensors] if tensors else []


def write_history(path: Path, history: list[dict[str, Any]]) -> None:
    files.write_bytes(
        path / HISTORY,
        "".join(json.dumps(files.json_numbers(record), allow_nan=False) + "\n" for record in history).encode(),
    )


def read_history(path: Path) -> list[dict[str, Any]]:
    file = path / HISTORY
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def step_file(step: int) -> str:
    """The name of the file of a checkpoint."""
    return f"step-{step:09d}.safetensors"


def save_path_point(path: Path, step: int, tensors: dict[str, Tensor]) -> None:
    """One checkpoint of the trajectory; a resumed run writes the same bytes again."""
    folder = path / TRAJECTORY
    folder.mkdir(exist_ok=True)
    files.write_tensors(folder / step_file(step), tensors)


def path_steps(path: Path) -> list[int]:
    """The steps of the stored checkpoints of a trajectory, in order; 0: the initial weights."""
    return sorted(int(file.stem.partition("-")[2]) for file in (path / TRAJECTORY).glob(STEPS))


def load_path_point(path: Path, step: int, row: int) -> tuple[Population, bool]:
    """One member at one checkpoint of the trajectory, and whether it was still trained then.

    No more than that member and the shared tensors are read from the file.
    """
    from safetensors import SafetensorError, safe_open

    file = path / TRAJECTORY / step_file(step)
    try:
        with safe_open(str(file), framework="pt") as stored:
            names = list(stored.keys())
            whole = {n for n in names if n.startswith("shared/") or stored.get_slice(n).get_shape()[:1] == [1]}
            found = {name: stored.get_tensor(name) for name in whole}
            found |= {name: stored.get_slice(name)[row : row + 1] for name in names if name not in whole}
    except (SafetensorError, OSError, ValueError) as error:
        raise Failure(f"{file} is not a readable checkpoint: {error}") from error
    active = bool(found.pop(ACTIVE))
    return population_from_tensors(found, 1).map(lambda t: t.float() if t.dtype == torch.float16 else t), active


def below(tensors: Named, prefix: str) -> Named:
    """The tensors whose names begin with `prefix/`, without it."""
    return {key[len(prefix) + 1 :]: t for key, t in tensors.items() if key.startswith(prefix + "/")}
