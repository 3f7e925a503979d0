"""The score table, and classification class by class: precision, recall, confusion matrix."""

import murmuration.reports.html as html
from murmuration.evaluation import Evaluation
from murmuration.evaluation.metrics import MEASURES, shown_in
from murmuration.reports.figures import Figure, axis, heat, layout, plot_text
from murmuration.reports.formatting import count, number, shorten
from murmuration.reports.html import NOTHING, Markup, text
from murmuration.reports.report import Report
from murmuration.reports.sections.summary import winners

MOST_CLASSES = 30  # drawn in a confusion matrix
MOST_NUMBERS = 15  # classes whose counts are written into the cells


def scores(report: Report) -> Markup:
    """Return the table of scores by recipes."""
    members = max(evaluation.predictions for evaluation in report.evaluations)
    names = [
        name
        for name in shown_in("table", report.task, members=members)
        if any(name in evaluation.scores for evaluation in report.evaluations)
    ]
    rows = []
    for name in names:
        measure = MEASURES[report.task][name]
        values = {
            evaluation.name: evaluation.scores[name]
            for evaluation in report.evaluations
            if name in evaluation.scores and (evaluation.predictions > 1 or not measure.needs_members)
        }
        best = winners(values, measure.better)
        head = Markup(f"{text(measure.label)} {html.arrow(measure.better)}{html.tag('small', text(measure.meaning))}")
        cells = [
            html.score_cell(values.get(evaluation.name), best=evaluation.name in best, proportion=measure.proportion)
            for evaluation in report.evaluations
        ]
        rows.append((head, cells))
    columns = ["Score", *(evaluation.name for evaluation in report.evaluations)]
    among = " ★ marks the best value of a row, however small its lead." if len(report.evaluations) > 1 else ""
    reading = f"Arrows give the better direction, smaller numbers 95 % intervals.{among}"
    board = html.tag("div", html.table(f"Scores on all {report.words.examples}", columns, rows), "wrapped")
    return html.section("scores", "Scores", reading, board)


def by_class(report: Report) -> Markup:
    """Confusion matrix, precision and recall of the leading recipe."""
    if not report.classes:
        return NOTHING
    leader = report.leader
    figure = confusion(leader, "confusion") if 1 < len(report.classes) <= MOST_CLASSES else None
    tables = html.join(
        html.details(f"By class: {evaluation.name}", class_table(evaluation))
        for evaluation in report.evaluations
        if evaluation is not leader
    )
    whose = f" of {leader.name}" if len(report.evaluations) > 1 else ""
    rows = f"{report.words.examples.capitalize()}{whose} by true class (rows) and predicted class (columns)"
    body = html.join([html.grid([html.figure(figure), class_table(leader)]), tables])
    return html.section("classes", "By class", f"{rows}; precision and recall by class.", body)


def confusion(evaluation: Evaluation, name: str) -> Figure:
    """Return the confusion matrix as a heat map of recall, with counts."""
    classes, matrix = evaluation.classes, evaluation.confusion
    rates = matrix / matrix.sum(1, keepdims=True).clip(min=1)
    labels = [plot_text(shorten(label, 12)) for label in classes]
    places = list(range(len(classes)))
    ticks = {"tickvals": places, "ticktext": labels, "showgrid": False, "constrain": "domain"}
    with_numbers = len(classes) <= MOST_NUMBERS
    trace = heat(rates) | {
        "zmin": 0,
        "zmax": 1,
        "text": [[str(cell) if cell else "" for cell in row] for row in matrix.tolist()],
        "hovertemplate": "true %{y}, predicted %{x}: %{text}<extra></extra>",
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }
    if with_numbers:
        trace |= {"texttemplate": "%{text}", "textfont": {"size": 11}}
    down = axis("true class") | ticks | {"autorange": "reversed", "scaleanchor": "x", "automargin": True}
    height = max(380, 12 * len(classes))
    wrong = int(matrix.sum() - matrix.trace())
    label = f"Confusion matrix of {evaluation.name}: {wrong} of {int(matrix.sum()):,} examples are off the diagonal"
    return Figure(name, "Confusion matrix", label, [trace], layout(axis("predicted class") | ticks, down), height)


def class_table(evaluation: Evaluation) -> Markup:
    """Precision, recall and F1 of every class."""
    rows = [
        (
            row.name,
            [
                html.score_cell(row.precision, proportion=True),
                html.score_cell(row.recall, proportion=True),
                number(row.f1),
                count(row.examples),
            ],
        )
        for row in evaluation.class_scores
    ]
    columns = ("Class", "Precision", "Recall", "F1", "Examples")
    return html.tag("div", html.table(f"{evaluation.name} by class", columns, rows), "compact")
