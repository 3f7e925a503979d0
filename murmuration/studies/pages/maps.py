"""Maps of scores over a plane with equal units on both axes, and the section of verdicts."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmuration.reports.figures import HEAT, axis, layout, numbers, plot_text, scatter
from murmuration.reports.html import Markup, section, tag
from murmuration.studies.papers.page import STANDARD, verdict_board
from murmuration.studies.verdicts import Verdict

MAP_HEIGHT = 470
NONE = "These networks are too few to decide a claim."
LABELS = {
    "accuracy": "test accuracy",
    "loss": "test loss",
    "train_accuracy": "training accuracy",
    "train_loss": "training loss",
}


def verdict_section(verdicts: Sequence[Verdict], title: str, reading: str) -> Markup:
    """Return the claims with their verdicts, estimates and intervals."""
    return section("verdict", title, f"{reading} {STANDARD}", verdict_board(verdicts) if verdicts else tag("p", NONE))


def contour(
    x: Any, y: Any, z: Any, *, high: float, label: str, percent: bool = False, reverse: bool = False
) -> dict[str, Any]:
    """Return a filled contour trace of values (H, W) at y (H,) and x (W,), coloured from 0 to `high`; a gap for NaN."""
    place = {"orientation": "h", "y": -0.24, "yanchor": "top", "len": 0.9}  # below the map: a phone has no room beside
    bar = {"thickness": 10, "outlinewidth": 0, "tickformat": ".0%" if percent else ".3~g", **place}
    value = "%{z:.1%}" if percent else "%{z:.3g}"
    return {
        "type": "contour",
        "x": numbers(x),
        "y": numbers(y),
        "z": [numbers(row) for row in np.asarray(z, dtype=float)],
        "zmin": 0,
        "zmax": high,
        "colorscale": HEAT,
        "reversescale": reverse,
        "colorbar": bar,
        "contours": {"start": 0, "end": high, "size": high / 10, "coloring": "heatmap"},
        "line": {"width": 0.6, "color": "var(--paper)"},
        "hovertemplate": f"(%{{x:.3g}}, %{{y:.3g}}): {plot_text(label)} {value}<extra></extra>",
        "showlegend": False,
    }


def equal_axes(x: str, y: str) -> dict[str, Any]:
    """Return a layout with the same unit of length on both axes."""
    across = axis(x) | {"showgrid": False, "constrain": "domain"}
    up = axis(y) | {"showgrid": False, "constrain": "domain", "scaleanchor": "x", "scaleratio": 1}
    return layout(across, up) | {"showlegend": True}


def marked(
    mode: str, x: Iterable[float], y: Iterable[float], name: str, ink: str, shape: str = "circle", size: int = 7
) -> dict[str, Any]:
    """Return networks as points of a map, with a thin edge in the colour of the page."""
    look = {"color": ink, "size": size, "symbol": shape, "line": {"color": "var(--paper)", "width": 1}}
    return scatter(mode, x, y, name) | {"marker": look, "line": {"color": ink, "width": 2}}


def label_at(x: float, y: float, words: str) -> dict[str, Any]:
    """Return a label above a point of a map, on the colour of the page."""
    look = {"showarrow": False, "yshift": 15, "bgcolor": "var(--paper)", "opacity": 0.85, "borderpad": 1}
    return look | {"x": x, "y": y, "text": plot_text(words), "font": {"size": 11, "color": "var(--ink)"}}


def upper_colour(values: NDArray[Any]) -> float:
    """Return the loss at which colours end: the upper quartile, rounded up, so that distant points do not decide it."""
    top = float(np.quantile(values[np.isfinite(values)], 0.75))
    if top <= 0:
        return 1.0
    unit = 10 ** math.floor(math.log10(top)) / 2
    return math.ceil(top / unit) * unit
