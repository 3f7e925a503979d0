"""The most uncertain test examples, each as a card with its picture or row and what the members said."""

from collections.abc import Sequence

import numpy as np

from murmuration.reports.markup import NOTHING, Markup, details, join, png, section, tag, text
from murmuration.reports.records import Example, Report
from murmuration.reports.wording import meaning, number, shorten

SMALL = 64  # images up to this size are enlarged with visible pixels
COLUMNS = 6  # of a row shown at once; the others open on demand
VOTES = 5


def gallery(report: Report) -> Markup:
    """The section of the most uncertain examples."""
    whose = f" by {report.examples_of}" if report.examples_of else ""
    reading = (
        f"The test examples ranked most uncertain{whose}. Often they are truly ambiguous or wrongly "
        "labelled, which makes them worth a look."
    )
    return section("examples", "Most uncertain examples", reading, cards(report.examples, report.task))


def cards(examples: Sequence[Example], task: str) -> Markup:
    """Examples side by side, each with what was said of it; nothing when there are none."""
    inside = join(_card(example, task) for example in examples)
    kind = "gallery images" if all(example.image is not None for example in examples) else "gallery"
    return tag("div", inside, kind) if inside else NOTHING


def _card(example: Example, task: str) -> Markup:
    right = example.label == example.prediction
    verdict = ("right" if right else "wrong") if task == "classification" else ""
    mark = (
        tag("span", text({"right": "✓ right", "wrong": "✗ wrong"}[verdict]), f"mark {verdict}") if verdict else NOTHING
    )
    said = Markup(
        f"<dt>truth</dt><dd>{text(example.label)}</dd><dt>predicted</dt><dd>{text(example.prediction)} {mark}</dd>"
    )
    parts = [
        _picture(example),
        tag("dl", said, "answer"),
        _measures(example),
        _votes(example),
        _spread(example),
        _row(example),
    ]
    return tag("article", join(parts), "example")


def _picture(example: Example) -> Markup:
    if example.image is None:
        return NOTHING
    place = f" {example.index}" if example.index is not None else ""
    alt = f"Test image{place}, truth {example.label}, predicted {example.prediction}"
    kind = "small" if max(example.image.shape[:2]) <= SMALL else "large"
    return Markup(f'<img class="{kind}" src="{png(example.image)}" alt="{text(alt)}">')


def _measures(example: Example) -> Markup:
    items = join(
        Markup(f"<dt>{text(meaning(name).label.lower())}</dt><dd>{text(number(value))}</dd>")
        for name, value in example.measures.items()
    )
    return tag("dl", items, "measures") if items else NOTHING


def _votes(example: Example) -> Markup:
    """Bars of how many members chose each class, the commonest first."""
    ranked = sorted(example.votes.items(), key=lambda vote: -vote[1])
    total = sum(example.votes.values())
    if not total:
        return NOTHING
    bars = join(
        Markup(
            f'<li><span class="who">{text(shorten(name, 16))}</span>'
            f'<span class="bar"><span style="width:{100 * count / total:.0f}%"></span></span>'
            f'<span class="count">{count}</span></li>'
        )
        for name, count in ranked[:VOTES]
    )
    more = tag("p", text(f"and {len(ranked) - VOTES} more classes"), "note") if len(ranked) > VOTES else NOTHING
    return Markup(f'<ul class="votes" aria-label="votes of {total} members">{bars}</ul>{more}')


def _spread(example: Example) -> Markup:
    """The members' predictions as ticks on a line between the smallest and the largest."""
    values = np.asarray(example.member_predictions, dtype=float)
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return NOTHING
    low, high = float(values.min()), float(values.max())
    places = 4 + 192 * (values - low) / (high - low if high > low else 1.0)
    ticks = "".join(f'<line x1="{place:.1f}" x2="{place:.1f}" y1="3" y2="17"/>' for place in places)
    label = text(f"{len(values)} members predict {number(low)} to {number(high)}")
    return Markup(
        f'<svg class="spread" viewBox="0 0 200 20" role="img" aria-label="{label}">'
        f'<line class="base" x1="4" x2="196" y1="10" y2="10"/>{ticks}</svg><p class="note">{label}</p>'
    )


def _row(example: Example) -> Markup:
    items = [
        Markup(f"<dt>{text(shorten(str(name), 40))}</dt><dd>{text(_value(value))}</dd>")
        for name, value in example.row.items()
    ]
    if not items:
        return NOTHING
    more = items[COLUMNS:]
    shown = tag("dl", join(items[:COLUMNS]), "row")
    return join([shown, details(f"{len(more)} more columns", tag("dl", join(more), "row")) if more else NOTHING])


def _value(value: object) -> str:
    if isinstance(value, float | np.floating):
        return number(float(value))
    return shorten(str(value), 60)
