"""Published results as data: the numbers of a work, and where each of its tables and figures is reproduced.

Every experiment has a `published.py` with one `WORK`; `docs/papers.md` is generated from these and from the records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

QUALITATIVE = "a figure, no number"


@dataclass(frozen=True)
class Number:
    """A published number."""

    item: str  # "table 1", "figure 6", "section 5"
    row: str  # a method, a network, a setting
    measure: str
    value: float
    spread: float | None = None  # as published behind the sign ±
    read_off: bool = False  # read from a figure


@dataclass(frozen=True)
class Item:
    """A table, a figure or a statement of a work, and how it is reproduced."""

    name: str  # "table 1", "figure 6"
    about: str
    command: str  # at the scale of a laptop; "" if there is none
    claims: tuple[str, ...] = ()  # names of the verdicts that it decides
    full_scale: str = ""  # the command at the published scale
    needs: str = ""  # what the published scale takes: "a GPU, about 5 days"
    note: str = ""


@dataclass(frozen=True)
class Work:
    """A published work."""

    experiment: str
    title: str
    reference: str  # authors, year, place
    items: tuple[Item, ...]
    numbers: tuple[Number, ...] = ()

    def number(self, item: str, row: str, measure: str) -> Number | None:
        """Return a published number; None if there is none."""
        matches = [n for n in self.numbers if (n.item, n.row, n.measure) == (item, row, measure)]
        return matches[0] if matches else None


def numbers_of(item: str, measures: Sequence[str], rows: dict[str, str], *, read_off: bool = False) -> list[Number]:
    """Return the numbers of a table written as text, one row of cells such as `0.70±0.01 81.7±0.3`.

    >>> [(n.row, n.measure, n.value, n.spread) for n in numbers_of("table 1", ("NLL", "accuracy"), {"a": "0.7±0.1 82"})]
    [('a', 'NLL', 0.7, 0.1), ('a', 'accuracy', 82.0, None)]
    """
    numbers = []
    for row, text in rows.items():
        for measure, cell in zip(measures, text.split(), strict=True):
            value, _, spread = cell.partition("±")
            numbers.append(Number(item, row, measure, float(value), float(spread) if spread else None, read_off))
    return numbers
