"""Differences between recipes: paired differences to the recommended one, and the p-value of every pair."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import murmuration.reports.html as html
from murmuration.evaluation.metrics import Score, describe
from murmuration.reports.figures import Figure, Series, dot_rows, with_guide
from murmuration.reports.findings import DECIDING, Difference
from murmuration.reports.formatting import MISSING, number
from murmuration.reports.html import NOTHING, Markup
from murmuration.reports.report import Report

CORRUPTED = f"corrupted_{DECIDING}"
INTERVALS = "Intervals are 95 % each, uncorrected; the p-values in the tables are corrected (Holm)"
ROW = 14  # pixels that a row is higher than those of other figures
Pairs = Mapping[tuple[str, str], tuple[Score, str, bool]]
SERIES = {DECIDING: "clean", CORRUPTED: "corrupted"}  # score -> name in the figure


def differences(report: Report) -> Markup:
    """Return the paired differences of a comparison; nothing for one evaluation."""
    drawn = forest_figure(report, "differences")
    if drawn is None:
        return NOTHING
    names, label = report.names, describe(DECIDING).label
    clean, corrupted = (
        {(t.a, t.b): (t.test.difference, t.chance, t.by_chance) for t in report.differences if t.test.name == name}
        for name in SERIES
    )
    words = f"{label}, row minus column, with its p-value (Holm)"
    coloured = f"{words}; coloured where it is more than noise"
    first = report.of_seed
    if report.seeds is None:
        tables = [matrix(names, clean, coloured)]
    else:
        plain = bool(report.seeds.caution)  # too few seeds for colours
        over = {(t.a, t.b): (t.difference, t.chance, plain or t.by_chance) for t in report.seeds.pairs(DECIDING)}
        title = f"Over training seeds: {words if plain else coloured}"
        tables = [*report.seeds.tables(report.leader), matrix(names, over, title)]
        tables.append(html.details(f"Clean inputs{first}", matrix(names, clean, f"Clean inputs{first}: {coloured}")))
    title = f"Under corruption{first}"
    tables.append(html.details(title, matrix(names, corrupted, f"{title}: {coloured}")))
    return html.join([html.figure(replace(drawn, title=f"{drawn.title}. {INTERVALS}")), *tables])


def forest_figure(report: Report, name: str) -> Figure | None:
    """Return the paired difference in NLL of every recipe to the recommended one; None without others."""
    reference, label = report.leader.name, describe(DECIDING).label
    series = []
    for place, (score, words) in enumerate(SERIES.items()):
        against = to_reference(report, score)
        if against:
            series.append(Series(f"{words}{report.of_seed}", place, against))
    if report.seeds is not None:
        over = report.seeds.to_reference(DECIDING, reference)
        series.append(Series(f"clean, over {len(report.seeds.seeds)} seeds", len(SERIES), over))
    if not series:
        return None
    rows = [evaluation.name for evaluation in report.evaluations if evaluation.name != reference]
    title = f"{label} minus that of {reference}"
    figure = with_guide(dot_rows(name, title, rows, series), 0.0, "no difference")
    figure.layout["xaxis"]["nticks"] = 4
    return replace(figure, height=figure.height + ROW * len(rows))


def to_reference(report: Report, score: str) -> dict[str, Score]:
    """Return the difference of every other recipe to the recommended one in a score, with its interval."""
    reference, against = report.leader.name, {}
    for test in report.differences:
        if test.test.name == score and reference in (test.a, test.b):
            other = test.b if test.a == reference else test.a
            against[other] = signed(test, other)
    return against


def signed(test: Difference, first: str) -> Score:
    """Return the difference as that of the first recipe minus the other."""
    return test.test.difference if test.a == first else negative(test.test.difference)


def negative(score: Score) -> Score:
    """Return a difference the other way round."""
    return Score(-float(score), -score.high, -score.low)


def matrix(names: Sequence[str], pairs: Pairs, caption: str) -> Markup:
    """Return the differences of every two recipes, row minus column, with p-values; lower is better.

    Args:
        names: The recipes.
        pairs: Difference, p-value in words and whether chance may explain it, by two names.
        caption: Caption of the table.
    """
    if not pairs:
        return NOTHING

    def cell(row: str, column: str) -> Markup | str:
        if (row, column) not in pairs and (column, row) not in pairs:
            return MISSING
        score, chance, by_chance = pairs.get((row, column)) or pairs[column, row]
        value = score if (row, column) in pairs else negative(score)
        kind = "" if by_chance or not math.isfinite(value) else " better" if value < 0 else " worse"
        return Markup(f"{html.tag('span', number(value), f'value{kind}')}{html.tag('small', chance)}")

    rows = [(row, [cell(row, column) for column in names]) for row in names]
    return html.tag("div", html.table(caption, ["", *names], rows), "wrapped compact")
