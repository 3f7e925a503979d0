"""The section on weights that are distributions: what they cost, how sure they are, and whether they collapsed."""

import numpy as np

from murmuration.evaluation.weight_diagnosis import COLLAPSED, SNR_EDGES, Diagnosis, Layer
from murmuration.reports.canvas import Figure, axis, colour, layout, numbers, plot_text
from murmuration.reports.cells import row_head
from murmuration.reports.markup import NOTHING, Markup, details, figure, grid, join, section, table, tag, text
from murmuration.reports.records import Report
from murmuration.reports.wording import MISSING, answers, number, percent

READING = (
    "These weights are not numbers but bell curves, learned from the data and pulled back by a prior. KL says, in "
    "nats, how far the data took them from it; beta is the weight of that pull. A weight whose own KL is below "
    f"{COLLAPSED:g} nats has collapsed: its curve cannot be told from the prior's, the data taught it nothing. Signal "
    "to noise is the size of a weight over its spread, here that of the middle weight: far below 1 a weight is mostly "
    "noise, and can often be left out."
)
DISTANCE = (
    "Distance to prior compares predictions with those of weights drawn from the prior, before any data: 0 is the "
    "same, 1 has nothing in common. In brackets, how far two halves of the prior's own draws are apart."
)
DRAWN = 6  # tensors with a colour of their own
COLUMNS = (
    "Recipe",
    "Weights",
    "KL a member",
    "KL an example",
    "Beta",
    "Collapsed",
    "Signal to noise",
    "Distance to prior",
)


def weights(report: Report) -> Markup:
    """What was found, in a sentence and a row for every entry; then by layer."""
    found = {entry.name: entry.weights for entry in report.entries if entry.weights is not None}
    if not found:
        return NOTHING
    several = len(found) > 1
    said = [
        f"{name}: {line}" if several else line
        for name, each in found.items()
        for line in (each.finding, *each.untold)
        if line
    ]
    told = join(tag("p", text(line)) for line in said)
    compared = any(each.distance is not None for each in found.values())
    aside = tag("p", text(DISTANCE), "aside") if compared else NOTHING
    rows = [
        (
            row_head(name, answers(each.members, each.draws), f"prior {each.prior}"),
            [text(cell) for cell in _cells(each)],
        )
        for name, each in found.items()
    ]
    board = table("Weights that are distributions", [text(word) for word in COLUMNS], rows)
    plots = grid(figure(_ratios(name, each, f"weights-{place}")) for place, (name, each) in enumerate(found.items()))
    layers = join(details(f"Layer by layer: {name}", _layers(name, each)) for name, each in found.items())
    return section("weights", "What became of the weights", READING, join([told, board, aside, plots, layers]))


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


def _ratios(name: str, found: Diagnosis, plot: str) -> Figure:
    """How many weights have which signal-to-noise ratio, a colour for each of the largest tensors."""
    centres = (SNR_EDGES[:-1] + SNR_EDGES[1:]) / 2
    ranked = sorted(found.layers, key=lambda layer: -layer.weights)
    groups = {layer.name: np.asarray(layer.snr_counts) for layer in ranked[:DRAWN]}
    if ranked[DRAWN:]:
        groups["the others"] = np.sum([layer.snr_counts for layer in ranked[DRAWN:]], axis=0)
    bars = [
        {
            "type": "bar",
            "x": numbers(centres),
            "y": numbers(100 * counts / found.weights),
            "name": plot_text(tensor),
            "width": float(SNR_EDGES[1] - SNR_EDGES[0]),
            "marker": {"color": colour(turn), "line": {"width": 0}},
            "customdata": numbers(10**centres),
            "hovertemplate": "%{y:.1f} % near %{customdata:.2g}",
        }
        for turn, (tensor, counts) in enumerate(groups.items())
    ]
    ticks = {"tickvals": list(range(-3, 4)), "ticktext": ["≤ 0.001", "0.01", "0.1", "1", "10", "100", "≥ 1000"]}
    label = f"Signal to noise of the weights of {name}: half are below {number(found.median_snr)}"
    panel = layout(axis("size over spread") | ticks, axis("% of the weights"))
    panel |= {"barmode": "stack", "showlegend": True}
    return Figure(plot, f"{name}: signal to noise", label, bars, panel, 340)


def _layers(name: str, found: Diagnosis) -> Markup:
    columns = ("Tensor", "Weights", "KL a member", "KL a weight", "Collapsed", "Signal to noise")
    rows = [(text(layer.name), [text(cell) for cell in _layer_cells(layer, found.members)]) for layer in found.layers]
    return table(f"Tensors of {name} that are distributions", [text(word) for word in columns], rows)


def _layer_cells(layer: Layer, members: int) -> list[str]:
    return [
        f"{layer.weights:,}",
        number(layer.kl),
        number(layer.kl / layer.weights * members) if layer.weights else MISSING,
        MISSING if layer.collapsed is None else percent(layer.collapsed),
        number(layer.median_snr),
    ]
