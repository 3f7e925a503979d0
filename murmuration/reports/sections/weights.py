"""What the recipe makes of every parameter, and Gaussian weights: divergence from the prior, signal-to-noise ratios."""

from typing import Any

import numpy as np

import murmuration.core.roles as roles
from murmuration.evaluation.weight_diagnosis import COLLAPSED, SNR_EDGES, Diagnosis
from murmuration.reports.figures import Figure, axis, colour, layout, numbers, plot_text
from murmuration.reports.formatting import MISSING, members_and_draws, number, percent
from murmuration.reports.html import NOTHING, Markup, details, figure, join, per_recipe, row_head, section, table, tag
from murmuration.reports.report import Report

READING = (
    "Each of these weights is a Gaussian, fitted to the data under a prior. KL is the divergence of weights from the "
    "prior, in nats; beta is its weight in the loss. A weight whose KL is below "
    f"{COLLAPSED:g} nats has collapsed to the prior. The signal-to-noise ratio is |mean| / std, here of the median "
    "weight: weights far below 1 are mostly noise and can often be pruned."
)
DISTANCE = (
    "Distance to prior: Jensen-Shannon distance of the predictions from those of weights drawn from the prior, 0 to 1. "
    "In brackets, the distance between two halves of the prior's own draws."
)
PARAMETERS = (
    "The parameters of one network, as a pass over training examples shows them: own copies of each member, shared or "
    "fixed; Gaussian or point estimates; scaled by each member, or with dropped inputs; and why the recipe leaves some "
    "alone."
)
DRAWN = 6  # tensors with a colour of their own
COLUMNS = (
    *("Recipe", "Weights", "KL per member", "KL per example", "Beta", "Collapsed", "Signal-to-noise ratio"),
    "Distance to prior",
)


def weights(report: Report) -> Markup:
    """Return the finding and a row for every recipe, then by layer."""
    diagnoses = {e.name: e.weights for e in report.evaluations if e.weights is not None}
    paragraphs, rows, parts = [], [], []
    for place, evaluation in enumerate(report.evaluations):
        name, diagnosis = evaluation.name, evaluation.weights
        if diagnosis is None:
            parts.append(NOTHING)
            continue
        lines = [line for line in (diagnosis.finding, *diagnosis.untold) if line]
        paragraphs += [tag("p", f"{name}: {line}" if len(diagnoses) > 1 else line) for line in lines]
        size = members_and_draws(diagnosis.members, diagnosis.draws)
        rows.append((row_head(name, size, f"prior {diagnosis.prior}"), _cells(diagnosis)))
        drawn = figure(snr_figure(name, diagnosis, f"weights-{place}"))
        parts.append(join([drawn, details(f"Layer by layer: {name}", _layers(name, diagnosis))]))
    compared = any(diagnosis.distance is not None for diagnosis in diagnoses.values())
    aside, board = tag("p", DISTANCE if compared else "", "aside"), table("Gaussian weights", COLUMNS, rows)
    body = join([*paragraphs, board, aside, per_recipe(parts)])
    return section("weights", "Gaussian weights", READING, body, folded=report.is_comparison)


def _cells(found: Diagnosis) -> list[str]:
    share, apart, noise = found.collapsed, found.distance, found.noise
    return [
        f"{found.weights:,}",
        number(found.kl),
        number(found.kl / found.examples) if found.examples else MISSING,
        number(found.beta),
        MISSING if share is None else percent(share),
        number(found.median_snr),
        MISSING if apart is None or noise is None else f"{number(apart)} ({number(noise)})",
    ]


def snr_figure(name: str, found: Diagnosis, plot: str) -> Figure:
    """Return how many weights have which signal-to-noise ratio, a colour for each of the largest tensors."""
    centres = (SNR_EDGES[:-1] + SNR_EDGES[1:]) / 2
    ranked = sorted(found.layers, key=lambda layer: -layer.weights)
    groups = {layer.name: np.asarray(layer.snr_counts) for layer in ranked[:DRAWN]}
    if ranked[DRAWN:]:
        groups["the others"] = np.sum([layer.snr_counts for layer in ranked[DRAWN:]], axis=0)
    bars: list[dict[str, Any]] = []
    for turn, (tensor, counts) in enumerate(groups.items()):
        bar = {"type": "bar", "x": numbers(centres), "y": numbers(100 * counts / found.weights)}
        look = {"width": float(SNR_EDGES[1] - SNR_EDGES[0]), "marker": {"color": colour(turn), "line": {"width": 0}}}
        tips = {"customdata": numbers(10**centres), "hovertemplate": "%{y:.1f} % near %{customdata:.2g}"}
        bars.append({**bar, "name": plot_text(tensor), **look, **tips})
    ticks = {"tickvals": list(range(-3, 4)), "ticktext": ["≤ 0.001", "0.01", "0.1", "1", "10", "100", "≥ 1000"]}
    label = f"Signal-to-noise ratio of the weights of {name}: half are below {number(found.median_snr)}"
    panel = layout(axis("|mean| / std") | ticks, axis("% of the weights"))
    panel |= {"barmode": "stack", "showlegend": True}
    return Figure(plot, f"{name}: signal-to-noise ratio", label, bars, panel, 300)


def _layers(name: str, found: Diagnosis) -> Markup:
    columns = ("Tensor", "Weights", "KL per member", "KL per weight", "Collapsed", "Signal-to-noise ratio")
    rows = []
    for layer in found.layers:
        each_weight = number(layer.kl / layer.weights * found.members) if layer.weights else MISSING
        collapsed = MISSING if layer.collapsed is None else percent(layer.collapsed)
        cells = [f"{layer.weights:,}", number(layer.kl), each_weight, collapsed, number(layer.median_snr)]
        rows.append((layer.name, cells))
    return table(f"Gaussian tensors of {name}", columns, rows)


def parameters(report: Report) -> Markup:
    """Return a summary and a table for every recipe."""
    parts = []
    for evaluation in report.evaluations:
        name, entry = evaluation.name, evaluation.manifest.parameters
        if not entry:
            parts.append(NOTHING)
            continue
        record = roles.ParameterRoles.from_json(entry)
        summary = tag("p", f"{name}: {record.summary}" if len(report.evaluations) > 1 else record.summary)
        rows = [(row["parameter"], list(row.values())[1:]) for row in record.columns()]
        board = tag("div", table(f"Parameters of {name}", map(str.capitalize, roles.COLUMNS), rows), "words")
        parts.append(join([summary, details(f"Every parameter: {name}", board)]))
    return section("parameters", "Parameters", PARAMETERS, per_recipe(parts), folded=report.is_comparison)
