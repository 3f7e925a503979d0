"""The command: from options to the record, the page and the tables."""

import math
from dataclasses import fields, replace
from pathlib import Path

import murmuration.studies.papers.embedded.theorems as theorems
from murmuration.reports.formatting import MISSING
from murmuration.studies.papers import Options, Outcome, ScreenTable, Show, check_least, check_parts, choose_settings
from murmuration.studies.papers.embedded.page import page
from murmuration.studies.papers.embedded.predictions import undertrained, verdicts
from murmuration.studies.papers.embedded.record import Results, run
from murmuration.studies.papers.embedded.settings import NETS, PARTS, PROFILES, Grid
from murmuration.studies.papers.page import verdict_table
from murmuration.studies.papers.record import Record, finished_record, save_record
from murmuration.studies.verdicts import mean_interval
from murmuration.system.errors import Misuse, unknown


def reproduce(options: Options, out: Path, show: Show, command: str = "") -> Outcome:
    """Return the record with verdicts, the page and two tables; cells already in the record are not computed again."""
    axes = tuple(field.name for field in fields(Grid))
    setting = choose_settings(PROFILES, options, also=axes)
    check_least(setting, epochs=1)
    check_parts(setting.parts, PARTS)
    if "panels" not in setting.parts:
        for name in ("widths", "models", "arms", "epochs", "net"):
            if name in options:
                raise Misuse(f"--{name} is for the part panels, and only {', '.join(setting.parts)} is asked for")
    if setting.net not in NETS:
        raise unknown("net of this experiment", setting.net, NETS)
    if setting.train is not None:
        check_least(setting, train=setting.batch_size)
    grid = replace(Grid(), **{name: options[name] for name in axes if name in options})
    record = run(out, setting, grid, show)
    judged = [*verdicts(record), *theorems.verdicts(record["theorems"], setting.layers)]
    tables = [accuracy_table(record)] if record["cells"] else []
    spent = sum(entry.get("seconds", 0) for entry in record["cells"])
    spent += sum(entry["cpu_seconds"] for entry in record["theorems"])
    full_record = finished_record(record, judged, tables, spent)
    save_record(out, full_record)
    tables.append(verdict_table(judged, "predictions"))
    return Outcome(full_record, page(record, command), tables, undertrained(Results(record)))


def accuracy_table(record: Record) -> ScreenTable:
    """Return ensemble accuracy of every arm and width, by number of members."""
    results = Results(record)
    rows = [
        [f"{arm}, N={results.neurons(width)}", *(mean_text(results, arm, width, models) for models in results.models)]
        for arm in results.arms
        for width in results.widths
    ]
    columns = ["", *(f"M={models}" for models in results.models)]
    return ScreenTable("ensemble test accuracy, mean over seeds", columns, rows)


def mean_text(found: Results, arm: str, width: float, models: int) -> str:
    """Return the mean accuracy over seeds; intervals are on the page."""
    mean = mean_interval(found.over_seeds(arm, width, models, "accuracy"))[0]
    return f"{mean:.3f}" if math.isfinite(mean) else MISSING
