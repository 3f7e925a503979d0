"""The page of the experiment in one file: verdicts, curves over the number of members, kernels and settings."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import murmuration.studies.papers.embedded.predictions as predictions
import murmuration.studies.papers.embedded.theorems as theorems
from murmuration.reports.figures import Figure, axis, colour, dash, layout, numbers, scale_of, scatter, symbol
from murmuration.reports.formatting import MISSING, number
from murmuration.reports.html import Markup, details, figure, grid, join, section, table, tag
from murmuration.reports.page import framed
from murmuration.studies.kernels import spike_threshold
from murmuration.studies.papers.embedded.record import Results
from murmuration.studies.papers.embedded.settings import ARMS, BETWEEN, PROBED, between_name
from murmuration.studies.papers.page import settings_section, verdicts_section
from murmuration.studies.papers.record import Record
from murmuration.studies.verdicts import mean_interval, standard_error

FLOOR = 5e-4  # errors below this are drawn here: the axis is logarithmic
ACCURACIES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
PANELS = {  # score -> what it is
    "accuracy": "ensemble test accuracy",
    "member_accuracy": "mean member test accuracy",
    "member_train_accuracy": "mean member training accuracy",
    "disagreement": "disagreement between members",
}
TITLE = "Ensembles inside one network"


def curve(
    xs: Sequence[float], values: Iterable[list[float]], place: int, name: str, *, faint: bool = False
) -> list[dict[str, Any]]:
    """Return a line of means over seeds at every x that has values, with error bars of one standard error.

    [] without any.

    A faint one is dotted and without markers or error bars. `place` decides its colour and marker.
    """
    measured = [(x, seeds) for x, seeds in zip(xs, values, strict=True) if seeds]
    means, ink = numbers(sum(seeds) / len(seeds) for _, seeds in measured), colour(place)
    errors = numbers(standard_error(seeds) for _, seeds in measured)
    bars = {} if faint else {"error_y": {"type": "data", "array": errors, "color": ink, "width": 2}}
    line = scatter("lines" if faint else "lines+markers", (x for x, _ in measured), means, name) | {
        "line": {"color": ink, "width": 1.3 if faint else 2, "dash": "dot" if faint else "solid"},
        "marker": {"color": ink, "symbol": symbol(place), "size": 7},
        **bars,
        "hovertemplate": f"{name}, %{{x}}: %{{customdata:.4f}}<extra></extra>",
        "customdata": means,
        "showlegend": not faint,
        "legendgroup": name,
    }
    return [line] if measured else []


def as_error(trace: dict[str, Any]) -> dict[str, Any]:
    """Return the curve of an accuracy as that of its error, for a reversed logarithmic axis."""
    return {**trace, "y": [None if y is None else max(1 - y, FLOOR) for y in trace["y"]]}


def accuracy_axis(title: str) -> dict[str, Any]:
    """Return a reversed logarithmic axis of errors, labelled by accuracies."""
    ticks = [max(1 - accuracy, FLOOR) for accuracy in ACCURACIES]
    labels = {"type": "log", "autorange": "reversed", "tickvals": ticks, "ticktext": [f"{a:g}" for a in ACCURACIES]}
    return axis(title) | labels


def models_axis(models: Sequence[int]) -> dict[str, Any]:
    ticks = {"tickvals": list(models), "ticktext": [str(count) for count in models]}
    return axis("number of models M") | {"type": "log", **ticks}


def line_panel(results: Results, arm: str, score: str, letter: str = "") -> Figure | None:
    """Return one score of an arm against the number of members, one curve per width; separate networks are dotted."""
    apart = score == "disagreement"
    models = [choice for choice in results.models if choice > 1 or not apart]  # one member agrees with itself
    data: list[dict[str, Any]] = []
    for place, width in enumerate(results.widths):
        name = f"N={results.neurons(width)}"
        for choice in dict.fromkeys((arm, "naive")):
            values = (results.over_seeds(choice, width, m, score) for m in models)
            lines = curve(models, values, place, name, faint=choice != arm)
            data += lines if apart else map(as_error, lines)
    up = axis("fraction of pairs that differ") | {"rangemode": "tozero"} if apart else accuracy_axis("accuracy")
    title = f"({letter}) {PANELS[score]}" if letter else PANELS[score]
    label = f"{arm}: {PANELS[score]} against the number of models, by width"
    panel = layout(models_axis(models), up) | {"showlegend": True}
    name = f"{arm}-{score}".replace(".", "-").replace("_", "-")  # an id, such as masks-0-5-member-accuracy
    return Figure(name, title, label, data, panel, 340) if data else None


def parameters_panel(found: Results) -> Figure | None:
    """Ensemble accuracy against stored parameters, one marker per width and number of members, one colour per arm."""
    data: list[dict[str, Any]] = []
    sizes: list[float] = []
    for place, arm in enumerate(found.arms):
        models = [m for m in found.models if m > 1 or arm == "naive"]
        marks = [(w, m) for w in found.widths for m in models if found.over_seeds(arm, w, m, "accuracy")]
        size = [found.over_seeds(arm, w, m, "parameters")[0] for w, m in marks]
        sizes += size
        accuracies = (found.over_seeds(arm, w, m, "accuracy") for w, m in marks)
        words = {"mode": "markers", "text": [f"N={found.neurons(w)}, M={m}" for w, m in marks]}
        words["hovertemplate"] = f"{arm}, %{{text}}: %{{customdata:.4f}}<extra></extra>"
        for trace in curve(size, accuracies, place, arm):
            del trace["error_y"]
            data.append(as_error(trace) | words)
    if not data:
        return None
    panel = layout(axis("stored parameters") | scale_of(sizes), accuracy_axis("accuracy")) | {"showlegend": True}
    title = "(d) ensemble test accuracy against stored parameters, all arms"
    return Figure("parameters", title, title.removeprefix("(d) "), data, panel, 460)


def between_panel(found: Results, scores: dict[str, str], name: str, title: str) -> Figure | None:
    """Return scores against the mean of factors, with the predicted threshold."""
    width, (models,) = PROBED[BETWEEN]
    data: list[dict[str, Any]] = []
    for place, (score, words) in enumerate(scores.items()):
        values = (found.over_seeds(between_name(mean), width, models, score) for mean in found.means)
        data += curve(found.means, values, place, words)
    panel = layout(axis("mean m of factors"), axis()) | {"showlegend": True}
    x, dotted = spike_threshold(models, found.neurons(width)), {"color": "var(--ink-soft)", "width": 1, "dash": "dot"}
    panel["shapes"] = [{"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": dotted}]
    return Figure(name, title, f"{title} against the mean of factors", data, panel, 320) if data else None


def logarithmic() -> dict[str, Any]:
    """Return a logarithmic axis that is labelled at 1, 2 and 5 of every power of ten."""
    ticks = [step * 10.0**power for power in range(-4, 5) for step in (1, 2, 5)]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def probe_panel(results: Results, arms: dict[str, str], kind: str, name: str, title: str) -> Figure | None:
    """Return the largest step, or the number of steps, against M, both axes logarithmic."""
    width, models = PROBED[kind]
    data: list[dict[str, Any]] = []
    for place, (arm, words) in enumerate(arms.items()):
        values = (results.over_seeds(arm, width, m, "value") for m in models)
        line = {"line": {"color": colour(place), "width": 2, "dash": dash(place)}}
        data += [trace | line for trace in curve(models, values, place, words)]
    up = axis() | logarithmic()
    panel = layout(models_axis(models), up) | {"showlegend": True}
    return Figure(name, title, f"{title} against the number of models", data, panel, 320) if data else None


def page(record: Record, command: str = "") -> str:
    """Return the whole page."""
    results = Results(record)
    subtitle = f"{record['data']['name']} · {len(results.cells):,} cells · seeds {', '.join(map(str, results.seeds))}"
    panels = (main_figure, other_arms, regimes, probes, tables) if results.cells else ()
    parts = [part(results) for part in (opening, *panels, theorem_figures)]
    return framed(TITLE, subtitle, join([*parts, settings(results, command)]))


def opening(results: Results) -> Markup:
    """Return the predictions and their verdicts."""
    about = (
        "The members of an embedded ensemble share the kernels of one network and differ by one factor per neuron. The "
        "theory of infinitely wide networks says when they learn like separate networks. Intervals are Student's t, "
        "over three seeds or more."
    )
    judged = predictions.verdicts(results.record)
    judged += theorems.verdicts(results.record["theorems"], results.setting.layers)
    return verdicts_section(judged, about, "predictions", predictions.undertrained(results))


def main_figure(found: Results) -> Markup:
    """Return the four panels of the figure in the paper."""
    if "independent" not in found.arms:
        return Markup("")
    letters = dict(zip(PANELS, "abc", strict=False))
    plots = [figure(line_panel(found, "independent", score, letters.get(score, ""))) for score in PANELS]
    reading = (
        "Solid: members inside one network, in the independent regime. Dotted, in the same colour: as many separate "
        "networks of that width. N is the number of neurons in each hidden layer, or of channels in the first "
        "convolution. Whiskers are one standard error over seeds. Accuracy is drawn by the logarithm of the error."
    )
    body = join([grid(plots), figure(parameters_panel(found))])
    return section("figure", "Independent members", reading, body)


def other_arms(results: Results) -> Markup:
    """Return the same panels for every other arm."""
    parts = []
    for arm in (arm for arm in results.arms if arm not in ("independent", "naive")):
        scores = ["accuracy", "member_train_accuracy"] if arm == "single" else list(PANELS)
        plots = grid(figure(line_panel(results, arm, score)) for score in scores)
        parts.append(join([tag("h3", f"{arm}: {ARMS[arm].about}", "part"), plots]))
    reading = "Dotted, as before, are separate networks."
    return section("arms", "Other ways to embed", reading, join(parts))


def regimes(found: Results) -> Markup:
    """Return scores and kernels between the regimes."""
    width, (models,) = PROBED[BETWEEN]
    plots = [
        figure(between_panel(found, scores, name, title))
        for name, title, scores in (
            ("top", "largest eigenvalue of alignments at the start", {"top_alignment": "1 if members are unrelated"}),
            ("ratio", "T_o / T_d at the start", {"tangent_ratio": "T_o / T_d"}),
            ("worth", "accuracy", {"accuracy": "ensemble", "member_accuracy": "a member alone"}),
            ("apart", "disagreement between members", {"disagreement": "fraction of pairs that differ"}),
        )
    ]
    reading = (
        f"Factors m + sqrt(1 - m²) noise, from independent (m = 0) to equal (m = 1), for M = {models} and N = "
        f"{found.neurons(width)}; shared weights move by gamma = M / (1 + (M - 1) T_o / T_d). The dotted line is "
        "(M N)^(-1/4), where a layer of constant features would switch. An alignment of two members is their tangent "
        "kernel over the roots of their own."
    )
    return section("between", "Between the regimes", reading, grid(plots))


def probes(results: Results) -> Markup:
    """Return largest stable step and number of steps, by gamma."""
    words = {"": "sum of gradients (gamma = M)", "-mean": "mean (gamma = 1)"}
    plots = [
        figure(probe_panel(results, {f"{arm}{end}": label for end, label in words.items()}, kind, arm, title))
        for arm, kind, title in (
            ("largest-step", "step", "largest stable step, collective"),
            ("steps", "steps", "steps to half the loss, independent"),
        )
    ]
    reading = (
        "Shared weights move by gamma / M times the sum of members' gradients. Both panels are of plain gradient "
        f"descent at N = {results.neurons(1.0)}."
    )
    return section("gamma", "Sum or mean", reading, grid(plots))


MEASURES = {  # of the theorems -> title, and the exponent of the dotted line
    "kurtosis": ("excess kurtosis of outputs", -1.0),
    "correlation": ("correlation of two members' outputs", None),
    "spread": ("spread of tangent kernels over initialisations", -0.5),
    "between": ("tangent kernels between members, over those within", -0.5),
    "change": ("change of tangent kernels in training", -0.5),
}


def theorem_figures(results: Results) -> Markup:
    """Return Gaussianity, independence, determinacy and constancy against width."""
    entries = results.record["theorems"]
    if not entries:
        return Markup("")
    plots = [figure(theorem_panel(entries, measure, *about)) for measure, about in MEASURES.items()]
    reading = (
        f"Networks of {results.setting.layers} hidden layers in the parameterisation of the theory "
        f"(mlp:scale=ntk), {theorems.MEMBERS} members, before training and after {theorems.STEPS} steps of plain "
        "gradient descent. Lines are means over seeds with one standard error; dotted, the rate of the theory through "
        "the first point."
    )
    return section("theorems", "Theorems at finite width", reading, grid(plots))


def theorem_panel(entries: Sequence[dict[str, Any]], measure: str, title: str, rate: float | None) -> Figure:
    """Return one measure of both arms against the width."""
    widths = sorted({entry["neurons"] for entry in entries})
    data: list[dict[str, Any]] = []
    for place, arm in enumerate(theorems.ARMS):
        values = [[e[measure] for e in entries if (e["arm"], e["neurons"]) == (arm, width)] for width in widths]
        data += curve(widths, values, place, arm)
        if rate is not None and all(values) and (measure != "between" or arm == "independent"):
            first = sum(values[0]) / len(values[0])
            line = scatter("lines", widths, [first * (width / widths[0]) ** rate for width in widths], "")
            look = {"color": colour(place), "width": 1.3, "dash": "dot"}
            data.append(line | {"line": look, "showlegend": False, "hoverinfo": "skip"})
    across = axis("width N") | {"type": "log", "tickvals": widths, "ticktext": list(map(str, widths))}
    up = axis() | (logarithmic() if rate is not None else {"rangemode": "tozero"})
    panel = layout(across, up) | {"showlegend": True}
    return Figure(f"theorem-{measure}", title, f"{title} against width", data, panel, 320)


def tables(found: Results) -> Markup:
    """Return the values behind the panels, and the measured kernels."""
    parts = [ratio_table(found)]
    for arm, (score, words) in itertools.product(found.arms, PANELS.items()):
        cells = {w: [interval_text(found, arm, w, m, score) for m in found.models] for w in found.widths}
        columns, rows = ["N", *(f"M={m}" for m in found.models)], [(found.neurons(w), row) for w, row in cells.items()]
        parts.append(details(f"{arm}: {words}", table(f"{arm}: {words}", columns, rows)))
    reading = (
        "T_o / T_d is the tangent kernel between two members over that of one, before training: means over seeds and "
        "M, of the parameters as they are stored. Below it, means over seeds of every panel and half the width of "
        "their 95 % interval (Student's t)."
    )
    return section("numbers", "Numbers", reading, join(parts))


def ratio_table(found: Results) -> Markup:
    """Return T_o / T_d by arm and width."""
    arms = [arm for arm in found.arms if mean_ratio(found, arm, found.widths) != MISSING]
    columns = ["Arm", *(f"N={found.neurons(width)}" for width in found.widths)]
    rows = [(arm, [mean_ratio(found, arm, [width]) for width in found.widths]) for arm in arms]
    return table("T_o / T_d before training", columns, rows)


def mean_ratio(found: Results, arm: str, widths: list[float]) -> str:
    """Return the mean T_o / T_d of an arm at some widths."""
    values = [v for w in widths for m in found.models if m > 1 for v in found.over_seeds(arm, w, m, "tangent_ratio")]
    return number(sum(values) / len(values)) if values else MISSING


def interval_text(found: Results, arm: str, width: float, models: int, score: str) -> str:
    """Return the mean over seeds and half the width of its interval."""
    mean, low, high = mean_interval(found.over_seeds(arm, width, models, score))
    if not math.isfinite(mean):
        return MISSING
    return f"{mean:.3f} ± {(high - low) / 2:.3f}" if math.isfinite(low) else f"{mean:.3f}"


def settings(results: Results, command: str) -> Markup:
    """Return the settings, data and versions."""
    data, diverged = results.record["data"], sum(cell.get("diverged", 0) > 0 for cell in results.cells.values())
    facts = {
        "Command": command,
        "Data": f"{data['name']}, {', '.join(f'{part} {size:,}' for part, size in data['examples'].items())}",
        "Fingerprint": data["fingerprint"],
        "Network": f"dense, {results.setting.layers} hidden layers of N = {results.setting.base} x width, ReLU"
        if results.setting.net == "mlp"
        else f"{results.setting.net}, channels N, 2 N, 2 N with N = {results.setting.base} x width",
        "Training": f"SGD, momentum {results.setting.momentum:g}, step {results.setting.lr:g} along a cosine, batches "
        f"of {results.setting.batch_size}, {results.setting.epochs} epochs; all members see the same batches",
        "Arms": "; ".join(
            f"{name}: {arm.sharing}, {arm.weights}" for name, arm in ARMS.items() if name in results.arms
        ),
        "Cells with members that diverged": str(diverged),
        "Versions": ", ".join(f"{name} {version}" for name, version in results.record["versions"].items()),
    }
    reading = (
        "As in the theory: factors before and after each activation, own biases, and the same batches for all members."
    )
    return settings_section(facts, reading)
