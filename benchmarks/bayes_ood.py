"""Do Bayesian networks notice digits that are turned by 90 degrees? Mutual information and entropy as OOD scores.

    python benchmarks/bayes_ood.py --choose
    python benchmarks/bayes_ood.py
    python benchmarks/bayes_ood.py --nets small-cnn --methods bayes,ivon --seeds 0,1

Every recipe has its default settings, 50 epochs and 30 draws per member; `beta=0.1` was the default of `bayes` before
`--choose`: settings are chosen with a seed of its own, by the NLL of upright validation digits. Beside it stands
the mean AUROC of validation digits against mirrored, inverted, shifted and shuffled ones and noise; test digits and
rotations are not looked at. Every run is an entry of the record (`--out`, or else benchmarks/results/bayes-ood.json),
written as soon as it is known; entries that are there are not computed again, so a killed run goes on.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from bayes_tables import bayes_ood_table
from torch import Tensor

import murmuration as mm
from murmuration.core.recipe import Recipe, make_recipe
from murmuration.runs.directory import versions
from murmuration.system.files import read_json, write_json

RESULTS = Path(__file__).parent / "results" / "bayes-ood.json"
CHOICE_SEED = 100
NETS = ("small-cnn", "mlp")
Method = tuple[str, dict[str, str], int | None]  # recipe, answers that differ from it, members
METHODS: dict[str, Method] = {
    "single": ("single", {}, None),
    "deep-ensemble": ("deep-ensemble", {}, None),
    "bayes, beta=0.1": ("bayes", {"weights": "gaussian:beta=0.1"}, None),
    "bayes": ("bayes", {}, None),
    "bayes, 5 members": ("bayes", {}, 5),
    "bayes-flipout, beta=0.1": ("bayes-flipout", {"weights": "gaussian:estimator=flipout,beta=0.1"}, None),
    "bayes-flipout": ("bayes-flipout", {}, None),
    "bayes-last-layer": ("bayes-last-layer", {}, None),
    "rank1-bnn": ("rank1-bnn", {}, None),
    "ivon": ("ivon", {}, None),
    "ivon, 5 members": ("ivon", {}, 5),
    "mc-dropout": ("mc-dropout", {}, None),
}
BETAS = (0.1, 0.03, 0.01, 0.003)
RANK_ONE = "gaussian:where=factors,prior=gaussian_0.1,draws=5"
CHOICES: dict[str, dict[str, Method]] = {  # recipe -> settings that it is chosen among
    "bayes": {f"beta={beta}": ("bayes", {"weights": f"gaussian:beta={beta}"}, None) for beta in BETAS},
    "bayes-last-layer": {
        f"beta={beta}": ("bayes-last-layer", {"weights": f"gaussian:where=last,beta={beta}"}, None)
        for beta in (0.1, 0.01)
    },
    "rank1-bnn": {f"beta={beta}": ("rank1-bnn", {"weights": f"{RANK_ONE},beta={beta}"}, None) for beta in (0.1, 0.01)},
    "ivon": {text: ("ivon", {"dynamics": text}, None) for text in ("ivon", "ivon:hess_lr=0.001", "ivon:std=0.03")},
}


def train(method: Method, net: str, seed: int, data: mm.Data) -> mm.Ensemble:
    """The ensemble of one method, one member after another."""
    name, answers, members = method
    plan = mm.Plan(members=members or 0, seed=seed, engine="loop", posthoc=None)
    return mm.fit(net, data, recipe=make_recipe(name, **answers), plan=plan)


def foreign_inputs(x: Tensor) -> dict[str, Tensor]:
    """Inputs (N, 1, 8, 8) that are no digits, or no longer: not the rotations that the test is about."""
    stream = torch.Generator().manual_seed(0)
    order = torch.randperm(x[0].numel(), generator=stream)
    return {
        "mirrored": x.flip(-1),
        "upside down": x.flip(-2),
        "inverted": x.max() - x + x.min(),
        "shifted": x.roll((3, 3), (-2, -1)),
        "shuffled": x.flatten(1)[:, order].view_as(x),
        "noise": torch.randn(x.shape, generator=stream) * x.std() + x.mean(),
    }


def rotated(x: Tensor) -> Tensor:
    """Images (N, C, H, W) turned by 90 degrees."""
    return torch.rot90(x, 1, (-2, -1))


def scores(ensemble: mm.Ensemble, x: Tensor, y: Tensor, foreign: list[Tensor]) -> dict[str, float]:
    """Accuracy and NLL of some examples, and the mean AUROC of both scores against each of some foreign inputs."""
    known = ensemble.predict(x, prepared=True)
    others = [ensemble.predict(each, prepared=True) for each in foreign]

    def auroc(score: str) -> float:
        pairs = [(getattr(known, score), getattr(other, score)) for other in others]
        return fmean(float(mm.score_detection(*pair, resamples=2).auroc) for pair in pairs)

    return {
        "accuracy": float((known.predicted == y).double().mean()),
        "nll": float(-known.log_prob(y).mean()),
        "auroc_mutual_information": auroc("mutual_information"),
        "auroc_entropy": auroc("entropy"),
        "mutual_information": float(known.mutual_information.mean()),
        "mutual_information_foreign": fmean(float(other.mutual_information.mean()) for other in others),
    }


def settings_of(method: Method) -> str:
    """The answers of a method that make it what it is."""
    recipe: Recipe = make_recipe(method[0], **method[1])
    return f"weights {recipe.text('weights')}, dynamics {recipe.text('dynamics')}"


def measure(name: str, method: Method, net: str, seed: int, data: mm.Data, *, choosing: bool) -> dict[str, Any]:
    """All numbers of one method, network and seed: on validation digits when choosing, else on test digits."""
    start = time.process_time()
    ensemble = train(method, net, seed, data)
    seconds = time.process_time() - start
    split = data.val if choosing else data.test
    foreign = list(foreign_inputs(split.prepared).values()) if choosing else [rotated(split.prepared)]
    about = {"method": name, "net": net, "seed": seed, "settings": settings_of(method), "members": ensemble.members}
    return {**about, **scores(ensemble, split.prepared, split.y, foreign), "cpu_seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choose", action="store_true", help="try settings on validation digits, and stop")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--methods", help="names of the table with ; between, or of recipes with --choose")
    parser.add_argument("--out", default=str(RESULTS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    path, data = Path(options.out), mm.open_data("digits")
    record = read_json(path) if path.exists() else {"versions": versions(), "choice": [], "runs": []}
    table = {f"{name}, {key}": each for name, grid in CHOICES.items() for key, each in grid.items()}
    methods, kind = (table, "choice") if options.choose else (METHODS, "runs")
    wanted = options.methods.split(";") if options.methods else list(methods)
    seeds = [CHOICE_SEED] if options.choose else [int(seed) for seed in options.seeds.split(",")]
    cells = [(seed, net, name) for seed in seeds for net in options.nets.split(",") for name in wanted]
    for seed, net, name in cells:
        if any((run["seed"], run["net"], run["method"]) == (seed, net, name) for run in record[kind]):
            continue
        found = measure(name, methods[name], net, seed, data, choosing=options.choose)
        record[kind].append(found)
        write_json(path, record)
        print(json.dumps(found), flush=True)
    print(bayes_ood_table(record))


if __name__ == "__main__":
    main()
