"""Uncertainty: whether it is higher where predictions are wrong, and its aleatoric and epistemic parts by class."""

from typing import Any

import numpy as np

import murmuration.reports.html as html
from murmuration.evaluation import Evaluation
from murmuration.evaluation.by_class import UNCERTAINTIES
from murmuration.evaluation.metrics import describe
from murmuration.reports.figures import Figure, Series, dot_rows, histogram
from murmuration.reports.formatting import Words, members_and_draws
from murmuration.reports.html import Markup
from murmuration.reports.report import Report

BINS = 20  # of a histogram
CLASS_COLUMNS = ("accuracy", "aleatoric", "epistemic", "mutual_information")  # of every class
MOST_DRAWN = 30  # classes
PARTS = (
    "each group scaled to 100 %: the further apart, the better it warns of errors. Aleatoric "
    "uncertainty is noise in the data on which members agree; epistemic uncertainty is disagreement of members, which "
    "more training data would reduce."
)
READING = {
    "classification": f"Uncertainty of right and of wrong predictions, {PARTS} They add up to the total.",
    "regression": f"Uncertainty of targets inside and outside of their 90 % interval, {PARTS} Their variances add up "
    "to the total variance.",
}


def uncertainty(report: Report) -> Markup:
    """Return histograms of the total uncertainty, and its decomposition."""
    parts = []
    for place, evaluation in enumerate(report.evaluations):
        figures: list[Figure | None] = [uncertainty_figure(evaluation, f"uncertainty-{place}")]
        if evaluation.predictions > 1 and len(evaluation.class_uncertainty) <= MOST_DRAWN:
            figures.append(by_class_figure(evaluation, f"uncertainty-classes-{place}"))
        table = _class_table(evaluation) if evaluation.classes else ""
        parts.append(html.join([html.grid(map(html.figure, figures)), table]))
    ensembles = [evaluation for evaluation in report.evaluations if evaluation.predictions > 1]
    body = html.join([html.per_recipe(parts), _overall(ensembles, report.words)])
    return html.section("uncertainty", "Uncertainty", READING[report.task], body, folded=report.is_comparison)


def uncertainty_figure(evaluation: Evaluation, name: str) -> Figure:
    """Return the total uncertainty of right and of wrong predictions."""
    columns, classes = evaluation.examples.columns, evaluation.task == "classification"
    kind = "entropy" if classes else "total_std"
    good = columns["correct"] if classes else columns["inside_90"] >= 1
    words = ("right", "wrong") if classes else ("target inside the 90 % interval", "outside")
    edges, groups = histogram_of(columns[kind], dict(zip(words, (good, ~good), strict=True)))
    description = describe(kind)
    return histogram(name, description, f"{evaluation.name}: {description.label.lower()}", edges, groups)


def histogram_of(values: np.ndarray, groups: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, Any]]:
    """Edges (B + 1,) that span the values (N,), and how many of each group (mask (N,)) lie between them."""
    low, high = float(values.min()), float(values.max()) or 1.0
    edges = np.linspace(low if low > high / 2 else 0.0, high if high > low else low + 1.0, BINS + 1)
    return edges, {name: np.histogram(values[mask], edges)[0] for name, mask in groups.items()}


def by_class_figure(evaluation: Evaluation, name: str) -> Figure | None:
    """Aleatoric and epistemic uncertainty of every true class; None for fewer than two."""
    rows = evaluation.class_uncertainty
    if len(rows) < 2:
        return None
    series = [
        Series(describe(kind).label, turn + 3, {row.name: row.scores[kind] for row in rows})
        for turn, kind in enumerate(("aleatoric", "epistemic"))
    ]
    return dot_rows(name, f"{evaluation.name}: variance by true class", [row.name for row in rows], series)


def _overall(evaluations: list[Evaluation], words: Words) -> Markup:
    rows = []
    for e in (e for e in evaluations if e.classes):
        head = html.row_head(e.name, members_and_draws(e.predictions // e.draws, e.draws))
        rows.append((head, [html.score_cell(e.scores.get(kind)) for kind in UNCERTAINTIES]))
    columns = [words.subject.capitalize(), *(html.score_head(describe(kind)) for kind in UNCERTAINTIES)]
    board = html.table(f"Mean uncertainty of all {words.examples}", columns, rows)
    return html.details("Uncertainty decomposition", html.join([board, html.glossary(UNCERTAINTIES if board else ())]))


def _class_table(evaluation: Evaluation) -> Markup:
    kinds = [kind for kind in CLASS_COLUMNS if evaluation.predictions > 1 or kind in ("accuracy", "aleatoric")]
    rows = [
        (html.row_head(row.name, f"{row.examples:,} examples"), [html.score_cell(row.scores[kind]) for kind in kinds])
        for row in evaluation.class_uncertainty
    ]
    columns = ["True class", *(html.score_head(describe(kind)) for kind in kinds)]
    board = html.table(f"{evaluation.name}: uncertainty by true class", columns, rows)
    return html.details(f"Uncertainty by class: {evaluation.name}", board)
