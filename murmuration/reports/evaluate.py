"""`mm.evaluate`: an ensemble evaluated on data, and with `out=` the files `metrics.json` and `report.html`."""

import os
from pathlib import Path
from typing import Any

from murmuration.data import Data
from murmuration.ensemble import Ensemble
from murmuration.evaluation import EvalSet, Evaluation, evaluate_ensemble
from murmuration.evaluation.record import Ood, Shift
from murmuration.evaluation.shift import Progress, no_progress
from murmuration.files import write_bytes, write_json
from murmuration.reports.bridge import report_of
from murmuration.reports.page import render
from murmuration.reports.records import Report

METRICS, REPORT = "metrics.json", "report.html"


def evaluate(
    ensemble: Ensemble,
    data: Data | EvalSet,
    *,
    shift: Shift = None,
    ood: Ood = None,
    out: str | os.PathLike[str] | None = None,
    name: str | None = None,
    progress: Progress = no_progress,
) -> Evaluation:
    """Evaluate an ensemble on a data set's test split, under corruption and on out-of-distribution inputs if asked.

    `shift`: True for all corruptions that fit the inputs, a list of their names, or a `ShiftSuite`. `ood`: prepared
    inputs by name, or a list of data sources. `out`: a directory for `metrics.json` and `report.html`.
    """
    found = evaluate_ensemble(ensemble, data, name, shift=shift, ood=ood, progress=progress)
    if out is not None:
        directory = Path(out)
        directory.mkdir(parents=True, exist_ok=True)
        report = report_of([found])
        for file in (METRICS, REPORT):
            write_results(directory / file, results_json(found, report, run=directory), report)
    return found


def results_json(evaluation: Evaluation, report: Report, *, run: Path) -> dict[str, Any]:
    """The record that `metrics.json` holds."""
    return {"run": str(run), "recipe": evaluation.name, **evaluation.to_json(), "notes": list(report.notes)}


def write_results(path: Path, record: dict[str, Any], report: Report) -> None:
    """Write the record (.json) or the page (.html), whole or not at all."""
    if path.suffix == ".json":
        write_json(path, record)
    else:
        write_bytes(path, render(report).encode())
