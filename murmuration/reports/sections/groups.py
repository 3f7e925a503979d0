"""Scores within groups of the test examples."""

import math
from collections.abc import Mapping

import murmuration.reports.html as html
from murmuration.evaluation.metrics import GroupScores, Score, describe, shown_in
from murmuration.evaluation.metrics.scores import measure_of
from murmuration.reports.figures import Figure, Series, dot_rows, titled, with_guide
from murmuration.reports.formatting import MISSING, count
from murmuration.reports.html import Markup, text
from murmuration.reports.report import Report

MOST_ROWS = 20  # groups of one column that are drawn; the table has all
WORSE = "worse than the rest by more than noise"


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


def group_figure(report: Report, column: str, name: str) -> Figure | None:
    """Return the main score by the groups of one column, with the overall value of each recipe as an upright line."""
    score, groups = shown_in("brief", report.task)[0], found_groups(report, column)
    sizes = {group.value: group.examples for _, _, group in groups}
    most = sorted(sizes, key=lambda value: -sizes[value])[:MOST_ROWS]
    rows = [value for value in sizes if value in most]
    if not rows:
        return None
    series = [
        Series(e.name, place, {g.value: g.scores[score] for g in e.groups[column] if g.value in rows})
        for place, e in enumerate(report.evaluations)
        if column in e.groups
    ]
    figure = dot_rows(name, f"{column}: {titled(describe(score, report.task))}", rows, series)
    for one in reversed(series):
        overall = report.evaluations[one.place].scores.get(score, math.nan)
        words = "all examples" if len(series) == 1 else f"all examples, {one.name}"
        figure = with_guide(figure, overall, words, one.place if len(series) > 1 else None)
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
