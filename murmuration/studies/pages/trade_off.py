"""The page on diversity against accuracy: sampled networks between their limit curves."""

from dataclasses import replace
from typing import Any

import numpy as np

from murmuration.reports.figures import Figure, axis, colour, dash, layout, scatter, symbol
from murmuration.reports.formatting import MISSING, count, finite_mean, number, percent
from murmuration.reports.html import Markup, figure, join, section, table, tag
from murmuration.studies.diversity import INDEPENDENT, SUBSPACES, TradeOff
from murmuration.studies.pages.maps import verdict_section

CURVES = {
    "independent errors": "Both networks err independently; no maximum, but what unrelated networks would reach.",
    "random label changes": "Labels of the reference changed at random: diversity that is bought with accuracy alone.",
    "worst case": "Right labels become wrong and nothing else changes: the least diversity at an accuracy.",
    "upper bound": "The largest diversity that is possible at an accuracy.",
    "fitted family": "Wrong labels change with probability p^e where right ones change with p, with the fitted e.",
}
NEAR = 0.05  # of the reference's accuracy
HIGHEST = 1.3  # of D that is shown, unless networks lie above


def trade_off_sections(record: TradeOff) -> Markup:
    """Return the sections of the page on one plane of networks."""
    reading = (
        "Networks far from a trained one differ from it because they are worse. What counts is how different networks "
        "are at equal accuracy."
    )
    points = (
        "Each point is a network: its accuracy, and the fraction of predictions that differ from the reference "
        "network, divided by its error rate. The reference is the star at height 0."
    )
    meanings = [(name, [tag("span", CURVES[name], "wide")]) for name in record.curves()]
    curves = table("Limit curves", ["Curve", tag("span", "Meaning", "wide")], meanings)
    parts = [
        verdict_section(record.verdicts, "Diversity at equal accuracy", reading),
        section("plane", "Sampled networks", points, join(map(figure, trade_off_figures(record).values()))),
        methods_section(record),
        section("curves", "Limit curves", "", tag("div", curves, "wrapped")),
    ]
    return join(parts)


def trade_off_figures(record: TradeOff) -> dict[str, Figure]:
    """Return the plane, its part near the reference, and the same networks by divergence, by name."""
    return {"plane": diversity_plane(record), "near": near_reference(record), "divergence": divergence_plane(record)}


def diversity_plane(record: TradeOff) -> Figure:
    """Return networks by accuracy and normalised diversity, with the limit curves."""
    data: list[dict[str, Any]] = []
    for place, (name, curve) in enumerate(record.curves().items()):
        line = {"color": "var(--ink-soft)", "width": 1.5, "dash": dash(place)}
        data.append(scatter("lines", curve[:, 0], curve[:, 1], name) | {"line": line, "hoverinfo": "skip"})
    data += points_of_methods(record, "diversity")
    values = [float(np.nanmax(networks.diversity, initial=0)) for networks in record.methods.values()]
    highest = max(HIGHEST, 1.1 * max(values, default=0.0))
    across = axis("accuracy") | {"tickformat": ".0%"}
    look = layout(across, axis("disagreement / error rate") | {"range": [-0.05, highest]}) | {"showlegend": True}
    means = ", ".join(f"{name} {number(finite_mean(networks.diversity))}" for name, networks in record.methods.items())
    reference = percent(record.reference)
    words = f"Normalised diversity against accuracy beside a network of accuracy {reference}; means: {means}"
    return Figure("diversity-plane", "Diversity against accuracy", words, data, look, 480)


def points_of_methods(record: TradeOff, measure: str) -> list[dict[str, Any]]:
    """Return the networks of every method by accuracy and a measure, and the reference at 0."""
    data = []
    for place, (name, networks) in enumerate(record.methods.items()):
        own = name == INDEPENDENT
        look = {"color": colour(place), "symbol": "star" if own else symbol(place), "size": 12 if own else 6}
        hover = f"{name}: accuracy %{{x:.1%}}, {measure} %{{y:.3f}}<extra></extra>"
        points = scatter("markers", networks.accuracy, getattr(networks, measure), name)
        data.append(points | {"marker": look, "hovertemplate": hover})
    star = {"color": "var(--ink)", "symbol": "star", "size": 14}
    return [*data, scatter("markers", [record.reference], [0.0], "reference") | {"marker": star, "hoverinfo": "skip"}]


def divergence_plane(record: TradeOff) -> Figure:
    """Return networks by accuracy and Kullback-Leibler divergence from the reference."""
    across = axis("accuracy") | {"tickformat": ".0%"}
    look = layout(across, axis("KL from the reference, nats")) | {"showlegend": True}
    means = ", ".join(f"{name} {number(finite_mean(networks.divergence))}" for name, networks in record.methods.items())
    words = f"Kullback-Leibler divergence of predictions from the reference against accuracy; means: {means}"
    data = points_of_methods(record, "divergence")
    return Figure("divergence-plane", "Kullback-Leibler divergence against accuracy", words, data, look, 420)


def near_reference(record: TradeOff) -> Figure:
    """Return the part of the plane within some points of the reference's accuracy."""
    figure_of_all, title = diversity_plane(record), f"Within {100 * NEAR:.0f} points of the reference"
    best = max([record.reference, *(float(networks.accuracy.max()) for networks in record.methods.values())])
    across = figure_of_all.layout["xaxis"] | {"range": [record.reference - NEAR, best + NEAR / 10]}
    return replace(figure_of_all, name="diversity-near", title=title, layout=figure_of_all.layout | {"xaxis": across})


def methods_section(record: TradeOff) -> Markup:
    """Return a table of the methods."""
    matched, rows = record.matched, []
    for name, networks in record.methods.items():
        equal, near = matched.get(name, (float("nan"), 0))
        cells = [
            count(len(networks.accuracy)),
            percent(networks.accuracy.mean()),
            number(finite_mean(networks.diversity)),
        ]
        rows.append((name, [*cells, f"{number(equal)} ({near})" if near else MISSING, exponent(record, name)]))
    if SUBSPACES in record.exponents:
        rows.append(("all samples", [MISSING] * 4 + [exponent(record, SUBSPACES)]))
    reading = (
        f"On {record.examples:,} examples of {record.classes} classes. Equal accuracy is within 2 points of the mean "
        "of the independent networks, with the number of such networks in brackets; e is the exponent of the fitted "
        "curve with its 95 % interval."
    )
    columns = ["Method", "Networks", "Mean accuracy", "Mean D", "D at equal accuracy", "e"]
    return section("methods", "Methods", reading, table("Diversity and accuracy by method", columns, rows))


def exponent(record: TradeOff, name: str) -> str:
    """Return the exponent of a method with its interval."""
    fit = record.exponents.get(name)
    return MISSING if fit is None else f"{fit.value:.2f} ({fit.low:.2f} to {fit.high:.2f})"
