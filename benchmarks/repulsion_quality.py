"""What repulsion is worth on real data: ten members of fixed size, every method, several seeds, one record.

    python benchmarks/repulsion_quality.py mnist FOLDER --foreign svhn/test.npz --seeds 0,1,2
    python benchmarks/repulsion_quality.py cifar10 FOLDER --foreign svhn/test.npz --seeds 0,1,2

Each method and seed is one entry of the record (`--out`, or else benchmarks/results/repulsion-<setting>.json), written
as soon as it is known; entries that are there are not computed again, so a killed run goes on. Scores are of the
members as trained, without any calibrator: clean NLL, accuracy and ECE on the first test examples, means over all
corruptions and five severities of the same examples, and AUROC of mutual information and entropy against foreign
pictures. Everything random follows from the seed: initialisation, batches; the training examples are the same for all.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import murmuration as mm
from murmuration.core.recipe import make_recipe
from murmuration.data import Split, open_inputs
from murmuration.data.shift import corruptions_for
from murmuration.evaluation import ShiftSuite, eval_set_of, evaluate_ood, evaluate_shift, in_distribution
from murmuration.runs.directory import versions
from murmuration.system.files import read_json, write_json

RESULTS = Path(__file__).parent / "results"
STRONG = 0.1  # a weight of the repulsion beside the loss, about ten times the usual 1/B
QUARTER = make_recipe("forde-pca", coupling="input-gradients:lengthscales=pca,batch_fraction=0.25")
METHODS: dict[str, str | mm.Recipe] = {
    **{name: name for name in ("deep-ensemble", "weight-rde", "function-rde", "feature-rde")},
    **{name: name for name in ("forde-identity", "forde-pca", "forde-tuned")},
    "forde-quarter": QUARTER,
    **{
        f"forde-{scales}-strong": make_recipe(
            "forde", coupling=f"input-gradients:lengthscales={scales},weight={STRONG}"
        )
        for scales in ("identity", "pca")
    },
}
CLEAN = ("accuracy", "nll", "ece", "mutual_information")
FOREIGN = ("entropy", "mutual_information")


@dataclass(frozen=True)
class Setting:
    """A network, how much it learns from, and for how long."""

    net: str
    train: int
    val: int
    test: int
    epochs: int
    batch_size: int
    lr: float
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    foreign: int = 2000


SETTINGS = {
    "mnist": Setting("mlp", train=2000, val=500, test=1000, epochs=30, batch_size=128, lr=1e-3),
    "cifar10": Setting("small-cnn", train=1000, val=250, test=500, epochs=15, batch_size=64, lr=2e-3),
}


def some(split: Split, count: int) -> Split:
    return Split(split.prepared[:count], split.y[:count])


def opened(folder: str, setting: Setting) -> mm.Data:
    """The first examples of every split."""
    data = mm.open_data(folder)
    train, val, test = some(data.train, setting.train), some(data.val, setting.val), some(data.test, setting.test)
    return replace(data, train=train, val=val, test=test)


def measured(method: str, seed: int, data: mm.Data, setting: Setting, foreign: Any) -> dict[str, Any]:
    """All numbers of one method and seed."""
    start = time.perf_counter()
    plan = mm.Plan(members=10, epochs=setting.epochs, batch_size=setting.batch_size, lr=setting.lr, batch_order="same")
    ensemble = mm.fit(setting.net, data, recipe=METHODS[method], seed=seed, plan=plan, posthoc=None)
    trained, eval_set = time.perf_counter() - start, eval_set_of(data)
    suite = ShiftSuite(tuple(corruptions_for(data.preparation)), setting.severities)
    shift = evaluate_shift(ensemble, eval_set, suite)
    familiar = in_distribution(ensemble, replace(eval_set, train=None))  # no feature distances
    strange = evaluate_ood(ensemble, familiar, "foreign", foreign)
    return {
        "method": method,
        "seed": seed,
        "clean": {name: float(shift.clean[name]) for name in CLEAN},
        "corrupted": {name: float(score) for name, score in shift.pooled.items()},
        "by_severity": {str(k): float(v["accuracy"]) for k, v in shift.by_severity.items()},
        "by_type": {name: float(scores["accuracy"]) for name, scores in shift.by_type.items()},
        "auroc": {name: float(strange.detections[name].auroc) for name in FOREIGN},
        "coupling": ensemble.history[-1].get("coupling", {}),
        **(
            {"alpha": float(ensemble.manifest.chosen), "sweep": ensemble.manifest.sweep}
            if ensemble.manifest.chosen
            else {}
        ),
        "seconds": round(trained, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("folder")
    parser.add_argument("--foreign", required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out")
    options = parser.parse_args()
    mm.keep_freed_memory()
    setting = SETTINGS[options.setting]
    path = Path(options.out or RESULTS / f"repulsion-{options.setting}.json")
    record = read_json(path) if path.exists() else {"setting": asdict(setting), "versions": versions(), "runs": []}
    data = opened(options.folder, setting)
    foreign = open_inputs(options.foreign, preparation=data.preparation, adapt=True)[: setting.foreign]
    for seed in map(int, options.seeds.split(",")):
        for method in options.methods.split(","):
            if any(run["method"] == method and run["seed"] == seed for run in record["runs"]):
                continue
            found = measured(method, seed, data, setting, foreign)
            record["runs"].append(found)
            write_json(path, record)
            print(json.dumps({key: found[key] for key in ("method", "seed", "clean", "seconds")}), flush=True)


if __name__ == "__main__":
    main()
