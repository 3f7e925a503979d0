"""How often, and by how much, calibration on a few validation examples makes predictions worse.

    python benchmarks/calibration_harm.py --runs 100
    python benchmarks/calibration_harm.py --tables breast-cancer wine diabetes UCI/concrete --splits 6

Simulations: five members and targets from a known truth, which the members predict right, or too sure, or not sure
enough; a calibrator is chosen on n examples as `fit_posthoc` does (on all n: its half of the validation examples) and
its log-loss on fresh examples is compared with that of no calibrator. Tables: `mm.fit` with its defaults, calibrated
on the validation split, and the test split. Each cell is an entry of the record (`--out`), written when it is known;
entries that are there are not computed again. The last line of output is the summary.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from calibration_table import summary
from coverage import open_table, table_name

import murmuration as mm
from murmuration.prediction.posthoc import choose_calibrator
from murmuration.runs.directory import versions
from murmuration.system.files import read_json, write_json

RECORD = Path(__file__).parent / "results" / "calibration.json"
SIZES = (15, 25, 50, 100, 250, 1000)  # examples that the calibrator is chosen on
MEMBERS, FRESH = 5, 2000
Sample = tuple[mm.Predictive, torch.Tensor]


def classes(temperature: float, *, classes: int = 3, scale: float = 3.0, noise: float = 0.0) -> Callable[..., Sample]:
    """Members' logits, and labels from their mixture at a temperature, some of them replaced by random ones."""

    def draw(count: int, rng: np.random.Generator) -> Sample:
        logits = scale * (rng.normal(size=(1, count, classes)) + 0.5 * rng.normal(size=(MEMBERS, count, classes)))
        probs = torch.from_numpy(logits / temperature).softmax(-1).mean(0).numpy()
        probs = (1 - noise) * probs + noise / classes
        labels = (rng.random((count, 1)) > probs.cumsum(-1)).sum(-1).clip(max=classes - 1)
        pred = mm.Predictive.from_probs(torch.from_numpy(logits).softmax(-1))
        return pred, torch.from_numpy(labels)

    return draw


def numbers(spread: float, factor: float = 1.0, *, form: str = "mixture") -> Callable[..., Sample]:
    """Members whose means are `spread` times their noise apart, and targets from a distribution `factor` times as wide.

    It is the members' mixture, or a Gaussian or a Student distribution (5 degrees of freedom) of its variance.
    """

    def draw(count: int, rng: np.random.Generator) -> Sample:
        noise = np.exp(0.3 * rng.normal(size=(1, count, 1)) + 0.1 * rng.normal(size=(MEMBERS, count, 1)))
        means = spread * noise.mean(0) * rng.normal(size=(MEMBERS, count, 1))
        centre, std = means.mean(0), np.sqrt((noise**2).mean(0) + means.var(0))
        who, rows = rng.integers(MEMBERS, size=count), np.arange(count)
        away = {
            "mixture": lambda: means[who, rows] + noise[who, rows] * rng.normal(size=(count, 1)) - centre,
            "gaussian": lambda: std * rng.normal(size=(count, 1)),
            "student": lambda: std * math.sqrt(3 / 5) * rng.standard_t(5, size=(count, 1)),
        }[form]()
        return mm.Predictive.from_moments(means, noise), torch.from_numpy(centre + factor * away)

    return draw


TRUTHS: dict[str, Callable[..., Sample]] = {
    "classes, right": classes(1.0),
    "classes, right and sure": classes(1.0, classes=2, scale=6.0),
    "classes, right and unsure": classes(1.0, classes=2, scale=1.0),
    "classes, hardly overconfident": classes(1.15),
    "classes, overconfident": classes(1.6),
    "classes, very overconfident": classes(3.0),
    "classes, underconfident": classes(0.7),
    "classes, right but for 3 % noise": classes(1.0, scale=4.0, noise=0.03),
    "numbers, right": numbers(0.5),
    "numbers, right, members far apart": numbers(4.0),
    "numbers, right, heavy tails": numbers(0.5, form="student"),
    "numbers, hardly too narrow": numbers(0.5, 1.15),
    "numbers, too narrow": numbers(0.5, 1.7),
    "numbers, too wide": numbers(0.5, 0.7),
    "numbers, gaps between members": numbers(4.0, form="gaussian"),
    "numbers, gaps and too narrow": numbers(4.0, 1.5, form="gaussian"),
}


def nll(pred: mm.Predictive, y: torch.Tensor) -> float:
    return -pred.log_prob(y).mean().item()


def simulate(truth: str, size: int, runs: int) -> dict[str, Any]:
    """Changes of the log-loss of fresh examples by calibration on `size` examples, one for each run."""
    changes, kept = [], 0
    for run in range(runs):
        rng = np.random.default_rng([list(TRUTHS).index(truth), size, run])
        (few, y), (fresh, later) = (TRUTHS[truth](count, rng) for count in (size, FRESH))
        calibrator, choice = choose_calibrator("temperature", few, y)
        assert choice is not None
        kept += choice.kept
        changes.append(nll(calibrator(fresh), later) - nll(fresh, later) if choice.kept else 0.0)
    return {"truth": truth, "examples": size, "runs": runs, "kept": kept / runs, **describe(changes)}


def describe(changes: list[float]) -> dict[str, float]:
    """The share of positive changes, their mean and the largest, and the mean of all."""
    worse = [change for change in changes if change > 0]
    mean = sum(worse) / len(worse) if worse else 0.0
    return {
        "worse": len(worse) / len(changes),
        "worse_by": mean,
        "worst": max(worse, default=0.0),
        "change": sum(changes) / len(changes),
    }


def table_cell(source: str, seed: int, target: str | None) -> dict[str, Any]:
    """One table and split: the log-loss of its test rows before and after the calibrator, and why it was kept."""
    data = open_table(source, seed, target)
    ensemble = mm.fit(None, data, seed=seed, progress=False)
    found: dict[str, Any] = {"table": table_name(source), "seed": seed, "task": data.task, "val": len(data.val)}
    if ensemble.posthoc is None:
        return {**found, "calibrated": False}
    choice = ensemble.posthoc.choice
    before, after = (nll(ensemble.predict(data.test, calibrated=on), data.test.y) for on in (False, True))
    kept = choice is not None and choice.kept
    name = type(ensemble.posthoc.calibrator).__name__ if kept else None
    fitted = ensemble.posthoc.calibrator_examples
    return {**found, "calibrated": True, "examples": fitted, "kept": kept, "by": name, "before": before, "after": after}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=0, help="simulated validation sets for each truth and size")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--tables", nargs="*", default=(), help="names of built-in data sets, or paths")
    parser.add_argument("--target", help="column to predict, of files")
    parser.add_argument("--splits", type=int, default=6)
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    fresh: dict[str, Any] = {"versions": versions(), "simulations": [], "tables": []}
    record = read_json(options.out) if options.out.exists() else fresh
    todo: list[tuple[str, Callable[[], dict[str, Any]]]] = []
    for truth in TRUTHS if options.runs else ():
        for size in map(int, options.sizes.split(",")):
            if not any((c["truth"], c["examples"]) == (truth, size) for c in record["simulations"]):
                todo.append(("simulations", lambda t=truth, n=size: simulate(t, n, options.runs)))  # type: ignore[misc]
    for source in options.tables:
        for seed in range(options.splits):
            if not any((c["table"], c["seed"]) == (table_name(source), seed) for c in record["tables"]):
                todo.append(("tables", lambda t=source, s=seed: table_cell(t, s, options.target)))  # type: ignore[misc]
    for part, make in todo:
        record[part].append(make())
        write_json(options.out, record)
        print(json.dumps(record[part][-1]), flush=True)
    print(json.dumps(summary(record)))


if __name__ == "__main__":
    main()
