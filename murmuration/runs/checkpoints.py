"""Checkpoints of a run in progress: tensors in a file for each process, named by `latest.json`, written after them.

A file holds a block of neighbouring members and all that they share, so that any number of processes, one too, can
continue what any other number has begun.
"""

import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from murmuration.core.divergence import Divergence
from murmuration.core.engines import ALONE, Ranks
from murmuration.core.population import Named, Population, below, population_from_tensors
from murmuration.core.state import MEMORY, Probe, State, state_from_tensors, state_tensors
from murmuration.runs.directory import CHECKPOINTS, LATEST, STEPS, step_file, write_history
from murmuration.system import files
from murmuration.system.devices import CPU
from murmuration.system.errors import Failure
from murmuration.system.records import plain_json
from murmuration.system.streams import ALL_MEMBERS

ON_DEVICE = ("population", "kept", "path", "opt_state", "shared_opt_state")  # tensors of a checkpoint, by prefix
FIXED = "population/fixed/"  # prefix of tensors that are not trained
NUMBERS = ("best", "waited", "kept_epoch", "loss_sum")  # of `Progress`, one a member


@dataclass
class Progress:
    """The state of a run in progress: everything that a checkpoint holds."""

    state: State
    kept: Population  # the weights a member returns to: of its last finite epoch, or its best one with early stopping
    kept_epoch: Tensor  # (M,) the epoch of these weights; 0: initial weights
    loss_sum: Tensor  # (M,) float64, of the running epoch
    best: Tensor  # (M,) lowest validation NLL so far
    waited: Tensor  # (M,) epochs since then
    history: list[dict[str, Any]] = field(default_factory=list)
    probe: Probe = field(default_factory=Probe)  # statistics and timings of the interaction
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    origins: Tensor | None = None  # (m,) at the end: the row of the population that each final member comes from


def save_checkpoint(
    path: Path, progress: Progress, ranks: Ranks = ALONE, trajectory: dict[str, str] | None = None
) -> None:
    """Write a checkpoint: tensors first, then the small file that names them; then remove the old ones.

    Every process writes its members. The first one names the files of all after they are written, and the points of the
    trajectory so far, `trajectory`, with their SHA-256.
    """
    state, folder = progress.state, path / CHECKPOINTS
    block = write_block(folder, progress, ranks) if ranks.part == 0 else {}
    blocks = ranks.records(block)
    failed = [block["error"] for block in blocks if "error" in block]
    if failed:
        raise Failure(failed[0])
    if not ranks.first:
        return
    latest = {
        "blocks": blocks,
        "step": state.step,
        "seconds": progress.seconds,
        "cpu_seconds": progress.cpu_seconds,
        "step_seconds": progress.probe.seconds,
        "coupling": plain_json(progress.probe.stats),
        "points": list(state.path.points),
        "history": progress.history,
        "trajectory": trajectory or {},
    }
    stale = removable(folder)
    files.write_record(folder / LATEST, latest)
    write_history(path, progress.history)
    current = {block["file"] for block in blocks}
    for old in stale:
        if old.name not in current and old.name < step_file(state.step + 1):  # others may write the next one already
            old.unlink(missing_ok=True)


def removable(folder: Path) -> list[Path]:
    """Return the checkpoints that go when the next one is written; behind a link, those that `latest.json` names."""
    if not folder.is_symlink():
        return list(folder.glob(STEPS))
    latest = files.read_json(folder / LATEST) if (folder / LATEST).exists() else {}
    return [folder / Path(block["file"]).name for block in latest.get("blocks", ())]


def write_block(folder: Path, progress: Progress, ranks: Ranks) -> dict[str, Any]:
    """Write the members of this process and return the record of the file, or of the error if other ranks wait."""
    state, best = progress.state, replace(progress.kept, fixed={}).to_tensors()
    tensors = {**state_tensors(state), **{f"kept/{name}": tensor for name, tensor in best.items()}}
    tensors |= {name: getattr(progress, name) for name in NUMBERS}
    file = folder / step_file(state.step)
    if ranks.size > 1:
        file = file.with_name(f"{file.stem}-{ranks.rank + 1}-of-{ranks.size}{file.suffix}")
    try:
        folder.mkdir(exist_ok=True)
        files.write_tensors(file, tensors)
        digest = files.digest_of(file)
    except (Failure, OSError) as error:
        if ranks.alone:
            raise
        return {"error": str(files.cannot_write(file, error))}
    return {
        "file": file.name,
        "members": state.population.members,
        "order": list(tensors),  # the file has another; sums over tensors are rounded by it
        "off_cpu": [name for name, tensor in tensors.items() if tensor.device.type != "cpu"],
        "sha256": digest,
        "diverged": {str(member): asdict(divergence) for member, divergence in state.diverged.items()},
    }


def load_checkpoint(path: Path, device: str = CPU, rows: range | None = None) -> Progress | None:
    """Load the last complete checkpoint, members and optimizer on `device`; None before the first.

    `rows` are the members of this process; by default all. The files may have been written by any number of processes.
    """
    folder = path / CHECKPOINTS
    if not (folder / LATEST).exists():
        return None
    latest = files.read_record(folder / LATEST)
    blocks = latest.get("blocks") or [{**latest, "members": None}]  # one file, as earlier versions wrote it
    parts: list[tuple[Named, int]] = []
    diverged: dict[int, Divergence] = {}
    start = 0  # of a block, among all members
    for block in blocks:
        needed = range(start, sys.maxsize) if rows is None else range(max(start, rows.start), rows.stop)
        end = start + (block["members"] or sys.maxsize)
        if needed.start < min(end, needed.stop):
            stored = files.read_tensors(folder / block["file"], block["sha256"])
            end, off_cpu = start + len(stored["active"]), set(block.get("off_cpu", ()))
            tensors = {name: _placed(name, stored[name], device, off_cpu) for name in block["order"]}
            first = 0 if rows is None else rows.start
            local_rows = range(needed.start - start, min(end, needed.stop) - start)
            parts.append((_rows(tensors, local_rows, latest["points"], first - start), len(local_rows)))
            for member, record in block["diverged"].items():
                if int(member) in local_rows:
                    diverged[start + int(member) - first] = Divergence(**record)
        start = end
    tensors = _join(parts, latest["points"])
    state = state_from_tensors(tensors, latest["points"])
    state.step, state.diverged = latest["step"], diverged
    best = population_from_tensors(below(tensors, "kept"), state.population.members)
    kept = replace(best, fixed=state.population.fixed)
    numbers: dict[str, Any] = {name: tensors[name] for name in NUMBERS}
    probe = Probe(stats=latest["coupling"], seconds=latest["step_seconds"])
    spent: dict[str, Any] = {name: latest.get(name, 0.0) for name in ("seconds", "cpu_seconds")}
    return Progress(state, kept, history=latest["history"], probe=probe, **spent, **numbers)


def checked_trajectory(path: Path) -> dict[str, str]:
    """Return the points of the trajectory with their SHA-256; refuse one that has changed."""
    file = path / CHECKPOINTS / LATEST
    digests: dict[str, str] = files.read_record(file).get("trajectory", {}) if file.exists() else {}
    for name, digest in digests.items():
        files.require_digest(path / name, digest)
    return digests


def _rows(tensors: Named, rows: range, points: list[str], first: int) -> Named:
    """Select members of a block; `first` is the row of the block that becomes row 0."""
    if rows == range(len(tensors["active"])) and first == 0:
        return tensors
    selected = {}
    for name, tensor in tensors.items():
        if name.startswith(f"{MEMORY}/"):
            member, suffix = name.removeprefix(f"{MEMORY}/").split("/", 1)
            if int(member) in rows:
                selected[f"{MEMORY}/{int(member) - first}/{suffix}"] = tensor
            elif int(member) == ALL_MEMBERS:
                selected[name] = tensor
        else:
            is_split = _has_members(name, points) and not (name.startswith(FIXED) and len(tensor) == 1)
            selected[name] = tensor[rows.start : rows.stop].clone() if is_split else tensor
    return selected


def _join(parts: list[tuple[Named, int]], points: list[str]) -> Named:
    """Join the tensors of neighbouring members from several files, each given with its number of members."""
    if len(parts) == 1:
        return parts[0][0]
    combined: Named = {name: tensor for part, _ in parts for name, tensor in part.items()}
    for name in [name for name in combined if _has_members(name, points)]:
        pieces = [(part[name], count) for part, count in parts]
        once = name.startswith(FIXED) and all(len(t) == 1 and torch.equal(t, pieces[0][0]) for t, _ in pieces)
        rows = [t.expand(count, *t.shape[1:]) if name.startswith(FIXED) else t for t, count in pieces]
        combined[name] = pieces[0][0] if once else torch.cat(rows)
    return combined


def _has_members(name: str, points: list[str]) -> bool:
    """Return whether a tensor of a checkpoint has a member axis."""
    populations = ("population", "kept", *(f"path/{point}" for point in points))
    kinds = [f"{prefix}/{kind}/" for prefix in populations for kind in ("own", "buffers", "fixed")]
    return name in ("active", *NUMBERS) or name.startswith(("opt_state/", "counts/", *kinds))


def _placed(name: str, tensor: Tensor, device: str, off_cpu: set[str]) -> Tensor:
    """Move a tensor of a checkpoint to where training needs it.

    That is the device for members, their path and the optimizer. A torch optimizer may count its steps on the CPU.
    """
    kind = name.partition("/")[0]
    moves = kind in ON_DEVICE or (kind == MEMORY and (tensor.dim() > 0 or name in off_cpu))
    return tensor.to(device) if moves else tensor
