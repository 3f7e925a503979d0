"""The record of the experiment: computed cell by cell, continued after a kill, and queried as `Results`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import murmuration.studies.papers.embedded.theorems as theorems
from murmuration.data import Data, open_data
from murmuration.studies.papers.embedded.cells import count_steps, find_largest_step, train_cell
from murmuration.studies.papers.embedded.settings import LINES, Cell, Grid, Setting, arm_named, mean_in, trained_as
from murmuration.studies.papers.record import Record, open_record, save_record
from murmuration.system.errors import Failure, Misuse
from murmuration.system.records import plain_json

Show = Callable[[str, int, int], None]
Measure = Callable[[Cell, Setting, Data], dict[str, Any]]
MEASURES: dict[str, Measure] = {"trained": train_cell, "wider": train_cell}
MEASURES |= {"step": find_largest_step, "steps": count_steps}


def run(out: Path, setting: Setting, grid: Grid, show: Show) -> Record:
    """Return the record in `out` with all cells of the grid; cells that it already holds are not computed again."""
    data = cut(open_data(setting.data), setting)
    record = open_record(out, "embedded", setting, extends=("parts",), data=about(data), cells=[], theorems=[])
    if record["data"]["fingerprint"] != data.fingerprint:
        raise Failure(f"{setting.data} has changed since {out} was begun (fingerprints differ): choose another --out")
    if "panels" in setting.parts:
        stored, cells = {cell_of(entry) for entry in record["cells"]}, grid.cells()
        for done, cell in enumerate(cells):
            show(f"{cell.arm}, width {cell.width:g}, M={cell.models}, seed {cell.seed}", done, len(cells))
            if cell not in stored:
                record["cells"].append(plain_json(MEASURES[arm_named(cell.arm).kind](cell, setting, data)))
                save_record(out, record)
        show("", len(cells), len(cells))
    if "theorems" in setting.parts:
        measured = {(entry["arm"], entry["neurons"], entry["seed"]) for entry in record["theorems"]}
        places = list(product(theorems.ARMS, theorems.WIDTHS, grid.seeds))
        for done, (arm, neurons, seed) in enumerate(places):
            show(f"theorems, {arm}, N={neurons}, seed {seed}", done, len(places))
            if (arm, neurons, seed) not in measured:
                entry = {"arm": arm, "neurons": neurons, "seed": seed}
                record["theorems"].append(entry | theorems.measure(data, setting, arm, neurons, seed))
                save_record(out, record)
        show("", len(places), len(places))
    return record


def cut(data: Data, setting: Setting) -> Data:
    """Return the data with as many training examples as the setting says; a regression is refused."""
    if data.task != "classification":
        raise Misuse(
            f"data='{setting.data}' is a regression: the experiment measures accuracies, so give data with classes"
        )
    if setting.net != "mlp" and len(data.input_shape) != 3:
        raise Misuse(f"net={setting.net} takes images, and inputs of {setting.data} are {data.input_shape}: use mlp")
    return data if setting.train is None else replace(data, train=data.train[: setting.train])


def about(data: Data) -> dict[str, Any]:
    """Return name, fingerprint and sizes of the data."""
    sizes = {part: len(getattr(data, part)) for part in ("train", "val", "test")}
    return {"name": data.name, "fingerprint": data.fingerprint, "examples": sizes}


def cell_of(entry: dict[str, Any]) -> Cell:
    return Cell(entry["arm"], float(entry["width"]), entry["models"], entry["seed"])


@dataclass(frozen=True)
class Results:
    """Queries of a record."""

    record: Record

    @cached_property
    def cells(self) -> dict[Cell, dict[str, Any]]:
        return {cell_of(entry): entry for entry in self.record["cells"]}

    @cached_property
    def setting(self) -> Setting:
        return Setting(**self.record["setting"] | {"parts": tuple(self.record["setting"]["parts"])})

    @cached_property
    def arms(self) -> list[str]:
        """The arms with curves that have trained cells, in the order they are shown."""
        return [arm for arm in LINES if any(cell.arm == arm for cell in self.cells)]

    @cached_property
    def widths(self) -> list[float]:
        return sorted({cell.width for cell in self.cells if cell.arm in LINES})

    @cached_property
    def models(self) -> list[int]:
        return sorted({cell.models for cell in self.cells if cell.arm in LINES})

    @cached_property
    def seeds(self) -> list[int]:
        return sorted({cell.seed for cell in self.cells})

    @cached_property
    def means(self) -> list[float]:
        """Means of factors between the regimes."""
        return sorted({mean for cell in self.cells if (mean := mean_in(cell.arm)) is not None})

    def score(self, cell: Cell, name: str) -> float | None:
        """Return a result of a cell; None if it is not in the record."""
        value = self.cells.get(trained_as(cell), {}).get(name)
        return None if value is None else float(value)

    def over_seeds(self, arm: str, width: float, models: int, name: str) -> list[float]:
        """Return a result of one cell, for every seed that has it."""
        return known(self.score(Cell(arm, width, models, seed), name) for seed in self.seeds)

    def line(self, arm: str, width: float, models: Iterable[int], seed: int, name: str) -> dict[int, float]:
        """Return a result of an arm at one width and seed, for every number of members that has it."""
        values = {count: self.score(Cell(arm, width, count, seed), name) for count in models}
        return {count: value for count, value in values.items() if value is not None}

    def neurons(self, width: float) -> int:
        return self.setting.neurons(width)


def known(values: Iterable[float | None]) -> list[float]:
    """Return the values that are not None."""
    return [value for value in values if value is not None]
