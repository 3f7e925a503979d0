"""The page on the sources of diversity: initialisation, batch order and learning rate."""

import itertools

import numpy as np

from murmuration.reports.figures import Figure, axis, colour, dash, layout, numbers, scatter, symbol, whiskers
from murmuration.reports.formatting import number, percent
from murmuration.reports.html import Markup, figure, grid, join, section, table
from murmuration.studies.pages.maps import verdict_section
from murmuration.studies.randomness import LEVELS, Factorial

SHOWN = {
    "disagreement": "Disagreement of two networks",
    "diversity": "Disagreement over the error rate",
    "cosine": "Cosine of their weights",
    "accuracy": "Accuracy",
}
SHARES = ("disagreement", "accuracy")  # are written as percentages
CELLS = list(itertools.product((0, 1), (0, 1)))


def cell_name(start: int, order: int) -> str:
    return f"{LEVELS[start]} initialisation, {LEVELS[order]} batches"


def factorial_figures(found: Factorial) -> dict[str, Figure]:
    """Return means over runs against the learning rate, by measure."""
    return {measure: measure_figure(found, measure) for measure in SHOWN}


def measure_figure(record: Factorial, measure: str) -> Figure:
    """Return one measure of every cell against the learning rate, with two standard errors over runs."""
    means, errors = record.mean(measure), record.standard_error(measure)
    share = measure in SHARES
    data = []
    for place, (start, order) in enumerate(CELLS):
        value, error = means[:, start, order], 2 * np.nan_to_num(errors[:, start, order])
        ink = colour(place)
        look = {
            "error_y": whiskers(value, value - error, value + error) | {"color": ink, "width": 3},
            "marker": {"color": ink, "symbol": symbol(place), "size": 8},
            "line": {"color": ink, "dash": dash(place), "width": 2},
            "hovertemplate": "%{y:.1%}" if share else "%{y:.3g}",
        }
        data.append(scatter("lines+markers", record.lrs, value, cell_name(start, order)) | look)
    rates = {"type": "log", "tickvals": numbers(record.lrs), "ticktext": [f"{rate:g}" for rate in record.lrs]}
    up = axis(SHOWN[measure].lower()) | ({"tickformat": ".0%"} if share else {})
    averages = {cell_name(*cell): number(float(np.nanmean(means[:, *cell]))) for cell in CELLS}
    means_text = "; ".join(f"{name} {mean}" for name, mean in averages.items())
    panel = layout(axis("learning rate") | rates, up) | {"showlegend": True}
    return Figure(f"factorial-{measure}", SHOWN[measure], f"{SHOWN[measure]}: {means_text}", data, panel, 340)


def factorial_sections(record: Factorial) -> Markup:
    """Return the verdicts, the figures and the table."""
    reading = (
        f"Networks are trained with the same or different initial weights, and the same or different batches (and "
        f"dropout masks), {record.runs} runs of every cell. Disagreement is the fraction of "
        f"{record.examples:,} examples on which two networks of a run predict different classes."
    )
    plots, bars = map(figure, factorial_figures(record).values()), "Bars are two standard errors over runs."
    numbers = {measure: (record.mean(measure), record.standard_error(measure)) for measure in SHOWN}
    rows = []
    for (place, rate), (start, order) in itertools.product(enumerate(record.lrs), CELLS):
        cells = []
        for measure, (means, errors) in numbers.items():
            write = percent if measure in SHARES else number
            mean, error = (write(float(values[place, start, order])) for values in (means, errors))
            cells.append(f"{mean} ± {error}")
        rows.append((f"{rate:g}, {cell_name(start, order)}", cells))
    board = table("Means and standard errors of every cell", ["Learning rate and cell", *SHOWN.values()], rows)
    parts = [
        verdict_section(record.verdicts, "What makes networks differ", reading),
        section("sources", "By learning rate", bars, grid(plots)),
        section("cells", "Every cell", "Means over runs and their standard errors.", board),
    ]
    return join(parts)
