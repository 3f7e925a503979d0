"""Methods in streams of tasks, beside the published figures of HCL: a record of cells (stream, method, seed).

    python benchmarks/continual_streams.py --work DIR --data DIR --features DIR [--streams LIST] [--methods LIST]
        [--seeds 0,1,2] [--record FILE] [--estimate]

The cells to compute and an estimate of their time are printed first; `--estimate` ends there. A finished cell is
written to benchmarks/results/continual.json at once and is not computed again; one that was killed continues from its
checkpoint in DIR. Then `python benchmarks/pages.py` writes the tables.

    split-mnist         5 tasks of 2 digits, 2,000 training images each
    split-mnist-vectors the same images as vectors of 784 numbers
    svhn-mnist          2 tasks of 10 digits, 2,000 training images each, 28x28 in colour; of SVHN only 10,000 test
    mnist-svhn          images are at hand: 7,500 of them train, 2,500 test
    split-cifar10       5x2 and 10x10 classes, 2,000 training images a task: 1,280 features of EfficientNet-Lite0; the
    split-cifar100      published split of CIFAR-100 into training and test images is lost, this is another one
    changes-digits      16 permutations of the pixels of digits, 20 unmarked changes, 5 of them to an earlier one
    changes-cifar100    16 groups of 6 classes of CIFAR-100 with the same labels, in the same order

`--data` holds the folders `mnist` and `svhn28`, `--features` the files cifar10-lite0-112.npz and cifar100-lite0-112.npz
of `murmur embed`. Streams whose files are missing are left out with a note.
"""

import argparse
import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.applications.continual.harness import run_method
from murmuration.applications.continual.methods import METHODS, MethodSettings
from murmuration.applications.continual.task_streams import (
    BatchPlan,
    Task,
    TaskStream,
    changed,
    open_stream,
    segment_starts,
    segments_of,
)
from murmuration.system.files import read_json, write_json
from murmuration.system.records import plain_json

RECORD = Path(__file__).parent / "results" / "continual.json"
ORDER = (1, 2, 3, 1, 4, 5, 6, 3, 7, 8, 9, 5, 10, 11, 12, 2, 13, 14, 15, 8, 16)  # 20 changes, 5 of them recurring
ALL = tuple(METHODS)
SECONDS = {  # of a step on one idle core, by kind of stream: of HCL, of networks, of class means
    "image": (0.3, 0.03, 0.05),
    "vector": (0.05, 0.006, 0.03),
}


@dataclass(frozen=True)
class Experiment:
    """One stream and its settings."""

    kind: str  # image or vector
    files: tuple[str, ...]
    epochs: int
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  # of `open_stream`
    batch_size: int = 64
    methods: tuple[str, ...] = ALL
    networks: dict[str, Any] = field(default_factory=dict)  # settings of networks that differ

    def settings_of(self, method: str, seed: int) -> MethodSettings:
        own = {} if METHODS[method].flow or METHODS[method].one_pass else self.networks
        return MethodSettings(**self.settings | own, seed=seed)


ONE_FLOW = tuple(name for name in ALL if name not in ("hcl-ensemble", "hcl-bayes"))  # ensembles on one stream alone
IMAGES: dict[str, Any] = {"flow": "image", "couplings": 4, "hidden": 48, "net": "small-cnn"}
SHORT: dict[str, Any] = {"settle": 10, "warmup": 25, "window": 25}  # a task has 96 batches
FEATURES: dict[str, Any] = {"lr": 1e-4, "hidden": 64, "members": 3}
DETECTION: dict[str, Any] = {"settle": 10, "warmup": 25, "window": 50, "hidden": 64}
FOUND = ("hcl-fr", "hcl-gr", "lda", "ncm", "adam", "replay")
EXPERIMENTS: dict[str, Experiment] = {
    "split-mnist": Experiment("image", ("mnist",), 3, IMAGES, {"examples": 2000, "prepare": "unit"}, methods=ONE_FLOW),
    "split-mnist-vectors": Experiment(
        "vector", ("mnist",), 3, FEATURES, {"examples": 2000, "prepare": "unit"}, methods=("hcl-fr", "hcl-gr", "lda")
    ),
    "svhn-mnist": Experiment(
        "image", ("svhn28", "mnist"), 3, IMAGES | SHORT, {"examples": 2000, "prepare": "unit"}, methods=ONE_FLOW
    ),
    "mnist-svhn": Experiment(
        "image", ("svhn28", "mnist"), 3, IMAGES | SHORT, {"examples": 2000, "prepare": "unit"}, methods=ONE_FLOW
    ),
    "split-cifar10": Experiment(
        "vector", ("cifar10-lite0-112.npz",), 5, FEATURES, {"examples": 2000}, methods=ONE_FLOW
    ),
    "split-cifar100": Experiment(
        "vector",
        ("cifar100-lite0-112.npz",),
        3,
        FEATURES | {"capacity": 2000},
        {"examples": 2000},
        methods=ONE_FLOW,
        networks={"lr": 1e-3},
    ),
    "changes-digits": Experiment(
        "vector", (), 5, DETECTION | {"members": 3}, {}, 32, (*FOUND, "hcl-ensemble", "hcl-bayes")
    ),
    "changes-cifar100": Experiment(
        "vector",
        ("cifar100-lite0-112.npz",),
        3,
        DETECTION | {"threshold": 4.0, "window": 25},
        {"project": 128, "scenario": "domain"},
        64,
        FOUND,
    ),
}


@lru_cache(maxsize=1)
def open_experiment(name: str, data: Path, features: Path, work: Path, seed: int) -> TaskStream:
    """The stream of an experiment; the seed chooses the examples and the projection."""
    given: dict[str, Any] = {**EXPERIMENTS[name].options, "seed": seed}
    if name == "changes-digits":
        return permuted(seed)
    if name.startswith("split-mnist"):
        return open_stream(f"split:{data / 'mnist'}:5x2", **given)
    if name in ("svhn-mnist", "mnist-svhn"):
        first, second = name.split("-")
        made = {"mnist": colour_mnist(data, work), "svhn": split_svhn(data, work)}
        return open_stream([made[first], made[second]], scenario="domain", **given)
    if name == "changes-cifar100":
        return open_stream(f"split:{features / 'cifar100-lite0-112.npz'}:16x6", order=ORDER, **given)
    groups = {"split-cifar10": "cifar10-lite0-112.npz:5x2", "split-cifar100": "cifar100-lite0-112.npz:10x10"}[name]
    return open_stream(f"split:{features}/{groups}", **given)


def permuted(seed: int) -> TaskStream:
    """Digits whose 64 pixels are permuted, in 16 ways, one task each."""
    whole = open_stream("split:digits:1x10", scenario="domain", seed=seed).flat()
    rng = np.random.default_rng(seed)
    tasks: list[Task] = []
    for number in range(max(ORDER)):
        order = torch.from_numpy(rng.permutation(64))
        (task,) = changed(whole.tasks, lambda x, order=order: x[:, order])  # type: ignore[misc]
        tasks.append(replace(task, name=f"permutation {number + 1}"))
    return replace(whole, name="permuted digits", tasks=tuple(tasks), segments=segments_of(ORDER, len(tasks)))


def colour_mnist(data: Path, work: Path) -> str:
    """MNIST as images (28, 28, 3) in one file."""
    path = work / "mnist-colour.npz"
    if not path.exists():
        from murmuration.data.formats import load_source
        from murmuration.data.raw import LoadOptions

        _, raw = load_source(data / "mnist", LoadOptions())
        arrays = {}
        for part, some in raw.parts.items():
            grey = np.asarray(some.inputs, dtype=np.uint8).reshape(len(some), 28, 28, 1)
            arrays |= {f"x_{part}": np.repeat(grey, 3, axis=3), f"y_{part}": np.asarray(some.targets)}
        np.savez(path, **arrays)
    return str(path)


def split_svhn(data: Path, work: Path) -> str:
    """The 10,000 images of SVHN at hand, in the order of the file: 7,500 train, 2,500 test."""
    path = work / "svhn-split.npz"
    if not path.exists():
        with np.load(data / "svhn28" / "test.npz") as file:
            x, y = file["x"], file["y"]
        np.savez(path, x_train=x[:7500], y_train=y[:7500], x_test=x[7500:], y_test=y[7500:])
    return str(path)


def is_there(name: str, data: Path, features: Path) -> bool:
    places = [features / file if file.endswith(".npz") else data / file for file in EXPERIMENTS[name].files]
    return all(place.exists() for place in places)


def seconds_of(name: str, method: str, stream: TaskStream, plan: BatchPlan) -> float:
    """An estimate of the time of a cell on one idle core."""
    of_flow, of_network, of_means = SECONDS[EXPERIMENTS[name].kind]
    steps = segment_starts(stream, METHODS[method].plan(plan))[-1]
    members = 3 if method in ("ensemble-replay", "hcl-ensemble") else 1
    each = of_flow if METHODS[method].flow else of_means if METHODS[method].one_pass else of_network
    return steps * each * members


def cell_of(name: str, method: str, seed: int, record: dict[str, Any], stream: TaskStream) -> dict[str, Any]:
    """What is kept of a finished cell."""
    found = record["detection"]
    if found is not None:
        found = {key: found[key] for key in ("misses", "false_alarms", "mean_delay", "recurring", "recognised")} | {
            "changes": len(found["changes"])
        }
    kept = {key: record["accuracy"][key] for key in ("accuracy", "final_average", "standard_error", "forgetting")}
    kept |= {"task_id": record["task_id"]["final_average"], "detection": found, "told": record["told"]}
    kept |= {key: record.get(key) for key in ("memory", "steps", "seconds", "tasks_found", "rejected", "identified")}
    examples = [sum(len(task.train) for task in stream.tasks), sum(len(task.test) for task in stream.tasks)]
    return {"stream": name, "method": method, "seed": seed, "examples": examples, **kept}


def add_cell(cell: dict[str, Any], path: Path) -> None:
    """Write a cell into the record, in the order of streams, methods and seeds."""
    record = read_json(path) if path.exists() else {"cells": []}
    cells = [each for each in record["cells"] if key_of(each) != key_of(cell)] + [plain_json(cell)]
    streams, methods = list(EXPERIMENTS), list(METHODS)
    cells.sort(key=lambda each: (streams.index(each["stream"]), methods.index(each["method"]), each["seed"]))
    settings = {
        name: {"epochs": e.epochs, "batch_size": e.batch_size, **e.options, **e.settings, "networks": e.networks}
        for name, e in EXPERIMENTS.items()
    }
    write_json(path, {"cells": cells, "settings": settings, "torch": torch.__version__})


def key_of(cell: dict[str, Any]) -> tuple[str, str, int]:
    return cell["stream"], cell["method"], cell["seed"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("work", "data", "features"):
        parser.add_argument(f"--{option}", type=Path, required=True)
    parser.add_argument("--streams", default=",".join(EXPERIMENTS))
    parser.add_argument("--methods", default="")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--estimate", action="store_true")
    parser.add_argument("--record", type=Path, default=RECORD)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.work.mkdir(parents=True, exist_ok=True)
    done = {key_of(cell) for cell in (read_json(given.record)["cells"] if given.record.exists() else [])}
    todo: list[tuple[str, str, int, float]] = []
    for name in given.streams.split(","):
        if not is_there(name, given.data, given.features):
            print(f"{name}: files are missing, left out", flush=True)
            continue
        experiment = EXPERIMENTS[name]
        stream = open_experiment(name, given.data, given.features, given.work, 0)
        for seed in map(int, given.seeds.split(",")):
            plan = BatchPlan(experiment.batch_size, experiment.epochs, seed)
            for method in given.methods.split(",") if given.methods else experiment.methods:
                if (name, method, seed) not in done:
                    todo.append((name, method, seed, seconds_of(name, method, stream, plan)))
    hours = sum(each[3] for each in todo) / 3600
    print(f"{len(todo)} cells to compute, {len(done)} are there; about {hours:.1f} hours on one idle core", flush=True)
    for name, method, seed, seconds in () if given.estimate else todo:
        print(f"{name} {method} seed {seed}: about {seconds / 60:.1f} min", flush=True)
        experiment = EXPERIMENTS[name]
        stream = open_experiment(name, given.data, given.features, given.work, seed)
        plan = BatchPlan(experiment.batch_size, experiment.epochs, seed)
        place = given.work / f"{name}-{method}-{seed}"
        outcome = run_method(method, stream, plan, experiment.settings_of(method, seed), place=place)
        add_cell(cell_of(name, method, seed, outcome.record, stream), given.record)
        print(json.dumps({"final_average": outcome.accuracy.final_average}), flush=True)


if __name__ == "__main__":
    main()
