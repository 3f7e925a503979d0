"""Conformal prediction sets: nominal and empirical coverage, by subset, and their size."""

import murmuration.reports.html as html
from murmuration.evaluation import Evaluation, SetCoverage
from murmuration.reports.figures import Figure, Series, dot_rows, with_guide
from murmuration.reports.formatting import count
from murmuration.reports.html import NOTHING, Markup
from murmuration.reports.report import Report

VERDICTS = {"under": "✗ under-coverage", "valid": "✓ within noise of the target", "over": "✓ over-coverage"}


def conformal(report: Report) -> Markup:
    """Return coverage of the conformal sets of every recipe."""
    evaluations = [evaluation for evaluation in report.evaluations if evaluation.coverage]
    compared = len(evaluations) > 1
    rows = [
        (html.row_head(coverage.method, e.name if compared else ""), _cells(coverage))
        for e in evaluations
        for coverage in e.coverage
        if coverage.subset == "test"
    ]
    size = "Mean set size" if report.classes else "Mean width"
    columns = ("Method", "Target", "Coverage", "Verdict", size)
    board = html.table(f"Conformal sets on all {report.words.held_out}", columns, rows)
    figure = html.figure(subset_figure(evaluations, "conformal-subsets"))
    parts = [_subset_table(evaluation, size) for evaluation in evaluations]
    kind = "a set of classes" if report.classes else "an interval"
    reading = (
        f"Instead of one prediction, {kind} that contains the target with a given probability, for examples like those "
        "it was calibrated on. Under-coverage means fewer than the noise of both sets of examples explains; of "
        "valid sets prefer the smaller. Groups and corrupted inputs have no guarantee."
    )
    return html.section("conformal", "Conformal prediction sets", reading, html.join([board, figure, *parts]))


def _cells(each: SetCoverage) -> list[str]:
    kind = "mark wrong" if each.verdict == "under" else "mark right"
    return [
        f"{100 * each.nominal:g} %",
        html.score_cell(each.coverage, proportion=True),
        html.tag("span", VERDICTS[each.verdict], kind),
        html.score_cell(each.size),
    ]


def subset_figure(evaluations: list[Evaluation], name: str) -> Figure | None:
    """Return coverage of the primary method's sets by subset, against the target."""
    series, nominals = [], dict[str, float]()
    for place, evaluation in enumerate(evaluations):
        subsets = _subsets(evaluation)
        series.append(Series(evaluation.name, place, {subset.subset: subset.coverage for subset in subsets}))
        nominals |= {subset.subset: nominals.get(subset.subset, subset.nominal) for subset in subsets}
    if not nominals:
        return None
    rows, nominal = list(nominals), next(iter(nominals.values()))
    words = f"target {100 * nominal:g} %"
    figure = with_guide(dot_rows(name, f"Coverage by subset ({words})", rows, series), nominal, words)
    figure.layout["xaxis"] |= {"tickformat": ".0%"}
    return figure


def _subsets(evaluation: Evaluation) -> list[SetCoverage]:
    """Return coverage of the primary method by subset, without the whole test set."""
    return [coverage for coverage in evaluation.coverage if coverage.subset != "test"]


def _subset_table(evaluation: Evaluation, size: str) -> Markup:
    subsets = _subsets(evaluation)
    if not subsets:
        return NOTHING
    columns = ("Subset", "Target", "Coverage", "Verdict", size, "Examples")
    rows = [(coverage.subset, [*_cells(coverage), count(coverage.examples)]) for coverage in subsets]
    board = html.table(f"{subsets[0].method} sets by subset", columns, rows)
    return html.details(f"By subset: {evaluation.name}", board)
