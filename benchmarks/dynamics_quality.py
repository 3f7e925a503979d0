"""SWA, SWAG, snapshot ensembles and cSG-MCMC against a deep ensemble at equal gradient steps, with several seeds.

    python benchmarks/dynamics_quality.py digits --choose
    python benchmarks/dynamics_quality.py digits
    python benchmarks/dynamics_quality.py cifar10 FOLDER --examples 5000 --choose
    python benchmarks/dynamics_quality.py cifar10 FOLDER --draws 15 --seeds 0,1,2

`deep-ensemble` and `multi-swag` train 5 members for 8 epochs, all others one network for 40 epochs; no ensemble has
more than 30 members. `--choose` trains every setting of a small grid with a seed of its own and keeps, for each method,
the one with the lowest NLL on validation examples; test examples are not looked at. It may do so on fewer training
examples than the seeds get. Scores are of the members as trained, without calibration: on clean test examples, and
means over all corruptions at severities 1, 3 and 5 of the first 1,000.
Every run is an entry of the record (`--out`, or else benchmarks/results/dynamics-DATA.json), written as soon as it is
known; entries that are there are not computed again, so a killed run goes on.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from pages import dynamics_table

import murmuration as mm
from murmuration.core.recipe import make_recipe
from murmuration.data import Split
from murmuration.data.shift import corruptions_for, shift_inputs
from murmuration.evaluation.metrics import MEASURES, score_examples
from murmuration.runs.directory import versions
from murmuration.system.files import read_json, write_json

RESULTS = Path(__file__).parent / "results"
MEMBERS = 5
CHOICE_SEED = 100
SCORES = {name: MEASURES["classification"][name] for name in ("accuracy", "nll", "ece")}

Choice = dict[str, float]  # lr, and settings of the dynamics
Corrupted = dict[tuple[str, int], torch.Tensor]  # corruption, severity -> inputs
METHODS = ("single", "deep-ensemble", "swa", "swag", "multi-swag", "snapshot", "csgmcmc")


def grids(
    lrs: tuple[float, ...], ratios: tuple[float, ...], multipliers: tuple[float, ...], temperatures: tuple[float, ...]
) -> dict[str, list[Choice]]:
    """The settings that each method chooses among; the learning rate of csgmcmc is 0.005 times its multiplier."""
    plain = [{"lr": lr} for lr in lrs]
    averaged = [{"lr": lr, "lr_ratio": ratio} for lr, ratio in product(lrs, ratios)]
    sampled = [
        {"lr": 5e-3, "lr_multiplier": multiplier, "temperature": temperature}
        for multiplier, temperature in product(multipliers, temperatures)
    ]
    return {
        **dict.fromkeys(("single", "deep-ensemble", "snapshot"), plain),
        **dict.fromkeys(("swa", "swag", "multi-swag"), averaged),
        "csgmcmc": sampled,
    }


GRIDS = {
    "digits": grids((1e-3, 3e-3, 1e-2), (0.5, 0.1), (20.0, 60.0, 150.0), (1.0, 0.01)),
    "cifar10": grids((1e-3, 3e-3, 1e-2), (0.5,), (5.0, 20.0, 60.0), (1.0,)),
}
SAME_PATH = {"swag": "swa"}  # a method for which nothing was chosen takes the settings of the one it moves like


@dataclass(frozen=True)
class Setting:
    """A network, the examples it is trained and scored on, and the steps it gets."""

    net: str
    batch_size: int
    train: int | None = None  # examples; None: all
    val: int | None = None
    test: int | None = None
    epochs: int = 40  # of one network; the members of an ensemble have a fifth of it each
    draws: int = 30  # of swag; multi-swag has a fifth of it for each member
    corrupted: int = 1000  # test examples
    severities: tuple[int, ...] = (1, 3, 5)


SETTINGS = {"digits": Setting("small-cnn", batch_size=64), "cifar10": Setting("small-cnn", batch_size=128)}


def open_some(source: str, setting: Setting) -> mm.Data:
    """The first examples of every split."""
    data = mm.open_data(source)

    def some(split: Split, count: int | None) -> Split:
        return Split(split.prepared[:count], split.y[:count])

    splits = {name: some(getattr(data, name), getattr(setting, name)) for name in ("train", "val", "test")}
    return replace(data, **splits)


def train(method: str, choice: Choice, seed: int, data: mm.Data, setting: Setting) -> mm.Ensemble:
    """The ensemble of one method; all methods make the same number of gradient steps."""
    recipe = make_recipe(method)
    members = MEMBERS if recipe.members is None else 1
    settings = {name: value for name, value in choice.items() if name != "lr"}
    if method in ("swag", "multi-swag"):
        settings["draws"] = setting.draws // members
    recipe = replace(recipe, dynamics=replace(recipe.dynamics, **settings))
    plan = mm.Plan(
        members=members, epochs=setting.epochs // members, batch_size=setting.batch_size, lr=choice["lr"], engine="loop"
    )
    return mm.fit(setting.net, data, recipe=recipe, seed=seed, plan=plan, posthoc=None)


def scores(ensemble: mm.Ensemble, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """Accuracy, NLL and ECE on some examples."""
    found = score_examples(ensemble.predict(x, calibrated=False, prepared=True), y).scores(measures=SCORES, resamples=2)
    return {name: float(value) for name, value in found.items()}


def choose(record: dict[str, Any], path: Path, grid: dict[str, list[Choice]], data: mm.Data, setting: Setting) -> None:
    """Train the grid of every method, and keep the setting of each that has the lowest validation NLL."""
    runs = record["choice"]["runs"]
    for method, choices in grid.items():
        for choice in choices:
            if any(run["method"] == method and run["settings"] == choice for run in runs):
                continue
            ensemble = train(method, choice, CHOICE_SEED, data, setting)
            validation = scores(ensemble, data.val.prepared, data.val.y)
            found = {"method": method, "settings": choice, "train": len(data.train), "validation": validation}
            runs.append(found)
            write_json(path, record)
            print(json.dumps(found), flush=True)
        tried = [run for run in runs if run["method"] == method]
        record["choice"]["chosen"][method] = min(tried, key=lambda run: run["validation"]["nll"])["settings"]
        write_json(path, record)


def measure(
    method: str, choice: Choice, seed: int, data: mm.Data, setting: Setting, corrupted: Corrupted
) -> dict[str, Any]:
    """All numbers of one method and seed."""
    start = time.perf_counter()
    ensemble = train(method, choice, seed, data, setting)
    seconds = time.perf_counter() - start
    cells = {kind: scores(ensemble, x, data.test.y[: len(x)]) for kind, x in corrupted.items()}
    return {
        "method": method,
        "seed": seed,
        "settings": choice,
        "members": ensemble.members,
        "clean": scores(ensemble, data.test.prepared, data.test.y),
        "corrupted": {name: fmean(cell[name] for cell in cells.values()) for name in SCORES},
        "by_severity": {
            str(wanted): fmean(cell["accuracy"] for (_, severity), cell in cells.items() if severity == wanted)
            for wanted in setting.severities
        },
        "diverged": ensemble.manifest.diverged,
        "seconds": round(seconds, 1),
    }


def corrupt(data: mm.Data, setting: Setting) -> Corrupted:
    """The first test examples under every corruption and severity."""
    x, preparation = data.test.prepared[: setting.corrupted], data.preparation
    cells = product(corruptions_for(preparation), setting.severities)
    return {(name, severity): shift_inputs(x, preparation, name, severity, seed=0) for name, severity in cells}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=SETTINGS)
    parser.add_argument("folder", nargs="?", help="of CIFAR-10; digits need none")
    parser.add_argument("--examples", type=int, help="training examples; the first so many")
    parser.add_argument("--choose", action="store_true", help="choose settings on validation examples, and stop")
    parser.add_argument("--draws", type=int, help="members drawn by swag, and by multi-swag in all")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out")
    options = parser.parse_args()
    mm.keep_freed_memory()
    torch.set_num_threads(options.threads)
    setting = SETTINGS[options.data]
    setting = replace(setting, train=options.examples or setting.train, draws=options.draws or setting.draws)
    path = Path(options.out or RESULTS / f"dynamics-{options.data}.json")
    empty = {"versions": versions(), "choice": {"seed": CHOICE_SEED, "runs": [], "chosen": {}}, "runs": []}
    record = read_json(path) if path.exists() else empty
    data, methods = open_some(options.folder or options.data, setting), options.methods.split(",")
    if options.choose:
        choose(record, path, {method: GRIDS[options.data][method] for method in methods}, data, setting)
        return
    used = json.loads(json.dumps(asdict(setting)))
    if record["runs"] and record["setting"] != used:
        raise SystemExit(f"{path} was made with {record['setting']}: remove it, or give another --out")
    record["setting"] = used
    corrupted = corrupt(data, setting)
    for seed in map(int, options.seeds.split(",")):
        for method in methods:
            if any(run["method"] == method and run["seed"] == seed for run in record["runs"]):
                continue
            chosen = record["choice"]["chosen"]
            choice = chosen.get(method) or chosen.get(SAME_PATH.get(method))
            if choice is None:
                raise SystemExit(f"no settings of {method} have been chosen: run with --choose first")
            found = measure(method, choice, seed, data, setting, corrupted)
            record["runs"].append(found)
            write_json(path, record)
            print(json.dumps({key: found[key] for key in ("method", "seed", "clean", "seconds")}), flush=True)
    print(dynamics_table(record))


if __name__ == "__main__":
    main()
