"""The section on what members said to each other while they were trained."""

import math

import numpy as np

from murmuration.reports.canvas import Figure, axis, colour, dash, layout, numbers, plot_text
from murmuration.reports.cells import score_cell
from murmuration.reports.coupling_records import MEASURES, Meetings
from murmuration.reports.figures import scale_of
from murmuration.reports.markup import NOTHING, Markup, figure, grid, join, section, table, text
from murmuration.reports.records import Report
from murmuration.reports.wording import duration, meaning, percent

READING = (
    "These members met during training and pushed each other apart; drawn is what was measured in the first step of "
    "every epoch. The mean kernel says how alike two members look to each other, from 0 (strangers) to 1 (one and the "
    "same); its reach follows their own distances, so it tells how evenly they are spread, not how far. The cosine is "
    "that between what two members show: 1 for the same direction, 0 for unrelated ones. Push to loss is the length of "
    "the repulsion's gradient over that of the loss: far below 1 the data decides, above 1 the members flee each other."
)


def meetings(report: Report) -> Markup:
    """Curves over the epochs, the time that coupling took, and how alpha was chosen."""
    plots = grid(figure(curves(report, name, f"meetings-{name.replace('_', '-')}")) for name in MEASURES)
    sweeps = join(_sweep(name, found) for name, found in met(report).items())
    return section("meetings", "What members say to each other", READING, join([plots, _times(report), sweeps]))


def met(report: Report) -> dict[str, Meetings]:
    """What is known of meetings, by entry."""
    return {entry.name: entry.meetings for entry in report.entries if entry.meetings is not None}


def curves(report: Report, measure: str, name: str) -> Figure | None:
    """One measure over the epochs, a line for every entry whose members met."""
    data, seen = [], []
    for place, entry in enumerate(report.entries):
        values = () if entry.meetings is None else entry.meetings.measures.get(measure, ())
        if entry.meetings is None or not np.isfinite(np.asarray(values, dtype=float)).any():
            continue
        seen += list(values)
        data.append(
            {
                "type": "scatter",
                "mode": "lines" if len(values) > 1 else "markers",
                "x": numbers(entry.meetings.epochs),
                "y": numbers(values),
                "name": plot_text(entry.name),
                "line": {"color": colour(place), "width": 2, "dash": dash(place)},
                "hovertemplate": "%{y:.3g}",
            }
        )
    if not data:
        return None
    told = meaning(measure).label
    scale = scale_of(seen) if measure == "push_to_loss" else {}
    panel = layout(axis("epoch"), axis(told.lower()) | scale) | {"showlegend": True, "hovermode": "x"}
    return Figure(name, told, f"{told} over the epochs, by recipe", data, panel, 300)


def _times(report: Report) -> Markup:
    rows = [
        (text(name), [text(cell) for cell in (duration(e.seconds), duration(e.coupling_seconds), percent(e.share))])
        for name, e in met(report).items()
        if math.isfinite(e.share)
    ]
    if not rows:
        return NOTHING
    columns = [text(word) for word in ("Recipe", "All steps", "Of these, kernels and forces", "Share")]
    return table(
        "Time that members waited for each other; what a second backward pass takes is not in it", columns, rows
    )


def _sweep(name: str, found: Meetings) -> Markup:
    rows = [
        (text(alpha), [score_cell((score, math.nan, math.nan), float(alpha) == found.alpha)])
        for alpha, score in found.sweep.items()
    ]
    if not rows:
        return NOTHING
    caption = f"Lengthscales of {name}: alpha, and the NLL on clean and corrupted validation examples; ★ was taken"
    return table(caption, [text("Alpha"), text("Validation NLL")], rows)
