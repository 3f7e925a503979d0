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
from murmuration.system.files import json_numbers


def reproduce(request: Request, out: Path, show: Show, command: str = "") -> Outcome:
    """The record with verdicts, the page and two tables; cells already in the record are not computed again."""
    setting, grid = setting_for(request), grid_for(request)
    record = run(out, setting, grid, show)
    found = verdicts(record)
    whole = json_numbers({**record, "verdicts": found})
    tables = [accuracy_table(record), verdict_table(found)]
    return Outcome(whole, page(record, command), tables, undertrained(Results(record)))


def setting_for(request: Request) -> Setting:
    """The settings with the options of the request."""
    for name in ("prepare", "net", "members", "ood", "examples", "parts"):
        if getattr(request, name) is not None:
            raise Misuse(f"{name}={getattr(request, name)} is for the experiment landscape: leave it out")
    if request.epochs is not None and request.epochs < 1:
        raise Misuse(f"epochs={request.epochs}: need a whole number, at least 1")
    given: dict[str, Any] = {"data": request.data, "epochs": request.epochs}
    return replace(Setting(), **{name: value for name, value in given.items() if value is not None})


def grid_for(request: Request) -> Grid:
    """The grid with the options of the request."""
    axes: dict[str, tuple[Callable[[str], Any], str]] = {
        "widths": (float, "0.25,0.5,1"),
        "models": (int, "1,2,4"),
        "arms": (str, "independent,naive"),
        "seeds": (int, "0,1,2"),
    }
    asked = {name: getattr(request, name) for name in axes}
    given = {name: parse_list(text, name, *axes[name]) for name, text in asked.items() if text is not None}
    return replace(Grid(), **given)


def parse_list(text: str, name: str, kind: Callable[[str], Any], example: str) -> tuple[Any, ...]:
    """The values of a comma-separated list.

    >>> parse_list("1, 2", "models", int, "1,2,4")
    (1, 2)
    """
    try:
        return tuple(kind(each.strip()) for each in text.split(",") if each.strip())
    except ValueError:
        raise Misuse(f"--{name} {text}: write numbers with commas, such as {example}") from None


def accuracy_table(record: Record) -> ScreenTable:
    """Ensemble accuracy of every arm and width, by number of members."""
    found = Results(record)
    rows = [
        [f"{arm}, N={found.neurons(width)}", *(mean_text(found, arm, width, models) for models in found.models)]
        for arm in found.arms
        for width in found.widths
    ]
    return ScreenTable(
        "ensemble test accuracy, mean over seeds", ["", *(f"M={models}" for models in found.models)], rows
    )


def mean_text(found: Results, arm: str, width: float, models: int) -> str:
    """The mean accuracy over seeds; intervals are on the page."""
    mean = mean_interval(found.over_seeds(arm, width, models, "accuracy"))[0]
    return f"{mean:.3f}" if math.isfinite(mean) else MISSING


def verdict_table(found: list[Verdict]) -> ScreenTable:
    """One row per estimate of every prediction."""
    rows = []
    for each in found:
        told = [[estimate.what, estimate_text(estimate), estimate.region] for estimate in each.estimates]
        for place, cells in enumerate(told or [[each.note, "", ""]]):
            rows.append([*(("", "") if place else (each.name, each.word)), *cells])
    return ScreenTable("predictions", ["", "verdict", "estimate", "value and 95 % interval", "predicted"], rows, False)
