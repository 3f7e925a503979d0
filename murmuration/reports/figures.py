"""Figures as plain plotly dictionaries: the record, layout, axes, colours by name, and the kinds of several sections.

Colours are written as CSS variables ("var(--series-1)"); the page's script replaces them by the theme's.
"""

import html
import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from murmuration.evaluation.metrics import Score
from murmuration.evaluation.metrics.scores import Description
from murmuration.reports.formatting import number, shorten

SERIES = 7  # colours --series-1 to --series-7 in style.css
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star", "cross")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
HEAT = [[0, "var(--heat-low)"], [0.5, "var(--heat-middle)"], [1, "var(--heat-high)"]]
GROUPS = ("var(--series-7)", "var(--series-4)")  # not the first colours, which stand for recipes
GUIDE = {  # the look of a nominal value
    "type": "scatter",
    "mode": "lines",
    "line": {"color": "var(--ink-soft)", "width": 1, "dash": "dot"},
    "hoverinfo": "skip",
}
DIAGONAL = {"x": [0, 1], "y": [0, 1], **GUIDE, "showlegend": False}
BREAK, LEGEND_LINE = "<br>", 36  # between lines of a name in a legend, and characters of a line
SPOKEN = 12  # values in the words that stand for a figure


@dataclass(frozen=True)
class Figure:
    """One plotly figure as plain data, with the words that stand for it where it cannot be seen."""

    name: str  # id of its container
    title: str
    label: str  # the text alternative of the figure
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int = 320

    @property
    def legend(self) -> int:
        """The number of lines in the legend, one or more for each name."""
        if not self.layout.get("showlegend", False):
            return 0
        return sum(1 + trace.get("name", "").count(BREAK) for trace in self.data if trace.get("showlegend", True))


def colour(place: int) -> str:
    """Return the colour at this place; the palette repeats, symbols and dashes tell repeats apart."""
    return f"var(--series-{place % SERIES + 1})"


def symbol(place: int) -> str:
    return SYMBOLS[place % len(SYMBOLS)]


def dash(place: int) -> str:
    return DASHES[place % len(DASHES)]


def plot_text(text: object) -> str:
    """Return the text as plotly shows it unchanged: plotly reads some HTML in every label, so its signs are escaped.

    >>> plot_text("<b>&")
    '&lt;b&gt;&amp;'
    """
    return html.escape(str(text), quote=False)


def legend_text(name: str) -> str:
    """Return a name as plotly shows it, in lines that fit a phone: plotly cuts off what is wider than the figure.

    >>> legend_text("deep-ensemble with balanced softmax and augmentation")
    'deep-ensemble with balanced softmax<br>and augmentation'
    """
    return BREAK.join(plot_text(line) for line in textwrap.wrap(name, LEGEND_LINE)) or plot_text(name)


def axis(title: str = "") -> dict[str, Any]:
    """Return a quiet axis: thin grid, no zero line, upright labels."""
    return {
        "title": {"text": plot_text(title), "standoff": 8},
        **dict.fromkeys(("gridcolor", "linecolor", "tickcolor"), "var(--grid)"),
        "zeroline": False,
        "tickangle": 0,
        "automargin": True,  # a title is not drawn over long tick labels
        "exponentformat": "none",
    }


def layout(xaxis: dict[str, Any], yaxis: dict[str, Any]) -> dict[str, Any]:
    """Return a transparent layout in the page's own type, with its legend above the plot."""
    return {
        "xaxis": xaxis,
        "yaxis": yaxis,
        "margin": {"l": 68, "r": 14, "t": 12, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", "size": 13, "color": "var(--ink)"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom", "font": {"size": 12}},
        "hoverlabel": {"bgcolor": "var(--paper)", "bordercolor": "var(--line)"}
        | {"font": {"color": "var(--ink)"}, "align": "left"},
        "showlegend": False,
        "uirevision": "kept",
    }


def scatter(mode: str, x: Iterable[Any], y: Iterable[Any], name: str | None = None) -> dict[str, Any]:
    """Return a trace of lines, markers or both; plotly reads the name as text."""
    named = {} if name is None else {"name": legend_text(name)}
    return {"type": "scatter", "mode": mode, "x": numbers(x), "y": numbers(y), **named}


def thin(length: int, limit: int) -> list[int]:
    """At most `limit` places at equal distances in range(length), both ends kept.

    >>> thin(5, 10), thin(101, 3)
    ([0, 1, 2, 3, 4], [0, 50, 100])
    """
    return [round(place) for place in np.linspace(0, length - 1, min(length, limit))]


def numbers(values: Iterable[Any]) -> list[float | None]:
    """Return values as floats of six digits, None where they are not finite.

    >>> numbers([1, float("nan"), 0.123456789])
    [1.0, None, 0.123457]
    """
    return [_number(value) for value in values]


def _number(value: Any) -> float | None:
    real = math.nan if value is None else float(value)
    return float(f"{real:.6g}") if math.isfinite(real) else None


def plain(value: Any) -> Any:
    """Return the value as JSON has it: dictionaries, lists, text, and numbers of six digits or None."""
    encoded = json.dumps(value, default=lambda array: array.tolist())
    return json.loads(encoded, parse_float=_number, parse_constant=lambda constant: None)


def to_json(value: Any) -> str:
    r"""JSON that may stand inside a script element: no NaN, and no character that could end the element.

    >>> to_json({"a": [float("nan"), "</script>"]})
    '{"a":[null,"\\u003c/script\\u003e"]}'
    """
    text = json.dumps(plain(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


class Series(NamedTuple):
    """Scores by row, in the colour of a place."""

    name: str
    place: int
    scores: Mapping[str, Score]


def whiskers(value: Any, low: Any, high: Any) -> dict[str, Any]:
    """Error bars from the two ends of intervals, none where an end is missing."""
    value, low, high = (np.asarray(column, dtype=float) for column in (value, low, high))
    finite = np.isfinite(value) & np.isfinite(low) & np.isfinite(high)
    value, low, high = (np.where(finite, column, 0.0) for column in (value, low, high))
    up, down = np.maximum(high - value, 0), np.maximum(value - low, 0)
    return {"type": "data", "symmetric": False, "array": numbers(up), "arrayminus": numbers(down), "thickness": 1.5}


def titled(told: Description) -> str:
    """Return the title of a figure of a score: its label, and which way is better."""
    return told.label + (f", {told.better} is better" if told.better != "neutral" else "")


def dot_rows(name: str, title: str, rows: Sequence[str], series: Sequence[Series]) -> Figure:
    """Draw scores as dots with whiskers, one row per name, the series of a row below one another."""
    lanes = {row: [turn for turn, one in enumerate(series) if row in one.scores] for row in rows}
    most = max((len(lane) for lane in lanes.values()), default=1) or 1
    data = []
    for turn, one in enumerate(series):
        present = {row: place for place, row in enumerate(rows) if row in one.scores}
        value, low, high = ([getattr(one.scores[row], end) for row in present] for end in ("real", "low", "high"))
        below = [lanes[row].index(turn) - (len(lanes[row]) - 1) / 2 for row in present]
        ink = colour(one.place)
        heights = (place + 0.7 / most * shift for place, shift in zip(present.values(), below, strict=True))
        look = {
            "error_x": whiskers(value, low, high) | {"color": ink, "width": 3},
            "marker": {"color": ink, "symbol": symbol(one.place), "size": 8},
            "hovertemplate": "%{x:.4g}",
        }
        data.append(scatter("markers", value, heights, one.name) | look)
    labels = {place: plot_text(shorten(row, 22)) for place, row in enumerate(rows) if lanes[row]}
    ticks = {"tickvals": list(labels), "ticktext": list(labels.values())}
    down = axis() | {"range": [len(rows) - 0.4, -0.6], "showgrid": False, "automargin": True, **ticks}
    height = 84 + max(20, 13 * most) * len(rows)
    values = [
        f"{row if one.name == row or len(series) == 1 else f'{one.name}, {row}:'} {number(one.scores[row])}"
        for row in rows
        for one in series
        if row in one.scores
    ]
    more = [f"{len(values) - SPOKEN} more are in the table"] if len(values) > SPOKEN else []
    label = f"{title}: {'; '.join(values[:SPOKEN] + more)}"
    panel = layout(axis() | {"nticks": 5}, down) | {"showlegend": len(series) > 1}
    return Figure(name, title, label, data, panel, height)


def with_guide(drawn: Figure, value: float, words: str, place: int | None = None) -> Figure:
    """Add an upright line at a value to a figure of rows, in the look of a place; do nothing if it is not finite."""
    if not np.isfinite(value):
        return drawn
    line = GUIDE | {"x": numbers([value, value]), "y": drawn.layout["yaxis"]["range"], "name": legend_text(words)}
    if place is not None:
        line["line"] = {"color": colour(place), "width": 1.5, "dash": dash(place + 1)}
    label, with_legend = f"{drawn.label}; {words}: {number(value)}", drawn.layout | {"showlegend": True}
    return replace(drawn, data=[line, *drawn.data], layout=with_legend, label=label)


def heat(values: Any) -> dict[str, Any]:
    """Return a heat map trace in the page's colours."""
    bar = {"thickness": 12, "outlinewidth": 0, "len": 0.9}
    rows = [numbers(row) for row in np.asarray(values, dtype=float)]
    return {"type": "heatmap", "z": rows, "colorscale": HEAT, "colorbar": bar}


def member_matrix(name: str, title: str, label: str, matrix: Any, lowest: float) -> Figure:
    """Agreement (M, M) of members on a scale from `lowest` to 1; the diagonal is left blank."""
    cells = np.array(matrix, dtype=float)
    np.fill_diagonal(cells, np.nan)
    with_numbers = len(cells) <= 12
    text = {"texttemplate": "%{z:.2f}", "textfont": {"size": 10}, "showscale": False} if with_numbers else {}
    ticks: dict[str, Any] = {"showgrid": False, "dtick": 1 if with_numbers else None, "constrain": "domain"}
    down = axis("member") | ticks | {"autorange": "reversed", "scaleanchor": "x"}
    hover = "members %{x} and %{y}: %{z:.3f}<extra></extra>"
    trace = heat(cells) | {"zmin": lowest, "zmax": 1.0, "hovertemplate": hover, "xgap": 1, "ygap": 1} | text
    return Figure(name, title, label, [trace], layout(axis("member") | ticks, down), 340)


def histogram(name: str, told: Description, title: str, edges: Any, groups: Mapping[str, Any]) -> Figure:
    """Fractions of each group's examples over the bins (B,) of an uncertainty, from edges (B + 1,) and counts (B,)."""
    edges = np.asarray(edges, dtype=float)
    data = []
    for place, (group, raw) in enumerate(groups.items()):
        counts, ink = np.nan_to_num(np.asarray(raw, dtype=float)), GROUPS[place % 2]
        pattern = {"shape": "/" if place % 2 else "", "solidity": 0.5, "fillmode": "replace"}
        bars = {
            "type": "bar",
            "x": numbers((edges[1:] + edges[:-1]) / 2),
            "y": numbers(counts / max(counts.sum(), 1)),
            "width": numbers(np.diff(edges)),
            "customdata": numbers(counts),
            "name": plot_text(f"{group} ({counts.sum():,.0f})"),
            "marker": {"color": ink, "line": {"color": ink, "width": 1}, "pattern": pattern},
            "opacity": 0.6,
            "hovertemplate": "%{customdata} of them, %{y:.1%}",
        }
        data.append(bars)
    panel = layout(axis(told.label), axis("fraction of group") | {"tickformat": ".0%"})
    panel |= {"barmode": "overlay", "showlegend": True}
    return Figure(name, title, f"{told.label} of {' and '.join(groups)}", data, panel, 260)


def scale_of(values: Iterable[float]) -> dict[str, Any]:
    """Return the settings of an axis: logarithmic when positive values span more than a factor of ten."""
    finite = [value for value in values if np.isfinite(value)]
    if not finite or min(finite) <= 0 or max(finite) <= 10 * min(finite):
        return {}
    low, high = math.floor(math.log10(min(finite))), math.ceil(math.log10(max(finite)))
    steps = (1, 2, 5) if high - low <= 3 else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
