"""Figures that show a matrix, a scatter or a whole input space, as `Figure` records."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmuration.reports.canvas import Figure, axis, colour, layout, numbers, plot_text, symbol, thin
from murmuration.reports.dot_plots import whiskers
from murmuration.reports.figures import GUIDE, MOST_POINTS
from murmuration.reports.records import Entry, Field1D, Field2D, Parity
from murmuration.reports.wording import finite_mean, meaning, number

HEAT = [[0, "var(--heat-low)"], [0.5, "var(--heat-middle)"], [1, "var(--heat-high)"]]
MOST_CELLS_WITH_TEXT = 12


def heat(values: Any) -> dict[str, Any]:
    """A heat map trace in the page's colours."""
    bar = {"thickness": 12, "outlinewidth": 0, "len": 0.9}
    rows = [numbers(row) for row in np.asarray(values, dtype=float)]
    return {"type": "heatmap", "z": rows, "colorscale": HEAT, "colorbar": bar}


def agreement(entry: Entry, name: str) -> Figure | None:
    """Agreement (S, S) between members; the diagonal is blank, so that the rest has contrast."""
    if entry.agreement is None or len(entry.agreement) < 2:
        return None
    matrix = np.array(entry.agreement, dtype=float)
    pairs = matrix[~np.eye(len(matrix), dtype=bool)]
    np.fill_diagonal(matrix, np.nan)
    few = len(matrix) <= MOST_CELLS_WITH_TEXT
    text = {"texttemplate": "%{z:.2f}", "textfont": {"size": 10}, "showscale": False} if few else {}
    hover = "members %{x} and %{y}: %{z:.3f}<extra></extra>"
    ticks: dict[str, Any] = {"showgrid": False, "dtick": 1 if few else None, "constrain": "domain"}
    across, down = (
        axis("member") | ticks,
        axis("member") | ticks | {"autorange": "reversed", "scaleanchor": "x"},
    )
    label = f"Agreement between members of {entry.name}: {number(finite_mean(pairs))} on average"
    cells = heat(matrix) | {"hovertemplate": hover, "xgap": 1, "ygap": 1} | text
    return Figure(name, entry.name, label, [cells], layout(across, down), 380)


def parity(entry: Entry, record: Parity, place: int, name: str) -> Figure:
    """Predictions against the truth, with one predicted standard deviation up and down."""
    kept = thin(len(record.truth), MOST_POINTS)
    truth, mean = (np.asarray(column, dtype=float)[kept] for column in (record.truth, record.mean))
    points: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(truth),
        "y": numbers(mean),
        "marker": {"color": colour(place), "symbol": symbol(place), "size": 6, "opacity": 0.7},
        "hovertemplate": "truth %{x:.4g}<br>prediction %{y:.4g}<extra></extra>",
    }
    if len(record.std):
        std = np.asarray(record.std, dtype=float)[kept]
        points["error_y"] = {**whiskers(mean, mean - std, mean + std), "color": "var(--member)", "width": 0}
    known = [value for value in (*truth, *mean) if np.isfinite(value)]
    ends = numbers([min(known, default=0.0), max(known, default=1.0)])
    data = [{"x": ends, "y": ends, **GUIDE}, points]
    panel = layout(axis("truth"), axis("prediction"))
    return Figure(name, entry.name, f"Predictions of {entry.name} against the truth", data, panel, 340)


def common_reach(records: Sequence[Field1D | Field2D]) -> tuple[float, float] | None:
    """The range of values that holds every field: what two recipes differ in is seen only on one scale.

    Lines end where they are further from the training targets than one and a half times those are apart: a wild
    recipe must not flatten the others.
    """
    values = np.concatenate([_drawn(record) for record in records]) if records else np.empty(0)
    finite = values[np.isfinite(values)]
    low, high = finite.min(initial=np.inf), finite.max(initial=-np.inf)
    return (float(low), float(high)) if low < high else None


def _drawn(record: Field1D | Field2D) -> NDArray[Any]:
    """The values that a field's scale must hold."""
    if isinstance(record, Field2D):
        return np.append(np.asarray(record.values, dtype=float), 0.0)
    mean, aleatoric, epistemic = (
        np.asarray(column, dtype=float) for column in (record.mean, record.aleatoric_std, record.epistemic_std)
    )
    ends = np.concatenate([mean + 2 * np.hypot(aleatoric, epistemic), mean - 2 * np.hypot(aleatoric, epistemic)])
    seen = np.asarray(record.train_y, dtype=float)
    if not len(seen):
        return ends
    beyond = 1.5 * (seen.max() - seen.min())
    return np.append(np.clip(ends, seen.min() - beyond, seen.max() + beyond), seen)


def field_1d(entry: Entry, record: Field1D, name: str, reach: tuple[float, float] | None = None) -> Figure:
    """Mean, disagreement (inner band) and all uncertainty (outer band), two standard deviations each."""
    mean, aleatoric, epistemic = (
        np.asarray(column, dtype=float) for column in (record.mean, record.aleatoric_std, record.epistemic_std)
    )
    x = np.asarray(record.x, dtype=float)
    total = np.hypot(aleatoric, epistemic)
    data = [
        _band(x, mean, 2 * total, ("all uncertainty", "var(--band-outer)")),
        _band(x, mean, 2 * epistemic, ("disagreement", "var(--band-inner)")),
        {
            "type": "scatter",
            "mode": "lines",
            "x": numbers(x),
            "y": numbers(mean),
            "name": "mean",
            "line": {"color": "var(--series-1)", "width": 2},
        },
    ]
    if len(record.train_x):
        data.append(_points(np.column_stack([record.train_x, record.train_y]), "training", "var(--series-2)", 0))
    label = f"{entry.name}: mean, and bands of two standard deviations, over the input"
    up = axis("y") | ({"range": numbers(reach)} if reach is not None else {})
    return Figure(name, entry.name, label, data, layout(axis("x"), up) | {"showlegend": True}, 380)


def _band(x: Any, centre: Any, reach: Any, style: tuple[str, str]) -> dict[str, Any]:
    """A closed outline: forward along the top, back along the bottom."""
    name, fill = style
    return {
        "type": "scatter",
        "mode": "lines",
        "x": numbers([*x, *x[::-1]]),
        "y": numbers([*(centre + reach), *(centre - reach)[::-1]]),
        "fill": "toself",
        "fillcolor": fill,
        "line": {"width": 0},
        "name": name,
        "hoverinfo": "skip",
    }


def _points(points: Any, name: str, ink: str, place: int) -> dict[str, Any]:
    kept = np.asarray(points, dtype=float)[thin(len(points), MOST_POINTS)]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(kept[:, 0]),
        "y": numbers(kept[:, 1]),
        "name": plot_text(name),
        "marker": {
            "color": ink,
            "symbol": symbol(place),
            "size": 6,
            "line": {"color": "var(--paper)", "width": 0.7},
        },
        "hovertemplate": "%{x:.3g}, %{y:.3g}",
    }


def field_2d(
    entry: Entry, record: Field2D, classes: tuple[str, ...], name: str, reach: tuple[float, float] | None = None
) -> Figure:
    """An uncertainty over the plane, with the training points in the colours of their classes."""
    told = meaning(record.name).label
    grid = {"x": numbers(record.x), "y": numbers(record.y), "zsmooth": "best", "hovertemplate": "%{z:.3g}"}
    scale = dict(zip(("zmin", "zmax"), numbers(reach), strict=True)) if reach is not None else {}
    data = [heat(record.values) | grid | scale | {"name": told.lower()}]
    if record.points is not None and len(record.points):
        labels = np.asarray(record.labels) if len(record.labels) else np.zeros(len(record.points), dtype=int)
        for place, label in enumerate(np.unique(labels)):
            known = len(record.labels) > 0 and 0 <= int(label) < len(classes)
            title = classes[int(label)] if known else "training"
            data.append(_points(np.asarray(record.points)[labels == label], title, colour(place + 1), place))
    panel = layout(axis("x₁") | {"showgrid": False}, axis("x₂") | {"showgrid": False}) | {"showlegend": True}
    return Figure(name, entry.name, f"{told} of {entry.name} over the plane of inputs", data, panel, 400)
