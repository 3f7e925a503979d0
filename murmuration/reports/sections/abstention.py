"""Abstention (selective prediction): risk-coverage curves, and what the fitted rules do."""

import math

import murmuration.reports.html as html
from murmuration.evaluation import AbstentionResult, Evaluation
from murmuration.evaluation.metrics import RiskCoverage, describe, risk_coverage
from murmuration.prediction.posthoc.abstention import larger_is_certain
from murmuration.reports.figures import Figure, axis, colour, dash, layout, scatter
from murmuration.reports.formatting import number
from murmuration.reports.html import Markup
from murmuration.reports.report import Report

ANSWERED = (0.5, 0.8, 0.9, 1.0)  # fractions in the table under the curves
RULES = {
    "cost": "Lowest expected cost (error {0:g}, abstain {1:g})",
    "error-rate": "Error rate of answers at most {0:.3g}",
    "risk-control": "Risk over all inputs at most {0:.3g}",
}
READING = (
    "The least certain inputs are passed on instead of being answered. Left: error among the answered inputs for every "
    "fraction answered, of all {0}. Rules choose that fraction by a threshold fitted on {1}."
)


def abstention(report: Report) -> Markup:
    """Risk-coverage curves and abstention rules."""
    curves = curves_of(report)
    figure = html.figure(curves_figure(report, curves, "risk-coverage"))
    rows = [(name, [number(risk_at(curve, fraction)) for fraction in ANSWERED]) for name, curve in curves.items()]
    columns = [report.words.subject.capitalize(), *(f"{fraction:.0%} answered" for fraction in ANSWERED)]
    board = html.table(f"Error among answered inputs, all {report.words.examples}", columns, rows)
    body = html.join([html.grid([figure, _rules(report)]), html.details("Numbers", board)])
    return html.section("abstention", "Abstention", READING.format(report.words.examples, report.words.fitted), body)


def curves_of(report: Report) -> dict[str, RiskCoverage]:
    """Return the risk-coverage curve of every recipe."""
    return {e.name: risk_coverage(e.examples.columns) for e in report.evaluations}


def curves_figure(report: Report, curves: dict[str, RiskCoverage], name: str) -> Figure:
    """Error among the answered inputs against the fraction answered, one line a recipe."""
    data = []
    for place, (label, curve) in enumerate(curves.items()):
        look = {"line": {"color": colour(place), "width": 2, "dash": dash(place)}}
        hover = {"hovertemplate": "answering %{x:.0%}: error %{y:.4g}"}
        data.append(scatter("lines", curve.coverage, curve.risk, label) | look | hover)
    error = "error rate" if report.task == "classification" else "mean absolute error"
    fraction = axis("fraction answered") | {"range": [0, 1.01], "tickformat": ".0%"}
    panel = layout(fraction, axis(error) | {"rangemode": "tozero"}) | {"showlegend": len(data) > 1, "hovermode": "x"}
    return Figure(name, "", f"{error.capitalize()} among the most certain inputs", data, panel, 300)


def risk_at(curve: RiskCoverage, fraction: float) -> float:
    """Return the risk at the smallest coverage that reaches the fraction."""
    reached = [risk for coverage, risk in zip(curve.coverage, curve.risk, strict=True) if coverage >= fraction - 1e-9]
    return float(reached[0]) if reached else math.nan


def _rules(report: Report) -> Markup:
    """Return what every rule does; rules that do the same on these examples share a row."""
    return html.per_recipe(_rules_of(report, evaluation) for evaluation in report.evaluations)


def _rules_of(report: Report, evaluation: Evaluation) -> Markup:
    classes, rows = report.task == "classification", []
    for group in same_results(evaluation):
        names = "; ".join(RULES[item.rule.name].format(*(item.rule.costs or (item.rule.target,))) for item in group)
        answered = html.score_cell(group[0].answered, proportion=True)
        cells = [answered, html.score_cell(group[0].risk, proportion=classes)]
        rows.append((html.row_head(names, _threshold(group)), cells))
    wrong = "Error among answered" if classes else "Mean error among answered"
    whose = f" of {evaluation.name}" if len(report.evaluations) > 1 else ""
    board = html.table(f"Abstention rules{whose} on the {report.words.held_out}", ("Rule", "Answered", wrong), rows)
    return html.tag("div", board, "wrapped rules")


def same_results(evaluation: Evaluation) -> list[list[AbstentionResult]]:
    """Group the abstention results that answer the same fraction with the same risk."""
    groups: dict[tuple[float, ...], list[AbstentionResult]] = {}
    for result in evaluation.abstention:
        risk = float(result.risk) if math.isfinite(result.risk) else -1.0  # NaN would equal nothing
        groups.setdefault((float(result.answered), risk), []).append(result)
    return list(groups.values())


def _threshold(group: list[AbstentionResult]) -> str:
    """Return where the rule answers, and its guarantee; of several rules nothing but that they do the same."""
    if len(group) > 1:
        return "the same on these examples"
    rule = group[0].rule
    above = larger_is_certain(rule.uncertainty)
    label = describe(rule.uncertainty).label.lower()
    if math.isinf(rule.threshold):
        return "answers everything" if (rule.threshold < 0) == above else "answers nothing"
    return f"answers if {label} is {'at least' if above else 'at most'} {number(rule.threshold)}"
