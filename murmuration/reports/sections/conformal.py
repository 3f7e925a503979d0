"""Conformal prediction sets: nominal and empirical coverage, by subset, and their size."""

import murmuration.reports.html as html
from murmuration.evaluation import Evaluation, SetCoverage
from murmuration.reports.figures import Figure, Series, dot_rows, with_guide
from murmuration.reports.formatting import count
from murmuration.reports.html import NOTHING, Markup
from murmuration.reports.report import Report

VERDICTS = {"under": "✗ under-coverage", "valid": "✓ within noise of the target", "over": "✓ over-coverage"}


def conformal(report: Report) -> Markup:
    """Coverage of the conformal sets of every recipe."""
    found = [each for each in report.evaluations if each.coverage]
    several = len(found) > 1
    rows = [
        (html.row_head(each.method, evaluation.name if several else ""), _cells(each))
        for evaluation in found
        for each in evaluation.coverage
        if each.subset == "test"
    ]
    size = "Mean set size" if report.classes else "Mean width"
    columns = ("Method", "Target", "Coverage", "Verdict", size)
    board = html.table(f"Conformal sets on all {report.words.held_out}", columns, rows)
    drawn = html.figure(subset_figure(found, "conformal-subsets"))
    parts = [_subset_table(each, size) for each in found]
    kind = "a set of classes" if report.classes else "an interval"
    reading = (
        f"Instead of one prediction, {kind} that contains the target with a given probability, for examples like those "
        "it was calibrated on. Under-coverage means fewer than the noise of both sets of examples explains; of "
        "valid sets prefer the smaller. Groups and corrupted inputs have no guarantee."
    )
    return html.section("conformal", "Conformal prediction sets", reading, html.join([board, drawn, *parts]))


def _cells(each: SetCoverage) -> list[str]:
    kind = "mark wrong" if each.verdict == "under" else "mark right"
    return [
        f"{100 * each.nominal:g} %",
        html.score_cell(each.coverage, proportion=True),
        html.tag("span", VERDICTS[each.verdict], kind),
        html.score_cell(each.size),
    ]


def subset_figure(evaluations: list[Evaluation], name: str) -> Figure | None:
    """Coverage of the primary method's sets by subset, against the target."""
    primary = [_subsets(each) for each in evaluations]
    rows = list(dict.fromkeys(each.subset for found in primary for each in found))
    if not rows:
        return None
    nominal = primary[0][0].nominal if primary[0] else next(found[0].nominal for found in primary if found)
    series = [
        Series(evaluation.name, place, {each.subset: each.coverage for each in found})
        for place, (evaluation, found) in enumerate(zip(evaluations, primary, strict=True))
    ]
    words = f"target {100 * nominal:g} %"
    drawn = with_guide(dot_rows(name, f"Coverage by subset ({words})", rows, series), nominal, words)
    drawn.layout["xaxis"] |= {"tickformat": ".0%"}
    return drawn


def _subsets(evaluation: Evaluation) -> list[SetCoverage]:
    """Coverage of the primary method by subset, without the whole test set."""
    return [each for each in evaluation.coverage if each.subset != "test"]


def _subset_table(evaluation: Evaluation, size: str) -> Markup:
    found = _subsets(evaluation)
    if not found:
        return NOTHING
    columns = ("Subset", "Target", "Coverage", "Verdict", size, "Examples")
    rows = [(each.subset, [*_cells(each), count(each.examples)]) for each in found]
    return html.details(f"By subset: {evaluation.name}", html.table(f"{found[0].method} sets by subset", columns, rows))
