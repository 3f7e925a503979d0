"""`python tools/check_report.py FILE...`: problems of report files, one a line; exit code 0 if there are none.

Problems are requests to elsewhere, broken data, figures without a place, and scripts that the page would not run.
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import NoReturn

from murmuration.reports.page import script_hash
from murmuration.system.errors import Failure

ADDRESSES = {"src", "href", "srcset", "poster", "action", "formaction", "data", "background", "xlink:href", "ping"}
EMBEDDING = {"link", "iframe", "frame", "object", "embed", "base"}
TRACES = {"scatter", "bar", "box", "heatmap", "contour"}  # all that the figures use; map traces would ask for tiles
FETCHING = re.compile(r"\bfetch\s*\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon|\bimport\s*\(|importScripts")
STYLE_ADDRESS = re.compile(r"(?:url\(|@import)\s*['\"]?([^'\")\s;]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Element:
    """An element of the page; its text is kept for scripts and styles only."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


class _Reader(HTMLParser):
    """Gathers elements in order; the standard library offers its parser only by inheritance."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        last = self.elements[-1] if self.elements else None
        if last is not None and last.tag in ("script", "style") and self.cdata_elem == last.tag:
            self.elements[-1] = Element(last.tag, last.attributes, last.text + data)


def elements(content: str) -> list[Element]:
    """Return the elements of a page in the order they open."""
    reader = _Reader()
    reader.feed(content)
    reader.close()
    return reader.elements


def report_check(path: str | os.PathLike[str]) -> list[str]:
    """Check a report file.

    Args:
        path: The HTML file.

    Returns:
        Its problems, one line each; an empty list if it is sound.
    """
    try:
        content = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = f"could not be read ({error}); give an HTML file that write_report wrote"
        raise Failure(f"report '{path}' {reason}") from None
    page = elements(content)
    names = Counter(element.attributes["id"] for element in page if "id" in element.attributes)
    repeated = [f"id '{name}' is used {count} times" for name, count in names.items() if count > 1]
    unclosed = [] if content.rstrip().endswith("</html>") else ["the file ends before </html>: it was cut short"]
    return [*unclosed, *repeated, *_requests(page), *_figure_problems(page), *_script_problems(page)]


def _is_inside(address: str) -> bool:
    """Return whether an address stays in the file: a data address or a place on the page."""
    return not address or address.strip().lower().startswith(("data:", "#"))


def _requests(page: list[Element]) -> Iterator[str]:
    """Everything outside scripts that would make a browser load or run something."""
    for element in page:
        if element.tag in EMBEDDING:
            yield f"<{element.tag}> loads another document"
        for name, value in element.attributes.items():
            if name in ADDRESSES and not _is_inside(value):
                yield f"<{element.tag} {name}> points outside the file: {value[:80]}"
            if name.startswith("on"):
                yield f"<{element.tag} {name}> runs code from an attribute"
        style = element.attributes.get("style", "") + (element.text if element.tag == "style" else "")
        for address in STYLE_ADDRESS.findall(style):
            if not _is_inside(address):
                yield f"a style of <{element.tag}> points outside the file: {address[:80]}"


def _figure_problems(page: list[Element]) -> Iterator[str]:
    """Containers without data, data without a container, and data that is not what plotly can draw."""
    places = {e.attributes.get("id", "") for e in page if "plot" in e.attributes.get("class", "").split()}
    data = {e.attributes["data-figure"]: e.text for e in page if e.tag == "script" and "data-figure" in e.attributes}
    yield from (f"figure '{name}' has a place but no data" for name in sorted(places - data.keys()))
    yield from (f"figure '{name}' has data but no place" for name in sorted(data.keys() - places))
    for name, text in data.items():
        try:
            drawing = json.loads(text, parse_constant=_refuse)
        except ValueError as error:
            yield f"figure '{name}' holds broken JSON: {error}"
            continue
        traces = drawing.get("data") if isinstance(drawing, dict) else None
        if not isinstance(traces, list) or not traces or not all(isinstance(trace, dict) for trace in traces):
            yield f"figure '{name}' has no traces"
            continue
        for kind in sorted({str(trace.get("type")) for trace in traces} - TRACES):
            yield f"figure '{name}' has a trace of type '{kind}', not one of {sorted(TRACES)}"
        if isinstance(drawing.get("layout"), dict) and drawing["layout"].get("images"):
            yield f"figure '{name}' places images in its layout, which may be fetched"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _script_problems(page: list[Element]) -> Iterator[str]:
    """Find Plotly missing or repeated, scripts that fetch, and scripts that the page's policy would not run."""
    scripts = [e for e in page if e.tag == "script" and e.attributes.get("type", "") != "application/json"]
    plotly = [script for script in scripts if script.attributes.get("id") == "plotly"]
    if len(plotly) != 1:
        yield f"plotly's script is there {len(plotly)} times, not once"
    for script in scripts:
        fetching = FETCHING.search(script.text) if script not in plotly else None
        if fetching:
            yield f"a script of the page makes requests: {fetching.group()}"
    metas = [e.attributes for e in page if e.attributes.get("http-equiv") == "Content-Security-Policy"]
    policy = metas[0].get("content", "") if len(metas) == 1 else ""
    if "default-src 'none'" not in policy:
        yield "no content security policy forbids requests"
    elif changed := sum(script_hash(script.text) not in policy for script in scripts):
        yield f"{changed} scripts are not the ones the content security policy names"


def main(paths: list[str]) -> int:
    problems = [f"{path}: {problem}" for path in paths for problem in report_check(path)]
    print("\n".join(problems) or f"{len(paths)} sound")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
