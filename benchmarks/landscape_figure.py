"""Figure 9 of the loss-landscape paper from the committed record: scores and divergence by severity, as an SVG.

python benchmarks/landscape_figure.py
"""

import json
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RECORD, FIGURE = (
    ROOT / "benchmarks" / "results" / "landscape-cifar10.json",
    ROOT / "docs" / "landscape" / "figure-9.svg",
)
COLOURS = ("#0b5c94", "#c2571a", "#3b7d3a", "#7a4fa3", "#a8871a", "#b03a5b", "#4a5a68", "#1b8a8f")
NAMES = {"original": "runs", "average": "weight averages", "trajectory": "late checkpoints", "independent": "runs"}
PANELS = {"accuracy": "accuracy", "brier": "Brier score", "divergence": "divergence of 5 networks, nats"}
INK, GRID, WIDTH, HEIGHT, LEFT, TOP, GAP, BOTTOM = "#28303a", "#dfe4ea", 270, 230, 44, 40, 46, 330


def curves(sizes: dict[str, Any], panel: str) -> dict[tuple[str, bool], list[float]]:
    """Return values by severity of every method and size: one run (False) and all runs (True)."""
    severities, conditions = sizes["severities"], sizes["conditions"]
    if panel == "divergence":
        groups = {group: [row for row in rows if not row["ood"]] for group, rows in sizes["divergences"].items()}
        mean = lambda rows, severity: np.mean([row["value"] for row in rows if row["severity"] == severity])  # noqa: E731
        return {(group, True): [float(mean(rows, s)) for s in severities] for group, rows in groups.items()}
    scores, column = np.array(sizes["scores"], dtype=float), sizes["measures"].index(panel)
    places = [[i for i, at in enumerate(conditions) if at["severity"] == s and not at["ood"]] for s in severities]
    return {
        (method, everything): [float(scores[row, -1 if everything else 0, at, column].mean()) for at in places]
        for row, method in enumerate(sizes["methods"])
        for everything in (False, True)
    }


def panel_of(lines: dict[tuple[str, bool], list[float]], severities: list[int], title: str, left: float) -> str:
    """Return one panel: dotted lines for one run, solid lines for all."""
    values = [value for line in lines.values() for value in line]
    low, high = min(0.0, min(values)) if max(values) < 0.3 else min(values), max(values)
    at_x = lambda severity: left + WIDTH * severity / max(severities)  # noqa: E731
    at_y = lambda value: TOP + HEIGHT * (1 - (value - low) / (high - low))  # noqa: E731
    parts = [f'<text x="{left}" y="24" font-size="14" font-weight="600">{escape(title)}</text>']
    for tick in np.linspace(low, high, 5):
        parts.append(
            f'<line x1="{left}" y1="{at_y(tick):.1f}" x2="{left + WIDTH}" y2="{at_y(tick):.1f}" stroke="{GRID}"/>'
        )
        parts.append(
            f'<text x="{left - 5}" y="{at_y(tick) + 4:.1f}" font-size="11" text-anchor="end">{tick:.2f}</text>'
        )
    for severity in severities:
        text = f'<text x="{at_x(severity):.1f}" y="{TOP + HEIGHT + 18}" font-size="11" text-anchor="middle">'
        parts.append(f"{text}{severity}</text>")
    for (method, everything), line in lines.items():
        points = " ".join(f"{at_x(s):.1f},{at_y(value):.1f}" for s, value in zip(severities, line, strict=True))
        dash = "" if everything else ' stroke-dasharray="2 4"'
        stroke = f'stroke="{colour(method)}" stroke-width="2" fill="none"{dash}'
        parts.append(f'<polyline points="{points}" {stroke}><title>{NAMES.get(method, method)}</title></polyline>')
    return "\n".join(parts)


METHODS = ("original", "average", "trajectory", "random", "dropout", "diagonal", "pca", "pca-random")


def colour(method: str) -> str:
    """Return the colour of a method; independent networks are the runs."""
    return COLOURS[METHODS.index("original" if method == "independent" else method)]


def figure(sizes: dict[str, Any]) -> str:
    """Return the SVG: three panels side by side, and a legend."""
    lines = {panel: curves(sizes, panel) for panel in PANELS}
    width = LEFT + len(PANELS) * (WIDTH + GAP)
    parts = [
        panel_of(lines[panel], sizes["severities"], title, LEFT + place * (WIDTH + GAP))
        for place, (panel, title) in enumerate(PANELS.items())
    ]
    for place, method in enumerate(sizes["methods"]):
        x = LEFT + place * 122
        parts.append(f'<line x1="{x}" y1="312" x2="{x + 18}" y2="312" stroke="{colour(method)}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 23}" y="316" font-size="12">{NAMES.get(method, method)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {BOTTOM}" width="{width}" height="{BOTTOM}"'
    font = f'font-family="system-ui, sans-serif" fill="{INK}" role="img"'
    return "\n".join([f'{head} {font}>\n<rect width="100%" height="100%" rx="8" fill="#ffffff"/>', *parts, "</svg>\n"])


if __name__ == "__main__":
    FIGURE.write_text(figure(json.loads(RECORD.read_text())["sizes"]))
