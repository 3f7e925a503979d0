"""The command: from options to the record, the page and the tables."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from murmuration.reports.formatting import MISSING
from murmuration.studies.papers import Outcome, Request, ScreenTable, Show
from murmuration.studies.papers.embedded.page import estimate_text, page
from murmuration.studies.papers.embedded.predictions import Verdict, mean_interval, undertrained, verdicts
from murmuration.studies.papers.embedded.record import Record, Results, run
from murmuration.studies.papers.embedded.settings import Grid, Setting
from murmuration.system.errors import Misuse
from murmuration.system.records import plain_json


def reproduce(request: Request, out: Path, show: Show, command: str = "") -> Outcome:
    """Return the record with verdicts, the page and two tables; cells already in the record are not computed again."""
    setting, grid = setting_for(request), grid_for(request)
    record = run(out, setting, grid, show)
    outcomes = verdicts(record)
    full_record = plain_json({**record, "verdicts": outcomes})
    tables = [accuracy_table(record), verdict_table(outcomes)]
    return Outcome(full_record, page(record, command), tables, undertrained(Results(record)))


def setting_for(request: Request) -> Setting:
    """Return the settings with the options of the request."""
    for name in ("prepare", "net", "members", "ood", "examples", "parts"):
        if getattr(request, name) is not None:
            raise Misuse(f"{name}={getattr(request, name)} is for the experiment landscape: leave it out")
    if request.epochs is not None and request.epochs < 1:
        raise Misuse(f"epochs={request.epochs}: need a whole number, at least 1")
    options: dict[str, Any] = {"data": request.data, "epochs": request.epochs}
    return replace(Setting(), **{name: value for name, value in options.items() if value is not None})


def grid_for(request: Request) -> Grid:
    """Return the grid with the options of the request."""
    axes: dict[str, tuple[Callable[[str], Any], str]] = {
        "widths": (float, "0.25,0.5,1"),
        "models": (int, "1,2,4"),
        "arms": (str, "independent,naive"),
        "seeds": (int, "0,1,2"),
    }
    texts = {name: getattr(request, name) for name in axes}
    values = {name: parse_list(text, name, *axes[name]) for name, text in texts.items() if text is not None}
    return replace(Grid(), **values)


def parse_list(text: str, name: str, kind: Callable[[str], Any], example: str) -> tuple[Any, ...]:
    """Return the values of a comma-separated list.

    >>> parse_list("1, 2", "models", int, "1,2,4")
    (1, 2)
    """
    try:
        return tuple(kind(part.strip()) for part in text.split(",") if part.strip())
    except ValueError:
        raise Misuse(f"--{name} {text}: write numbers with commas, such as {example}") from None


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


def verdict_table(verdicts: list[Verdict]) -> ScreenTable:
    """Return one row per estimate of every prediction."""
    rows = []
    for verdict in verdicts:
        estimates = [[estimate.what, estimate_text(estimate), estimate.region] for estimate in verdict.estimates]
        for place, cells in enumerate(estimates or [[verdict.note, "", ""]]):
            rows.append([*(("", "") if place else (verdict.name, verdict.word)), *cells])
    return ScreenTable("predictions", ["", "verdict", "estimate", "value and 95 % interval", "predicted"], rows, False)
