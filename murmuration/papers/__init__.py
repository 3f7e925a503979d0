"""Experiments that can be done again by one command: a table of names, and what each leaves."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from murmuration.errors import unknown

Show = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Request:
    """What a command line asks for; what is left out is the experiment's own choice."""

    data: str | None = None
    widths: str | None = None
    models: str | None = None
    arms: str | None = None
    seeds: str | None = None
    epochs: int | None = None


@dataclass(frozen=True)
class Board:
    """A table for the screen."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    right: bool = True  # whether all columns but the first are numbers


@dataclass(frozen=True)
class Outcome:
    """What an experiment leaves."""

    record: dict[str, Any]  # as JSON
    page: str  # HTML
    boards: list[Board]


@dataclass(frozen=True)
class Experiment:
    """One entry of the table; `module` has `reproduce(request, out, show, command) -> Outcome`."""

    about: str
    module: str

    def reproduce(self, request: Request, out: Path, show: Show, command: str) -> Outcome:
        made: Outcome = import_module(self.module).reproduce(request, out, show, command)
        return made


EXPERIMENTS = {
    "embedded": Experiment(
        "members inside one network, by width, number and regime, against separate networks (Velikanov et al. 2022)",
        "murmuration.papers.embedded.reproducing",
    ),
}


def experiment_named(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
