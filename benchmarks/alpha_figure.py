"""The figure of docs/papers.md: accuracy of FoRDE against alpha, measured above and published below, as an SVG.

python benchmarks/alpha_figure.py
"""

import json
from pathlib import Path
from typing import Any

from murmuration.studies.papers.forde.published import ALPHA_PANELS, FIGURE as PUBLISHED, WORK

ROOT = Path(__file__).parents[1]
RECORD, FIGURE = ROOT / "benchmarks" / "results" / "papers" / "forde-mnist.json", ROOT / "docs" / "forde-alpha.svg"
REFERENCE = "deep-ensemble"
INK, GRID, BLUE, GREY = "#28303a", "#dfe4ea", "#0b5c94", "#8b97a3"
WIDTH, PANEL, HEIGHT, LEFT, TOP, ROW = 780, 250, 130, 48, 62, 200

Points = dict[str, tuple[float, float]]  # alpha, or the deep ensemble -> mean, half its interval


def measured(record: dict[str, Any]) -> dict[str, Points]:
    """Return the accuracies of a record by panel and alpha."""
    (table,) = [table for table in record["tables"] if table["title"] == "by alpha"]
    panels = {}
    for place, title in enumerate(table["columns"]):
        if title.startswith("accuracy"):
            cells = {row[0]: row[place].partition(" ± ") for row in table["rows"]}
            points = {alpha: (float(mean), float(half or 0)) for alpha, (mean, _, half) in cells.items()}
            panels[title.partition("percent, ")[2]] = points
    return panels


def published() -> dict[str, Points]:
    """Return the accuracies of the published figure by panel and alpha."""
    numbers = [number for number in WORK.numbers if number.item == PUBLISHED]
    return {
        title: {number.row: (number.value, 0.0) for number in numbers if number.measure == part}
        for part, title in ALPHA_PANELS.items()
    }


def panel(points: Points, title: str, x0: float, y0: float) -> list[str]:
    """Return one panel: a line of means with whiskers, and a dotted line for the deep ensemble."""
    reference, *_ = points[REFERENCE]
    line = {float(alpha): point for alpha, point in points.items() if alpha != REFERENCE}
    ends = [reference, *(end for mean, half in line.values() for end in (mean - half, mean + half))]
    margin = 0.08 * (max(ends) - min(ends) or 1.0)
    low, high = min(ends) - margin, max(ends) + margin

    def at(alpha: float, value: float) -> tuple[float, float]:
        across = x0 + LEFT + alpha * (PANEL - LEFT - 14)
        return round(across, 1), round(y0 + HEIGHT * (high - value) / (high - low), 1)

    parts = [f'<text x="{x0 + LEFT}" y="{y0 - 10}" font-size="13">{title}</text>']
    for value in (min(ends), (min(ends) + max(ends)) / 2, max(ends)):
        (left, y), (right, _) = at(0, value), at(1, value)
        parts.append(f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="{GRID}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" font-size="11" text-anchor="end">{value:.1f}</text>')
    for alpha in (0.0, 0.2, 0.4, 0.8, 1.0):
        x, bottom = at(alpha, low)
        parts.append(f'<text x="{x}" y="{bottom + 16}" font-size="11" text-anchor="middle">{alpha:g}</text>')
    for alpha, (mean, half) in line.items():
        if half:
            (x, top), (_, bottom) = at(alpha, mean + half), at(alpha, mean - half)
            parts.append(f'<line x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" stroke="{BLUE}" stroke-opacity="0.45"/>')
    (left, y), (right, _) = at(0, reference), at(1, reference)
    dotted = f'stroke="{GREY}" stroke-width="2" stroke-dasharray="2 4"'
    parts.append(f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" {dotted}/>')
    path = " ".join("{},{}".format(*at(alpha, mean)) for alpha, (mean, _) in line.items())
    parts.append(f'<polyline points="{path}" fill="none" stroke="{BLUE}" stroke-width="2"/>')
    for alpha, (mean, _) in line.items():
        x, y = at(alpha, mean)
        parts.append(
            f'<circle cx="{x}" cy="{y}" r="3.5" fill="{BLUE}"><title>alpha {alpha:g}: {mean:g}</title></circle>'
        )
    return parts


def figure(record: dict[str, Any]) -> str:
    """Return the SVG: three panels measured, three published."""
    setting = record["setting"]
    heads = [
        f"Measured: {setting['data']}, {setting['net']}, {setting['members']} members, {len(setting['seeds'])} seeds",
        "Published: CIFAR-100, ResNet-18, 10 members, 3 seeds (read from the figure)",
    ]
    parts = []
    for place, (head, panels) in enumerate(zip(heads, (measured(record), published()), strict=True)):
        y0 = TOP + place * (ROW + 24)
        parts.append(f'<text x="16" y="{y0 - 36}" font-size="15" font-weight="600">{head}</text>')
        for turn, (title, points) in enumerate(panels.items()):
            parts += panel(points, title, 8 + turn * PANEL, y0)
    height = TOP + 2 * ROW + 44
    caption = "Accuracy in percent against alpha. Dotted: deep ensemble. Whiskers: 95 % intervals over seeds."
    parts.append(f'<text x="16" y="{height - 14}" font-size="12">{caption}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    font = f'font-family="system-ui, sans-serif" fill="{INK}" role="img"'
    return "\n".join([f'{head} {font}>\n<rect width="100%" height="100%" rx="8" fill="#ffffff"/>', *parts, "</svg>\n"])


if __name__ == "__main__":
    FIGURE.write_text(figure(json.loads(RECORD.read_text())), encoding="utf-8")
    print(f"written: {FIGURE}")
