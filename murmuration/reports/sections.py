"""Sections on how well the recipes did: each takes the report and returns markup, empty without data."""

import numpy as np

import murmuration.reports.figures as figures
import murmuration.reports.pictures as pictures
from murmuration.reports.canvas import Figure
from murmuration.reports.cells import arrow, glossary, reliability_table, score_cell
from murmuration.reports.dot_plots import dots
from murmuration.reports.markup import NOTHING, Markup, details, figure, grid, join, section, table, tag, text
from murmuration.reports.records import Entry, Field1D, Report
from murmuration.reports.summary import best, score_names
from murmuration.reports.wording import MISSING, meaning, number

QUESTIONS = ("sharing", "weights", "coupling", "dynamics")
PLOTTED = 6  # scores drawn as dots; all of them are in the table
ANSWERED = (0.5, 0.8, 0.9, 1.0)  # shares of the examples in the table under the risk-coverage curves


def notes(report: Report) -> Markup:
    """Findings in plain words."""
    items = join(tag("li", text(note)) for note in report.notes)
    return section("findings", "Findings", "What the numbers below amount to.", tag("ul", items) if items else NOTHING)


def recipes(report: Report) -> Markup:
    """The four answers of every recipe."""
    rows = [
        (text(entry.name), [text(entry.answers.get(question, MISSING)) for question in QUESTIONS])
        for entry in report.entries
        if entry.answers
    ]
    reading = "A recipe is one answer to each of four questions about an ensemble; these are the answers."
    columns = [text(word) for word in ("Recipe", *(question.capitalize() for question in QUESTIONS))]
    body = tag("div", table("Recipes", columns, rows), "words") if rows else NOTHING
    return section("recipes", "Recipes", reading, body)


def scores(report: Report) -> Markup:
    """The table of recipes by scores, then dots with whiskers."""
    names = score_names(report)
    if not names:
        return NOTHING
    told = [meaning(name, report.directions) for name in names]
    columns = [text("Recipe"), *(Markup(f"{text(each.label)} {arrow(each.better)}") for each in told)]
    winners = {name: best(report, name) for name in names}
    rows = [(text(e.name), [score_cell(e.scores.get(n), e.name in winners[n]) for n in names]) for e in report.entries]
    alone = f"Arrows say which way is better. The smaller numbers are each value's {report.interval} interval"
    among = (
        ": where two overlap widely, the order may be chance. "
        "★ marks the best value of a column, however small its lead"
    )
    plots = [dots(report, name, f"dots-{place}") for place, name in enumerate(names[:PLOTTED])]
    board = table("Scores on the test examples", columns, rows)
    compared = grid(map(figure, plots)) if len(report.entries) > 1 else NOTHING
    reading = f"{alone}{among if compared else ''}."
    return section("scores", "Scores", reading, join([board, glossary(told), compared]))


RELIABILITY = {
    "confidence": (
        "Examples are grouped by how confident the ensemble was. On the dotted line confidence equals "
        "accuracy: points below it are overconfident, points above too modest. Bars count the examples of "
        "each group: points over tall bars are the ones to trust."
    ),
    "interval": (
        "For intervals meant to hold the truth with a given probability: how often they did. On the "
        "dotted line the promise is kept; below it the intervals are too narrow (overconfident), above it "
        "too wide."
    ),
    "quantile": (
        "For each predicted quantile: the share of truths that fell below it. On the dotted line the "
        "promise is kept. A curve above the line on the left and below it on the right means spreads that "
        "are too narrow (overconfident); the reverse, too wide; a curve all on one side, predictions that "
        "are too high (above) or too low (below)."
    ),
}


def reliability(report: Report) -> Markup:
    """Promise against outcome for every recipe."""
    kinds = dict.fromkeys(entry.reliability.kind for entry in report.entries if entry.reliability is not None)
    plots = [
        figure(figures.reliability(entry, place, f"reliability-{place}")) for place, entry in enumerate(report.entries)
    ]
    tables = (
        details(f"Numbers: {entry.name}", reliability_table(f"Reliability of {entry.name}", entry.reliability))
        for entry in report.entries
        if entry.reliability is not None and figures.usable(entry.reliability)
    )
    reading = " ".join(RELIABILITY[kind] for kind in kinds)
    return section("reliability", "Does it know how sure to be?", reading, join([grid(plots), *tables]))


def risk_coverage(report: Report) -> Markup:
    """Error among the examples answered, when the least certain ones are left to someone else."""
    drawing = figures.risk_coverage(report, "risk-coverage-curves")
    if drawing is None:
        return NOTHING
    curves = [(entry.name, entry.risk_coverage) for entry in report.entries if entry.risk_coverage is not None]
    rows = [
        (text(name), [text(number(_risk_at(curve.coverage, curve.risk, share))) for share in ANSWERED])
        for name, curve in curves
        if len(curve.coverage)
    ]
    columns = [text("Recipe"), *(text(f"{share:.0%} answered") for share in ANSWERED)]
    reading = (
        "Suppose the ensemble answers only where it is most certain and passes the rest on. The further "
        "left, the fewer it answers. A useful uncertainty makes the error fall towards the left."
    )
    body = join([figure(drawing), details("Numbers", table("Error among examples answered", columns, rows))])
    return section("risk-coverage", "What if it could decline to answer?", reading, body)


def _risk_at(coverage: object, risk: object, share: float) -> float:
    """The risk at the smallest coverage that reaches the share."""
    shares, risks = np.asarray(coverage, dtype=float), np.asarray(risk, dtype=float)
    reached = np.flatnonzero(shares >= share - 1e-9)
    return float(risks[reached[np.argmin(shares[reached])]]) if len(reached) else float("nan")


def histograms(report: Report) -> Markup:
    """Uncertainty of good against bad predictions."""
    plots = [
        figure(figures.histogram(entry, record, f"histogram-{place}-{turn}"))
        for place, entry in enumerate(report.entries)
        for turn, record in enumerate(entry.histograms)
    ]
    reading = (
        "How uncertain the ensemble was, separately for good and bad predictions, each group scaled to "
        "100 %. The better the two are apart, the better uncertainty warns of mistakes. Mutual "
        "information and epistemic spread are the part on which the members disagree."
    )
    return section("uncertainty", "Is it unsure where it is wrong?", reading, grid(plots))


def parity(report: Report) -> Markup:
    """Regression predictions against the truth."""
    plots = [
        figure(pictures.parity(entry, entry.parity, place, f"parity-{place}"))
        for place, entry in enumerate(report.entries)
        if entry.parity is not None and len(entry.parity.truth)
    ]
    reading = (
        "Every point is a test example; on the dotted line the prediction is exact. The thin bar through "
        "a point is one predicted standard deviation: about two thirds of the bars should touch the line."
    )
    return section("parity", "Predictions against the truth", reading, grid(plots))


def fields(report: Report) -> Markup:
    """The prediction over the whole input space, for inputs of one or two dimensions."""
    found = [entry.field for entry in report.entries]
    reach = pictures.common_reach([each for each in found if each is not None])
    plots = [figure(_field(report, entry, reach, f"field-{place}")) for place, entry in enumerate(report.entries)]
    reading = (
        "The prediction over the whole input space, not only where there are examples, before any calibration. "
        "Uncertainty should grow away from the training points. All recipes are drawn on one scale."
    )
    return section("field", "Over the input space", reading, grid(plots))


def _field(report: Report, entry: Entry, reach: tuple[float, float] | None, name: str) -> Figure | None:
    if entry.field is None:
        return None
    if isinstance(entry.field, Field1D):
        return pictures.field_1d(entry, entry.field, name, reach)
    return pictures.field_2d(entry, entry.field, report.data.classes, name, reach)
