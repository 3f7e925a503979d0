"""Differences between recipes: paired differences to the recommended one, and the p-value of every pair."""

import math
from collections.abc import Mapping
from dataclasses import replace

import murmuration.reports.html as html
from murmuration.evaluation.metrics import Score, describe
from murmuration.reports.figures import Figure, Series, dot_rows, with_guide
from murmuration.reports.findings import DECIDING, Difference
from murmuration.reports.formatting import MISSING, number
from murmuration.reports.html import NOTHING, Markup
from murmuration.reports.report import Report

CORRUPTED = f"corrupted_{DECIDING}"
ROW = 14  # pixels that a row is higher than those of other figures
SERIES = {DECIDING: "clean", CORRUPTED: "corrupted"}  # score -> name in the figure


def differences(report: Report) -> Markup:
    """Return the paired differences of a comparison; nothing for one evaluation."""
    drawn = forest_figure(report, "differences")
    if drawn is None:
        return NOTHING
    tables = [_matrix(report, name) for name in SERIES]
    more = html.details("Under corruption", tables[1])
    return html.join([html.figure(drawn), _seeds(report), tables[0], more])


def forest_figure(report: Report, name: str) -> Figure | None:
    """Return the paired difference in NLL of every recipe to the recommended one; None without others."""
    reference, label = report.leader.name, describe(DECIDING).label
    series = []
    for place, (score, words) in enumerate(SERIES.items()):
        against = to_reference(report, score)
        if against:
            series.append(Series(words, place, against))
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
    score = test.test.difference
    return score if test.a == first else Score(-float(score), -score.high, -score.low)


def _matrix(report: Report, score: str) -> Markup:
    """Return differences and p-values of every two recipes, row minus column."""
    pairs: Mapping[frozenset[str], Difference] = {
        frozenset((test.a, test.b)): test for test in report.differences if test.test.name == score
    }
    if not pairs:
        return NOTHING
    names = [evaluation.name for evaluation in report.evaluations]
    rows = [(name, [_cell(pairs.get(frozenset((name, other))), name) for other in names]) for name in names]
    label = describe(score.removeprefix("corrupted_")).label
    where = " under corruption" if score == CORRUPTED else ""
    caption = f"{label}{where}: row minus column, with its p-value (Holm); coloured where it is more than noise"
    return html.tag("div", html.table(caption, ["", *names], rows), "wrapped compact")


def _cell(test: Difference | None, row: str) -> Markup | str:
    if test is None:
        return MISSING
    value = signed(test, row)
    kind = "" if test.by_chance or not math.isfinite(value) else " better" if value < 0 else " worse"
    return Markup(f"{html.tag('span', number(value), f'value{kind}')}{html.tag('small', test.chance)}")


def _seeds(report: Report) -> Markup:
    """Return scores and differences over the training seeds, if there were several."""
    return NOTHING if report.seeds is None else html.join(report.seeds.tables(report.leader))
