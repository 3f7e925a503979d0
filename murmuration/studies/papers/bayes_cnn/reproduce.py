"""The command: networks with Gaussian and deterministic weights, pruning and uncertainty, judged over seeds."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.applications.pruning import Pruning, plan_pruning, prune
from murmuration.applications.pruning.masks import count_parameters
from murmuration.data import Data, Split, open_data
from murmuration.evaluation.metrics import columns
from murmuration.prediction.ensemble import Ensemble
from murmuration.runs.directory import MANIFEST
from murmuration.studies.papers import Options, Outcome, Show, check_least, check_parts, choose_settings
from murmuration.studies.papers.bayes_cnn.page import page, prune_table, screen_table
from murmuration.studies.papers.bayes_cnn.settings import FOLLOWED, PARTS, PROFILES, ROWS, Setting
from murmuration.studies.papers.page import verdict_table
from murmuration.studies.papers.record import bits, cpu_seconds, finished_record, hexadecimal, open_record, save_record
from murmuration.studies.papers.runs import trained
from murmuration.studies.trajectory import open_trajectory
from murmuration.studies.uncertainty import KINDS, uncertainty_path
from murmuration.studies.verdicts import Estimate, Verdict, crossed_estimate, estimate
from murmuration.system.errors import Misuse, unknown
from murmuration.system.records import plain_json
from murmuration.training.fitting import load

ALIKE = 0.01  # accuracies within this count as equal
PRUNINGS = {  # row -> how a run is pruned; the first is the published way, of a run with an L1 penalty
    "L1, zeros dropped": Pruning("magnitude", threshold=0.0),
    "signal to noise, 80 %": Pruning("snr", sparsity=0.8),
    "magnitude, 80 %": Pruning("magnitude", sparsity=0.8),
}
L1 = "L1, zeros dropped"
Cells = Sequence[dict[str, Any]]


def reproduce(options: Options, out: Path, show: Show, command: str = "") -> Outcome:
    """Return the record with verdicts, the page and the tables; finished cells are not computed again."""
    setting = choose_settings(PROFILES, options)
    check_least(setting, epochs=2, examples=2)
    check_parts(setting.parts, PARTS)
    for name in setting.methods:
        if name not in ROWS:
            raise unknown("method", name, ROWS)
    laboratory = Laboratory(setting, out, show)
    extends = ("parts", "methods", "seeds", "device")
    record = open_record(out, "bayes-cnn", setting, extends=extends, data=laboratory.about(), cells=[])
    done = {(cell["part"], cell["row"], cell["seed"]) for cell in record["cells"]}
    for part, row, seed in cells_of(setting):
        if (part, row, seed) not in done:
            record["cells"].append(plain_json(laboratory.compute(part, row, seed)))
            save_record(out, record)
    judged = verdicts(record["cells"], record["data"]["examples"]["test"])
    tables = [screen_table(record["cells"], setting)]
    tables += [prune_table(record["cells"])] if "pruning" in setting.parts else []
    full_record = finished_record(record, judged, tables, sum(cell["cpu_seconds"] for cell in record["cells"]))
    save_record(out, full_record)
    return Outcome(full_record, page(record, setting, judged, command), [*tables, verdict_table(judged)])


def cells_of(setting: Setting) -> list[tuple[str, str, int]]:
    """Return part, row and seed of every cell, seed by seed."""
    rows = {"accuracy": setting.methods, "pruning": tuple(PRUNINGS), "uncertainty": (FOLLOWED,)}
    return [(part, row, seed) for seed in setting.seeds for part in setting.parts for row in rows[part]]


class Laboratory:
    """The data of a reproduction and its cells."""

    def __init__(self, setting: Setting, out: Path, show: Show) -> None:
        self.setting, self.out, self.show = setting, out, show

    @cached_property
    def data(self) -> Data:
        data = open_data(self.setting.data)
        if data.task != "classification" or len(data.input_shape) != 3:
            kind = f"{data.task} of inputs {data.input_shape}"
            raise Misuse(f"--data {self.setting.data}: got {kind}, expected images with classes, such as digits")
        return replace(data, train=data.train[: self.setting.train])

    @cached_property
    def test(self) -> Split:
        return self.data.test[: self.setting.examples]

    def about(self) -> dict[str, Any]:
        """Return name, fingerprint and sizes of the data."""
        sizes = {"train": len(self.data.train), "val": len(self.data.val), "test": len(self.test)}
        return {"name": self.data.name, "fingerprint": self.data.fingerprint, "examples": sizes}

    def train(self, row: str, seed: int, name: str = "", **changes: Any) -> Ensemble:
        """Return the network of a row, with its trajectory where that is followed."""
        if row == FOLLOWED and "l1" not in changes:
            changes["trajectory"] = "every-epoch"
        plan = self.setting.plan(seed, **changes)
        path = self.out / "runs" / f"{name or row}-{seed}"
        return trained(path, ROWS[row].net, self.data, self.setting.recipe(ROWS[row]), plan, self.show)

    def compute(self, part: str, row: str, seed: int) -> dict[str, Any]:
        """Return one cell of the record."""
        start = cpu_seconds()
        if part == "accuracy":
            ensemble = self.train(row, seed)
            results = self.scores(ensemble) | {"parameters": ensemble.groups[0].population.parameters_stored()}
        else:
            results = self.prune(row, seed) if part == "pruning" else self.follow(seed)
        seconds = round(cpu_seconds() - start, 1)
        return {"part": part, "row": row, "seed": seed, **results, "cpu_seconds": seconds}

    def scores(self, ensemble: Ensemble) -> dict[str, Any]:
        """Return scores on the test examples; which are right is kept as bits, for paired intervals."""
        predictive = ensemble.predict(self.test.prepared, calibrated=False, prepared=True)
        found = columns(predictive, self.test.y)
        scores = {"accuracy": float(found["correct"].mean()), "nll": -float(found["log_prob"].mean())}
        scores |= {kind: float(getattr(predictive, f"{kind}_var").sum(1).mean()) for kind in KINDS}
        return scores | {"correct": hexadecimal(found["correct"])}

    def prune(self, row: str, seed: int) -> dict[str, Any]:
        """Return scores of a pruned and fine-tuned network, beside the dense one."""
        name = "l1" if row == L1 else FOLLOWED
        changes = {"l1": self.setting.l1} if row == L1 else {}
        self.train(FOLLOWED, seed, name, **changes)
        dense, run = self.train(FOLLOWED, seed), self.out / "runs" / f"{name}-{seed}"
        path = self.out / "runs" / f"{'-'.join(row.replace(',', '').replace('%', '').split())}-{seed}"
        if (path / MANIFEST).exists():
            pruned = load(path, posthoc=False)
        else:
            planned = plan_pruning(run, PRUNINGS[row], data=self.data)
            pruned = prune(planned, path, finetune=self.setting.finetune)
        counts = (count_parameters(one.groups[0].population).nonzero for one in (dense, pruned))
        before, after = counts
        return self.scores(pruned) | {"removed": 1 - after / before}

    def follow(self, seed: int) -> dict[str, Any]:
        """Return uncertainty along the training, and its change for every test example."""
        ensemble, run = self.train(FOLLOWED, seed), self.out / "runs" / f"{FOLLOWED}-{seed}"
        path = uncertainty_path(
            replace(ensemble, posthoc=None),
            open_trajectory(run),
            self.test,
            train=self.data.train,
            folder=self.out / "pieces" / f"{seed}",
            show=self.show,
        )
        changes = {kind: np.round(path.ends[kind][1] - path.ends[kind][0], 5) for kind in KINDS}
        return {"path": path.to_json() | {"verdicts": None}, "changes": changes}


def compare(
    what: str, cells: Cells, one: tuple[str, str], other: tuple[str, str], most: float, examples: int
) -> list[Estimate]:
    """Return the paired difference of accuracies of two rows, over runs and examples; [] without results."""
    found = {(cell["part"], cell["row"], cell["seed"]): cell for cell in cells}
    seeds = sorted({seed for _, _, seed in found})
    pairs = [(found[*one, s], found[*other, s]) for s in seeds if (*one, s) in found and (*other, s) in found]
    if not pairs:
        return []
    values = np.stack([bits(a["correct"], examples) - bits(b["correct"], examples) for a, b in pairs])  # (R, N)
    return [crossed_estimate(what, values, -ALIKE, most)]


def verdicts(cells: Cells, examples: int) -> list[Verdict]:
    """Return the verdicts on the claims of the work, from cells on this many test examples."""
    bayes, dense = ("accuracy", FOLLOWED), ("accuracy", FOLLOWED)
    removed = [cell["removed"] for cell in cells if cell["row"] == L1]
    pruned = compare("accuracy, pruned less dense", cells, ("pruning", L1), dense, math.inf, examples)
    pruned += [estimate("share of weights removed", removed, 0.5, math.inf)] if removed else []
    claims = (
        (
            "B1",
            "Gaussian weights are about as accurate as deterministic ones",
            compare("accuracy, Gaussian less deterministic", cells, bayes, ("accuracy", "point"), ALIKE, examples),
            "98 and 98 % on MNIST, 69 and 68 % on CIFAR-10 (LeNet-5)",
        ),
        (
            "B2",
            "the same with softplus activations, as published",
            compare(
                "accuracy, Gaussian less deterministic, softplus",
                cells,
                ("accuracy", "bayes-softplus"),
                ("accuracy", "point-softplus"),
                ALIKE,
                examples,
            ),
            "",
        ),
        (
            "B3",
            "half of the filters cost no accuracy",
            compare("accuracy, half less whole", cells, ("accuracy", "bayes-half"), bayes, math.inf, examples),
            "79 and 73 % on CIFAR-10 (AlexNet)",
        ),
        (
            "B4",
            "after an L1 penalty most weights are zero and can be dropped at no cost",
            pruned,
            "71 and 73 % on CIFAR-10 (AlexNet)",
        ),
        ("B5", "uncertainty falls as training accuracy rises", falls(cells), ""),
    )
    return [
        Verdict(name, claim, tuple(rows), missing=() if rows else (NEEDS[name],), published=published, source="table")
        for name, claim, rows, published in claims
    ]


NEEDS = {
    "B1": "the methods bayes and point",
    "B2": "the methods bayes-softplus and point-softplus",
    "B3": "the methods bayes and bayes-half",
    "B4": "the part pruning, and the method bayes of the part accuracy",
    "B5": "the part uncertainty",
}


def falls(cells: Cells) -> list[Estimate]:
    """Return how uncertainty changes from the first checkpoint to the last, over runs and examples."""
    paths = [cell for cell in cells if cell["part"] == "uncertainty"]
    if not paths:
        return []
    return [
        crossed_estimate(
            f"{kind} uncertainty, last epoch less first",
            np.stack([cell["changes"][kind] for cell in paths]),
            -math.inf,
            0,
        )
        for kind in KINDS
    ]
