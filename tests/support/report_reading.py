"""How tests read a page: the text of its tables, its sections, the data of its figures."""

import json
from html.parser import HTMLParser
from typing import Any

from check_report import Element, elements


class Cells(HTMLParser):
    """The text of every table, cell by cell."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.open = True
        if tag == "small" and self.open:
            self.tables[-1][-1][-1] += " | "

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.open = False

    def handle_data(self, data: str) -> None:
        if self.open:
            self.tables[-1][-1][-1] += data


def tables(page: str) -> list[list[list[str]]]:
    cells = Cells()
    cells.feed(page.partition('<script id="plotly">')[0])
    return cells.tables


def section_names(page: list[Element]) -> list[str]:
    return [each.attributes["id"] for each in page if each.tag == "section"]


def figures(page: list[Element]) -> dict[str, Any]:
    data = (each for each in page if "data-figure" in each.attributes)
    return {each.attributes["data-figure"]: json.loads(each.text) for each in data}


def figure(page: str, name: str) -> Any:
    """The data of one figure."""
    return figures(elements(page))[name]
