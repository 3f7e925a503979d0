"""The score table; classification by class: precision, recall, confusion matrix; regression against its targets."""

import numpy as np

import murmuration.reports.figures as figures
import murmuration.reports.html as html
from murmuration.evaluation import Evaluation
from murmuration.evaluation.metrics import MEASURES, shown_in
from murmuration.reports.formatting import count, number, shorten
from murmuration.reports.html import NOTHING, Markup, text
from murmuration.reports.report import Report
from murmuration.reports.sections.summary import winners

MOST_CLASSES = 30  # drawn in a confusion matrix
MOST_NUMBERS = 15  # classes whose counts are written into the cells
MOST_POINTS = 400  # predictions drawn against their targets


def scores(report: Report) -> Markup:
    """Return the table of scores by recipes."""
    names = [e.name for e in report.evaluations]
    rows: list[tuple[Markup, list[Markup]]] = []
    more: list[tuple[Markup, list[Markup]]] = []
    first = dict.fromkeys([*report.leader.shown_in("summary"), *report.leader.shown_in("brief")])
    listed = shown_in("table", report.task, members=max(e.predictions for e in report.evaluations))
    for score in [*(name for name in first if name in listed), *(name for name in listed if name not in first)]:
        having = [e for e in report.evaluations if score in e.scores]
        if not having:
            continue
        measure = MEASURES[report.task][score]
        values = {e.name: e.scores[score] for e in having if e.predictions > 1 or not measure.needs_members}
        best = winners(values, measure.better)
        meaning = NOTHING if report.is_comparison else html.tag("small", text(measure.meaning))
        head = Markup(f"{text(measure.label)} {html.arrow(measure.better)}{meaning}")
        cells = [html.score_cell(values.get(n), best=n in best, proportion=measure.proportion) for n in names]
        without = report.baseline.scores.get(score) if not measure.needs_members else None
        cells.append(html.score_cell(without, proportion=measure.proportion))
        (rows if score in first or not report.is_comparison else more).append((head, cells))
    columns = ["Score", *names, "No input"]
    among = " ★ marks the best value of a row, however small its lead." if len(report.evaluations) > 1 else ""
    reading = (
        f"Arrows give the better direction, smaller numbers 95 % intervals.{among} The last column holds predictions "
        f"that need no input: {report.baseline.name}."
    )
    words = f"Scores on all {report.words.examples}"
    others = html.table(f"{words}, more", columns, more)
    meanings = html.glossary(shown_in("table", report.task) if report.is_comparison else (), report.task)
    folded = html.details("More scores", html.join([others, meanings]))
    board = html.tag("div", html.join([html.table(words, columns, rows), folded]), "wrapped")
    return html.section("scores", "Scores", reading, board)


def by_class(report: Report) -> Markup:
    """Confusion matrix, precision and recall of every recipe."""
    if not report.classes:
        return NOTHING
    drawn, parts = 1 < len(report.classes) <= MOST_CLASSES, []
    for place, evaluation in enumerate(report.evaluations):
        figure = confusion(evaluation, f"confusion-{place}") if drawn else None
        parts.append(html.grid([html.figure(figure), class_table(evaluation)]))
    rows = f"{report.words.examples.capitalize()} by true class (rows) and predicted class (columns)"
    body = html.per_recipe(parts)
    return html.section(
        "classes", "By class", f"{rows}; precision and recall by class.", body, folded=report.is_comparison
    )


def confusion(evaluation: Evaluation, name: str) -> figures.Figure:
    """Return the confusion matrix as a heat map of recall, with counts."""
    classes, matrix = evaluation.classes, evaluation.confusion
    rates = matrix / matrix.sum(1, keepdims=True).clip(min=1)
    labels = [figures.plot_text(shorten(label, 12)) for label in classes]
    ticks = {"tickvals": list(range(len(classes))), "ticktext": labels, "showgrid": False, "constrain": "domain"}
    counts = [[str(cell) if cell else "" for cell in row] for row in matrix.tolist()]
    hover = "true %{y}, predicted %{x}: %{text}<extra></extra>"
    trace = figures.heat(rates) | {"zmin": 0, "zmax": 1, "text": counts, "hovertemplate": hover, "showscale": False}
    trace |= {"xgap": 1, "ygap": 1}
    if len(classes) <= MOST_NUMBERS:
        trace |= {"texttemplate": "%{text}", "textfont": {"size": 11}}
    down = figures.axis("true class") | ticks | {"autorange": "reversed", "scaleanchor": "x", "automargin": True}
    panel, height = figures.layout(figures.axis("predicted class") | ticks, down), max(380, 12 * len(classes))
    wrong = int(matrix.sum() - matrix.trace())
    label = f"Confusion matrix of {evaluation.name}: {wrong} of {int(matrix.sum()):,} examples are off the diagonal"
    return figures.Figure(name, "Confusion matrix", label, [trace], panel, height)


def class_table(evaluation: Evaluation) -> Markup:
    """Precision, recall and F1 of every class."""
    rows = []
    for row in evaluation.class_scores:
        proportions = [html.score_cell(score, proportion=True) for score in (row.precision, row.recall)]
        rows.append((row.name, [*proportions, number(row.f1), count(row.examples)]))
    columns = ("Class", "Precision", "Recall", "F1", "Examples")
    return html.tag("div", html.table(f"{evaluation.name} by class", columns, rows), "compact")


def predictions(report: Report) -> Markup:
    """Predictions of every recipe against the targets, for one target."""
    if report.task != "regression" or report.evaluations[0].examples.columns["target"].ndim > 1:
        return NOTHING
    numbered = enumerate(report.evaluations)
    drawn = (html.figure(parity_figure(e, place, f"predictions-{place}")) for place, e in numbered)
    plots = html.per_recipe(drawn)
    reading = (
        "Every point is an example; on the dotted line the prediction is exact. The bar through a point is one "
        "predicted standard deviation: about two thirds of the bars should touch the line."
    )
    return html.section("predictions", "Predictions against targets", reading, plots, folded=report.is_comparison)


def parity_figure(evaluation: Evaluation, place: int, name: str) -> figures.Figure:
    """Predictions against targets, with one predicted standard deviation up and down."""
    columns = evaluation.examples.columns
    rows = figures.thin(len(columns["target"]), MOST_POINTS)
    target, mean, std = (np.asarray(columns[key], dtype=float)[rows] for key in ("target", "predicted", "total_std"))
    points = figures.scatter("markers", target, mean) | {
        "marker": {"color": figures.colour(place), "symbol": figures.symbol(place), "size": 6, "opacity": 0.7},
        "error_y": {**figures.whiskers(mean, mean - std, mean + std), "color": "var(--member)", "width": 0},
        "hovertemplate": "target %{x:.4g}<br>prediction %{y:.4g}<extra></extra>",
    }
    finite = [value for value in (*target, *mean) if np.isfinite(value)]
    ends = figures.numbers([min(finite, default=0.0), max(finite, default=1.0)])
    panel = figures.layout(figures.axis("target"), figures.axis("prediction"))
    label = f"Predictions of {evaluation.name} against the targets"
    return figures.Figure(name, evaluation.name, label, [{"x": ends, "y": ends, **figures.GUIDE}, points], panel, 320)
