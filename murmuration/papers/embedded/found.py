"""The cells of a record by what they are of."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from murmuration.papers.embedded.running import Record, cell_of
from murmuration.papers.embedded.settings import BETWEEN, LINES, Cell, Setting, mean_in, trained_as


@dataclass(frozen=True)
class Found:
    """A record that can be asked."""

    record: Record

    @cached_property
    def cells(self) -> dict[Cell, dict[str, Any]]:
        return {cell_of(entry): entry for entry in self.record["cells"]}

    @cached_property
    def setting(self) -> Setting:
        return Setting(**self.record["setting"])

    @cached_property
    def arms(self) -> list[str]:
        """The arms with curves that have trained cells of their own, in the order they are shown."""
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
        return sorted({mean_in(cell.arm) for cell in self.cells if cell.arm.startswith(f"{BETWEEN}-")})

    def score(self, cell: Cell, name: str) -> float | None:
        """A number of a cell; None if it is not known."""
        value = self.cells.get(trained_as(cell), {}).get(name)
        return None if value is None else float(value)

    def over_seeds(self, arm: str, width: float, models: int, name: str) -> list[float]:
        """A number of one cell, for every seed that has it."""
        return known(self.score(Cell(arm, width, models, seed), name) for seed in self.seeds)

    def neurons(self, width: float) -> int:
        return self.setting.neurons(width)


def known(values: Iterable[float | None]) -> list[float]:
    """The values that are there."""
    return [value for value in values if value is not None]
