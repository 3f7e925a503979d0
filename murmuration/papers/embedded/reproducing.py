"""From a request to all that the experiment leaves."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from murmuration.errors import Misuse
from murmuration.papers import Board, Outcome, Request, Show
from murmuration.papers.embedded.found import Found
from murmuration.papers.embedded.page import page, told
from murmuration.papers.embedded.predictions import verdicts
from murmuration.papers.embedded.running import Record, run
from murmuration.papers.embedded.settings import Grid, Setting
from murmuration.papers.verdicts import Verdict, mean_interval
from murmuration.reports.wording import MISSING
from murmuration.runs import finite


def reproduce(request: Request, out: Path, show: Show, command: str = "") -> Outcome:
    """The record, the page and the tables; cells that are known already are not computed again."""
    setting, grid = setting_of(request), grid_of(request)
    record = run(out, setting, grid, show)
    found = verdicts(record)
    whole = finite({**record, "verdicts": [each.to_json() for each in found]})
    return Outcome(whole, page(record, command), [accuracy_board(record), verdict_board(found)])


def setting_of(request: Request) -> Setting:
    """The setting with what the request changes."""
    if request.epochs is not None and request.epochs < 1:
        raise Misuse(f"epochs={request.epochs}: need a whole number, at least 1")
    given: dict[str, Any] = {"data": request.data, "epochs": request.epochs}
    return replace(Setting(), **{name: value for name, value in given.items() if value is not None})


def grid_of(request: Request) -> Grid:
    """The cells that a request asks for."""
    given: dict[str, Any] = {
        "widths": listed(request.widths, "widths", float, "0.25,0.5,1"),
        "models": listed(request.models, "models", int, "1,2,4"),
        "arms": listed(request.arms, "arms", str, "independent,naive"),
        "seeds": listed(request.seeds, "seeds", int, "0,1,2"),
    }
    return replace(Grid(), **{name: value for name, value in given.items() if value is not None})


def listed(text: str | None, name: str, kind: Callable[[str], Any], example: str) -> tuple[Any, ...] | None:
    """The values of a list with commas.

    >>> listed("1, 2", "models", int, "1,2,4")
    (1, 2)
    """
    if text is None:
        return None
    try:
        return tuple(kind(each.strip()) for each in text.split(",") if each.strip())
    except ValueError:
        raise Misuse(f"--{name} {text}: write numbers with commas, such as {example}") from None


def accuracy_board(record: Record) -> Board:
    """Ensemble accuracy of every arm and width."""
    found = Found(record)
    rows = [
        [f"{arm}, N={found.neurons(width)}", *(mean_text(found, arm, width, models) for models in found.models)]
        for arm in found.arms
        for width in found.widths
    ]
    return Board("ensemble test accuracy, mean over seeds", ["", *(f"M={models}" for models in found.models)], rows)


def mean_text(found: Found, arm: str, width: float, models: int) -> str:
    """The mean accuracy over seeds, in a table that fits a terminal; intervals are on the page."""
    mean = mean_interval(found.over_seeds(arm, width, models, "accuracy"))[0]
    return f"{mean:.3f}" if math.isfinite(mean) else MISSING


def verdict_board(found: list[Verdict]) -> Board:
    """A row for every estimate of every prediction."""
    rows = [
        [
            each.name if place == 0 else "",
            each.word if place == 0 else "",
            estimate.what,
            told(estimate),
            estimate.region,
        ]
        for each in found
        for place, estimate in enumerate(each.estimates)
    ]
    return Board("predictions", ["", "verdict", "estimate", "value and 95 % interval", "predicted"], rows, False)
