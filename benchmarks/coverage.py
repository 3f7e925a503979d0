"""Empirical coverage of 90 % intervals and prediction sets of `mm.fit` with all its defaults, over tables and seeds.

    python benchmarks/coverage.py
    python benchmarks/coverage.py diabetes UCI/concrete UCI/kin8nm prices.csv --target price --seeds 0,1,2

A table is the name of a built-in data set, a file or folder that `mm.open_data` reads, or a folder with `data/data.txt`
in the layout of the UCI regression benchmark (Hernandez-Lobato and Adams 2015); its standard splits are not used. The
seed splits the rows (70/10/20 %) and trains. At most 2,000 rows train, drawn by the seed; all others keep their split,
so validation and test rows stay exchangeable. Coverage is on test rows: of the conformal rule that predictions are
written with and, in a regression, of the central interval of the predictive, calibrated and not.

Each table and seed is an entry of the record (`--out`, or else benchmarks/results/coverage.json), written and printed
as JSON when it is known; entries that are there are not computed again, so a killed run continues. The last line of
output is the summary of every table. The record holds the defaults it was made with; a run with others refuses it.
"""

import argparse
import inspect
import json
import time
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from coverage_table import summaries

import murmuration as mm
from murmuration.evaluation.metrics import MEASURES, score_examples
from murmuration.prediction.posthoc.conformal import covered, region_sizes
from murmuration.runs.directory import versions
from murmuration.system.files import read_json, write_json
from murmuration.training.plan import plan_for
from murmuration.training.table_defaults import table_defaults, table_noise

RECORD = Path(__file__).parent / "results" / "coverage.json"
TABLES = ("iris", "wine", "breast-cancer", "diabetes", "digits")
COVERAGE = 0.9
TRAIN_ROWS = 2000  # the most that train
SCORES = {"classification": ("accuracy", "nll"), "regression": ("rmse", "nll")}


def defaults() -> dict[str, Any]:
    """The recipe and the plan of `mm.fit` without settings, as a run's manifest has them, and what tables get.

    The seed is left out; the defaults of tables are those of two sizes, training rows x columns.
    """
    recipe = mm.make_recipe(inspect.signature(mm.fit).parameters["recipe"].default)
    plan = plan_for(recipe).to_json()
    plan["posthoc"]["calibrate"] = plan["posthoc"]["calibrate"] or "temperature"  # what None stands for here
    found = {"recipe": recipe.to_json(), "plan": {name: value for name, value in plan.items() if name != "seed"}}
    tables = {
        f"{rows} x 10": {**asdict(table_defaults(rows, 10)), "loss": table_noise(rows)} for rows in (500, TRAIN_ROWS)
    }
    return json.loads(json.dumps({**found, "tables": tables}))


def table_name(source: str) -> str:
    """The name of a table in the record: that of a built-in set, or the last part of a path without its ending."""
    return Path(source).stem


def open_table(source: str, seed: int, target: str | None = None, rows: int = TRAIN_ROWS) -> mm.Data:
    """The three splits of a table by a seed, with at most so many training rows, drawn by the seed."""
    folder = Path(source) / "data"
    if (folder / "data.txt").exists():
        values = np.loadtxt(folder / "data.txt")
        inputs, output = (np.loadtxt(folder / f"index_{name}.txt", dtype=int) for name in ("features", "target"))
        data = mm.open_data((values[:, inputs], values[:, output]), seed=seed)
    else:
        data = mm.open_data(source, seed=seed, target=target if Path(source).is_file() else None)
    if len(data.train) <= rows:
        return data
    kept = np.sort(np.random.default_rng(seed).permutation(len(data.train))[:rows])
    return replace(data, train=data.train[kept])


def measure(ensemble: mm.Ensemble, test: mm.Split) -> dict[str, Any]:
    """Coverage, size and scores of an ensemble on test rows; without post-hoc steps there are no conformal regions."""
    pred, plain, y = ensemble.predict(test.x), ensemble.predict(test.x, calibrated=False), test.y
    measures = {name: MEASURES[pred.task][name] for name in SCORES[pred.task]}
    scores = score_examples(pred, y).scores(measures=measures, resamples=2)
    found: dict[str, Any] = {name: float(value) for name, value in scores.items()}
    found["nll_uncalibrated"] = -plain.log_prob(y).mean().item()
    if pred.task == "regression":
        found["predictive"] = float(covered(ends(pred), y).mean())
        found["predictive_uncalibrated"] = float(covered(ends(plain), y).mean())
    if ensemble.posthoc is not None and ensemble.posthoc.conformal:
        rule = ensemble.posthoc.conformal[0]
        regions = rule.regions(pred)
        found |= {"method": rule.method, "rule_examples": rule.examples}
        found |= {"conformal": float(covered(regions, y).mean()), "size": float(region_sizes(regions).mean())}
    return found


def ends(pred: mm.Predictive) -> tuple[np.ndarray, np.ndarray]:
    """The ends (low, high), each (N, K), of the central predictive interval."""
    low, high = pred.interval(COVERAGE)
    return low.numpy(), high.numpy()


def run_cell(source: str, seed: int, target: str | None = None, **settings: Any) -> dict[str, Any]:
    """One table and seed: the sizes of its splits, coverage and scores, warnings, CPU seconds of training."""
    data, start = open_table(source, seed, target), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ensemble = mm.fit(None, data, seed=seed, progress=False, **settings)
    seconds = round(time.process_time() - start, 1)
    return {
        "table": table_name(source),
        "seed": seed,
        "task": data.task,
        **{part: len(getattr(data, part)) for part in ("train", "val", "test")},
        "net": ensemble.manifest.net["name"],
        "calibrated": ensemble.posthoc is not None,
        **measure(ensemble, data.test),
        "warnings": [text for each in caught if (text := str(each.message)).startswith("not calibrated")],
        "cpu_seconds": seconds,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=TABLES, help="names of built-in data sets, or paths")
    parser.add_argument("--target", help="column to predict, of files")
    parser.add_argument("--seeds", default=",".join(map(str, range(10))))
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args(arguments)
    mm.keep_freed_memory()
    torch.set_num_threads(1)
    used = {"coverage": COVERAGE, "train_rows": TRAIN_ROWS, "defaults": defaults()}
    record = read_json(options.out) if options.out.exists() else {"versions": versions(), **used, "cells": []}
    if any(record[name] != value for name, value in used.items()):
        raise SystemExit(f"{options.out} was made with other defaults: remove it, or give another --out")
    for seed in map(int, options.seeds.split(",")):
        for source in options.tables:
            if any((cell["table"], cell["seed"]) == (table_name(source), seed) for cell in record["cells"]):
                continue
            record["cells"].append(run_cell(source, seed, options.target))
            write_json(options.out, record)
            print(json.dumps(record["cells"][-1]), flush=True)
    print(json.dumps(summaries(record)))


if __name__ == "__main__":
    main()
