"""The page on ensemble size: ensembling, subspace sampling and averaging, clean, under corruption and on OOD inputs."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from murmuration.evaluation.metrics import describe
from murmuration.reports.figures import Figure, axis, colour, dash, layout, plot_text, scatter, symbol, titled
from murmuration.reports.formatting import MISSING, number, percent
from murmuration.reports.html import Markup, details, figure, grid, join, section, table
from murmuration.studies.pages.maps import verdict_section
from murmuration.studies.sizes import AVERAGE, ORIGINAL, Condition, Sizes

NAMES = {ORIGINAL: "runs", AVERAGE: "weight averages", "trajectory": "late checkpoints"}


def named(method: str) -> str:
    """Return how a method is called on the page."""
    return NAMES.get(method, method)


def sizes_sections(found: Sizes) -> Markup:
    """Return the sections of the page on one comparison."""
    reading = (
        "An ensemble averages predictions of independent runs, a subspace those of networks around one run, and a "
        "weight average is one network. They can be combined."
    )
    figures = sizes_figures(found)
    parts = [
        verdict_section(found.verdicts, "What ensembles and subspaces gain", reading),
        by_size_section(found, figures),
        by_severity_section(found, figures),
        divergence_section(found, figures),
        variants_section(found),
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


def by_size_section(record: Sizes, figures: dict[str, Figure]) -> Markup:
    counted = ", ".join(f"{k}: {record.subsets[0, i]}" for i, k in enumerate(record.sizes))
    kind = "all subsets of runs" if record.exact[record.subsets > 0].all() else "subsets of runs, random where many"
    reading = (
        f"Scores on {record.examples:,} clean examples, means over {kind} (number by size {counted}). Size 1 of a "
        "sampler is one subspace; larger sizes average subspaces of several runs."
    )
    plots = [figure(figures[f"size-{measure}"]) for measure in record.measures]
    return section("sizes", "Ensemble size", reading, grid(plots))


def by_severity_section(record: Sizes, figures: dict[str, Figure]) -> Markup:
    kinds = len({condition.name for condition in record.conditions if condition.name})
    reading = (
        f"Means over {kinds} corruptions at each severity; 0 is clean. Dotted lines are one run, solid lines "
        f"ensembles of {record.sizes[-1]}."
    )
    plots = [figure(plot) for name, plot in figures.items() if name.startswith("severity-")]
    return section("severity", "Under corruption", reading, grid(plots))


def divergence_section(record: Sizes, figures: dict[str, Figure]) -> Markup:
    reading = (
        f"Jensen-Shannon divergence of the predictions of {record.together} networks, mean over subsets: how much they "
        "disagree in probabilities. It grows with the number of networks, which is the same for all groups."
    )
    plots = grid(figure(value) for name, value in figures.items() if name.startswith("divergence"))
    groups = list(record.divergences)
    columns = ["Group", *(f"severity {value}" if value else "clean" for value in record.severities), *record.ood_names]
    rows = [
        (
            named(group),
            [number(record.divergence(group, severity)) for severity in record.severities]
            + [number(record.divergences[group].get(Condition(name, 0, True), math.nan)) for name in record.ood_names],
        )
        for group in groups
    ]
    return section(
        "divergence", "Divergence", reading, join([plots, table("Jensen-Shannon divergence", columns, rows)])
    )


def variants_section(found: Sizes) -> Markup:
    """Return a table of single networks and the largest ensembles of every method."""
    rows = []
    for place, method in enumerate(found.methods):
        for size in (1, found.sizes[-1]):
            if found.subsets[place, found.sizes.index(size)]:
                values = [written(measure, found.score(method, size, measure)) for measure in found.measures]
                rows.append((variant(found, method, size), values))
    columns = ["Variant", *(describe(measure).label for measure in found.measures)]
    return section("variants", "Numbers", "Clean examples.", details("Scores", table("Variants", columns, rows)))


def written(measure: str, value: float) -> str:
    if not math.isfinite(value):
        return MISSING
    return percent(value) if measure == "accuracy" else number(value)


def variant(found: Sizes, method: str, size: int) -> str:
    """Return the variant in words: one run or several, itself, averaged or sampled."""
    if size == 1:
        return {ORIGINAL: "one run", AVERAGE: "one weight average"}.get(method, f"subspace: {named(method)}")
    return {ORIGINAL: f"ensemble of {size}", AVERAGE: f"ensemble of {size} weight averages"}.get(
        method, f"ensemble of {size}, subspaces: {named(method)}"
    )


def line(place: int, x: Iterable[float], y: Iterable[float], name: str, style: str, **more: Any) -> dict[str, Any]:
    """Return one line with symbols in the look of a place."""
    look = {"line": {"color": colour(place), "width": 2, "dash": style}}
    marks = {"marker": {"color": colour(place), "symbol": symbol(place), "size": 7}}
    return scatter("lines+markers", x, y, name) | look | marks | {"hovertemplate": "%{x}: %{y:.4g}"} | more


def by_size(record: Sizes, measure: str) -> Figure:
    """Return a score of every method against the number of runs."""
    data = [
        line(
            place,
            record.sizes,
            [record.score(method, size, measure) for size in record.sizes],
            named(method),
            dash(place),
        )
        for place, method in enumerate(record.methods)
    ]
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
    return Figure(
        f"severity-{measure}", titled(described), words, data, legend(severity_axis(record), described.label), 380
    )


def divergence_lines(record: Sizes) -> Figure:
    """Return the Jensen-Shannon divergence of every group against severity."""
    data = [
        line(
            place,
            record.severities,
            [record.divergence(group, s) for s in record.severities],
            named(group),
            dash(place),
        )
        for place, group in enumerate(record.divergences)
    ]
    ends = [(named(g), [record.divergence(g, s) for s in (0, record.severities[-1])]) for g in record.divergences]
    words = f"Jensen-Shannon divergence on clean inputs and at severity {record.severities[-1]}: {spoken(ends)}"
    panel = legend(severity_axis(record), "divergence, nats")
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
    values_by_group = [
        (named(g), [record.divergences[g].get(Condition(name, 0, True), math.nan) for name in record.ood_names])
        for g in groups
    ]
    words = f"Jensen-Shannon divergence on {', '.join(record.ood_names)}: {spoken(values_by_group)}"
    down = axis() | {"autorange": "reversed", "automargin": True, "showgrid": False}
    panel = layout(axis("divergence, nats"), down) | {"showlegend": len(record.ood_names) > 1}
    return Figure("divergence-ood", "Divergence on OOD inputs", words, data, panel, 90 + 26 * len(groups))


def severity_axis(found: Sizes) -> dict[str, Any]:
    return axis("severity") | {"tickvals": list(found.severities)}


def legend(across: dict[str, Any], label: str) -> dict[str, Any]:
    up = axis(label) | ({"tickformat": ".1%"} if label == describe("accuracy").label else {})
    return layout(across, up) | {"showlegend": True}


def spoken(rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Return names with their values, in words."""
    return "; ".join(f"{name} {' and '.join(number(value) for value in values)}" for name, values in rows)
