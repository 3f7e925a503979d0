"""What embedded ensembles are worth beside a single network and separate ones: several seeds, one record.

    python benchmarks/embedded_quality.py digits
    python benchmarks/embedded_quality.py mnist FOLDER --seeds 0,1,2

Eight members of a dense network, gradient descent with momentum, one setting for all recipes. Scores are of the
members as trained, without any calibrator, on the test split. `diversity` is the mean mutual information between a
prediction and the member that made it, `disagreement` the share of pairs of members that name different classes.
Entries that are in the record are not computed again, so a killed run goes on.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import murmuration as mm
from murmuration.data import Split
from murmuration.runs.directory import versions
from murmuration.system.files import read_json, write_json

RESULTS = Path(__file__).parent / "results"
RECIPES = (
    *("single", "mc-dropout", "mask-ensemble", "batch-ensemble", "batch-ensemble-independent"),
    *("last-layer-ensemble", "deep-ensemble"),
)


@dataclass(frozen=True)
class Setting:
    """A network, how much it learns from, and for how long."""

    net: str
    train: int
    test: int
    epochs: int
    members: int = 8
    batch_size: int = 64
    lr: float = 0.05


SETTINGS = {
    "digits": Setting("mlp", train=10_000, test=10_000, epochs=40),
    "mnist": Setting("mlp", train=4000, test=5000, epochs=15),
}


def opened(source: str, setting: Setting) -> mm.Data:
    """The first examples of every split."""
    data = mm.open_data(source)

    def some(split: Split, count: int) -> Split:
        return Split(split.prepared[:count], split.y[:count])

    return replace(data, train=some(data.train, setting.train), test=some(data.test, setting.test))


def measured(name: str, seed: int, data: mm.Data, setting: Setting) -> dict[str, Any]:
    """All numbers of one recipe and seed."""
    plan = mm.Plan(
        members=setting.members, epochs=setting.epochs, batch_size=setting.batch_size, lr=setting.lr, optimizer="sgd"
    )
    start = time.perf_counter()
    ensemble = mm.fit(setting.net, data, recipe=name, seed=seed, plan=plan, posthoc=None)
    seconds = time.perf_counter() - start
    pred = ensemble.predict(data.test.x)
    scores = mm.score(pred, data.test.y)
    return {
        "recipe": name,
        "seed": seed,
        **{key: float(scores[key]) for key in ("accuracy", "nll", "ece")},
        "diversity": float(pred.mutual_information.mean()),
        "disagreement": disagreement(pred.outputs.argmax(-1)),
        "draws": len(pred.outputs),
        "parameters": ensemble.groups[0].population.parameters_stored(),
        "engine": ensemble.engine.name,
        "seconds": round(seconds, 1),
    }


def disagreement(votes: torch.Tensor) -> float:
    """The share of pairs of rows (S, N) that differ, averaged over inputs; 0 for one row."""
    count = len(votes)
    differ = sum(float((votes[i] != votes[j]).float().mean()) for i in range(count) for j in range(i))
    return differ / max(count * (count - 1) // 2, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("source", nargs="?", default="digits")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--out")
    options = parser.parse_args()
    mm.keep_freed_memory()
    setting = SETTINGS[options.setting]
    path = Path(options.out or RESULTS / f"embedded-{options.setting}.json")
    record = read_json(path) if path.exists() else {"setting": asdict(setting), "versions": versions(), "runs": []}
    data = opened(options.source, setting)
    for seed in map(int, options.seeds.split(",")):
        for name in options.recipes.split(","):
            if any(run["recipe"] == name and run["seed"] == seed for run in record["runs"]):
                continue
            found = measured(name, seed, data, setting)
            record["runs"].append(found)
            write_json(path, record)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
