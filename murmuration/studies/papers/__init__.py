"""Reproductions of published experiments, one command each; see README.md."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from murmuration.system.errors import unknown

Show = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Request:
    """Options of the command line; None means the default of the experiment."""

    data: str | None = None
    widths: str | None = None
    models: str | None = None
    arms: str | None = None
    seeds: str | None = None
    epochs: int | None = None
    prepare: str | None = None
    net: str | None = None
    members: int | None = None
    ood: str | None = None
    examples: int | None = None
    parts: str | None = None


@dataclass(frozen=True)
class ScreenTable:
    """A table for the screen."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    right: bool = True  # whether all columns but the first are right-aligned


@dataclass(frozen=True)
class Outcome:
    """The result of a reproduction."""

    record: dict[str, Any]  # as JSON
    page: str  # HTML
    tables: list[ScreenTable]
    warning: str = ""


EXPERIMENTS = {  # folder in papers/, whose `reproduce.py` has `reproduce(request, out, show, command) -> Outcome`
    "embedded": "embedded ensembles by width, number of members and regime, against separate networks "
    "(Velikanov et al. 2022)",
    "landscape": "deep ensembles from the perspective of the loss landscape: similarity, planes, tunnels, diversity, "
    "subspaces, shift (Fort et al. 2019)",
}


def reproduce(name: str, request: Request, out: Path, show: Show, command: str) -> Outcome:
    """Return the outcome of the experiment of that name."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    experiment = import_module(f"murmuration.studies.papers.{name}.reproduce")
    outcome: Outcome = experiment.reproduce(request, out, show, command)
    return outcome
