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

Every file is replaced whole or not at all (`files.py`), by the one process that holds the directory (`locks.py`). The
manifest holds the SHA-256 of every file and of itself; `checkpoints/latest.json` and `sweep.json`, which change while a
run trains, hold their own. A file is checked when it is read. What must be there before the manifest is written before
it: a directory without one is of a process that was killed, and the same command starts again.
"""

import contextlib
import hashlib
import json
import platform
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.core.population import Named, below as below
from murmuration.data import Data, Preparation
from murmuration.models.estimators.storage import FOLDER as MODELS
from murmuration.models.features import BACKBONE, STORED, remove_pieces, save_features
from murmuration.runs import locks
from murmuration.runs.kinds import run_kinds
from murmuration.runs.locks import remove_empty as remove_empty
from murmuration.runs.manifest import FORMAT, Manifest, require_run
from murmuration.system import files
from murmuration.system.errors import Failure, Misuse, first_line, warn
from murmuration.system.records import plain_json

MANIFEST, MEMBERS, HISTORY, POSTHOC = "run.json", "members.safetensors", "history.jsonl", "posthoc.json"
GIVEN = "given"  # recipe of networks trained elsewhere
SWEEP = "sweep.json"  # scores of the candidates of a coupling space
WRITTEN = (MANIFEST, MEMBERS, HISTORY, POSTHOC, BACKBONE, STORED, SWEEP)  # by a run until it is complete
EVALUATED = ("metrics.json", "report.html")  # written again by every evaluation
TRAJECTORY, ACTIVE = "trajectory", "active"  # weights along the path; (M,) bool: members that were still trained
CHECKPOINTS, LATEST, STEPS = "checkpoints", "latest.json", "step-*.safetensors"
STEP_FILE = re.compile(r"step-\d+(-\d+-of-\d+)?\.safetensors")
OWN = (MEMBERS, HISTORY, POSTHOC, BACKBONE, f"*/{LATEST}")  # files by which a run is known


def locked(path: Path | None) -> AbstractContextManager[None]:
    """Hold a run directory inside the block and remove what killed processes left; None: nothing is held."""
    return contextlib.nullcontext() if path is None else locks.locked(path, tidy)


@contextmanager
def new_run(path: Path | None, *, repeated: bool = False) -> Iterator[None]:
    """Hold a directory for a new run; refuse one with a run or other files. None: nothing is held.

    With `repeated`, for commands that take seconds, a run that this very command was writing when it was killed goes,
    and so does one that it could not finish.
    """
    if path is not None and not locks.holders(path):
        require_free(path)  # a directory of others is not even locked
    clear = partial(tidy, repeated=repeated)
    with contextlib.nullcontext() if path is None else locks.locked(path, clear):
        if path is not None:
            require_free(path)
        try:
            yield
        except BaseException:
            if path is not None and repeated:
                discard_files(path)
            raise


def check_new(out: str | Path | None) -> None:
    """Refuse a directory that a new run cannot have, before anything is computed; None: no directory."""
    if not isinstance(out, str | Path | None):
        raise Misuse(f"out={out!r:.60}: need a path such as 'runs/x'")
    if "\0" in str(out):
        raise Misuse(f"out={str(out)!r} holds a null character: write a path such as 'runs/x'")
    try:
        with new_run(None if out is None else Path(out)):
            pass
    except OSError as error:  # a name that is too long, a folder without permission
        raise files.cannot_write(Path(str(out)), error) from error


@contextmanager
def creating(path: Path, preparation: Preparation | None = None, *, repeated: bool = False) -> Iterator[None]:
    """Hold a directory while the first files of a run are written; remove them if that fails.

    The network of a preparation that computes features is the first of them, and the features it has computed.
    """
    with new_run(path, repeated=repeated):
        try:
            save_features(path, preparation)
            yield
        except BaseException as error:
            remove_files(path)
            if isinstance(error, OSError):
                raise files.cannot_write(path, error) from error
            raise
        remove_pieces(preparation)


def create_run(
    path: Path, manifest: Manifest, preparation: Preparation | None = None, first: Callable = lambda: None
) -> None:
    """Start a run: write the files of `creating`, those of `first`, and then the manifest."""
    with creating(path, preparation):
        first()
        write_manifest(path, replace(manifest, status="training", files=digests_of(path, (BACKBONE, STORED))))


def digests_of(path: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of those files of a run that exist."""
    return {name: files.digest_of(path / name) for name in names if (path / name).is_file()}


def is_settled(path: Path) -> bool:
    """Return whether a run is complete and killed processes have left nothing to remove."""
    unfinished = locks.holders(path) or (path / CHECKPOINTS).exists()
    return not unfinished and read_run(path).status == "complete"


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write the manifest of a run, with its digest."""
    files.write_record(path / MANIFEST, manifest.to_json())


def describe_data(data: Data, task: str) -> dict[str, Any]:
    """Describe data for a manifest, so that it can be opened again and inputs can be prepared."""
    return {
        "name": data.name,
        "source": data.source,
        "task": task,
        "fingerprint": data.fingerprint,
        "classes": list(data.classes),
        "class_counts": data.train.y.bincount(minlength=len(data.classes)).tolist() if data.classes else None,
        "class_weights": class_weights(data),
        "targets": None if data.task == "classification" else data.train.y.shape[1],
        "target_moments": target_moments(data.train.y.numpy()) if data.task == "regression" else None,
        "features": list(data.feature_names),
        "examples": {part: len(getattr(data, part)) for part in ("train", "val", "test")},
        "preparation": data.preparation.to_json(),
    }


def class_weights(data: Data) -> list[float] | None:
    """Return the mean weight of the training examples of each class; None for other tasks or without weights."""
    if not data.classes or data.task != "classification" or data.train.weight is None:
        return None
    counts = data.train.y.bincount(minlength=len(data.classes)).clamp_min(1)
    sums = data.train.y.bincount(data.train.weight.double(), minlength=len(data.classes))
    return (sums / counts).tolist()


def target_moments(y: np.ndarray) -> list[list[float]]:
    """Return mean and standard deviation of targets (N, K), one number a target; that of a constant one is tiny.

    >>> target_moments(np.array([[1.0], [3.0]]))
    [[2.0], [1.0]]
    """
    values = np.asarray(y, dtype=np.float64)
    mean, std = values.mean(0), values.std(0)
    return [mean.tolist(), np.where(std > 0, std, np.maximum(1e-6 * np.abs(mean), 1e-6)).tolist()]


def describe_process() -> dict[str, Any]:
    """Return versions, command and time of a run for its manifest."""
    return {"versions": versions(), "command": locks.command_line(), "started": locks.time_now()}


def versions() -> dict[str, str]:
    """Return the versions of the software that results depend on."""
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
    """Refuse a directory that already holds a run, or anything else but locks."""
    if (path / MANIFEST).exists():
        raise Misuse(f"{path} already holds a run: choose another out=..., or continue it with mm.resume('{path}')")
    if path.exists() and not (path.is_dir() and locks.is_empty(path)):
        raise Misuse(f"{path} exists and is not an empty directory: choose another out=...")


def tidy(path: Path, earlier: list[locks.Holder], repeated: bool = False) -> None:
    """Remove what killed processes, those of the locks `earlier`, left in a run directory that this one holds.

    If the first of them found the directory empty, all files are theirs: without a manifest, a run had not begun yet.
    """
    remove_partial_files(path)
    killed, command = locks.found_empty(earlier), locks.command_line()
    if repeated and killed and all(holder.about.get("command", command) == command for holder in earlier):
        discard_files(path)
    if not (path / MANIFEST).exists():
        if killed:
            remove_kind_files(path)
            remove_files(path)
        return
    with contextlib.suppress(Failure):  # damage is reported by whoever reads
        if read_run(path).status == "complete":
            remove_checkpoints(path)


def discard_files(path: Path) -> None:
    """Remove the files of a run and of its evaluation, the manifest after these, so that it may be begun again."""
    for name in EVALUATED:
        (path / name).unlink(missing_ok=True)
    remove_files(path)


def discard_run(path: Path) -> None:
    """Remove the files of a run without a checkpoint, by name; its directory goes with the lock if it is empty."""
    if not has_checkpoint(path):
        remove_files(path)


def has_checkpoint(path: Path) -> bool:
    """Return whether a run in progress has a checkpoint to continue from."""
    return (path / CHECKPOINTS / LATEST).exists()


def remove_files(path: Path) -> None:
    """Remove the files that a run writes until it is complete, by name, and its directory if nothing else is there."""
    remove_partial_files(path)
    remove_checkpoints(path)
    remove_checkpoints(path, TRAJECTORY)
    if not (path / MODELS).is_symlink():
        for file in (path / MODELS).glob("*-*.*"):
            file.unlink(missing_ok=True)
        remove_empty([path / MODELS])
    for name in WRITTEN:
        with contextlib.suppress(OSError):
            (path / name).unlink()
    remove_empty([path])


def kind_files() -> list[str]:
    """Return the names of the files that applications write into folders of a run."""
    return [name for kind in run_kinds() for name in kind.folder_files]


def remove_kind_files(path: Path) -> None:
    """Remove the files of an application from the folders of a run whose manifest was lost, by name."""
    for folder in path.iterdir():
        if folder.is_dir() and not folder.is_symlink() and not (folder / MANIFEST).exists():
            for name in kind_files():
                (folder / name).unlink(missing_ok=True)
            remove_checkpoints(path, folder.name)


def remove_checkpoints(path: Path, where: str = CHECKPOINTS) -> None:
    """Remove the checkpoints of a run, or of its trajectory, and their directory if nothing else is in it.

    What a link leads to is not of the run, and stays.
    """
    folder = path / where
    if folder.is_symlink():
        return
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.name == LATEST or STEP_FILE.fullmatch(file.name):
            file.unlink(missing_ok=True)
    remove_empty([folder])


def remove_partial_files(path: Path) -> None:
    """Remove files that a killed process had not finished writing; not those of runs inside, which have own locks."""
    for stale in files.partials(path):
        files.remove_partial(stale)
    for folder in path.iterdir() if path.is_dir() else ():
        if folder.is_dir() and not folder.is_symlink() and not (folder / MANIFEST).exists():
            remove_partial_files(folder)


def read_run(path: Path) -> Manifest:
    """Read the manifest of a run."""
    require_run(path)
    file = path / MANIFEST
    if has_lost_manifest(path):
        lost = f"{file} is missing, and {path} holds other files of a run"
        raise Failure(f"{lost}: restore it, or remove the directory and start again")
    if not file.is_file():
        raise Misuse(f"no run at {path}: it holds no {MANIFEST}")
    record = files.read_json(file)
    version = record.get("format") if isinstance(record, dict) else "unknown"
    if version != FORMAT:
        raise Failure(f"{file}: format {version}, expected {FORMAT}; written by another version?")
    return Manifest.from_json(files.unsealed(file, record), str(file))


@contextmanager
def named_damage(path: Path, *own: Any) -> Iterator[None]:
    """Report whatever goes wrong inside the block as damage of the manifest, unless objects of the caller take part.

    The digest of a manifest finds accidents, not a wrong value that was written with its digest.
    """
    try:
        yield
    except (Misuse, Failure):
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        if any(value is not None and not isinstance(value, str | Path) for value in own):
            raise
        problem = f"an entry is missing or has another value ({first_line(error)})"
        raise Failure(f"{path / MANIFEST} is damaged: {problem}") from error


def has_lost_manifest(path: Path) -> bool:
    """Return whether a directory holds files of a run and not its manifest, and no process that was killed left them.

    Such a process had found the directory empty; one that had not held a run.
    """
    if (path / MANIFEST).exists() or any(holder.about.get("empty", True) for holder in locks.holders(path)):
        return False
    patterns = (*OWN, *(f"*/{name}" for name in kind_files()))
    return any(file.is_file() for pattern in patterns for file in path.glob(pattern))


def save_members(path: Path, tensors: Named, manifest: Manifest, history: list[dict]) -> None:
    """Close a run: the members' tensors, then history, then the manifest that declares it complete."""
    files.write_tensors(path / MEMBERS, tensors)
    write_history(path, history)
    stored = read_run(path).files if (path / MANIFEST).exists() else digests_of(path, (BACKBONE, STORED))
    points = [f"{TRAJECTORY}/{step_file(step)}" for step in stored_steps(path)]
    stored |= digests_of(path, (MEMBERS, HISTORY, POSTHOC, *points))
    order = list(tensors)  # the file has another; draws may depend on it
    write_manifest(path, replace(manifest, status="complete", files=stored, tensors=order, changing={}))
    remove_checkpoints(path)


def replace_files(path: Path, contents: dict[str, bytes]) -> None:
    """Replace files of a complete run, and their digests in the manifest; without a manifest, files alone.

    The manifest names the new digests before the files are written: of a killed process, old and new files are known.
    """
    with locked(path):
        manifest = read_run(path) if (path / MANIFEST).exists() else None
        if manifest is not None:
            manifest = replace(manifest, files={**manifest.files, **_replaced(path, manifest)})
            new = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
            write_manifest(path, replace(manifest, changing={"files": new, "command": describe_process()["command"]}))
        for name, content in contents.items():
            files.write_bytes(path / name, content)
        if manifest is not None:
            write_manifest(path, replace(manifest, files={**manifest.files, **new}, changing={}))


def _replaced(path: Path, manifest: Manifest) -> dict[str, str]:
    """Return the digests of the files that a killed process had replaced already."""
    new = manifest.changing.get("files", {})
    return {name: digest for name, digest in digests_of(path, new).items() if digest == new[name]}


def require_unchanged(path: Path, manifest: Manifest, name: str) -> Path:
    """Return the path of a file of a run; refuse one that is missing or has changed."""
    new = manifest.changing.get("files", {})
    return files.require_digest(path / name, manifest.files.get(name), new.get(name))


def require_files(path: Path, manifest: Manifest) -> None:
    """Refuse a complete run of which a file is missing or has changed, also one that predictions do not need.

    History and post-hoc steps are left to those who read them, scores and report to the next evaluation.
    """
    for name in manifest.files:
        if name not in (HISTORY, POSTHOC, *EVALUATED):
            require_unchanged(path, manifest, name)


def warn_if_mixed(path: Path, manifest: Manifest) -> None:
    """Warn of a run of which a killed command had replaced some files and not the others."""
    if not manifest.changing or locks.is_held(path):
        return
    command, new, done = manifest.changing["command"], manifest.changing["files"], _replaced(path, manifest)
    if done and len(done) < len(new):
        old = " and ".join(name for name in new if name not in done)
        warn(f"{path}: '{command}' was killed while it wrote: {old} of before; repeat it")


def load_tensors(path: Path) -> tuple[Named, Manifest]:
    """Read the tensors of a complete run, in their stored order, and its manifest."""
    manifest = read_run(path)
    if manifest.status != "complete":
        raise Misuse(f"{path} is not finished: continue it with mm.resume('{path}')")
    warn_if_mixed(path, manifest)
    tensors = files.read_tensors(require_unchanged(path, manifest, MEMBERS))
    order = manifest.tensors
    return {name: tensors[name] for name in order} if set(order) == set(tensors) else tensors, manifest


def group_tensors(tensors: Named, manifest: Manifest) -> list[Named]:
    """Return the tensors of every group of networks: none, one, or one per fold."""
    count = manifest.groups
    return [below(tensors, str(group)) for group in range(count)] if count > 1 else [tensors] if tensors else []


def write_history(path: Path, history: list[dict[str, Any]]) -> None:
    """Write one line of JSON per epoch."""
    lines = [json.dumps(plain_json(record), allow_nan=False) + "\n" for record in history]
    files.write_bytes(path / HISTORY, "".join(lines).encode())


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read the history of a run; empty before the first epoch."""
    file = path / HISTORY
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def checked_history(path: Path, manifest: Manifest) -> list[dict[str, Any]]:
    """Read the history of a complete run; with a warning, nothing if its file is damaged."""
    try:
        require_unchanged(path, manifest, HISTORY)
        return read_history(path)
    except Failure as error:
        warn(f"{error}: training curves are left out")
        return []


def step_file(step: int) -> str:
    """Return the name of the file of a checkpoint."""
    return f"step-{step:09d}.safetensors"


def save_path_point(path: Path, step: int, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Write one checkpoint of the trajectory and return its SHA-256 by its name."""
    (path / TRAJECTORY).mkdir(exist_ok=True)
    name = f"{TRAJECTORY}/{step_file(step)}"
    files.write_tensors(path / name, tensors)
    return digests_of(path, [name])


def stored_steps(path: Path) -> list[int]:
    """Return the steps of the stored checkpoints of a trajectory, in order; 0: the initial weights."""
    return sorted(int(file.stem.partition("-")[2]) for file in (path / TRAJECTORY).glob(STEPS))
