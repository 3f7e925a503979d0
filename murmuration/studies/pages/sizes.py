"""The page on ensemble size: ensembling, subspace sampling and averaging, clean, under corruption and on OOD inputs."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from murmuration.evaluation.metrics import describe
from murmuration.reports.figures import Figure, axis, colour, dash, layout, plot_text, scatter, symbol, titled
from murmuration.reports.formatting import MISSING, number, percent
from murmuration.reports.html import Markup, details, figure, grid, join, section, table
from murmuration.studies.pages.maps import verdict_section
from murmuration.studies.sizes import AVERAGE, ORIGINAL, Condition, Sizes

BY_SEVERITY = ("severity-accuracy", "severity-brier", "divergence-severity")  # the panels of figure 9
NAMES = {ORIGINAL: "runs", AVERAGE: "weight averages", "trajectory": "late checkpoints"}


def named(method: str) -> str:
    """Return how a method is called on the page."""
    return NAMES.get(method, method)


def sizes_sections(record: Sizes) -> Markup:
    """Return the sections of the page on one comparison."""
    reading = (
        "An ensemble averages predictions of independent runs, a subspace those of networks around one run, and a "
        "weight average is one network. They can be combined."
    )
    counts = ", ".join(f"{k}: {record.subsets[0, i]}" for i, k in enumerate(record.sizes))
    kind = "all subsets of runs" if record.exact[record.subsets > 0].all() else "subsets of runs, random where many"
    by_size = (
        f"Scores on {record.examples:,} clean examples, means over {kind} (number by size {counts}). Size 1 of a "
        "sampler is one subspace; larger sizes average subspaces of several runs."
    )
    corruptions = len({condition.name for condition in record.conditions if condition.name})
    by_severity = (
        f"Means over {corruptions} corruptions at each severity; 0 is clean. Dotted lines are one run, solid lines "
        f"ensembles of {record.sizes[-1]}; divergences are of {record.together} networks (figure 9 of the paper)."
    )
    plots = {name: figure(drawing) for name, drawing in sizes_figures(record).items()}
    sizes = grid(plot for name, plot in plots.items() if name.startswith("size-"))
    severities = grid(plots[name] for name in BY_SEVERITY if name in plots)
    others = [plot for name, plot in plots.items() if name.startswith("severity-") and name not in BY_SEVERITY]
    severities = join([severities, details("Other scores", grid(others))]) if others else severities
    divergences = grid(plots[name] for name in ("divergence-ood",) if name in plots)
    parts = [
        verdict_section(record.verdicts, "What ensembles and subspaces gain", reading),
        section("sizes", "Ensemble size", by_size, sizes),
        section("severity", "Under corruption", by_severity, severities),
        divergence_section(record, divergences),
        variants_section(record),
    ]
    return join(parts)


def sizes_figures(record: Sizes) -> dict[str, Figure]:
    """Return all figures by name: size-MEASURE, severity-MEASURE, divergence-severity, divergence-ood."""
    figures = {f"size-{measure}": by_size(record, measure) for measure in record.measures}
    if len(record.severities) > 1:
        figures |= {f"severity-{measure}": by_severity(record, measure) for measure in record.measures}
        if record.divergences:
            figures["divergence-severity"] = divergence_lines(record)
    if record.ood_names:
        figures["divergence-ood"] = divergence_bars(record)
    return figures


def divergence_section(record: Sizes, plots: Markup) -> Markup:
    """Return divergences of every group by severity and on OOD inputs."""
    reading = (
        f"Jensen-Shannon divergence of the predictions of {record.together} networks, mean over subsets: how much they "
        "disagree in probabilities. It grows with the number of networks, which is the same for all groups."
    )
    columns = ["Group", *(f"severity {value}" if value else "clean" for value in record.severities), *record.ood_names]
    rows = []
    for group in record.divergences:
        values = [record.divergence(group, severity) for severity in record.severities]
        rows.append((named(group), list(map(number, values + ood_divergences(record, group)))))
    board = table("Jensen-Shannon divergence", columns, rows)
    return section("divergence", "Divergence", reading, join([plots, board]))


def ood_divergences(record: Sizes, group: str) -> list[float]:
    """Return the divergence of a group on each set of OOD inputs; NaN if it is not known."""
    return [record.divergences[group].get(Condition(name, 0, True), math.nan) for name in record.ood_names]


def variants_section(record: Sizes) -> Markup:
    """Return a table of single networks and the largest ensembles of every method."""
    rows = []
    for (place, method), size in itertools.product(enumerate(record.methods), (1, record.sizes[-1])):
        if record.subsets[place, record.sizes.index(size)]:
            values = [written(measure, record.score(method, size, measure)) for measure in record.measures]
            rows.append((variant(method, size), values))
    columns = ["Variant", *(describe(measure).label for measure in record.measures)]
    return section("variants", "Numbers", "Clean examples.", details("Scores", table("Variants", columns, rows)))


def written(measure: str, value: float) -> str:
    if not math.isfinite(value):
        return MISSING
    return percent(value) if measure == "accuracy" else number(value)


def variant(method: str, size: int) -> str:
    """Return the variant in words: one run or several, itself, averaged or sampled."""
    if size == 1:
        return {ORIGINAL: "one run", AVERAGE: "one weight average"}.get(method, f"subspace: {named(method)}")
    endings = {ORIGINAL: "", AVERAGE: " weight averages"}
    return f"ensemble of {size}{endings.get(method, f', subspaces: {named(method)}')}"


def line(place: int, x: Iterable[float], y: Iterable[float], name: str, style: str, **more: Any) -> dict[str, Any]:
    """Return one line with symbols in the look of a place."""
    look = {"line": {"color": colour(place), "width": 2, "dash": style}}
    marks = {"marker": {"color": colour(place), "symbol": symbol(place), "size": 7}}
    return scatter("lines+markers", x, y, name) | look | marks | {"hovertemplate": "%{x}: %{y:.4g}"} | more


def by_size(record: Sizes, measure: str) -> Figure:
    """Return a score of every method against the number of runs."""
    data = []
    for place, method in enumerate(record.methods):
        values = [record.score(method, size, measure) for size in record.sizes]
        data.append(line(place, record.sizes, values, named(method), dash(place)))
    described = describe(measure)
    ends = [(named(m), [record.score(m, k, measure) for k in (1, record.sizes[-1])]) for m in record.methods]
    words = f"{described.label} of 1 and {record.sizes[-1]} runs: {spoken(ends)}"
    across = axis("runs") | {"tickvals": list(record.sizes)}
    return Figure(f"size-{measure}", titled(described), words, data, legend(across, described.label), 360)


def by_severity(record: Sizes, measure: str) -> Figure:
    """Return a score of every method against severity, for one run and for all."""
    last, described, data = record.sizes[-1], describe(measure), []
    for place, method in enumerate(record.methods):
        for size, style in ((1, "dot"), (last, "solid")):
            values = [record.score(method, size, measure, severity) for severity in record.severities]
            named_once = {"showlegend": size != 1, "legendgroup": method}
            data.append(line(place, record.severities, values, named(method), style, **named_once))
    worst = record.severities[-1]
    ends = [(named(m), [record.score(m, k, measure, worst) for k in (1, last)]) for m in record.methods]
    words = f"{described.label} at severity {worst} of 1 and {last} runs: {spoken(ends)}"
    panel = legend(axis("severity") | {"tickvals": list(record.severities)}, described.label)
    return Figure(f"severity-{measure}", titled(described), words, data, panel, 380)


def divergence_lines(record: Sizes) -> Figure:
    """Return the Jensen-Shannon divergence of every group against severity."""
    data = []
    for place, group in enumerate(record.divergences):
        values = [record.divergence(group, severity) for severity in record.severities]
        data.append(line(place, record.severities, values, named(group), dash(place)))
    ends = [(named(g), [record.divergence(g, s) for s in (0, record.severities[-1])]) for g in record.divergences]
    words = f"Jensen-Shannon divergence on clean inputs and at severity {record.severities[-1]}: {spoken(ends)}"
    severities = axis("severity") | {"tickvals": list(record.severities)}
    panel = legend(severities, "divergence, nats")
    return Figure("divergence-severity", "Divergence under corruption", words, data, panel, 380)


def divergence_bars(record: Sizes) -> Figure:
    """Return the Jensen-Shannon divergence of every group on each set of OOD inputs."""
    groups = list(record.divergences)
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [plot_text(named(group)) for group in groups],
            "x": [float(f"{record.divergences[group].get(Condition(name, 0, True), 0.0):.6g}") for group in groups],
            "name": plot_text(name),
            "marker": {"color": colour(place)},
            "hovertemplate": "%{x:.4g}",
        }
        for place, name in enumerate(record.ood_names)
    ]
    ends = [(named(group), ood_divergences(record, group)) for group in groups]
    words = f"Jensen-Shannon divergence on {', '.join(record.ood_names)}: {spoken(ends)}"
    down = axis() | {"autorange": "reversed", "automargin": True, "showgrid": False}
    panel = layout(axis("divergence, nats"), down) | {"showlegend": len(record.ood_names) > 1}
    return Figure("divergence-ood", "Divergence on OOD inputs", words, data, panel, 90 + 26 * len(groups))


def legend(across: dict[str, Any], label: str) -> dict[str, Any]:
    up = axis(label) | ({"tickformat": ".1%"} if label == describe("accuracy").label else {})
    return layout(across, up) | {"showlegend": True}


def spoken(rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Return names with their values, in words."""
    return "; ".join(f"{name} {' and '.join(number(value) for value in values)}" for name, values in rows)
