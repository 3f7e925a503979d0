"""Conformal prediction sets: nominal and empirical coverage, by subset, and their size."""

import murmuration.reports.html as html
from murmuration.evaluation import Evaluation, SetCoverage
from murmuration.reports.figures import Figure, Series, dot_rows, with_guide
from murmuration.reports.formatting import count
from murmuration.reports.html import NOTHING, Markup
from murmuration.reports.report import Report

VERDICTS = {"under": "✗ under-coverage", "valid": "✓ within the noise of both sets", "over": "over-coverage"}
MARKS = {"under": "mark wrong", "valid": "mark right", "over": "mark"}


def conformal(report: Report) -> Markup:
    """Return coverage of the conformal sets of every recipe."""
    parts = [_of_recipe(report, place) for place in range(len(report.evaluations))]
    kind = "a set of classes" if report.classes else "an interval"
    reading = (
        f"Instead of one prediction, {kind} that contains the target with a given probability, for examples like those "
        "it was calibrated on. Under-coverage means fewer than the noise of both sets of examples explains, "
        "those of the row and those of calibration; intervals allow for the first alone, so one may miss the target "
        "within noise. Of valid sets prefer the smaller. Groups and corrupted inputs have no guarantee."
    )
    return html.section(
        "conformal", "Conformal prediction sets", reading, html.per_recipe(parts), folded=report.is_comparison
    )


def _of_recipe(report: Report, place: int) -> Markup:
    """Return the coverage of one recipe's sets: the method in use, by subset, and the other methods on demand."""
    evaluation, size = report.evaluations[place], "Mean set size" if report.classes else "Mean width"
    overall = [coverage for coverage in evaluation.coverage if coverage.subset == "test"]
    if not overall:
        return NOTHING
    columns = ("Method", "Target", "Coverage", "Verdict", size)
    words = f"Conformal sets{f' of {evaluation.name}' if len(report.evaluations) > 1 else ''}"
    rows = [(coverage.method, _cells(coverage)) for coverage in overall]
    board = html.table(f"{words} on all {report.words.held_out}", columns, rows[:1])
    others = html.details("Other methods", html.table(f"{words} by other methods", columns, rows[1:]))
    figure = subset_figure([evaluation], f"conformal-subsets-{place}", place)
    boards = html.join([board, others, _subset_table(evaluation, size)])
    return html.grid([html.tag("div", boards, "wrapped"), html.figure(figure)])


def _cells(each: SetCoverage) -> list[str]:
    return [
        f"{100 * each.nominal:g} %",
        html.score_cell(each.coverage, proportion=True),
        html.tag("span", VERDICTS[each.verdict], MARKS[each.verdict]),
        html.score_cell(each.size),
    ]


def subset_figure(evaluations: list[Evaluation], name: str, first: int = 0) -> Figure | None:
    """Return coverage of the primary method's sets by subset, against the target."""
    series, nominals = [], dict[str, float]()
    for place, evaluation in enumerate(evaluations, first):
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
