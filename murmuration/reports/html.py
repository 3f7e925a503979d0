"""Pieces of HTML. Text becomes `Markup` only by being escaped: what a user wrote can never become a tag."""

import base64
import html
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any, NewType

import numpy as np
from numpy.typing import NDArray

from murmuration.errors import Misuse
from murmuration.metrics import Score, describe
from murmuration.metrics.scores import Description
from murmuration.reports.figures import Figure, to_json
from murmuration.reports.formatting import ARROWS, MISSING, interval, number, percent, percent_interval

Markup = NewType("Markup", str)
NOTHING = Markup("")


def text(value: object) -> Markup:
    """The value as text that a page shows letter by letter.

    >>> text('<script>"x"')
    '&lt;script&gt;&quot;x&quot;'
    """
    return Markup(html.escape(str(value), quote=True))


def tag(name: str, inside: Markup, kind: str = "") -> Markup:
    """An element around markup, with an optional class."""
    return Markup(f'<{name} class="{text(kind)}">{inside}</{name}>' if kind else f"<{name}>{inside}</{name}>")


def join(parts: Iterable[Markup]) -> Markup:
    return Markup("\n".join(part for part in parts if part))


def section(name: str, title: str, reading: str, body: Markup) -> Markup:
    """A titled section that opens with how to read it, or nothing when its body is empty."""
    if not body:
        return NOTHING
    words = f'\n<p class="reading">{text(reading)}</p>' if reading else ""
    head = f'<h2 id="{text(name)}-title">{text(title)}</h2>{words}'
    return Markup(f'<section id="{text(name)}" aria-labelledby="{text(name)}-title">\n{head}\n{body}\n</section>')


def table(caption: str, columns: Sequence[Markup], rows: Sequence[tuple[Markup, Sequence[Markup]]]) -> Markup:
    """A table with a head for every column and row; on a narrow screen every row is a block of labelled values."""
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    labels = [text(html.unescape(re.sub("<[^>]*>", " ", column)).strip()) for column in columns[1:]]
    body = "\n".join(
        f'<tr><th scope="row">{first}</th>'
        + "".join(f'<td data-label="{label}">{cell}</td>' for label, cell in zip(labels, cells, strict=True))
        + "</tr>"
        for first, cells in rows
    )
    inner = f"<caption>{text(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return Markup(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"><table>{inner}</table></div>'
    )


def details(summary: str, inside: Markup) -> Markup:
    """A part that opens on demand."""
    return Markup(f"<details><summary>{text(summary)}</summary>\n{inside}\n</details>")


def figure(drawing: Figure | None) -> Markup:
    """A container for the figure, followed by its data; the page's script draws one into the other."""
    if drawing is None:
        return NOTHING
    name = text(drawing.name)
    title = f"<figcaption>{text(drawing.title)}</figcaption>" if drawing.title else ""
    look = f'style="height:{drawing.height}px"'
    box = f'<div class="plot" id="{name}" role="img" aria-label="{text(drawing.label)}" {look}>'
    data = to_json({"data": drawing.data, "layout": drawing.layout})
    return Markup(
        f'<figure class="chart">{title}{box}</div>\n'
        f'<script type="application/json" data-figure="{name}">{data}</script></figure>'
    )


def grid(parts: Iterable[Markup]) -> Markup:
    """Pieces side by side where there is room, or nothing when there are none."""
    inside = join(parts)
    return tag("div", inside, "grid") if inside else NOTHING


def png(pixels: NDArray[Any]) -> str:
    """A data address that holds the image (H, W) or (H, W, C), every pixel as it was."""
    from PIL import Image

    array = np.asarray(pixels)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    good = array.dtype == np.uint8 and (array.ndim == 2 or (array.ndim == 3 and array.shape[-1] in (3, 4)))
    if not good:
        raise Misuse(
            f"image of shape {array.shape} and type {array.dtype}; give uint8 of shape (H, W), (H, W, 3) or (H, W, 4)"
        )
    held = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array)).save(held, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(held.getvalue()).decode("ascii")


def arrow(better: str) -> Markup:
    """An arrow for the better direction, in words too; nothing for a score that has none."""
    if better == "neutral":
        return NOTHING
    return Markup(f'<span role="img" aria-label="{text(better)} is better">{ARROWS[better]}</span>')


def score_head(told: Description, label: str = "") -> Markup:
    """The head of a score: its label (or another) and its arrow."""
    return Markup(f"{text(label or told.label)} {arrow(told.better)}")


def row_head(label: str, *below: str) -> Markup:
    """The head of a row, with smaller lines below it; empty ones are left out."""
    return Markup("".join([text(label), *(tag("small", text(line)) for line in below if line)]))


def score_cell(score: Score | None, *, best: bool = False, proportion: bool = False) -> Markup:
    """A value over its interval, with a star if it is the best; proportions as percentages."""
    if score is None:
        return text(MISSING)
    star = Markup('<span class="star" role="img" aria-label="best">★</span>') if best else NOTHING
    value, ends = (percent(score), percent_interval(score)) if proportion else (number(score), interval(score))
    small = tag("small", text(ends)) if ends else NOTHING
    return Markup(f"{tag('span', text(value), 'value')}{star}{small}")


def glossary(names: Iterable[str], task: Any = "classification") -> Markup:
    """What each score means, to open on demand."""
    told = [describe(name, task) for name in names]
    items = join(Markup(f"<dt>{text(m.label)}</dt><dd>{text(m.meaning)}</dd>") for m in told if m.meaning)
    return details("What each score means", tag("dl", items)) if items else NOTHING
