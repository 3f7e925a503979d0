"""The run of the whole grid: every cell is written as soon as it is known, and a killed run goes on."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from murmuration.data import Data, open_data
from murmuration.errors import Failure, Misuse
from murmuration.papers.embedded.cells import trained_cell
from murmuration.papers.embedded.probes import largest_step_cell, steps_cell
from murmuration.papers.embedded.settings import Cell, Grid, Setting, arm_named
from murmuration.provenance import versions
from murmuration.runs import finite, read_json, write_json

RECORD = "record.json"
Show = Callable[[str, int, int], None]
Record = dict[str, Any]
MEASURES: dict[str, Callable[[Cell, Setting, Data], dict[str, Any]]] = {
    "trained": trained_cell,
    "wider": trained_cell,
    "step": largest_step_cell,
    "steps": steps_cell,
}


def run(out: Path, setting: Setting, grid: Grid, show: Show) -> Record:
    """The record in `out`, with all wanted cells; those that it already holds are kept and not computed again."""
    data = open_data(setting.data)
    if data.task != "classification":
        raise Misuse(f"--data {setting.data} has numbers to predict: the figure counts right answers, so give classes")
    path = out / RECORD
    record = continued(path, setting, data) if path.exists() else begun(setting, data)
    out.mkdir(parents=True, exist_ok=True)
    known = {cell_of(entry) for entry in record["cells"]}
    wanted = grid.cells()
    for done, cell in enumerate(wanted):
        show(f"{cell.arm}, width {cell.width:g}, M={cell.models}, seed {cell.seed}", done, len(wanted))
        if cell in known:
            continue
        record["cells"].append(finite(MEASURES[arm_named(cell.arm).kind](cell, setting, data)))
        write_json(path, record)
    show("", len(wanted), len(wanted))
    return record


def begun(setting: Setting, data: Data) -> Record:
    """A record without cells."""
    parts = {part: len(getattr(data, part)) for part in ("train", "val", "test")}
    return {
        "experiment": "embedded",
        "setting": asdict(setting),
        "data": {"name": data.name, "fingerprint": data.fingerprint, "examples": parts},
        "versions": versions(),
        "cells": [],
    }


def continued(path: Path, setting: Setting, data: Data) -> Record:
    """The record that is there, refused if it is of something else."""
    record = read_json(path)
    if not isinstance(record, dict) or record.get("experiment") != "embedded" or "cells" not in record:
        raise Failure(f"{path} is no record of the experiment embedded: choose another --out")
    now = begun(setting, data)
    for key, value in now["setting"].items():
        if record["setting"].get(key) != value:
            before = record["setting"].get(key)
            raise Misuse(f"{path} was made with {key}={before}, not {value}: repeat it, or give another --out")
    if record["data"]["fingerprint"] != now["data"]["fingerprint"]:
        raise Failure(f"{setting.data} has changed since {path} was begun: its fingerprint differs; give another --out")
    return record


def cell_of(entry: dict[str, Any]) -> Cell:
    return Cell(entry["arm"], float(entry["width"]), entry["models"], entry["seed"])
