"""Processes that train together, for the tests: `python processes.py SIZE FOLDER` writes what each of them found.

One import serves all: the processes are forks of this one, and meet through a file.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn

import murmuration as mm
import murmuration.core.coupling.input_gradients as input_gradients
import murmuration.training.tuning as tuning
from murmuration.core.engines.ranks import Ranks, find_ranks
from murmuration.core.presets import PRESETS
from murmuration.core.recipe import make_recipe
from murmuration.training.plan import Plan

PLAN = Plan(members=3, epochs=1, batch_size=16, lr=3e-3, engine="loop", posthoc=None)
ALONE = [name for name in PRESETS if make_recipe(name).fixed_members and make_recipe(name).members == 1]
TOGETHER = [name for name in PRESETS if name not in ALONE]
NORMALISED = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


def stop(record: dict[str, Any]) -> None:
    """End training after the first epoch."""
    raise mm.StopTraining


# settings of a plan, each for a recipe: uneven blocks on the engine of the rule, early stopping, batches in common
SETTINGS: dict[str, dict[str, Any]] = {
    "deep-ensemble, stacked": {"recipe": "deep-ensemble", "engine": "stacked", "members": 4},
    "deep-ensemble, threads": {"recipe": "deep-ensemble", "engine": "threads", "net": "small-cnn"},
    "deep-ensemble, by the mixture": {
        "recipe": "deep-ensemble",
        "patience": 1,
        "stop_by": "ensemble",
        "epochs": 3,
        "lr": 0.1,
    },
    "deep-ensemble, split": {"recipe": "deep-ensemble", "batch_order": "split"},
    "deep-ensemble, same": {"recipe": "deep-ensemble", "same": ("initialisation", "noise")},
    "batch-ensemble, patience": {"recipe": "batch-ensemble", "patience": 1, "epochs": 3},
    "multi-swag, batch norm": {"recipe": "multi-swag:dynamics=swag:draws=2", "net": NORMALISED},
    "backbone": {"recipe": "deep-ensemble:sharing=backbone"},
    "stopped by a callback": {"recipe": "deep-ensemble", "epochs": 3, "callback": stop},
    "own optimizer": {"recipe": "deep-ensemble", "optimizer": torch.optim.RMSprop},
    "single, a batch in parts": {"recipe": "single", "batch_size": 20},
}


def digits() -> mm.Data:
    data = mm.open_data("digits")
    return replace(data, train=data.train[:192], val=data.val[:40], test=data.test[:20])


def train(recipe: str, net: Any = "mlp", data: mm.Data | None = None, **settings: Any) -> mm.Ensemble:
    others = {name: settings.pop(name) for name in ("out", "checkpoint_seconds", "callback") if name in settings}
    progress = settings.pop("progress", False)
    name, _, answer = recipe.partition(":")
    chosen = make_recipe(name, **dict([answer.split("=", 1)])) if answer else make_recipe(name)
    members = chosen.members if chosen.fixed_members else settings.pop("members", 3)
    settings.pop("members", None)
    plan = replace(PLAN, **{"members": members, **settings})
    return mm.fit(net, digits() if data is None else data, recipe=chosen, plan=plan, progress=progress, **others)


def every_run(first: bool, size: int, folder: Path) -> None:
    """One run for each preset and setting; the one member of the last is trained by all processes."""
    SETTINGS["single, a batch in parts"] |= {"ranks_per_member": size}
    longer = {"csgmcmc": {"epochs": 2}}  # four cycles, each with a step of noise
    presets = {name: {"recipe": name, **longer.get(name, {})} for name in TOGETHER}
    for name, settings in {**presets, **SETTINGS}.items():
        ensemble = train(**settings)
        if first:
            save_file(ensemble.groups[0].population.to_tensors(), str(folder / f"{name}.safetensors"))
            (folder / f"{name}.json").write_text(json.dumps(ensemble.history))


def interrupted_run(folder: Path, steps: int, **settings: Any) -> None:
    """A run that is interrupted after some steps."""

    def stop(text: str, done: int, total: int, record: Any) -> None:
        if done == steps:
            raise KeyboardInterrupt

    try:
        train(out=folder, progress=stop, epochs=2, checkpoint_seconds=1e9, **settings)
    except KeyboardInterrupt:
        return
    raise AssertionError("the run was not interrupted")


def refusal(work: Callable[[], object]) -> str:
    """The message with which a piece of work is refused."""
    try:
        work()
    except (mm.Misuse, mm.Failure) as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def refusals(rank: int, size: int) -> list[str]:
    """What this process says of requests that do not fit."""
    data = digits()
    other = replace(data, fingerprint=f"{data.fingerprint}-{rank}")
    return [
        refusal(lambda: train("deep-ensemble", data=other)),
        refusal(lambda: train("deep-ensemble", seed=rank)),
        refusal(lambda: train("deep-ensemble" if rank == 0 else "forde")),
        refusal(lambda: train("deep-ensemble", members=size - 1)),
        refusal(lambda: train("deep-ensemble", net="mlp" if rank == 0 else "no-net")),
        refusal(lambda: train("deep-ensemble", members=1 + rank)),
        refusal(lambda: train("forde", members=2, ranks_per_member=size)),
        refusal(lambda: train("single", net="mlp:dropout=0.1", ranks_per_member=size)),
        refusal(lambda: train("single", net=NORMALISED, ranks_per_member=size)),
    ]


def exchanged(ranks: Ranks, rank: int) -> dict[str, Any]:
    """Collectives on small tensors, and the bytes that they moved."""
    members, width = 5, 7
    whole = torch.arange(members * width, dtype=torch.float32).view(members, width)
    mine = whole[ranks.rows(members).start : ranks.rows(members).stop]
    columns = ranks.to_columns(mine, members)
    start = sum(ranks.counts(width)[: ranks.rank])
    return {
        "gathered": torch.equal(ranks.gather(mine, members), whole),
        "flags": ranks.gather(mine[:, 0] > 10, members).tolist(),
        "columns": torch.equal(columns, whole[:, start : start + columns.shape[1]]),
        "rows": torch.equal(ranks.to_rows(columns, width), mine),
        "sum": [each.tolist() for each in ranks.sum([torch.ones(2), torch.full((1,), rank, dtype=torch.float64)])],
        "moved": dict(ranks.moved),
    }


def work(rank: int, size: int, folder: Path) -> None:
    every_run(rank == 0, size, folder)
    if size == 1:
        for name in ("deep-ensemble", "batch-ensemble", "multi-swag"):
            train(name, out=folder / f"whole-{name}", epochs=2)
        return
    for name in ("deep-ensemble", "batch-ensemble", "multi-swag"):
        train(name, out=folder / f"whole-{name}", epochs=2)
        interrupted_run(folder / f"stopped-{name}", 5, recipe=name)
        if size == 3:  # continue what two processes have begun
            mm.resume(folder.parent / "2" / f"stopped-{name}", data=digits())
    found = {"exchanged": exchanged(find_ranks(5), rank), "refusals": refusals(rank, size)}
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))


def main(size: int, folder: Path, work: Callable[[int, int, Path], None] = work) -> int:
    """Run the processes; the number of those that failed."""
    torch.set_num_threads(1)
    input_gradients.ALPHAS, tuning.SEVERITIES = (0.0, 0.4), (3,)
    folder.mkdir(parents=True, exist_ok=True)
    if size == 1:
        work(0, 1, folder)
        return 0
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
                work(rank, size, folder)
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
