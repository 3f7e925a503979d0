"""Checkpoints of a run in progress: its tensors in one file, named by `latest.json`, which is written after it."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from murmuration import files
from murmuration.devices import CPU
from murmuration.dynamics import WeightPath
from murmuration.errors import Failure
from murmuration.population import Population, population_from_tensors
from murmuration.runs import CHECKPOINTS, LATEST, STEPS, below, step_file, write_history
from murmuration.training import Progress
from murmuration.training.state import Divergence, State

ON_DEVICE = ("population", "kept", "path", "opt_state", "shared_opt_state")  # tensors of a checkpoint, by prefix
MEMORY = "memory"  # of a torch optimizer


def save_checkpoint(path: Path, progress: Progress) -> None:
    """The state of a run in progress: tensors first, then the small file that names them, then the old ones go."""
    state, folder = progress.state, path / CHECKPOINTS
    folder.mkdir(exist_ok=True)
    file = folder / step_file(state.step)
    tensors = _progress_tensors(progress)
    files.write_tensors(file, tensors)
    latest = {
        "file": file.name,
        "order": list(tensors),  # the file has another; sums over tensors are rounded by it
        "off_cpu": [name for name, tensor in tensors.items() if tensor.device.type != "cpu"],
        "sha256": files.digest_of(file),
        "step": state.step,
        "seconds": progress.seconds,
        "step_seconds": state.seconds,
        "diverged": {str(member): asdict(found) for member, found in state.diverged.items()},
        "coupling": files.json_numbers(state.coupling_stats),
        "points": list(progress.path.points),
        "history": progress.history,
    }
    files.write_record(folder / LATEST, latest)
    write_history(path, progress.history)
    for old in folder.glob(STEPS):
        if old != file:
            old.unlink()


def load_checkpoint(path: Path, device: str = CPU) -> Progress | None:
    """The progress of a run at its last whole checkpoint, members and optimizer on `device`; None before the first."""
    folder = path / CHECKPOINTS
    if not (folder / LATEST).exists():
        return None
    latest = files.read_record(folder / LATEST)
    found = files.read_tensors(folder / latest["file"], latest["sha256"])
    off_cpu = set(latest.get("off_cpu", ()))
    tensors = {name: _placed(name, found[name], device, off_cpu) for name in latest["order"]}
    members = len(tensors["active"])
    population = _population(tensors, "population", members)
    state = State(
        population,
        _opt_state(tensors, "opt_state"),
        _opt_state(tensors, "shared_opt_state"),
        tensors["active"],
        latest["step"],
        {int(member): Divergence(**record) for member, record in latest["diverged"].items()},
        latest["coupling"],
        latest["step_seconds"],
        _memory(tensors),
    )
    others = {key: _population(tensors, key, members) for key in ("kept", *(f"path/{n}" for n in latest["points"]))}
    others = {key: replace(other, fixed=population.fixed) for key, other in others.items()}
    return Progress(
        state,
        others["kept"],
        tensors["kept_epoch"],
        tensors["loss_sum"],
        tensors["best"],
        tensors["waited"],
        latest["history"],
        WeightPath({name: others[f"path/{name}"] for name in latest["points"]}, below(tensors, "counts")),
        latest["seconds"],
    )


def _placed(name: str, tensor: Tensor, device: str, off_cpu: set[str]) -> Tensor:
    """A tensor of a checkpoint where training needs it.

    That is the device for members, their path and the optimizer. A torch optimizer may count its steps on the CPU.
    """
    kind = name.partition("/")[0]
    moves = kind in ON_DEVICE or (kind == MEMORY and (tensor.dim() > 0 or name in off_cpu))
    return tensor.to(device) if moves else tensor


def _progress_tensors(progress: Progress) -> dict[str, Tensor]:
    state, path = progress.state, progress.path
    others = {"kept": progress.kept, **{f"path/{name}": point for name, point in path.points.items()}}
    populations = {"population": state.population, **{name: replace(p, fixed={}) for name, p in others.items()}}
    opt_states = {"opt_state": state.opt_state, "shared_opt_state": state.shared_opt_state}
    tensors = {f"{key}/{name}": t for key, p in populations.items() for name, t in p.to_tensors().items()}
    tensors |= {
        f"{key}/{kind}/{name}": tensor
        for key, kinds in opt_states.items()
        for kind, named in kinds.items()
        for name, tensor in named.items()
    }
    tensors |= {f"counts/{name}": count for name, count in path.counts.items()}
    for member, states in state.memory.items():
        for index, kept in enumerate(states):
            tensors |= {f"{MEMORY}/{member}/{index}/{key}": _as_tensor(key, value) for key, value in kept.items()}
    small = {
        "active": state.active,
        "best": progress.best,
        "waited": progress.waited,
        "kept_epoch": progress.kept_epoch,
    }
    return {**tensors, **small, "loss_sum": progress.loss_sum}


def _as_tensor(key: str, value: object) -> Tensor:
    """One entry of a torch optimizer's state as a tensor."""
    if isinstance(value, Tensor):
        return value.clone()  # entries may share memory, which safetensors refuses
    if isinstance(value, bool | int | float):
        return torch.tensor(value, dtype=torch.float64)
    raise Failure(f"the optimizer keeps '{key}' as {type(value).__name__}: only tensors and numbers can be stored")


def _memory(tensors: dict[str, Tensor]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for name, tensor in below(tensors, MEMORY).items():
        member, index, key = name.split("/", 2)
        found.setdefault(int(member), {}).setdefault(int(index), {})[key] = tensor
    return {member: [rows.get(i, {}) for i in range(max(rows) + 1)] for member, rows in found.items()}


def _population(tensors: dict[str, Tensor], prefix: str, members: int) -> Population:
    return population_from_tensors(below(tensors, prefix), members)


def _opt_state(tensors: dict[str, Tensor], prefix: str) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in below(tensors, prefix).items():
        kind, _, name = key.partition("/")
        found.setdefault(kind, {})[name] = tensor
    return found
