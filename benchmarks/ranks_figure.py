"""The figure of the README: mean ranks of all methods over the tables of benchmarks/tables.py, as an SVG.

python benchmarks/ranks_figure.py
"""

import json
from html import escape
from pathlib import Path

import pandas as pd
from tables_page import label, summary

ROOT = Path(__file__).parents[1]
RECORD, FIGURE = ROOT / "benchmarks" / "results" / "tables.json", ROOT / "docs" / "ranks.svg"
OWN = ("default", "ours:")  # what the names of this library's methods begin with
COLOURS = {True: "#0b5c94", False: "#8b97a3"}
INK, GRID = "#28303a", "#dfe4ea"
WIDTH, LEFT, RIGHT, TOP, ROW = 760, 210, 30, 74, 27


def rows_of_record() -> pd.DataFrame:
    """Return the mean scores of every method, the best by NLL first."""
    return summary(json.loads(RECORD.read_text()))


def figure(rows: pd.DataFrame) -> str:
    """Return the SVG: a row for each method, a disc for its mean rank by NLL and a ring for RMSE or accuracy."""
    tables, best = int(rows.tables.iloc[0]), len(rows)
    bottom = TOP + ROW * len(rows)

    def at(rank: float) -> float:
        return round(LEFT + (rank - 1) * (WIDTH - LEFT - RIGHT) / (best - 1), 1)

    parts = [
        f'<text x="16" y="26" font-size="17" font-weight="600">{tables} tables: mean rank of {best} methods</text>',
        f'<text x="16" y="48" font-size="13">1 is the best. <tspan fill="{COLOURS[True]}">Blue: this library.</tspan> '
        "Disc: by NLL. Ring: by RMSE or accuracy. Nothing is tuned.</text>",
    ]
    for rank in range(1, best + 1):
        parts.append(f'<line x1="{at(rank)}" y1="{TOP - 6}" x2="{at(rank)}" y2="{bottom}" stroke="{GRID}"/>')
        parts.append(f'<text x="{at(rank)}" y="{bottom + 18}" font-size="12" text-anchor="middle">{rank}</text>')
    for i, (name, row) in enumerate(rows.iterrows()):
        own, y = str(name).startswith(OWN), TOP + ROW * i + ROW / 2
        colour, weight = COLOURS[own], "600" if own else "400"
        text = escape(label(str(name)).replace("*", "").replace("`", ""))
        nll, point = at(row.rank_nll), at(row.rank_point)
        parts.append(
            f'<text x="{LEFT - 14}" y="{y + 4.5}" font-size="14" font-weight="{weight}" text-anchor="end">{text}</text>'
            f'<line x1="{nll}" y1="{y}" x2="{point}" y2="{y}" stroke="{colour}" stroke-width="2"/>'
            f'<circle cx="{point}" cy="{y}" r="5" fill="#ffffff" stroke="{colour}" stroke-width="2"/>'
            f'<circle cx="{nll}" cy="{y}" r="6" fill="{colour}"><title>{text}: {row.rank_nll:.2f} by NLL, '
            f"{row.rank_point:.2f} by RMSE or accuracy</title></circle>"
        )
    height = bottom + 30
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    font = f'font-family="system-ui, sans-serif" fill="{INK}" role="img"'
    return "\n".join([f'{head} {font}>\n<rect width="100%" height="100%" rx="8" fill="#ffffff"/>', *parts, "</svg>\n"])


if __name__ == "__main__":
    FIGURE.write_text(figure(rows_of_record()), encoding="utf-8")
    print(f"written: {FIGURE}")
