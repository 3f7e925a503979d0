"""Figures of the report as plotly figures, with the colours of a theme in the place of the page's CSS variables."""

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from murmuration.reports.figures import Figure, plain, plot_text
from murmuration.system.errors import Misuse, unknown

if TYPE_CHECKING:
    import plotly.graph_objects as go

Theme = Literal["light", "dark"]

TITLE, LEGEND = 34, 26  # pixels above the plot
VARIABLE = re.compile(r"var\((--[\w-]+)\)")
COLOURS = re.compile(r"(--[\w-]+): light-dark\((#\w+|rgba\([^)]*\)), (#\w+|rgba\([^)]*\))\);")  # lines of style.css


def to_plotly(drawn: Figure | None, theme: Theme, missing: str = "") -> "go.Figure":
    """Return the figure with its title and the colours of a theme; raise `missing` if there is no figure."""
    if drawn is None:
        raise Misuse(missing)
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise Misuse("mm.plots needs plotly: pip install 'torch-murmuration[plots]'") from None
    above = drawn.layout["margin"]["t"] + TITLE + (LEGEND if drawn.layout["showlegend"] else 0)
    title = {"text": plot_text(drawn.title or drawn.label), "font": {"size": 15}, "x": 0.01, "xanchor": "left"}
    look = {
        "title": title | {"y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 12}},
        "margin": drawn.layout["margin"] | {"t": above},
        "height": drawn.height + above,
        "paper_bgcolor": "var(--paper)",
        "plot_bgcolor": "var(--paper)",
        "template": "none",
    }
    figure: dict[str, Any] = coloured(plain({"data": drawn.data, "layout": drawn.layout | look}), colours(theme))
    return go.Figure(figure)


@cache
def colours(theme: Theme) -> dict[str, str]:
    """Return the colours of the report's style sheet in a theme, by the name of their CSS variable."""
    if theme not in ("light", "dark"):
        raise unknown("theme", theme, ("light", "dark"))
    style = files("murmuration.reports").joinpath("style.css").read_text(encoding="utf-8")
    return {name: light if theme == "light" else dark for name, light, dark in COLOURS.findall(style)}


def coloured(value: Any, inks: dict[str, str], setting: str = "") -> Any:
    """Return the value with CSS variables replaced in settings called ...color or ...colorscale, as `theme.js` does.

    >>> coloured({"line": {"color": "var(--ink)"}, "name": "var(--ink)"}, {"--ink": "#000000"})
    {'line': {'color': '#000000'}, 'name': 'var(--ink)'}
    """
    if isinstance(value, dict):
        return {key: coloured(item, inks, key) for key, item in value.items()}
    if isinstance(value, list):
        return [coloured(item, inks, setting) for item in value]
    if not isinstance(value, str) or not setting.endswith(("color", "colorscale")):
        return value
    return VARIABLE.sub(lambda variable: inks[variable[1]], value)
