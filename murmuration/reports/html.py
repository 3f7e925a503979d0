"""Pieces of HTML. Every function escapes what is not `Markup` already: what a user wrote can never become a tag."""

import base64
import html
import io
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmuration.evaluation.metrics import Score, describe
from murmuration.evaluation.metrics.scores import Description
from murmuration.reports.figures import Figure, to_json
from murmuration.reports.formatting import ARROWS, MISSING, interval, number, percent
from murmuration.system.errors import Misuse


class Markup(str):
    """HTML that stands on a page as it is; all other text is escaped."""

    __slots__ = ()


NOTHING = Markup("")


def text(value: object) -> Markup:
    """Return the value as text that a page shows letter by letter; markup as it is.

    >>> text('<script>"x"'), text(Markup("<b>"))
    ('&lt;script&gt;&quot;x&quot;', '<b>')
    """
    return value if isinstance(value, Markup) else Markup(html.escape(str(value), quote=True))


def tag(name: str, inside: object, kind: str = "") -> Markup:
    """Return an element around text or markup, with an optional class; nothing around nothing."""
    if not inside:
        return NOTHING
    look = f' class="{text(kind)}"' if kind else ""
    return Markup(f"<{name}{look}>{text(inside)}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    """Return the parts that are not empty, a line each."""
    return Markup("\n".join(text(part) for part in parts if part))


def section(name: str, title: str, reading: str, body: Markup, *, folded: bool = False) -> Markup:
    """Return a titled section that begins with how to read it, or nothing when its body is empty.

    A folded one shows its title and opens on demand.
    """
    if not body:
        return NOTHING
    words = f'\n<p class="reading">{text(reading)}</p>' if reading else ""
    head = f'<h2 id="{text(name)}-title">{text(title)}</h2>'
    inside = f"{head}{words}\n{body}"
    if folded:
        inside = f'<details class="folded"><summary>{head}</summary>{words}\n{body}\n</details>'
    return Markup(f'<section id="{text(name)}" aria-labelledby="{text(name)}-title">\n{inside}\n</section>')


def table(caption: str, columns: Iterable[object], rows: Iterable[tuple[object, Iterable[object]]]) -> Markup:
    """Return a table with a head for every column and row, or nothing when it has no rows.

    On a narrow screen every row is a block of labelled values.
    """
    heads, rows = list(map(text, columns)), list(rows)
    if not rows:
        return NOTHING
    head = "".join(f'<th scope="col">{title}</th>' for title in heads)
    labels = [text(html.unescape(re.sub("<[^>]*>", " ", title)).strip()) for title in heads[1:]]
    lines = []
    for first, cells in rows:
        row = (f'<td data-label="{label}">{text(cell)}</td>' for label, cell in zip(labels, cells, strict=True))
        lines.append(f'<tr><th scope="row">{text(first)}</th>{"".join(row)}</tr>')
    body = "\n".join(lines)
    inner = f"<caption>{text(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    scroll = f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
    return Markup(f"{scroll}<table>{inner}</table></div>")


def details(summary: str, inside: Markup) -> Markup:
    """Return a part that opens on demand, or nothing when it is empty."""
    if not inside:
        return NOTHING
    return Markup(f"<details><summary>{text(summary)}</summary>\n{inside}\n</details>")


def definitions(items: Iterable[tuple[object, object]], kind: str = "") -> Markup:
    """Return a list of names and values, or nothing when it is empty."""
    return tag("dl", join(Markup(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>") for name, value in items), kind)


def figure(drawing: Figure | None) -> Markup:
    """Return a container for the figure, followed by its data; the page's script draws one into the other."""
    if drawing is None:
        return NOTHING
    name = text(drawing.name)
    title = f"<figcaption>{text(drawing.title)}</figcaption>" if drawing.title else ""
    look = f'style="--height:{drawing.height}px;--legend:{drawing.legend}"'
    box = f'<div class="plot" id="{name}" role="img" aria-label="{text(drawing.label)}" {look}>'
    data = to_json({"data": drawing.data, "layout": drawing.layout})
    script = f'<script type="application/json" data-figure="{name}">{data}</script>'
    return Markup(f'<figure class="chart">{title}{box}</div>\n{script}</figure>')


def per_recipe(parts: Iterable[Markup]) -> Markup:
    """Return a part for each recipe in their order, of which the page's selector shows one; a single one as it is."""
    items = list(parts)
    if len(items) < 2:
        return join(items)
    wrapped = (Markup(f'<div class="recipe" data-recipe="{place}">{part}</div>') for place, part in enumerate(items))
    return join(wrapped) if any(items) else NOTHING


def grid(parts: Iterable[Markup]) -> Markup:
    """Return pieces side by side where there is room, or nothing when there are none."""
    return tag("div", join(parts), "grid")


def png(pixels: NDArray[Any]) -> str:
    """Return a data address that holds the image (H, W) or (H, W, C), every pixel as it was."""
    from PIL import Image

    array = np.asarray(pixels)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[-1] in (3, 4))):
        got = f"image of shape {array.shape} and type {array.dtype}"
        raise Misuse(f"{got}; give uint8 of shape (H, W), (H, W, 3) or (H, W, 4)")
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array)).save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def arrow(better: str) -> Markup:
    """Return an arrow for the better direction, in words too; nothing for a score that has none."""
    if better == "neutral":
        return NOTHING
    return Markup(f'<span role="img" aria-label="{text(better)} is better">{ARROWS[better]}</span>')


def score_head(told: Description, label: str = "") -> Markup:
    """Return the head of a score: its label (or another) and its arrow."""
    return Markup(f"{text(label or told.label)} {arrow(told.better)}")


def row_head(label: str, *below: str) -> Markup:
    """Return the head of a row, with smaller lines below it; empty ones are left out."""
    return Markup("".join([text(label), *(tag("small", line) for line in below)]))


def score_cell(score: Score | None, *, best: bool = False, proportion: bool = False) -> Markup:
    """Return a value over its interval, with a star if it is the best; proportions as percentages."""
    if score is None:
        return text(MISSING)
    star = Markup('<span class="star" role="img" aria-label="best">★</span>') if best else NOTHING
    show = percent if proportion else number
    return Markup(f"{tag('span', show(score), 'value')}{star}{tag('small', interval(score, show))}")


def glossary(names: Iterable[str], task: Any = "classification") -> Markup:
    """Return what each score means, to open on demand."""
    descriptions = [describe(name, task) for name in names]
    return details("What each score means", definitions((d.label, d.meaning) for d in descriptions if d.meaning))
