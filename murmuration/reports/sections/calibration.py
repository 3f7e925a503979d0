"""Calibration: reliability before and after the calibrator, and the scores it changes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import murmuration.reports.html as html
from murmuration.evaluation import Evaluation
from murmuration.evaluation.metrics import ExampleScores, PitCurve, Score, describe, pit_curve, reliability, shown_in
from murmuration.reports.figures import DIAGONAL, Figure, axis, colour, layout, numbers, scatter, symbol, whiskers
from murmuration.reports.findings import about_choice
from murmuration.reports.formatting import count, finite_mean, interval, number, percent
from murmuration.reports.html import NOTHING, Markup
from murmuration.reports.report import Report
from murmuration.reports.sections.summary import winners

FEW = 10  # examples of a bin below which it is greyed
GREY = "var(--faint)"
READING = {
    "classification": (
        "Confidence against accuracy in bins of confidence. Calibrated predictions lie on the dotted line, "
        "overconfident ones below it. The area of a dot grows with the number of examples; bins of fewer than "
        f"{FEW} are grey."
    ),
    "regression": (
        "Fraction of targets below each predicted quantile. Calibrated predictions lie on the dotted line; above it on "
        "the left and below it on the right, predictive distributions are too narrow (overconfident)."
    ),
}
SIDES = {
    "classification": ("confidence", "accuracy"),
    "regression": ("predicted quantile", "fraction of targets below"),
}


@dataclass(frozen=True, eq=False)
class Curve(PitCurve):
    """Nominal against observed frequencies (B,) with intervals; counts (B,) of a classification's bins."""

    count: np.ndarray | None = None

    @property
    def gap(self) -> float:
        """The mean distance from the diagonal: over examples where bins are counted, else over levels."""
        gaps = np.abs(self.observed - self.nominal)
        return float(np.average(gaps, weights=self.count)) if self.count is not None else finite_mean(gaps)


def curve_of(scores: ExampleScores) -> Curve:
    """Return the reliability curve of a classification without empty bins, or the quantile curve of a regression."""
    if scores.task == "regression":
        return Curve(**vars(pit_curve(scores.columns)))
    bins = reliability(scores.columns)
    filled = bins.count > 0
    columns = (bins.confidence, bins.accuracy, bins.low, bins.high, bins.count)
    return Curve(*(column[filled] for column in columns))


def calibration(report: Report) -> Markup:
    """Reliability of every recipe, before and after its calibrator, and the scores that it changes."""
    parts = []
    for place, evaluation in enumerate(report.evaluations):
        figure = html.figure(reliability_figure(evaluation, place, f"calibration-{place}"))
        tables = html.join([_score_table(report, evaluation), *_curve_tables(evaluation)])
        folded = html.details(f"Numbers: {evaluation.name}", tables)
        parts.append(html.grid([figure, html.tag("div", html.join([_what_was_done(report, evaluation), folded]))]))
    return html.section("calibration", "Calibration", READING[report.task], html.per_recipe(parts))


def views(evaluation: Evaluation) -> dict[str, ExampleScores]:
    """Return the examples before and after the calibrator; those of the report alone where there is none."""
    if evaluation.before is None or evaluation.after is None:
        return {"": evaluation.examples}
    return {"before": evaluation.before, "after": evaluation.after}


def reliability_figure(evaluation: Evaluation, place: int, name: str) -> Figure:
    """Reliability before the calibrator (open, soft) and after it (filled), or without one."""
    task, data = evaluation.task, [DIAGONAL]
    curves = {when: curve_of(scores) for when, scores in views(evaluation).items()}
    for when, curve in curves.items():
        soft = when == "before"
        data.append(_trace(curve, "var(--member)" if soft else colour(place), symbol(place), when, open_dots=soft))
    gaps = ", ".join(f"{number(curve.gap)} {when}".strip() for when, curve in curves.items())
    across, up = SIDES[task]
    panel = layout(axis(across) | {"range": [0, 1.03]}, axis(up) | {"range": [0, 1.06]})
    label = f"Reliability of {evaluation.name}: mean distance from the diagonal {gaps}"
    return Figure(name, evaluation.name, label, data, panel | {"showlegend": len(curves) > 1}, 320)


def _trace(curve: Curve, ink: str, mark: str, when: str, *, open_dots: bool) -> dict[str, Any]:
    """Return one curve: dots sized by count and not joined in bins, a line for quantiles."""
    mode, rims, texts = "lines+markers", ink, [""] * len(curve.nominal)
    inks: Any = ink
    sizes: Any = 6
    if curve.count is not None:
        mode, rims = "markers", GREY
        inks = [ink if n >= FEW else GREY for n in curve.count]
        sizes = numbers(np.clip(22 * np.sqrt(curve.count / curve.count.max()), 5, 22))  # of the areas, in pixels
        texts = [f"<br>{n:,.0f} examples" for n in curve.count]
    shape, rim = (f"{mark}-open" if open_dots else mark), {"color": inks, "width": 1.5 if open_dots else 0}
    bars = whiskers(curve.observed, curve.low, curve.high) | {"color": rims, "width": 2, "thickness": 1}
    return scatter(mode, curve.nominal, curve.observed, when or "predictions") | {
        "marker": {"color": inks, "symbol": shape, "size": sizes, "opacity": 0.9, "line": rim},
        "line": {"color": ink, "width": 1.5, "dash": "dash" if open_dots else "solid"},
        "error_y": bars,
        "text": texts,
        "hovertemplate": "%{x:.3f}, %{y:.3f}%{text}<extra></extra>",
    }


def _what_was_done(report: Report, evaluation: Evaluation) -> Markup:
    posthoc = evaluation.posthoc
    if posthoc is None or posthoc.calibrator is None:
        return NOTHING
    choice = f"; {about_choice(posthoc.choice)}" if posthoc.choice is not None else ""
    examples = f"{count(posthoc.calibrator_examples)} {report.words.fitted}"
    if evaluation.after is None:
        sentence = f"no calibrator is applied, decided on {examples}{choice}"
        rules = f"{count(posthoc.rule_examples)} others fit conformal sets and abstention rules"
        return html.tag("p", f"{evaluation.name}: {sentence}; {rules}.", "aside")
    applied = "after it" if evaluation.calibrated else "before it: it is not applied"
    how = f"{posthoc.calibrator.name.replace('_', ' ')} ({posthoc.calibrator.about})"
    fitted = f"fitted on {examples}"
    if evaluation.eval_set.audited:
        fitted += f"; reliability is that of the {count(evaluation.after.inputs)} {report.words.held_out}"
    sentence = f"{evaluation.name}: {how}, {fitted}{choice}. All other scores are those {applied}."
    return html.tag("p", sentence, "aside")


def _score_table(report: Report, evaluation: Evaluation) -> Markup:
    """Return scores before and after the calibrator, on the test examples and under the strongest corruptions."""
    if evaluation.before is None or evaluation.after is None:
        return NOTHING
    held_out = report.words.held_out if evaluation.eval_set.audited else "test"
    pairs = {held_out: (evaluation.before.scores(), evaluation.after.scores())}
    names = [name for name in shown_in("recalibration", report.task) if name in pairs[held_out][0]]
    shift = evaluation.shift
    if shift is not None and shift.worst:
        inputs = f"all corruptions, severity {max(shift.suite.severities)}"
        pairs[inputs] = bare(shift.worst["before"]), bare(shift.worst["after"])
    rows = []
    for inputs, pair in pairs.items():
        best = {name: winners({0: pair[0][name], 1: pair[1][name]}, describe(name).better) for name in names}
        for turn, when in enumerate(("before", "after")):
            cells = [html.score_cell(pair[turn][name], best=turn in best[name]) for name in names]
            rows.append((html.row_head(inputs, when), cells))
    columns = ["Examples", *(html.score_head(describe(name, report.task)) for name in names)]
    return html.table(f"{evaluation.name}: before and after calibration", columns, rows)


def bare(scores: ExampleScores) -> dict[str, Score]:
    """Return scores without intervals, which would take corrupted versions of one example for examples of their own."""
    return {name: Score(float(score), np.nan, np.nan) for name, score in scores.scores(resamples=1).items()}


def _curve_tables(evaluation: Evaluation) -> list[Markup]:
    across, up = SIDES[evaluation.task]
    tables = []
    for when, scores in views(evaluation).items():
        curve = curve_of(scores)
        counts = [[]] * len(curve.nominal) if curve.count is None else [[count(n)] for n in curve.count]
        rows = [
            (percent(x), [percent(y), interval(Score(y, low, high), percent), *n])
            for x, y, low, high, n in zip(curve.nominal, curve.observed, curve.low, curve.high, counts, strict=True)
        ]
        binned = () if curve.count is None else ("examples",)
        columns = [word.capitalize() for word in (across, up, "95 % interval", *binned)]
        tables.append(html.table(f"Reliability of {evaluation.name} {when}".strip(), columns, rows))
    return tables
