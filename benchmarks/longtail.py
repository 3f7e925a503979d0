"""Long-tailed CIFAR-10 and CIFAR-100: losses, samplers, changed heads and expert ensembles, with several seeds.

    python benchmarks/longtail.py cifar10=cifar-10-batches-bin cifar100=cifar-100-binary
    python benchmarks/longtail.py cifar10-features=cifar10.npz cifar100-features=cifar100.npz --net mlp --lr 2e-4
    python benchmarks/longtail.py digits=digits --factors 10 --epochs 1 --seeds 0 --out longtail-digits.json

Every argument is NAME=SOURCE, and a source is what `mm.open_data` takes; features are files of `murmur embed`. A tenth
of the training part validates; the long tail is cut from the rest, so that its largest class has a tenth fewer
examples than in publications. At the first factor all trainings are run (or those of `--trainings`), at the others
cross-entropy, which post-hoc logit adjustment is made of, and the best of the first by mean class accuracy over seeds.
Images are augmented by pad-crop and flip; networks train without dropout.

A training makes several rows. The first of three networks of a loss is the row of the loss alone, all three are its
deep ensemble. Cross-entropy also gives post-hoc logit adjustment of both, and of its first network re-trained heads,
normalised heads and heads on transferred covariance; `ride` and `sade` also the softmax of the experts' mean logits,
and `sade` the weights found on unlabelled test images. Scores are of the members as trained, on the test split: mean
class accuracy of all, many-, medium- and few-shot classes, with 95 % intervals over test examples. Powers (tau) are
chosen on validation examples.
Every training is an entry of the record (`--out`, or else benchmarks/results/longtail.json), written as soon as it is
known; entries that are there are not computed again, so a killed run goes on. Seeds come one after another, and with
each all data: a record that is not complete has the same trainings for all of its seeds but the last. An estimate is
printed first.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from longtail_table import longtail_table
from torch import nn

import murmuration as mm
from murmuration.applications.longtail import Transfer, expert_weights, normalise_heads, retrain_heads
from murmuration.applications.longtail.heads import with_members
from murmuration.core.recipe import make_recipe
from murmuration.evaluation.by_class import accuracy_of, shot_groups
from murmuration.models.nets import NETS, build_net, with_cosine_head
from murmuration.prediction.posthoc import fit_calibrator
from murmuration.runs.directory import versions
from murmuration.system.files import read_json, write_json

RESULTS = Path(__file__).parent / "results"
ENSEMBLE = 3  # members, as many as experts
EVERY_FACTOR = "cross-entropy"  # gives post-hoc logit adjustment too


@dataclass(frozen=True)
class Training:
    """One way to train members."""

    recipe: str = "deep-ensemble"
    loss: str | None = None  # None: the recipe's
    sampler: str = "instance"
    coupling: str | None = None

    @property
    def members(self) -> int:
        return 1 if self.recipe == "single" else ENSEMBLE

    @property
    def separate(self) -> bool:
        """Whether members are separate networks, the first of which is what training it alone gives."""
        return self.recipe == "deep-ensemble"


TRAININGS = {
    **{loss: Training(loss=loss) for loss in ("cross-entropy", "balanced-softmax", "ldam-drw")},
    "ride": Training("ride"),
    "sade": Training("sade"),
    "repulsive heads": Training("last-layer-ensemble", "balanced-softmax", coupling="outputs"),
    "class-balanced": Training(loss="class-balanced"),
    **{
        f"{name} sampler": Training("single", "cross-entropy", sampler=name)
        for name in ("balanced", "square-root", "progressive")
    },
}


def network(training: Training, data: mm.Data, options: argparse.Namespace) -> Callable[[], nn.Module]:
    """A function that builds the network without dropout, with a last layer of cosines where the loss takes them."""
    loss = training.loss or make_recipe(training.recipe).loss
    given = {"dropout": 0.0} if "dropout" in NETS[options.net].options else {}

    def build() -> nn.Module:
        net = build_net(options.net, data.input_shape, len(data.classes), **given)
        return with_cosine_head(net) if loss == "ldam-drw" else net

    return build


def train(training: Training, data: mm.Data, seed: int, options: argparse.Namespace) -> mm.Ensemble:
    """The ensemble of one training. Epochs are validated on a few rows: the result does not depend on it."""
    images = len(data.input_shape) == 3 and min(data.input_shape[1:]) >= 16
    plan = mm.Plan(
        members=training.members,
        epochs=options.epochs,
        batch_size=options.batch_size,
        lr=options.lr,
        sampler=training.sampler,
        batch_order=None if training.separate else "same",
        engine="auto" if training.separate else "stacked",  # a shared body then runs once for all experts
        augment=("pad-crop", "flip") if images else (),
        precision=options.precision,
        posthoc=None,
    )
    recipe, few = make_recipe(training.recipe, coupling=training.coupling), replace(data, val=data.val[:200])
    return mm.fit(network(training, data, options), few, recipe=recipe, plan=plan, likelihood=training.loss, seed=seed)


def variants(
    name: str, training: Training, run: mm.Ensemble, data: mm.Data, seed: int
) -> Iterator[tuple[str, mm.Predictive]]:
    """The predictions on the test split of a trained ensemble, and of what is made of it after training."""
    pred, val = (run.predict(split, calibrated=False) for split in (data.test, data.val))
    found = {name: (pred, val)}
    if training.separate:
        found = {name: (pred.select([0]), val.select([0])), f"{name}, ensemble": (pred, val)}
    yield from ((row, test) for row, (test, _) in found.items())
    if training.recipe in ("ride", "sade"):  # as published; predictions here are mean probabilities
        yield f"{name}, mean logits", replace(pred, outputs=pred.outputs.mean(0, keepdim=True))
    if training.recipe == "sade" and len(data.input_shape) == 3:
        weights = expert_weights(run, data.test.prepared)
        yield f"{name}, test-time weights", replace(pred, weights=weights)
    if training.loss != "cross-entropy" or training.sampler != "instance":
        return
    counts = data.train.y.bincount(minlength=len(data.classes)).tolist()
    for row, (test, held_out) in found.items():
        for label, method in (("", "logit_adjustment"), (", tau 1", "logit_adjustment:tau=1")):
            yield f"{row}, logit adjustment{label}", fit_calibrator(method, held_out, data.val.y, counts)(test)
    first = with_members(run, run.groups[0].population.group(slice(1)))
    many = min(100, max(counts) - 1)
    heads = {
        "re-trained heads": retrain_heads(first, data, seed=seed),
        "normalised heads": normalise_heads(first, data),
        "transferred covariance": retrain_heads(
            first, data, transfer=Transfer(many=many), sampler="instance", seed=seed
        ),
    }
    for label, changed in heads.items():
        yield f"{name}, {label}", changed.predict(data.test, calibrated=False)


def scores(pred: mm.Predictive, data: mm.Data) -> dict[str, Any]:
    """Mean class accuracy of all and by group, with intervals; NLL; mutual information by group."""
    label, correct = data.test.y.numpy(), (pred.predicted == data.test.y).double().numpy()
    counts = data.train.y.bincount(minlength=len(data.classes)).numpy()
    groups = {"all": np.arange(len(counts)), **shot_groups(counts)}
    found: dict[str, Any] = {"nll": float(-pred.log_prob(data.test.y).mean())}
    for group, classes in groups.items():
        rows = np.isin(label, classes)
        if rows.any():
            accuracy = accuracy_of(correct, label, classes)
            found[group] = [float(accuracy), float(accuracy.low), float(accuracy.high)]
            found[f"mutual_information_{group}"] = float(pred.mutual_information[torch.from_numpy(rows)].mean())
    return found


def wanted(
    record: dict[str, Any], sources: dict[str, str], options: argparse.Namespace
) -> Iterator[tuple[str, float, int, str]]:
    """Data, factor, seed and training of every entry, in the order in which they are computed."""
    for place, factor in enumerate(options.factors):
        for seed, name in product(options.seeds, sources):
            others = [EVERY_FACTOR, best(record, name, options.factors[0])]
            chosen = options.trainings if place == 0 else others
            yield from ((name, factor, seed, training) for training in dict.fromkeys(chosen))


def best(record: dict[str, Any], data: str, factor: float) -> str:
    """The training of the row with the highest mean class accuracy over seeds; as long as none is known any."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in record["runs"]:
        if (run["data"], run["factor"]) == (data, factor):
            for row, known in run["rows"].items():
                found.setdefault((run["training"], row), []).append(known["all"][0])
    return max(found, key=lambda each: fmean(found[each]), default=(EVERY_FACTOR,))[0]


def key(run: dict[str, Any]) -> tuple[str, float, int, str]:
    return run["data"], run["factor"], run["seed"], run["training"]


def estimate(record: dict[str, Any], sources: dict[str, str], options: argparse.Namespace) -> float:
    """Seconds that the missing entries take, from one epoch of one network on each source."""
    known, total = {key(run) for run in record["runs"]}, 0.0
    seconds: dict[tuple[str, float], float] = {}  # of one network
    for name, factor, seed, training in wanted(record, sources, options):
        if (name, factor, seed, training) in known:
            continue
        if (name, factor) not in seconds:
            data, short = open_cut(sources[name], factor, seed), argparse.Namespace(**{**vars(options), "epochs": 1})
            start = time.perf_counter()
            train(Training("single", "cross-entropy"), data, seed, short)
            seconds[name, factor] = options.epochs * (time.perf_counter() - start)
        total += seconds[name, factor] * TRAININGS[training].members
    return total


@lru_cache(1)
def open_cut(source: str, factor: float, seed: int) -> mm.Data:
    """The source with a long tail of its training rows, cut by the seed."""
    return mm.open_data(source, task="classification", imbalance=factor, seed=seed)


def measure(
    name: str, factor: float, seed: int, training: str, source: str, options: argparse.Namespace
) -> dict[str, Any]:
    """One entry of the record."""
    start, data = time.process_time(), open_cut(source, factor, seed)
    run = train(TRAININGS[training], data, seed, options)
    trained = time.process_time() - start
    rows = {row: scores(pred, data) for row, pred in variants(training, TRAININGS[training], run, data, seed)}
    settings = {name: getattr(options, name) for name in ("net", "epochs", "batch_size", "lr", "precision")}
    sizes = {"train": len(data.train), "val": len(data.val), "test": len(data.test)}
    entry = {"data": name, "factor": factor, "seed": seed, "training": training, "cpu_seconds": trained, "rows": rows}
    return {**entry, "examples": sizes, "settings": settings}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="NAME=SOURCE")
    parser.add_argument(
        "--factors", type=lambda text: [float(each) for each in text.split(",")], default=[100.0, 10.0, 50.0]
    )
    parser.add_argument("--seeds", type=lambda text: [int(each) for each in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--net", default="small-cnn")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--precision", default="float32", choices=("float32", "bf16"))
    parser.add_argument("--trainings", type=lambda text: text.split(","), default=list(TRAININGS))
    parser.add_argument("--estimate", action="store_true", help="print the estimate alone")
    parser.add_argument("--out", type=Path, default=RESULTS / "longtail.json")
    options = parser.parse_args()
    mm.keep_freed_memory()
    sources = dict(each.split("=", 1) for each in options.sources)
    record = read_json(options.out) if options.out.exists() else {"versions": versions(), "runs": []}
    seconds = estimate(record, sources, options)
    print(f"about {seconds / 60:.0f} minutes for the entries that are missing, without changed heads", flush=True)
    if options.estimate:
        return
    for cell in wanted(record, sources, options):
        if cell in {key(run) for run in record["runs"]}:
            continue
        name, factor, seed, training = cell
        record["runs"].append(measure(name, factor, seed, training, sources[name], options))
        write_json(options.out, record)
        last = record["runs"][-1]
        print(
            json.dumps({"cell": cell, "all": {row: round(found["all"][0], 4) for row, found in last["rows"].items()}}),
            flush=True,
        )
    print(longtail_table(record))


if __name__ == "__main__":
    main()
