"""Figures of the experiment: curves over the number of members, one per width."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from murmuration.analysis.regimes import spike_threshold
from murmuration.papers.embedded.record import Results
from murmuration.papers.embedded.settings import BETWEEN, PROBED, between_name
from murmuration.papers.verdicts import standard_error
from murmuration.reports.figures import Figure, axis, colour, dash, layout, numbers, symbol

FLOOR = 5e-4  # errors below this are drawn here: the axis is logarithmic
ACCURACIES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
PANELS = {  # score -> what it is
    "accuracy": "ensemble test accuracy",
    "member_accuracy": "mean member test accuracy",
    "member_train_accuracy": "mean member training accuracy",
    "disagreement": "disagreement between members",
}


@dataclass(frozen=True)
class SeedStatistics:
    """Means over seeds and their standard errors."""

    x: list[float]
    mean: list[float]
    error: list[float]


def seed_statistics(xs: Sequence[float], values: Iterable[list[float]]) -> SeedStatistics:
    """Means and standard errors over seeds at every x that has values."""
    there = [(x, found) for x, found in zip(xs, values, strict=True) if found]
    means = [sum(found) / len(found) for _, found in there]
    return SeedStatistics([x for x, _ in there], means, [standard_error(found) for _, found in there])


def curve(statistics: SeedStatistics, ink: str, mark: str, name: str, *, faint: bool = False) -> dict[str, Any]:
    """A line with error bars of one standard error; a faint one is dotted and without markers."""
    return {
        "type": "scatter",
        "mode": "lines" if faint else "lines+markers",
        "x": numbers(statistics.x),
        "y": numbers(statistics.mean),
        "name": name,
        "line": {"color": ink, "width": 1.3 if faint else 2, "dash": "dot" if faint else "solid"},
        "marker": {"color": ink, "symbol": mark, "size": 7},
        **(
            {} if faint else {"error_y": {"type": "data", "array": numbers(statistics.error), "color": ink, "width": 2}}
        ),
        "hovertemplate": f"{name}, %{{x}}: %{{customdata:.4f}}<extra></extra>",
        "customdata": numbers(statistics.mean),
        "showlegend": not faint,
        "legendgroup": name,
    }


def as_error(trace: dict[str, Any]) -> dict[str, Any]:
    """The curve of an accuracy as that of its error, for a reversed logarithmic axis."""
    return {**trace, "y": [None if y is None else max(1 - y, FLOOR) for y in trace["y"]]}


def accuracy_axis(title: str) -> dict[str, Any]:
    """A reversed logarithmic axis of errors, labelled by accuracies."""
    ticks = [max(1 - accuracy, FLOOR) for accuracy in ACCURACIES]
    labels = {"type": "log", "autorange": "reversed", "tickvals": ticks, "ticktext": [f"{a:g}" for a in ACCURACIES]}
    return axis(title) | labels


def models_axis(models: Sequence[int]) -> dict[str, Any]:
    ticks = {"tickvals": list(models), "ticktext": [str(each) for each in models]}
    return axis("number of models M") | {"type": "log", **ticks}


def line_panel(found: Results, arm: str, score: str, letter: str = "") -> Figure | None:
    """One score of an arm against the number of members, one curve per width; separate networks are dotted."""
    apart = score == "disagreement"
    models = [each for each in found.models if each > 1 or not apart]  # one member agrees with itself
    data = []
    for place, width in enumerate(found.widths):
        name = f"N={found.neurons(width)}"
        for each in dict.fromkeys((arm, "naive")):
            statistics = seed_statistics(models, (found.over_seeds(each, width, m, score) for m in models))
            if statistics.x:
                drawn = curve(statistics, colour(place), symbol(place), name, faint=each != arm)
                data.append(drawn if apart else as_error(drawn))
    if not data:
        return None
    up = axis("fraction of pairs that differ") | {"rangemode": "tozero"} if apart else accuracy_axis("accuracy")
    title = f"({letter}) {PANELS[score]}" if letter else PANELS[score]
    label = f"{arm}: {PANELS[score]} against the number of models, by width"
    panel = layout(models_axis(models), up) | {"showlegend": True}
    return Figure(f"{slug(arm)}-{score.replace('_', '-')}", title, label, data, panel, 340)


def slug(arm: str) -> str:
    """The arm's name as part of an id.

    >>> slug("masks-0.5")
    'masks-0-5'
    """
    return arm.replace(".", "-")


def parameters_panel(found: Results) -> Figure | None:
    """Ensemble accuracy against stored parameters, one marker per width and number of members, one colour per arm."""
    data = []
    for place, arm in enumerate(found.arms):
        marks = [(w, m) for w in found.widths for m in found.models if found.over_seeds(arm, w, m, "accuracy")]
        if arm != "naive":
            marks = [(w, m) for w, m in marks if m > 1]
        size = [found.over_seeds(arm, w, m, "parameters")[0] for w, m in marks]
        means = [sum(each) / len(each) for w, m in marks if (each := found.over_seeds(arm, w, m, "accuracy"))]
        trace = curve(SeedStatistics(size, means, []), colour(place), symbol(place), arm)
        trace |= {"mode": "markers", "text": [f"N={found.neurons(w)}, M={m}" for w, m in marks]}
        trace |= {"hovertemplate": f"{arm}, %{{text}}: %{{customdata:.4f}}<extra></extra>"}
        data.append({key: value for key, value in as_error(trace).items() if key != "error_y"})
    if not data:
        return None
    across = axis("stored parameters") | {"type": "log", "dtick": 1, "exponentformat": "power"}
    panel = layout(across, accuracy_axis("accuracy")) | {"showlegend": True}
    title = "(d) ensemble test accuracy against stored parameters, all arms"
    return Figure("parameters", title, title.removeprefix("(d) "), data, panel, 460)


def between_panel(found: Results, scores: dict[str, str], name: str, title: str) -> Figure | None:
    """Scores against the mean of factors, with the predicted threshold."""
    width, (models,) = PROBED[BETWEEN]
    data = []
    for place, (score, words) in enumerate(scores.items()):
        values = (found.over_seeds(between_name(mean), width, models, score) for mean in found.means)
        statistics = seed_statistics(found.means, values)
        if statistics.x:
            data.append(curve(statistics, colour(place), symbol(place), words))
    if not data:
        return None
    panel = layout(axis("mean m of factors"), axis()) | {"showlegend": True}
    panel["shapes"] = [guide(spike_threshold(models, found.neurons(width)))]
    return Figure(name, title, f"{title} against the mean of factors", data, panel, 320)


def guide(x: float) -> dict[str, Any]:
    """A dotted vertical line."""
    line = {"color": "var(--ink-soft)", "width": 1, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def probe_panel(found: Results, arms: dict[str, str], kind: str, name: str, title: str) -> Figure | None:
    """The largest step, or the number of steps, against M, both axes logarithmic."""
    width, models = PROBED[kind]
    data = []
    for place, (arm, words) in enumerate(arms.items()):
        statistics = seed_statistics(models, (found.over_seeds(arm, width, m, "value") for m in models))
        if statistics.x:
            drawn = curve(statistics, colour(place), symbol(place), words)
            data.append(drawn | {"line": {"color": colour(place), "width": 2, "dash": dash(place)}})
    if not data:
        return None
    ticks = [step * 10.0**power for power in range(-4, 5) for step in (1, 2, 5)]
    up = axis() | {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    panel = layout(models_axis(models), up) | {"showlegend": True}
    return Figure(name, title, f"{title} against the number of models", data, panel, 320)
