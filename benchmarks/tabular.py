"""CPU seconds of fitting a table of 5,000 x 20: our default against CatBoost's and the official TabM, interleaved.

    python benchmarks/tabular.py            a table
    python benchmarks/tabular.py --json     one JSON object on standard output
    python benchmarks/tabular.py --without tabm --repeats 3

A regression and a classification of three classes are generated, with 5,000 training, 1,000 validation and 4,000 test
rows of 20 numbers, half of which count. Every contender fits both with its defaults and one thread, in turns; a
contender's seconds are the medians of its repeats, added over the two. Quality is measured too, on test rows: a faster
fit that is worse is not faster. `over_catboost` and `over_tabm` are ratios of our seconds to theirs; `mlp_auto_speedup`
is that of `benchmarks/members.py --workloads mlp`. A contender whose package is missing has no ratio.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import contenders
import numpy as np
import pandas as pd
import torch
from tables import scores

import murmuration as mm

TRAIN, VAL, TEST, COLUMNS = 5000, 1000, 4000, 20
CONTENDERS: dict[str, tuple[str, contenders.Fit]] = {  # package and fit
    "default": ("", contenders.recipe()),
    "catboost": ("catboost", partial(contenders.catboost, loss="RMSE")),
    "tabm": ("tabm", contenders.tabm),
}
SECONDS = {"default": 15, "catboost": 7, "tabm": 550}  # of CPU a fit, roughly
TASKS: tuple[Any, ...] = ("regression", "classification")


def make_data(task: Any, rows: tuple[int, int, int] = (TRAIN, VAL, TEST)) -> mm.Data:
    """Numbers of various scales and skew; Friedman's first function plus steps and a product, with noise."""
    rng, count = np.random.default_rng(0), sum(rows)
    u = rng.random((count, COLUMNS))
    signal = 10 * np.sin(np.pi * u[:, 0] * u[:, 1]) + 20 * (u[:, 2] - 0.5) ** 2 + 10 * u[:, 3] + 5 * u[:, 4]
    other = 8 * (u[:, 5] > 0.6) + 10 * u[:, 6] * (u[:, 7] > 0.3) - 6 * np.abs(u[:, 8] - u[:, 9])
    if task == "regression":
        y = signal + other + (0.5 + u[:, 3]) * rng.normal(size=count)
    else:
        logits = np.stack([signal - signal.mean(), other - other.mean(), np.zeros(count)], 1) / 2
        y = (logits + rng.gumbel(size=(count, 3))).argmax(1)
    x = np.exp(2 * u) * 10.0 ** rng.integers(-2, 4, COLUMNS)
    frame = pd.DataFrame(x, columns=[f"x{place}" for place in range(COLUMNS)]).assign(y=y)
    places = np.split(np.arange(count), np.cumsum(rows)[:-1])
    return mm.open_data(frame, target="y", task=task, val=places[1], test=places[2])


def time_fit(fit: contenders.Fit, data: mm.Data, seed: int) -> dict[str, float]:
    """CPU seconds of one fit, and its scores on test rows, uncalibrated."""
    contenders.seed_all(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        predict = fit(data, seed)
        seconds = time.process_time() - start
        return {"cpu_seconds": seconds, **scores(predict(data.test), contenders.values(data.test))}


def run(names: list[str], repeats: int, data_of: Callable[[Any], mm.Data] = make_data) -> dict[str, Any]:
    """Every contender on both tasks, in turns: the medians of the repeats."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {name: {task: [] for task in TASKS} for name in names}
    for task in TASKS:
        data = data_of(task)
        for repeat in range(repeats):
            for name in names:
                found[name][task].append(time_fit(CONTENDERS[name][1], data, repeat))
                print(f"# {name}, {task}: {json.dumps(found[name][task][-1])}", file=sys.stderr, flush=True)
    return {
        name: {task: {key: median(each[key] for each in runs) for key in runs[0]} for task, runs in by.items()}
        for name, by in found.items()
    }


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """Our seconds over those of the others, both tasks together.

    >>> ratios({"default": {"a": {"cpu_seconds": 3.0}}, "tabm": {"a": {"cpu_seconds": 6.0}}})
    {'over_tabm': 0.5}
    """
    total = {name: sum(each["cpu_seconds"] for each in by.values()) for name, by in found.items()}
    return {f"over_{name}": total["default"] / value for name, value in total.items() if name != "default"}


def mlp_speedup(repeats: int) -> float:
    """The speed-up of ten members of `mlp` over the plain loop, in a process of its own with all cores."""
    command = [sys.executable, str(Path(__file__).with_name("members.py")), "--json", "--workloads", "mlp"]
    output = subprocess.run([*command, "--repeats", str(repeats)], check=True, capture_output=True, text=True).stdout
    return json.loads(output)["workloads"]["mlp"]["auto_speedup"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--without", nargs="*", default=[], choices=[*CONTENDERS, "members"])
    options = parser.parse_args()
    mm.keep_freed_memory()
    torch.set_num_threads(1)
    missing = [name for name, (package, _) in CONTENDERS.items() if package and contenders.OTHERS[name].missing]
    names = [name for name in CONTENDERS if name not in (*missing, *options.without)]
    for name in missing:
        print(f"# {name} is left out: see benchmarks/requirements.txt", file=sys.stderr)
    seconds = sum(SECONDS[name] for name in names) * options.repeats * len(TASKS)
    print(f"# about {seconds:,} s of CPU", file=sys.stderr, flush=True)
    speedup = {} if "members" in options.without else {"mlp_auto_speedup": mlp_speedup(7)}
    found = run(names, options.repeats)
    result = {**speedup, **ratios(found), "repeats": options.repeats, "contenders": found}
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, by in found.items():
        cells = ", ".join(f"{task} {each['cpu_seconds']:.1f} s, NLL {each['nll']:.3f}" for task, each in by.items())
        print(f"{name}: {cells}")
    print(", ".join(f"{key} {value:.2f}" for key, value in {**speedup, **ratios(found)}.items()))


if __name__ == "__main__":
    main()
