"""The page on t-SNE of predictions: the map of runs and samples, and numbers that a map does not show."""

from typing import Any

import numpy as np

from murmuration.reports.figures import SYMBOLS, Figure, axis, colour, layout, plot_text, scatter
from murmuration.reports.formatting import number, percent, plural
from murmuration.reports.html import Markup, figure, join, section, table
from murmuration.studies.embedding import Embedding
from murmuration.studies.pages.maps import verdict_section

SHAPES = [shape for shape in SYMBOLS if shape not in ("circle", "star")]  # of samplers; paths have the others


def embedding_sections(record: Embedding) -> Markup:
    """Return the verdicts, the map, and the separation of runs in predictions and on the map."""
    reading = "Networks are compared by all their class probabilities on the same inputs, not by a score."
    points = (
        "Each line is a run from its first checkpoint, a star, to its last; other symbols are samples around the run "
        "of the same colour. Neighbours on the map predict alike; distances between distant points mean little."
    )
    means = (
        f"Mean distances of late checkpoints, on {record.examples:,} examples. The objective of t-SNE is "
        f"{number(record.kl)} nats at perplexity {number(record.perplexity)}."
    )
    columns = ["Space", "Between runs", "Within a run", "Ratio", "Samples nearest to their own run"]
    rows = [
        (name, [number(space.between), number(space.within), number(space.ratio), percent(space.own_run)])
        for name, space in (("Predictions", record.predictions), ("Map", record.map))
    ]
    parts = [
        verdict_section(record.verdicts, "What the map shows", reading),
        section("map", "Runs and samples", points, figure(embedding_map(record))),
        section("numbers", "Numbers", means, table("Separation of runs", columns, rows)),
    ]
    return join(parts)


def embedding_figures(record: Embedding) -> dict[str, Figure]:
    """Return the map, by name."""
    return {"map": embedding_map(record)}


def embedding_map(record: Embedding) -> Figure:
    """Return runs as lines, samples as symbols, in the colour of their run."""
    runs, methods = np.array(record.runs), np.array(record.methods)
    order, samplers = list(dict.fromkeys(record.runs)), [m for m in dict.fromkeys(record.methods) if m != "path"]
    data: list[dict[str, Any]] = []
    for place, run in enumerate(order):
        ink, path = colour(place), (runs == run) & (methods == "path")
        x, y = record.positions[path].T
        epochs = [record.epochs[i] for i in np.flatnonzero(path)]
        hover = {"customdata": epochs, "hovertemplate": f"run {run}, epoch %{{customdata:.3g}}<extra></extra>"}
        line = {"line": {"color": ink, "width": 1}, "marker": {"color": ink, "size": 5}}
        data.append(scatter("lines+markers", x, y, f"run {run}") | line | hover)
        first = {"marker": {"color": ink, "size": 12, "symbol": "star"}, "showlegend": False, "hoverinfo": "skip"}
        data.append(scatter("markers", x[:1], y[:1]) | first)
        for turn, method in enumerate(samplers):
            x, y = record.positions[(runs == run) & (methods == method)].T
            look = {"color": ink, "size": 7, "symbol": SHAPES[turn % len(SHAPES)], "opacity": 0.75}
            hover_text = {"hovertemplate": f"{plot_text(method)}, run {run}<extra></extra>", "showlegend": place == 0}
            data.append(scatter("markers", x, y, method) | {"marker": look, "legendgroup": method} | hover_text)
    blank = {"showgrid": False, "showticklabels": False, "constrain": "domain"}
    look = layout(axis() | blank, axis() | blank | {"scaleanchor": "x"}) | {"showlegend": True}
    networks = f"{plural(len(order), 'run')} and {plural(int((methods != 'path').sum()), 'sample')}"
    apart = f"runs are {number(record.map.ratio)} times as far apart as they are wide"
    words = f"t-SNE of predictions of {networks}: {apart}"
    return Figure("embedding", "t-SNE of predictions", words, data, look, 520)
