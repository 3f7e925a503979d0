"""Regression predictions against their targets."""

import numpy as np

from murmuration.evaluation import Evaluation
from murmuration.reports.figures import GUIDE, Figure, axis, colour, layout, numbers, scatter, symbol, thin, whiskers
from murmuration.reports.html import NOTHING, Markup, figure, grid, section
from murmuration.reports.report import Report

MOST_POINTS = 400


def predictions(report: Report) -> Markup:
    """Predictions of every recipe against the targets, for one target."""
    if report.task != "regression" or report.evaluations[0].examples.columns["target"].ndim > 1:
        return NOTHING
    numbered = enumerate(report.evaluations)
    plots = [figure(parity_figure(e, place, f"predictions-{place}")) for place, e in numbered]
    reading = (
        "Every point is an example; on the dotted line the prediction is exact. The bar through a point is one "
        "predicted standard deviation: about two thirds of the bars should touch the line."
    )
    return section("predictions", "Predictions against targets", reading, grid(plots))


def parity_figure(evaluation: Evaluation, place: int, name: str) -> Figure:
    """Predictions against targets, with one predicted standard deviation up and down."""
    columns = evaluation.examples.columns
    rows = thin(len(columns["target"]), MOST_POINTS)
    target, mean, std = (np.asarray(columns[key], dtype=float)[rows] for key in ("target", "predicted", "total_std"))
    points = scatter("markers", target, mean) | {
        "marker": {"color": colour(place), "symbol": symbol(place), "size": 6, "opacity": 0.7},
        "error_y": {**whiskers(mean, mean - std, mean + std), "color": "var(--member)", "width": 0},
        "hovertemplate": "target %{x:.4g}<br>prediction %{y:.4g}<extra></extra>",
    }
    finite = [value for value in (*target, *mean) if np.isfinite(value)]
    ends = numbers([min(finite, default=0.0), max(finite, default=1.0)])
    panel = layout(axis("target"), axis("prediction"))
    label = f"Predictions of {evaluation.name} against the targets"
    return Figure(name, evaluation.name, label, [{"x": ends, "y": ends, **GUIDE}, points], panel, 320)
