"""Figures as plain dictionaries: each function takes records and returns one `Figure`."""

import itertools
import math
from typing import Any

import numpy as np

from murmuration.reports.canvas import Figure, axis, colour, dash, layout, numbers, plot_text, symbol, thin
from murmuration.reports.dot_plots import whiskers
from murmuration.reports.records import Entry, Histogram, Reliability, Report
from murmuration.reports.wording import meaning, number

LONGEST_LINE = 300  # points of a curve; more cannot be seen
MOST_POINTS = 500  # of a scatter
GROUPS = ("var(--series-7)", "var(--series-4)")  # not the first colours, which stand for recipes
SIDES = {  # what the two axes of a reliability diagram show
    "confidence": ("confidence", "accuracy"),
    "interval": ("nominal coverage", "observed coverage"),
    "quantile": ("predicted quantile", "share of truths below"),
}
GUIDE = {  # the look of a line that stands for a promise
    "type": "scatter",
    "mode": "lines",
    "line": {"color": "var(--ink-soft)", "width": 1, "dash": "dot"},
    "hoverinfo": "skip",
}
DIAGONAL = {"x": [0, 1], "y": [0, 1], **GUIDE, "showlegend": False}


def usable(record: Reliability) -> list[int]:
    """Places of the bins that hold examples."""
    finite = np.isfinite(np.asarray(record.promised, dtype=float)) & np.isfinite(
        np.asarray(record.observed, dtype=float)
    )
    return [int(place) for place in np.flatnonzero(finite)]


def reliability(entry: Entry, place: int, name: str) -> Figure | None:
    """Promise against outcome with whiskers, over bars that count the examples of each bin."""
    record = entry.reliability
    kept = usable(record) if record is not None else []
    if record is None or not kept:
        return None
    promised, observed = (np.asarray(column, dtype=float)[kept] for column in (record.promised, record.observed))
    data: list[dict[str, Any]] = [DIAGONAL, reliability_curve(record, colour(place), symbol(place))]
    panel = reliability_panel(record)
    if len(record.count):
        data.append(_count_bars(promised, np.asarray(record.count, dtype=float)[kept], place))
        panel["yaxis"]["domain"] = [0.3, 1]
        panel["yaxis2"] = axis("count") | {"domain": [0, 0.2], "nticks": 3}
        panel["xaxis"]["anchor"] = "y2"
    gap = float(np.mean(np.abs(observed - promised)))
    label = f"Reliability of {entry.name}: {number(gap)} from the diagonal on average over {len(kept)} bins"
    return Figure(name, entry.name, label, data, panel, height=360)


def reliability_panel(record: Reliability) -> dict[str, Any]:
    """The layout of a reliability diagram."""
    across, up = SIDES[record.kind]
    return layout(axis(across) | {"range": [0, 1.02]}, axis(up) | {"range": [0, 1.05]})


def reliability_curve(record: Reliability, ink: str, mark: str) -> dict[str, Any]:
    """Promise against outcome with whiskers, without the bins that are empty."""
    kept = usable(record)
    promised, observed = (np.asarray(column, dtype=float)[kept] for column in (record.promised, record.observed))
    across, up = SIDES[record.kind]
    points: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": numbers(promised),
        "y": numbers(observed),
        "line": {"color": ink, "width": 1.5},
        "marker": {"color": ink, "symbol": mark, "size": 8},
        "hovertemplate": f"{across} %{{x:.3f}}<br>{up} %{{y:.3f}}<extra></extra>",
    }
    if len(record.low) and len(record.high):
        ends = (np.asarray(column, dtype=float)[kept] for column in (record.low, record.high))
        points["error_y"] = whiskers(observed, *ends) | {"color": ink, "width": 3}
    return points


def _count_bars(promised: Any, count: Any, place: int) -> dict[str, Any]:
    return {
        "type": "bar",
        "x": numbers(promised),
        "y": numbers(count),
        "width": 0.6 / len(promised),
        "yaxis": "y2",
        "marker": {"color": colour(place), "opacity": 0.5},
        "hovertemplate": "%{y} examples<extra></extra>",
    }


def risk_coverage(report: Report, name: str) -> Figure | None:
    """Error against the share of examples answered, one line an entry."""
    data = []
    for place, entry in enumerate(report.entries):
        curve = entry.risk_coverage
        if curve is None or not len(curve.coverage):
            continue
        kept = thin(len(curve.coverage), LONGEST_LINE)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": numbers(np.asarray(curve.coverage)[kept]),
                "y": numbers(np.asarray(curve.risk)[kept]),
                "name": plot_text(entry.name),
                "line": {"color": colour(place), "width": 2, "dash": dash(place)},
                "hovertemplate": "answering %{x:.0%}: error %{y:.4g}",
            }
        )
    if not data:
        return None
    error = "error rate" if report.task == "classification" else "mean error"
    share = axis("share answered") | {"range": [0, 1.01], "tickformat": ".0%"}
    panel = layout(share, axis(error) | {"rangemode": "tozero"})
    panel |= {"showlegend": True, "hovermode": "x"}
    return Figure(name, "", "Error among the most certain examples, by the share answered", data, panel, 360)


def histogram(entry: Entry, record: Histogram, name: str) -> Figure:
    """Shares of each group's examples over the bins of an uncertainty."""
    edges = np.asarray(record.edges, dtype=float)
    data = []
    for place, (group, raw) in enumerate(record.groups.items()):
        counts = np.nan_to_num(np.asarray(raw, dtype=float))
        data.append(
            {
                "type": "bar",
                "x": numbers((edges[1:] + edges[:-1]) / 2),
                "y": numbers(counts / max(counts.sum(), 1)),
                "width": numbers(np.diff(edges)),
                "customdata": numbers(counts),
                "name": plot_text(f"{group} ({counts.sum():,.0f})"),
                "marker": {
                    "color": GROUPS[place % 2],
                    "line": {"color": GROUPS[place % 2], "width": 1},
                    "pattern": {"shape": "/" if place % 2 else "", "solidity": 0.5, "fillmode": "replace"},
                },
                "opacity": 0.6,
                "hovertemplate": "%{customdata} of them, %{y:.1%}",
            }
        )
    told = meaning(record.name)
    panel = layout(axis(told.label), axis("share of group") | {"tickformat": ".0%"})
    panel |= {"barmode": "overlay", "showlegend": True}
    groups = " and ".join(record.groups)
    return Figure(name, f"{entry.name}: {told.label.lower()}", f"{told.label} of {groups}", data, panel, 300)


def training(entry: Entry, measure: str, place: int, name: str) -> Figure | None:
    """A measure over the epochs: thin lines for members, dashed for frozen ones, thick for the ensemble."""
    rows = [row for row in entry.history if len(np.atleast_1d(row.get(measure, ())))]
    if not rows:
        return None
    epochs = [row.get("epoch", turn) for turn, row in enumerate(rows)]
    count = max(len(np.atleast_1d(row[measure])) for row in rows)
    series = {member: [_at(row[measure], member) for row in rows] for member in range(count)}
    running = [member for member in series if member not in entry.frozen]
    stopped = [member for member in series if member in entry.frozen]
    data = [
        _member_lines(epochs, {m: series[m] for m in group}, title, style)
        for group, title, style in ((running, "members", "solid"), (stopped, "frozen members", "dot"))
        if group
    ]
    together = [row.get("ensemble", {}).get(measure, np.nan) for row in rows]
    if np.isfinite(np.asarray(together, dtype=float)).any():
        thick = {"color": colour(place), "width": 3}
        line = {
            "type": "scatter",
            "mode": "lines",
            "x": numbers(epochs),
            "y": numbers(together),
            "name": "ensemble",
        }
        data.append({**line, "line": thick, "hovertemplate": "%{y:.4g}"})
    told = meaning(measure.removeprefix("val_").removeprefix("train_")).label
    split = "training" if measure.startswith("train") else "validation"
    scale = scale_of([value for values in series.values() for value in values])
    panel = layout(axis("epoch"), axis(f"{told}, {split}") | scale) | {"showlegend": True}
    title = f"{entry.name}: {told if told.isupper() else told.lower()}, {split}"
    return Figure(name, title, f"{title}, of {count} members over {len(rows)} epochs", data, panel, 300)


def scale_of(values: list[float]) -> dict[str, Any]:
    """Settings of an axis: logarithmic when positive values span more than a factor of ten."""
    finite = [value for value in values if np.isfinite(value)]
    if not finite or min(finite) <= 0 or max(finite) <= 10 * min(finite):
        return {}
    low, high = math.floor(math.log10(min(finite))), math.ceil(math.log10(max(finite)))
    steps = (1, 2, 5) if high - low <= 3 else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _at(values: Any, member: int) -> float:
    row = np.atleast_1d(np.asarray(values, dtype=float))
    return float(row[member]) if member < len(row) else float("nan")


def _member_lines(epochs: list[Any], series: dict[int, list[float]], title: str, style: str) -> dict[str, Any]:
    """All members as one trace, with a gap after each: one legend line, and a file that stays small."""
    soft = "var(--member)" if style == "solid" else "var(--bad)"
    return {
        "type": "scatter",
        "mode": "lines",
        "x": numbers(itertools.chain.from_iterable([*epochs, None] for _ in series)),
        "y": numbers(itertools.chain.from_iterable([*values, None] for values in series.values())),
        "text": [f"member {member}" for member in series for _ in range(len(epochs) + 1)],
        "name": title,
        "line": {"color": soft, "width": 1.2, "dash": style},
        "hovertemplate": "%{text}: %{y:.4g}<extra></extra>",
    }
