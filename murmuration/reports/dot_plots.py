"""Scores as dots with whiskers, in rows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from murmuration.reports.canvas import Figure, axis, colour, layout, numbers, plot_text, symbol
from murmuration.reports.records import Report, Score
from murmuration.reports.wording import Meaning, meaning, number, shorten

SPOKEN = 12  # values in the words that stand for a figure


class Series(NamedTuple):
    """Scores by row, in the colour of a place."""

    name: str
    place: int
    scores: Mapping[str, Score]


def whiskers(value: Any, low: Any, high: Any) -> dict[str, Any]:
    """Error bars from the two ends of intervals, none where an end is missing."""
    value, low, high = (np.asarray(column, dtype=float) for column in (value, low, high))
    known = np.isfinite(value) & np.isfinite(low) & np.isfinite(high)
    value, low, high = (np.where(known, column, 0.0) for column in (value, low, high))
    up, down = np.maximum(high - value, 0), np.maximum(value - low, 0)
    return {
        "type": "data",
        "symmetric": False,
        "array": numbers(up),
        "arrayminus": numbers(down),
        "thickness": 1.5,
    }


def dots(report: Report, score: str, name: str) -> Figure:
    """One score of all entries as dots with whiskers, the first entry on top."""
    told = meaning(score, report.directions)
    series = [
        Series(entry.name, place, {entry.name: entry.scores[score]})
        for place, entry in enumerate(report.entries)
        if score in entry.scores
    ]
    return dot_rows(name, titled(told), [entry.name for entry in report.entries], series)


def titled(told: Meaning) -> str:
    """The title of a figure of a score: its label, and which way is better."""
    return told.label + (f", {told.better} is better" if told.better else "")


def dot_rows(name: str, title: str, rows: Sequence[str], series: Sequence[Series]) -> Figure:
    """Scores as dots with whiskers: a row for every name, the first on top, series of one row below one another."""
    lanes = {row: [turn for turn, one in enumerate(series) if row in one.scores] for row in rows}
    most = max((len(lane) for lane in lanes.values()), default=1) or 1
    data = []
    for turn, one in enumerate(series):
        kept = [(place, row) for place, row in enumerate(rows) if row in one.scores]
        value, low, high = zip(*(one.scores[row] for _, row in kept), strict=True) if kept else ((), (), ())
        below = [lanes[row].index(turn) - (len(lanes[row]) - 1) / 2 for _, row in kept]
        ink = colour(one.place)
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": numbers(value),
                "y": numbers(place + 0.7 / most * shift for (place, _), shift in zip(kept, below, strict=True)),
                "name": plot_text(one.name),
                "error_x": whiskers(value, low, high) | {"color": ink, "width": 5},
                "marker": {"color": ink, "symbol": symbol(one.place), "size": 10},
                "hovertemplate": "%{x:.4g}",
            }
        )
    shown = [(place, plot_text(shorten(row, 22))) for place, row in enumerate(rows) if lanes[row]]
    ticks = {"tickvals": [place for place, _ in shown], "ticktext": [row for _, row in shown]}
    down = axis() | {"range": [len(rows) - 0.4, -0.6], "showgrid": False, "automargin": True, **ticks}
    height = 80 + max(34, 22 * most) * len(rows)
    return Figure(name, title, f"{title}: {_spoken(rows, series)}", data, layout(axis() | {"nticks": 5}, down), height)


def _spoken(rows: Sequence[str], series: Sequence[Series]) -> str:
    """The first values in words."""
    values = [
        f"{row if one.name == row or len(series) == 1 else f'{one.name}, {row}:'} {number(one.scores[row][0])}"
        for row in rows
        for one in series
        if row in one.scores
    ]
    more = [f"{len(values) - SPOKEN} more are in the table"] if len(values) > SPOKEN else []
    return "; ".join(values[:SPOKEN] + more)
