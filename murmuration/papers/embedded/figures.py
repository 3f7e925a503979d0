"""Figures of the experiment: curves over the number of members, one per width."""

from collections.abc import Iterable, Sequence
from typing import Any

from murmuration.analysis.kernels import spike_threshold
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


def curve(
    xs: Sequence[float], values: Iterable[list[float]], place: int, name: str, *, faint: bool = False
) -> list[dict[str, Any]]:
    """A line of means over seeds at every x that has values, with error bars of one standard error; [] without any.

    A faint one is dotted and without markers or error bars. `place` decides its colour and marker.
    """
    there = [(x, found) for x, found in zip(xs, values, strict=True) if found]
    means, ink = numbers(sum(found) / len(found) for _, found in there), colour(place)
    errors = numbers(standard_error(found) for _, found in there)
    bars = {} if faint else {"error_y": {"type": "data", "array": errors, "color": ink, "width": 2}}
    line = {
        "type": "scatter",
        "mode": "lines" if faint else "lines+markers",
        "x": numbers(x for x, _ in there),
        "y": means,
        "name": name,
        "line": {"color": ink, "width": 1.3 if faint else 2, "dash": "dot" if faint else "solid"},
        "marker": {"color": ink, "symbol": symbol(place), "size": 7},
        **bars,
        "hovertemplate": f"{name}, %{{x}}: %{{customdata:.4f}}<extra></extra>",
        "customdata": means,
        "showlegend": not faint,
        "legendgroup": name,
    }
    return [line] if there else []


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
    data: list[dict[str, Any]] = []
    for place, width in enumerate(found.widths):
        name = f"N={found.neurons(width)}"
        for each in dict.fromkeys((arm, "naive")):
            values = (found.over_seeds(each, width, m, score) for m in models)
            drawn = curve(models, values, place, name, faint=each != arm)
            data += drawn if apart else map(as_error, drawn)
    if not data:
        return None
    up = axis("fraction of pairs that differ") | {"rangemode": "tozero"} if apart else accuracy_axis("accuracy")
    title = f"({letter}) {PANELS[score]}" if letter else PANELS[score]
    label = f"{arm}: {PANELS[score]} against the number of models, by width"
    panel = layout(models_axis(models), up) | {"showlegend": True}
    name = f"{arm}-{score}".replace(".", "-").replace("_", "-")  # an id, such as masks-0-5-member-accuracy
    return Figure(name, title, label, data, panel, 340)


def parameters_panel(found: Results) -> Figure | None:
    """Ensemble accuracy against stored parameters, one marker per width and number of members, one colour per arm."""
    data: list[dict[str, Any]] = []
    for place, arm in enumerate(found.arms):
        marks = [(w, m) for w in found.widths for m in found.models if found.over_seeds(arm, w, m, "accuracy")]
        if arm != "naive":
            marks = [(w, m) for w, m in marks if m > 1]
        size = [found.over_seeds(arm, w, m, "parameters")[0] for w, m in marks]
        accuracies = (found.over_seeds(arm, w, m, "accuracy") for w, m in marks)
        words = {"mode": "markers", "text": [f"N={found.neurons(w)}, M={m}" for w, m in marks]}
        words["hovertemplate"] = f"{arm}, %{{text}}: %{{customdata:.4f}}<extra></extra>"
        for trace in curve(size, accuracies, place, arm):
            del trace["error_y"]
            data.append(as_error(trace) | words)
    if not data:
        return None
    across = axis("stored parameters") | {"type": "log", "dtick": 1, "exponentformat": "power"}
    panel = layout(across, accuracy_axis("accuracy")) | {"showlegend": True}
    title = "(d) ensemble test accuracy against stored parameters, all arms"
    return Figure("parameters", title, title.removeprefix("(d) "), data, panel, 460)


def between_panel(found: Results, scores: dict[str, str], name: str, title: str) -> Figure | None:
    """Scores against the mean of factors, with the predicted threshold."""
    width, (models,) = PROBED[BETWEEN]
    data: list[dict[str, Any]] = []
    for place, (score, words) in enumerate(scores.items()):
        values = (found.over_seeds(between_name(mean), width, models, score) for mean in found.means)
        data += curve(found.means, values, place, words)
    if not data:
        return None
    panel = layout(axis("mean m of factors"), axis()) | {"showlegend": True}
    x, dotted = spike_threshold(models, found.neurons(width)), {"color": "var(--ink-soft)", "width": 1, "dash": "dot"}
    panel["shapes"] = [{"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": dotted}]
    return Figure(name, title, f"{title} against the mean of factors", data, panel, 320)


def probe_panel(found: Results, arms: dict[str, str], kind: str, name: str, title: str) -> Figure | None:
    """The largest step, or the number of steps, against M, both axes logarithmic."""
    width, models = PROBED[kind]
    data: list[dict[str, Any]] = []
    for place, (arm, words) in enumerate(arms.items()):
        values = (found.over_seeds(arm, width, m, "value") for m in models)
        line = {"line": {"color": colour(place), "width": 2, "dash": dash(place)}}
        data += [drawn | line for drawn in curve(models, values, place, words)]
    if not data:
        return None
    ticks = [step * 10.0**power for power in range(-4, 5) for step in (1, 2, 5)]
    up = axis() | {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    panel = layout(models_axis(models), up) | {"showlegend": True}
    return Figure(name, title, f"{title} against the number of models", data, panel, 320)
