"""Columns of a table: their importance for error and uncertainty, partial dependence, the most unusual test rows."""

from collections.abc import Sequence

import numpy as np

import murmuration.evaluation.columns as evaluated
from murmuration.data import TablePreparation
from murmuration.data.preparation import TextColumn
from murmuration.data.raw import is_table
from murmuration.evaluation import Evaluation
from murmuration.evaluation.metrics import Score
from murmuration.reports.figures import Figure, Series, axis, colour, dot_rows, layout, numbers, plot_text, scatter
from murmuration.reports.formatting import number, shorten
from murmuration.reports.html import NOTHING, Markup, details, figure, grid, join, section, table, tag
from murmuration.reports.report import Report

DRAWN = 20  # columns of the figure of importance
CURVES = 4  # columns with partial dependence
LINES = 3  # classes of a curve
ROWS, REPEATS = 300, 3  # of the report: predictions for every column
MOST_COLUMNS = 200
TURNED = 1.96  # standard errors of a 95 % interval


def columns(report: Report) -> Markup:
    """Return the columns of the recommended recipe's table."""
    evaluation, split = report.leader, report.leader.eval_set.split
    ensemble = evaluation.ensemble
    if ensemble is None or not isinstance(ensemble.preparation, TablePreparation) or not is_table(split.x):
        return NOTHING
    if len(split) < 2 or len(ensemble.preparation.columns) > MOST_COLUMNS:
        return NOTHING
    importance = evaluated.column_importance(ensemble, split, rows=ROWS, repeats=REPEATS)
    reading = (
        f"Of {evaluation.name}, on {importance.rows} {report.words.examples}. Shuffling a column shows how much "
        "predictions need it: the increase of the NLL, and the share of the variance of the uncertainty. Shares of "
        "columns that act together overlap. Bands of partial dependence are two standard deviations of the members' "
        "curves."
    )
    texts = {column.name for column in ensemble.preparation.columns if isinstance(column, TextColumn)}
    ordered = [importance.columns[place] for place in importance.order]
    most = [name for name in ordered if name not in texts][:CURVES]
    curves = [evaluated.partial_dependence(ensemble, split, name, rows=ROWS) for name in most]
    drawn = grid(figure(dependence_figure(curve, place)) for place, curve in enumerate(curves))
    paragraphs = [tag("p", f"{text[0].upper()}{text[1:]}.") for text in importance.sentences]
    body = join([*paragraphs, grid(map(figure, importance_figures(importance))), drawn, unusual(evaluation)])
    return section("columns", "Columns", reading, body)


def importance_figures(found: evaluated.ColumnImportance) -> list[Figure]:
    """Dots with intervals over shuffles: for the error, and for epistemic and total uncertainty."""
    rows = [found.columns[place] for place in found.order[:DRAWN]]

    def scores(kind: str) -> dict[str, Score]:
        mean, error = found.summary(kind)
        ends = zip(found.columns, mean, TURNED * error, strict=True)
        return {name: Score(m, m - e, m + e) for name, m, e in ends if name in rows}

    kinds = {"total": "total"} if found.epistemic is None else {"epistemic": "epistemic", "total": "total"}
    uncertain = [Series(label, place + 3, scores(kind)) for place, (kind, label) in enumerate(kinds.items())]
    titles = "Importance for the error: increase of the NLL", "Importance for the uncertainty: share of its variance"
    error = dot_rows("importance-error", titles[0], rows, [Series("", 0, scores("error"))])
    return [error, dot_rows("importance-uncertainty", titles[1], rows, uncertain)]


def dependence_figure(found: evaluated.PartialDependence, place: int) -> Figure:
    """Draw the curves with two standard deviations of the members; of many classes, those that vary most."""
    mean, std = found.mean, found.std
    classes = len(found.outputs) > 1
    outputs = np.argsort(-np.ptp(mean, axis=0), kind="stable")[: 1 if mean.shape[1] == 2 else LINES].tolist()
    x = list(found.values) if found.numeric else list(range(len(found.values)))
    data = []
    for turn, k in enumerate(outputs):
        low, high = mean[:, k] - 2 * std[:, k], mean[:, k] + 2 * std[:, k]
        name = plot_text(shorten(found.outputs[k], 18)) if classes else "mean"
        if found.numeric:
            band = scatter("lines", [*x, *x[::-1]], [*low, *high[::-1]], f"{name}, members")
            shade = {"fill": "toself", "fillcolor": colour(turn), "opacity": 0.25, "line": {"width": 0}}
            data.append(band | shade | {"hoverinfo": "skip", "showlegend": False})
            data.append(scatter("lines", x, mean[:, k], name) | {"line": {"color": colour(turn), "width": 2}})
        else:
            bars = {"type": "data", "array": numbers(2 * std[:, k]), "thickness": 1.5, "color": colour(turn)}
            look = {"error_y": bars, "marker": {"color": colour(turn), "size": 8}}
            data.append(scatter("markers", x, mean[:, k], name) | look)
    title = f"Partial dependence on {shorten(found.column, 24)}"
    words = f"{title}: from {number(mean[0, outputs[0]])} to {number(mean[-1, outputs[0]])}"
    quantity = "probability" if classes else found.outputs[0] if found.outputs else "prediction"
    across = axis(plot_text(shorten(found.column, 24)))
    if not found.numeric:
        across |= {"tickvals": x, "ticktext": [plot_text(shorten(str(value), 18)) for value in found.values]}
    figure_layout = layout(across, axis(plot_text(quantity))) | {"showlegend": len(outputs) > 1 or classes}
    return Figure(f"dependence-{place}", title, words, data, figure_layout)


def unusual(evaluation: Evaluation) -> Markup:
    """Return the evaluated rows that are farthest from the training rows."""
    train = evaluation.eval_set.train
    if train is None or not is_table(train.x) or len(train) < 2:
        return NOTHING
    assert evaluation.ensemble is not None
    records = evaluated.unusual_rows(evaluation.ensemble, train.x, evaluation.eval_set.split.x)
    rows = [(f"row {row.row}", [number(row.distance), described(row.columns, row.values)]) for row in records]
    caption = "Rows most unlike the training rows"
    heads = ["Row, counted from 0", "Distance to training rows (1 is typical of them)", "Columns that differ most"]
    return details(caption, table(caption, heads, rows))


def described(names: Sequence[str], values: Sequence[object]) -> str:
    """Return columns with their values, in words."""
    parts = [number(value) if isinstance(value, float) else shorten(str(value), 18) for value in values]
    return ", ".join(f"{name} {part}" for name, part in zip(names, parts, strict=True))
