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
    """How a method is called on the page."""
    return NAMES.get(method, method)


def sizes_sections(found: Sizes) -> Markup:
    """The sections of the page on one comparison."""
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


def sizes_figures(found: Sizes) -> dict[str, Figure]:
    """All figures by name: size-MEASURE, severity-MEASURE, divergence-severity, divergence-ood."""
    drawn = {f"size-{measure}": by_size(found, measure) for measure in found.measures}
    if len(found.severities) > 1:
        drawn |= {f"severity-{measure}": by_severity(found, measure) for measure in found.measures}
        if found.divergences:
            drawn["divergence-severity"] = divergence_lines(found)
    if found.ood_names:
        drawn["divergence-ood"] = divergence_bars(found)
    return drawn


def by_size_section(found: Sizes, figures: dict[str, Figure]) -> Markup:
    counted = ", ".join(f"{k}: {found.subsets[0, i]}" for i, k in enumerate(found.sizes))
    kind = "all subsets of runs" if found.exact[found.subsets > 0].all() else "subsets of runs, random where many"
    reading = (
        f"Scores on {found.examples:,} clean examples, means over {kind} (number by size {counted}). Size 1 of a "
        "sampler is one subspace; larger sizes average subspaces of several runs."
    )
    drawn = [figure(figures[f"size-{measure}"]) for measure in found.measures]
    return section("sizes", "Ensemble size", reading, grid(drawn))


def by_severity_section(found: Sizes, figures: dict[str, Figure]) -> Markup:
    kinds = len({condition.name for condition in found.conditions if condition.name})
    reading = (
        f"Means over {kinds} corruptions at each severity; 0 is clean. Dotted lines are one run, solid lines "
        f"ensembles of {found.sizes[-1]}."
    )
    drawn = [figure(each) for name, each in figures.items() if name.startswith("severity-")]
    return section("severity", "Under corruption", reading, grid(drawn))


def divergence_section(found: Sizes, figures: dict[str, Figure]) -> Markup:
    reading = (
        f"Jensen-Shannon divergence of the predictions of {found.together} networks, mean over subsets: how much they "
        "disagree in probabilities. It grows with the number of networks, which is the same for all groups."
    )
    drawn = grid(figure(each) for name, each in figures.items() if name.startswith("divergence"))
    groups = list(found.divergences)
    columns = ["Group", *(f"severity {each}" if each else "clean" for each in found.severities), *found.ood_names]
    rows = [
        (
            named(group),
            [number(found.divergence(group, severity)) for severity in found.severities]
            + [number(found.divergences[group].get(Condition(name, 0, True), math.nan)) for name in found.ood_names],
        )
        for group in groups
    ]
    return section(
        "divergence", "Divergence", reading, join([drawn, table("Jensen-Shannon divergence", columns, rows)])
    )


def variants_section(found: Sizes) -> Markup:
    """A table of single networks and the largest ensembles of every method."""
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
    """The variant in words: one run or several, itself, averaged or sampled."""
    if size == 1:
        return {ORIGINAL: "one run", AVERAGE: "one weight average"}.get(method, f"subspace: {named(method)}")
    return {ORIGINAL: f"ensemble of {size}", AVERAGE: f"ensemble of {size} weight averages"}.get(
        method, f"ensemble of {size}, subspaces: {named(method)}"
    )


def line(place: int, x: Iterable[float], y: Iterable[float], name: str, style: str, **more: Any) -> dict[str, Any]:
    """One line with symbols in the look of a place."""
    look = {"line": {"color": colour(place), "width": 2, "dash": style}}
    marks = {"marker": {"color": colour(place), "symbol": symbol(place), "size": 7}}
    return scatter("lines+markers", x, y, name) | look | marks | {"hovertemplate": "%{x}: %{y:.4g}"} | more


def by_size(found: Sizes, measure: str) -> Figure:
    """A score of every method against the number of runs."""
    data = [
        line(
            place,
            found.sizes,
            [found.score(method, size, measure) for size in found.sizes],
            named(method),
            dash(place),
        )
        for place, method in enumerate(found.methods)
    ]
    told = describe(measure)
    ends = [(named(m), [found.score(m, k, measure) for k in (1, found.sizes[-1])]) for m in found.methods]
    words = f"{told.label} of 1 and {found.sizes[-1]} runs: {spoken(ends)}"
    across = axis("runs") | {"tickvals": list(found.sizes)}
    return Figure(f"size-{measure}", titled(told), words, data, legend(across, told.label), 360)


def by_severity(found: Sizes, measure: str) -> Figure:
    """A score of every method against severity, for one run and for all."""
    last, told, data = found.sizes[-1], describe(measure), []
    for place, method in enumerate(found.methods):
        for size, style in ((1, "dot"), (last, "solid")):
            values = [found.score(method, size, measure, severity) for severity in found.severities]
            named_once = {"showlegend": size != 1, "legendgroup": method}
            data.append(line(place, found.severities, values, named(method), style, **named_once))
    worst = found.severities[-1]
    ends = [(named(m), [found.score(m, k, measure, worst) for k in (1, last)]) for m in found.methods]
    words = f"{told.label} at severity {worst} of 1 and {last} runs: {spoken(ends)}"
    return Figure(f"severity-{measure}", titled(told), words, data, legend(severity_axis(found), told.label), 380)


def divergence_lines(found: Sizes) -> Figure:
    """The Jensen-Shannon divergence of every group against severity."""
    data = [
        line(place, found.severities, [found.divergence(group, s) for s in found.severities], named(group), dash(place))
        for place, group in enumerate(found.divergences)
    ]
    ends = [(named(g), [found.divergence(g, s) for s in (0, found.severities[-1])]) for g in found.divergences]
    words = f"Jensen-Shannon divergence on clean inputs and at severity {found.severities[-1]}: {spoken(ends)}"
    shown = legend(severity_axis(found), "divergence, nats")
    return Figure("divergence-severity", "Divergence under corruption", words, data, shown, 380)


def divergence_bars(found: Sizes) -> Figure:
    """The Jensen-Shannon divergence of every group on each set of OOD inputs."""
    groups = list(found.divergences)
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [plot_text(named(group)) for group in groups],
            "x": [float(f"{found.divergences[group].get(Condition(name, 0, True), 0.0):.6g}") for group in groups],
            "name": plot_text(name),
            "marker": {"color": colour(place)},
            "hovertemplate": "%{x:.4g}",
        }
        for place, name in enumerate(found.ood_names)
    ]
    told = [
        (named(g), [found.divergences[g].get(Condition(name, 0, True), math.nan) for name in found.ood_names])
        for g in groups
    ]
    words = f"Jensen-Shannon divergence on {', '.join(found.ood_names)}: {spoken(told)}"
    down = axis() | {"autorange": "reversed", "automargin": True, "showgrid": False}
    shown = layout(axis("divergence, nats"), down) | {"showlegend": len(found.ood_names) > 1}
    return Figure("divergence-ood", "Divergence on OOD inputs", words, data, shown, 90 + 26 * len(groups))


def severity_axis(found: Sizes) -> dict[str, Any]:
    return axis("severity") | {"tickvals": list(found.severities)}


def legend(across: dict[str, Any], label: str) -> dict[str, Any]:
    up = axis(label) | ({"tickformat": ".1%"} if label == describe("accuracy").label else {})
    return layout(across, up) | {"showlegend": True}


def spoken(rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Names with their values, in words."""
    return "; ".join(f"{name} {' and '.join(number(value) for value in values)}" for name, values in rows)
