"""Class imbalance: accuracy, epistemic uncertainty and conformal coverage by frequency of the training classes."""

import murmuration.reports.html as html
from murmuration.evaluation import Evaluation
from murmuration.evaluation.by_class import EPISTEMIC, FEW, IMBALANCED, MANY, ClassImbalance, FrequencyGroup
from murmuration.evaluation.metrics import describe
from murmuration.reports.figures import Figure, Series, axis, colour, dot_rows, layout, scatter, symbol
from murmuration.reports.formatting import MISSING, count, number
from murmuration.reports.html import NOTHING, Markup
from murmuration.reports.report import Report

ALL = "all classes"
SHOTS = {"many": f"many (> {MANY})", "medium": f"medium ({FEW} to {MANY})", "few": f"few (< {FEW})"}
MACRO = {  # scores of all classes -> label
    "class_accuracy": "Mean class accuracy",
    "macro_f1": "Macro F1",
    "macro_auroc": "Macro AUROC",
    "macro_average_precision": "Macro average precision",
}
METHODS = ("lac", "mondrian")  # conformal sets with one threshold, and with one for each class


def imbalance(report: Report) -> Markup:
    """Return scores by class frequency of every recipe; empty where the training classes are balanced."""
    results = evaluated(report)
    if not results:
        return NOTHING
    factor, compared = results[0][2].factor, len(results) > 1
    plots = html.grid(map(html.figure, (shots_figure(report, "shots"), frequency_figure(report, "frequency"))))
    body = html.join([_group_table(results, compared), plots, _score_table(results, compared)])
    reading = (
        f"The largest training class has {factor:.3g} times the examples of the smallest (the section appears from "
        f"{IMBALANCED:g} times on). Classes are grouped by their training examples, and every class of a group counts "
        "alike: accuracy over all examples hides rare classes where the test split has few of them. Sets by lac have "
        "one threshold, and their coverage may fail for rare classes; those by mondrian have one for each class."
    )
    return html.section("imbalance", "Class imbalance", reading, body)


def evaluated(report: Report) -> list[tuple[int, Evaluation, ClassImbalance]]:
    """Place, evaluation and its scores by class frequency, where there are some."""
    return [(place, e, e.imbalance) for place, e in enumerate(report.evaluations) if e.imbalance is not None]


def shots_figure(report: Report, name: str) -> Figure | None:
    """Accuracy of classes with many, medium and few training examples, and of all classes alike."""
    series = []
    for place, evaluation, imbalance in evaluated(report):
        accuracy = {SHOTS[group.name]: group.scores["accuracy"] for group in imbalance.groups}
        series.append(Series(evaluation.name, place, accuracy | {ALL: imbalance.scores["class_accuracy"]}))
    rows = [row for row in (*SHOTS.values(), ALL) if any(row in one.scores for one in series)]
    return dot_rows(name, "Accuracy by training examples of the class", rows, series) if series else None


def frequency_figure(report: Report, name: str) -> Figure | None:
    """Return the epistemic uncertainty of every class by the number of its training examples."""
    data = []
    for place, evaluation, imbalance in evaluated(report):
        if evaluation.predictions == 1:
            continue
        training = dict(zip(evaluation.classes, imbalance.counts, strict=True))
        classes = [entry for entry in evaluation.class_uncertainty if training[entry.name]]
        x, y = [training[entry.name] for entry in classes], [entry.scores[EPISTEMIC] for entry in classes]
        look = {"marker": {"color": colour(place), "symbol": symbol(place), "size": 8}}
        tips = {"text": [entry.name for entry in classes], "hovertemplate": "%{text}: %{y:.3g}<extra></extra>"}
        data.append(scatter("markers", x, y, evaluation.name) | look | tips)
    if not data:
        return None
    description = describe(EPISTEMIC)
    title = f"{description.label} by training examples of the class"
    across = axis("training examples") | {"type": "log", "dtick": 1}
    values = [value for trace in data for value in trace["y"]]
    words = f"{title}: {len(values)} points between {number(min(values))} and {number(max(values))}"
    panel = layout(across, axis(description.label) | {"rangemode": "tozero"}) | {"showlegend": len(data) > 1}
    return Figure(name, title, words, data, panel, 300)


def _group_table(found: list[tuple[int, Evaluation, ClassImbalance]], several: bool) -> Markup:
    rows = [
        (html.row_head(SHOTS[group.name], evaluation.name if several else ""), _cells(group))
        for key in SHOTS
        for _, evaluation, record in found
        for group in record.groups
        if group.name == key
    ]
    heads = ["Training examples", "Classes", "Accuracy", describe(EPISTEMIC).label]
    heads += [f"{quantity}, {method}" for method in METHODS for quantity in ("Coverage", "Set size")]
    return html.tag("div", html.table("Scores by frequency of the class", heads, rows), "wrapped")


def _cells(group: FrequencyGroup) -> list[object]:
    cells: list[object] = [count(group.classes), html.score_cell(group.scores["accuracy"], proportion=True)]
    cells.append(html.score_cell(group.scores[EPISTEMIC]))
    for method in METHODS:
        coverage, size = (group.scores.get(f"{quantity}_{method}") for quantity in ("coverage", "size"))
        cells += [html.score_cell(coverage, proportion=True), html.score_cell(size)] if coverage else [MISSING, MISSING]
    return cells


def _score_table(found: list[tuple[int, Evaluation, ClassImbalance]], several: bool) -> Markup:
    rows = [
        (e.name if several else "value", [html.score_cell(record.scores[name], proportion=True) for name in MACRO])
        for _, e, record in found
    ]
    return html.tag("div", html.table("Scores that count every class alike", ["", *MACRO.values()], rows), "wrapped")
