"""Our recipes and other methods on the same splits of many tables: NLL, CRPS or Brier, RMSE or accuracy, coverage.

    python benchmarks/tables.py --uci UCI                                   all contenders on the reporting tables
    python benchmarks/tables.py --group choosing --contenders default,linear --out choosing.json
    python benchmarks/tables.py --again default                             our cells anew, after a change of defaults
    python benchmarks/tables.py --rescore                                   all scores anew from the kept predictions
    python benchmarks/tables.py --add OTHER.json                            the cells of another record too

Tables and splits: benchmarks/table_sets.py; contenders: benchmarks/contenders.py. Each is scored raw and after the
default calibrator of this library, fitted on the same validation rows; class probabilities are at least 1e-6. A cell is
a contender, a table and a split. It is written to the record when it is known, its predictions to a folder beside the
record; cells that are there are not computed again, so a killed run continues. Estimated CPU seconds are printed first.
With `OMP_NUM_THREADS=1` in the environment every contender has one thread.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import table_sets
import torch
from contenders import OTHERS, clipped, contender, installed, seed_all, values

import murmuration as mm
from murmuration.evaluation.metrics import score_examples
from murmuration.prediction.posthoc import fit_posthoc
from murmuration.prediction.posthoc.conformal import covered, region_sizes
from murmuration.runs.directory import versions
from murmuration.system.files import read_json, write_bytes

RECORD = Path(__file__).parent / "results" / "tables.json"
OURS = ("default", "ours:tabm", "ours:mixed")
COVERAGE = 0.9
DIGITS = 6


class Cell(NamedTuple):
    """What is computed at once, and the key of an entry of the record."""

    contender: str
    table: str
    split: int


def cells_of(names: list[str], tables: list[str], splits: int) -> Iterator[Cell]:
    """Splits outermost, so that every table has its first split early; slow contenders last, small tables first."""
    slow = [name for name in names if contender(name).seconds > 100]
    by_size = sorted(tables, key=lambda table: table_sets.TABLES[table].rows)
    for group, ordered in (([name for name in names if name not in slow], tables), (slow, by_size)):
        for split in range(splits):
            for table in ordered:
                yield from (Cell(name, table, split) for name in group if split < contender(name).splits)


# ---- predictions


def pack(pred: mm.Predictive) -> dict[str, np.ndarray]:
    """Class probabilities (S, N, K), or means and standard deviations (S, N, 1), and the weights (S,) of members."""
    found = {"weights": pred.member_weights.numpy()}
    if pred.task == "classification":
        return {**found, "probs": pred.probs.numpy().astype(np.float32)}
    noise = {"std": pred.member_var.sqrt().numpy().astype(np.float32), "outliers": np.float64(pred.outliers)}
    return {**found, "mean": pred.member_mean.numpy(), **noise}


def unpack(arrays: dict[str, np.ndarray]) -> mm.Predictive:
    """The predictive that `pack` took apart."""
    weights = arrays["weights"] / arrays["weights"].sum()
    if "probs" in arrays:
        return mm.Predictive.from_probs(np.stack([clipped(each) for each in arrays["probs"]]), weights)
    outliers = float(arrays.get("outliers", 0.0))
    return mm.Predictive.from_moments(arrays["mean"], arrays["std"], weights, outliers)


def kept_at(out: Path, cell: Cell) -> Path:
    """The file of a cell's predictions."""
    return out.with_suffix("") / cell.contender.replace(":", "-") / f"{cell.table}-{cell.split}.npz"


def save_predictions(path: Path, parts: dict[str, mm.Predictive], targets: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"{part}_{name}": value for part, pred in parts.items() for name, value in pack(pred).items()}
    np.savez_compressed(path, **arrays, **{f"{part}_y": y for part, y in targets.items()})


def load_predictions(path: Path, part: str) -> tuple[mm.Predictive, np.ndarray]:
    with np.load(path) as file:
        own = {name.removeprefix(f"{part}_"): file[name] for name in file.files if name.startswith(f"{part}_")}
    y = own.pop("y")
    return unpack(own), y


# ---- scores


def scores(pred: mm.Predictive, y: np.ndarray) -> dict[str, float]:
    """Scores of test rows: `proper` is the Brier score or CRPS, `point` the accuracy or RMSE.

    Coverage is that of the central 90 % interval, or of the smallest set of classes with a probability of 90 %.
    """
    if pred.task == "classification":
        probs = clipped(pred.mean_probs.numpy())
        own = probs[np.arange(len(y)), y]
        order = np.argsort(-probs, axis=1, kind="stable")
        before = np.cumsum(np.take_along_axis(probs, order, 1), 1) - np.take_along_axis(probs, order, 1)
        inside = np.take_along_axis(before < COVERAGE, np.argsort(order, axis=1), 1)
        found = {
            "nll": -np.log(own).mean(),
            "proper": ((probs - np.eye(probs.shape[1])[y]) ** 2).sum(1).mean(),
            "point": (probs.argmax(1) == y).mean(),
            "coverage": inside[np.arange(len(y)), y].mean(),
        }
    else:
        columns = score_examples(pred, y).columns
        low, high = (end.numpy()[:, 0] for end in pred.interval(COVERAGE))
        found = {
            "nll": -columns["log_prob"].mean(),
            "proper": columns["crps"].mean(),
            "point": np.sqrt(columns["squared_error"].mean()),
            "coverage": ((low <= y) & (y <= high)).mean(),
        }
    return {name: rounded(value) for name, value in found.items()}


def rounded(value: float) -> float:
    """A number with six significant digits."""
    return float(f"{value:.{DIGITS}g}")


def score_cell(path: Path) -> dict[str, Any]:
    """Scores of a cell's kept predictions: raw, calibrated, and of the conformal rule after calibration."""
    (val, val_y), (test, test_y) = (load_predictions(path, part) for part in ("val", "test"))
    posthoc = fit_posthoc(val, val_y)
    calibrated = posthoc.calibrated(test)
    regions = posthoc.conformal[0].regions(calibrated)
    return {
        "raw": scores(test, test_y),
        "calibrated": scores(calibrated, test_y),
        "conformal": rounded(covered(regions, test_y).mean()),
        "size": rounded(region_sizes(regions).mean()),
    }


@lru_cache(maxsize=1)
def open_split(table: str, split: int, uci: Path | None) -> mm.Data:
    """The data of a table and split, kept for the next contender."""
    return table_sets.open_table(table_sets.TABLES[table], split, uci)


def run_cell(cell: Cell, out: Path, uci: Path | None) -> dict[str, Any]:
    """One contender on one split of one table: sizes, scores, CPU seconds of the fit; or why it failed."""
    data = open_split(cell.table, cell.split, uci)
    sizes = {part: len(getattr(data, part)) for part in ("train", "val", "test")}
    entry: dict[str, Any] = {**cell._asdict(), "task": data.task, **sizes}
    seed_all(cell.split)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            start = time.process_time()
            predict = contender(cell.contender).fit(data, cell.split)
            entry["cpu_seconds"] = round(time.process_time() - start, 2)
            parts, path = {part: predict(getattr(data, part)) for part in ("val", "test")}, kept_at(out, cell)
            save_predictions(path, parts, {part: values(getattr(data, part)) for part in parts})
            return entry | score_cell(path)
        except Exception as error:  # of another package: the run goes on, and the page says so
            return entry | {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}


# ---- the record


def load(out: Path) -> dict[str, Any]:
    return read_json(out) if out.exists() else {"versions": versions(), "contenders": {}, "cells": []}


def save(out: Path, record: dict[str, Any]) -> None:
    """JSON with a line for each cell."""
    head = json.dumps({name: value for name, value in record.items() if name != "cells"}, indent=2)
    lines = ",\n".join(f"    {json.dumps(cell)}" for cell in record["cells"])
    write_bytes(out, f'{head[:-2]},\n  "cells": [\n{lines}\n  ]\n}}\n'.encode())


def key(entry: dict[str, Any]) -> Cell:
    return Cell(entry["contender"], entry["table"], entry["split"])


def describe(names: list[str]) -> dict[str, Any]:
    """Settings and package versions of contenders, for the record."""
    return {name: {"settings": contender(name).settings, **contender(name).versions()} for name in names}


def estimate(todo: list[Cell], done: list[dict[str, Any]]) -> float:
    """CPU seconds of cells: those of the contender on the table, else by its rate a training row, else a guess."""
    known = [entry for entry in done if "cpu_seconds" in entry]

    def seconds(cell: Cell) -> float:
        own = [entry for entry in known if entry["contender"] == cell.contender]
        same = [entry["cpu_seconds"] for entry in own if entry["table"] == cell.table]
        if same:
            return float(np.mean(same))
        rate = sum(entry["cpu_seconds"] for entry in own) / max(sum(entry["train"] for entry in own), 1)
        rows = min(table_sets.TABLES[cell.table].rows * 0.64, table_sets.TRAIN_ROWS)
        return rows * (rate or contender(cell.contender).seconds / 1000)

    return sum(map(seconds, todo))


def available(tables: list[str], uci: Path | None) -> list[str]:
    """The tables that can be loaded; the others are named with the reason."""
    found = []
    for name in tables:
        try:
            table_sets.TABLES[name].frame(uci)
            found.append(name)
        except table_sets.MissingTableError as reason:
            print(f"# {name} is left out: {reason}")
    return found


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", default="reporting", choices=("choosing", "reporting"))
    parser.add_argument("--tables", help="names instead of a group, separated by commas")
    parser.add_argument("--contenders", default=",".join((*OTHERS, *OURS)))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--uci", type=Path, help="folder with concrete/data/data.txt and so on")
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--again", default="", help="contenders whose cells are computed again")
    parser.add_argument("--rescore", action="store_true", help="score the kept predictions again")
    parser.add_argument("--add", type=Path, help="another record, whose cells are added where this one has none")
    return parser.parse_args(arguments)


def changed(record: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The record after `--again`, `--add` and `--rescore`."""
    again = options.again.split(",")
    cells = {key(entry): entry for entry in record["cells"] if entry["contender"] not in again}
    if options.add:
        other = read_json(options.add)
        cells = {key(entry): entry for entry in other["cells"]} | cells
        record = {**record, "contenders": record["contenders"] | other["contenders"]}
    if options.rescore:
        kept = {cell: path for cell in cells if (path := kept_at(options.out, cell)).exists()}
        cells |= {cell: cells[cell] | score_cell(path) for cell, path in kept.items()}
    return {**record, "cells": list(cells.values())}


def main(arguments: list[str] | None = None) -> None:
    options = parsed(arguments)
    mm.keep_freed_memory()
    torch.set_num_threads(1)
    record = changed(load(options.out), options)
    if options.add or options.rescore:
        save(options.out, record)
        return
    names, missing = installed(options.contenders.split(","))
    for name, package in missing.items():
        print(f"# {name} is left out: no package {package}, see benchmarks/requirements.txt")
    chosen = options.tables.split(",") if options.tables else table_sets.group_names(options.group)
    done = {key(entry) for entry in record["cells"]}
    todo = [cell for cell in cells_of(names, available(chosen, options.uci), options.splits) if cell not in done]
    print(f"# {len(todo)} cells, about {estimate(todo, record['cells']):,.0f} s of CPU", flush=True)
    record["contenders"] |= describe(names)
    for cell in todo:
        entry = run_cell(cell, options.out, options.uci)
        record["cells"].append(entry)
        save(options.out, record)
        print(json.dumps(entry), flush=True)


if __name__ == "__main__":
    main()
