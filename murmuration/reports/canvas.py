"""What all figures share: the record, bare layout, axes, colours by name, and JSON that cannot break a page.

Colours are written as CSS variables ("var(--series-1)"); the page's script replaces them by the theme's.
"""

import html
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

SERIES = 7  # colours --series-1 to --series-7 in style.css
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star", "cross")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


@dataclass(frozen=True)
class Figure:
    """One plotly figure as plain data, with the words that stand for it where it cannot be seen."""

    name: str  # id of its container
    title: str
    label: str  # read aloud instead of the picture
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int = 320


def colour(place: int) -> str:
    """The colour at this place; the palette repeats, symbols and dashes tell repeats apart."""
    return f"var(--series-{place % SERIES + 1})"


def symbol(place: int) -> str:
    return SYMBOLS[place % len(SYMBOLS)]


def dash(place: int) -> str:
    return DASHES[place % len(DASHES)]


def plot_text(text: object) -> str:
    """The text as plotly shows it unchanged: plotly reads some HTML in every label, so its signs are escaped.

    >>> plot_text("<b>&")
    '&lt;b&gt;&amp;'
    """
    return html.escape(str(text), quote=False)


def axis(title: str = "") -> dict[str, Any]:
    """A quiet axis: thin grid, no zero line, upright labels."""
    return {
        "title": {"text": plot_text(title), "standoff": 8},
        "gridcolor": "var(--grid)",
        "linecolor": "var(--grid)",
        "tickcolor": "var(--grid)",
        "zeroline": False,
        "tickangle": 0,
    }


def layout(xaxis: dict[str, Any], yaxis: dict[str, Any]) -> dict[str, Any]:
    """A transparent layout in the page's own type, with its legend above the plot."""
    return {
        "xaxis": xaxis,
        "yaxis": yaxis,
        "margin": {"l": 68, "r": 14, "t": 12, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {
            "family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif",
            "size": 13,
            "color": "var(--ink)",
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "font": {"size": 12},
        },
        "hoverlabel": {
            "bgcolor": "var(--paper)",
            "bordercolor": "var(--line)",
            "font": {"color": "var(--ink)"},
            "align": "left",
        },
        "showlegend": False,
        "uirevision": "kept",
    }


def thin(length: int, limit: int) -> list[int]:
    """At most `limit` places spread evenly over range(length), both ends kept.

    >>> thin(5, 10), thin(101, 3)
    ([0, 1, 2, 3, 4], [0, 50, 100])
    """
    if length <= limit:
        return list(range(length))
    return [round(place) for place in np.linspace(0, length - 1, limit)]


def numbers(values: Iterable[Any]) -> list[float | None]:
    """Values as floats of six digits, None where they are not finite.

    >>> numbers([1, float("nan"), 0.123456789])
    [1.0, None, 0.123457]
    """
    return [_number(value) for value in values]


def _number(value: Any) -> float | None:
    real = math.nan if value is None else float(value)
    return float(f"{real:.6g}") if math.isfinite(real) else None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return _number(value)
    return value if value is None else str(value)


def to_json(value: Any) -> str:
    r"""JSON that may stand inside a script element: no NaN, and no character that could end the element.

    >>> to_json({"a": [float("nan"), "</script>"]})
    '{"a":[null,"\\u003c/script\\u003e"]}'
    """
    text = json.dumps(_plain(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
