"""Scores within groups of the test examples, and by frequency of the training classes where they are imbalanced."""

import math
from collections.abc import Mapping

import murmuration.reports.figures as figures
import murmuration.reports.html as html
from murmuration.evaluation import Evaluation
from murmuration.evaluation.by_class import EPISTEMIC, FEW, IMBALANCED, MANY, ClassImbalance, FrequencyGroup
from murmuration.evaluation.metrics import GroupScores, Score, describe, shown_in
from murmuration.evaluation.metrics.scores import measure_of
from murmuration.reports.formatting import MISSING, count, number
from murmuration.reports.html import NOTHING, Markup, text
from murmuration.reports.report import Report

MOST_ROWS = 20  # groups of one column that are drawn; the table has all
WORSE = "worse than the rest by more than noise"
ALL = "all classes"
SHOTS = {"many": f"many (> {MANY})", "medium": f"medium ({FEW} to {MANY})", "few": f"few (< {FEW})"}
MACRO = {  # scores of all classes -> label
    "class_accuracy": "Mean class accuracy",
    "macro_f1": "Macro F1",
    "macro_auroc": "Macro AUROC",
    "macro_average_precision": "Macro average precision",
}
METHODS = ("lac", "mondrian")  # conformal sets with one threshold, and with one for each class


def groups(report: Report) -> Markup:
    """Return scores by the groups of every column."""
    parts = []
    for turn, column in enumerate(group_columns(report)):
        too_many = len({group.value for _, _, group in found_groups(report, column)}) > MOST_ROWS
        words = f"Drawn are the {MOST_ROWS} largest groups; the table has all." if too_many else ""
        drawn = html.figure(group_figure(report, column, f"groups-{turn}"))
        parts.append(html.join([drawn, html.tag("p", words, "aside"), _table(report, column)]))
    reading = (
        f"The same scores within groups of the {report.words.examples}: a good value overall can hide a group that "
        "fares badly. Small groups have wide intervals, and among many groups a few lie apart by chance."
    )
    return html.section("groups", "Groups", reading, html.join(parts))


def group_columns(report: Report) -> list[str]:
    """Return the columns that examples are grouped by, in the order they came."""
    return list(dict.fromkeys(column for e in report.evaluations for column in e.groups))


def found_groups(report: Report, column: str) -> list[tuple[int, str, GroupScores]]:
    """Place and name of the recipe with each group of a column."""
    return [(place, e.name, g) for place, e in enumerate(report.evaluations) for g in e.groups.get(column, ())]


def group_figure(report: Report, column: str, name: str) -> figures.Figure | None:
    """Return the main score by the groups of one column, with the overall value of each recipe as an upright line."""
    score, groups = shown_in("brief", report.task)[0], found_groups(report, column)
    sizes = {group.value: group.examples for _, _, group in groups}
    most = sorted(sizes, key=lambda value: -sizes[value])[:MOST_ROWS]
    rows = [value for value in sizes if value in most]
    if not rows:
        return None
    series = [
        figures.Series(e.name, place, {g.value: g.scores[score] for g in e.groups[column] if g.value in rows})
        for place, e in enumerate(report.evaluations)
        if column in e.groups
    ]
    figure = figures.dot_rows(name, f"{column}: {figures.titled(describe(score, report.task))}", rows, series)
    for one in reversed(series):
        overall = report.evaluations[one.place].scores.get(score, math.nan)
        words = "all examples" if len(series) == 1 else f"all examples, {one.name}"
        figure = figures.with_guide(figure, overall, words, one.place if len(series) > 1 else None)
    return figure


def _table(report: Report, column: str) -> Markup:
    groups, names = found_groups(report, column), shown_in("brief", report.task)
    compared = len({recipe for _, recipe, _ in groups}) > 1
    proportions = {name: measure_of(name, report.task).proportion for name in names}

    def cells(scores: Mapping[str, Score]) -> list[Markup]:
        return [html.score_cell(scores.get(name), proportion=proportions[name]) for name in names]

    rows = [
        (html.row_head("all examples", e.name if compared else ""), [text(MISSING), *cells(e.scores)])
        for e in report.evaluations
        if column in e.groups
    ]
    for value in dict.fromkeys(group.value for _, _, group in groups):
        for recipe, group in ((recipe, group) for _, recipe, group in groups if group.value == value):
            head = html.row_head(value, recipe if compared else "", WORSE if group.worse else "")
            rows.append((head, [text(count(group.examples)), *cells(group.scores)]))
    heads = [column, "Examples", *(html.score_head(describe(name, report.task)) for name in names)]
    board = html.tag("div", html.table(f"Scores by {column}", heads, rows), "wrapped")
    return html.details(f"Numbers by {column}", board) if len(rows) > 6 else board


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


def shots_figure(report: Report, name: str) -> figures.Figure | None:
    """Accuracy of classes with many, medium and few training examples, and of all classes alike."""
    series = []
    for place, evaluation, imbalance in evaluated(report):
        accuracy = {SHOTS[group.name]: group.scores["accuracy"] for group in imbalance.groups}
        series.append(figures.Series(evaluation.name, place, accuracy | {ALL: imbalance.scores["class_accuracy"]}))
    rows = [row for row in (*SHOTS.values(), ALL) if any(row in one.scores for one in series)]
    return figures.dot_rows(name, "Accuracy by training examples of the class", rows, series) if series else None


def frequency_figure(report: Report, name: str) -> figures.Figure | None:
    """Return the epistemic uncertainty of every class by the number of its training examples."""
    data = []
    for place, evaluation, imbalance in evaluated(report):
        if evaluation.predictions == 1:
            continue
        training = dict(zip(evaluation.classes, imbalance.counts, strict=True))
        classes = [entry for entry in evaluation.class_uncertainty if training[entry.name]]
        x, y = [training[entry.name] for entry in classes], [entry.scores[EPISTEMIC] for entry in classes]
        look = {"marker": {"color": figures.colour(place), "symbol": figures.symbol(place), "size": 8}}
        tips = {"text": [entry.name for entry in classes], "hovertemplate": "%{text}: %{y:.3g}<extra></extra>"}
        data.append(figures.scatter("markers", x, y, evaluation.name) | look | tips)
    if not data:
        return None
    description = describe(EPISTEMIC)
    title = f"{description.label} by training examples of the class"
    across = figures.axis("training examples") | {"type": "log", "dtick": 1}
    values = [value for trace in data for value in trace["y"]]
    words = f"{title}: {len(values)} points between {number(min(values))} and {number(max(values))}"
    panel = figures.layout(across, figures.axis(description.label) | {"rangemode": "tozero"})
    return figures.Figure(name, title, words, data, panel | {"showlegend": len(data) > 1}, 300)


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
