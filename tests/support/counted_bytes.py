"""Bytes that each process receives in a step, by recipe: `python counted_bytes.py SIZE FOLDER` writes them."""

import json
import sys
from dataclasses import replace
from pathlib import Path

from processes import digits, main

import murmuration as mm
from murmuration.core.engines import assemble, find_ranks
from murmuration.core.step import step
from murmuration.training import begin, choose_engine
from murmuration.training.batches import epoch_batches
from murmuration.training.plan import plan_for
from murmuration.training.resolve import make_spec

NET, STEPS = "mlp:hidden=7", 3
RECIPES = ("deep-ensemble", "weight-rde", "svgd", "function-rde", "feature-rde", "forde", "batch-ensemble")
SETTINGS = {"members": 5, "epochs": 1, "batch_size": 16, "posthoc": None, "engine": "loop"}  # uneven blocks


def bytes_of(recipe: str) -> float:
    """Bytes a step that this process receives from the others."""
    chosen = mm.make_recipe(recipe)
    spec, _ = make_spec(NET, digits(), chosen, plan_for(chosen, **SETTINGS))
    spec = replace(spec, ranks=find_ranks(spec.plan.members), gamma=spec.method.measure_gamma())
    progress = begin(spec)
    with assemble(choose_engine(spec, progress).engine, spec.member(0), spec.ranks) as team:
        batches = epoch_batches(spec.train_split, spec.plan, 0, spec.schedule, spec.rows)
        before = sum(spec.ranks.moved.values())
        for turn in range(STEPS):
            step(team, spec.method.step_config, progress.state, batches(turn))
    return (sum(spec.ranks.moved.values()) - before) / STEPS


def work(rank: int, size: int, folder: Path) -> None:
    (folder / f"bytes-{rank}.json").write_text(json.dumps({name: bytes_of(name) for name in RECIPES}))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), work))
