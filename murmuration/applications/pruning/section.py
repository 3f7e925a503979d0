"""Pruning: validation scores over the sparsity, what is left, and where."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from murmuration.evaluation.metrics import Score, describe
from murmuration.reports.extension import ReportSection
from murmuration.reports.figures import Figure, axis, colour, layout, scale_of, scatter, whiskers
from murmuration.reports.formatting import number, percent, plural
from murmuration.reports.html import Markup, details, figure, grid, join, section, table, tag
from murmuration.reports.plots import Evaluations, Theme, as_report, one_of, pick, to_plotly
from murmuration.reports.report import Report
from murmuration.system.errors import Misuse

if TYPE_CHECKING:
    import plotly.graph_objects as go

Record = Mapping[str, Any]  # the entry `pruning` of a run's manifest
RULES = {"magnitude": "abs(mean)", "snr": "abs(mean) / std", "log-alpha": "log alpha"}
STAGES = {  # of the run itself: colour, marker, name
    "pruned": ("var(--ink)", "star", "pruned"),
    "finetuned": ("var(--series-2)", "diamond", "fine-tuned"),
}
READING = (
    "Weights of the lowest importance were set to zero. The curves show validation scores as more weights are pruned, "
    "without further training; the star marks this run, the diamond its state after fine-tuning. Test examples had no "
    "influence on how far it was pruned."
)


def scores_of(record: Mapping[str, Any]) -> dict[str, Score]:
    """The scores among the entries of a record, such as a point of the curve."""
    found = {name: value for name, value in record.items() if isinstance(value, Mapping)}
    return {name: Score(*(_number(value[end]) for end in ("value", "low", "high"))) for name, value in found.items()}


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def names_of(found: Mapping[str, Any]) -> list[str]:
    """The scores of the curve."""
    return list(scores_of(found["curve"][0])) if found["curve"] else []


def pruning(report: Report) -> Markup:
    """Curves over the sparsity, what is left, and where."""
    found = [(place, each.name, each.manifest.get("pruning")) for place, each in enumerate(report.evaluations)]
    parts = [_part(name, record, place) for place, name, record in found if record is not None]
    return section("pruning", "Pruning", READING, join(parts))


def _part(name: str, found: Record, place: int) -> Markup:
    told = tag("ul", join(tag("li", line) for line in sentences(found)))
    plots = grid(figure(curve(name, found, score, place)) for score in names_of(found))
    return join([told, plots, _levels(name, found), _layers(name, found)])


def curve(entry: str, found: Record, name: str, place: int) -> Figure:
    """A score against the share of weights that is gone, and where the run stands."""
    across, scores = [level["sparsity"] for level in found["curve"]], [scores_of(each)[name] for each in found["curve"]]
    line = _points(across, scores, colour(place), "circle", "no training afterwards") | {"mode": "lines+markers"}
    data: list[dict[str, Any]] = [line]
    for stage, (ink, mark, words) in STAGES.items():
        if stage in found:
            data.append(_points([found["reached"]], [scores_of(found[stage])[name]], ink, mark, f"this run, {words}"))
    told = describe(name).label
    scale = scale_of(scores) if name == "nll" else {}
    gone = axis("share of weights gone") | {"tickformat": ".0%", "range": [-0.02, 1.02]}
    panel = layout(gone, axis(told) | scale)
    label = f"{told} of {entry} on validation examples against the share of weights that is gone"
    return Figure(f"pruning-{place}-{name}", told, label, data, panel | {"showlegend": True}, 340)


def _points(across: list[float], scores: list[Score], ink: str, mark: str, name: str) -> dict[str, Any]:
    size = 8 if mark == "circle" else 14
    values, low, high = ([getattr(s, end) for s in scores] for end in ("real", "low", "high"))
    return scatter("markers", across, values, name) | {
        "line": {"color": ink, "width": 2},
        "marker": {"color": ink, "symbol": mark, "size": size},
        "error_y": whiskers(values, low, high) | {"color": ink, "width": 2},
        "hovertemplate": "%{x:.1%} gone: %{y:.4g}<extra></extra>",
    }


def _levels(entry: str, found: Record) -> Markup:
    columns, rows = table_rows(found)
    cells = [(first, rest) for first, *rest in rows]
    heads = [column[:1].upper() + column[1:] for column in columns]
    board = table(f"{entry} on validation examples as weights go, without training afterwards", heads, cells)
    return details("Numbers", board)


def _layers(entry: str, found: Record) -> Markup:
    rows = [(layer["name"], [f"{layer['weights']:,}", percent(layer["kept"])]) for layer in found["layers"]]
    columns = ["Kernel", "Weights of a member", "Left"]
    return details("Layer by layer", table(f"What is left of the layers of {entry}", columns, rows))


def table_rows(found: Record) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the curve as a table."""
    names, structured = names_of(found), found["structured"]
    rows = [
        [
            *([percent(level["asked"])] if structured else []),
            percent(level["sparsity"]),
            f"{level['nonzero']:,}",
            *(number(scores_of(level)[name]) for name in names),
        ]
        for level in found["curve"]
    ]
    heads = ["channels gone"] if structured else []
    return [*heads, "weights gone", "not zero", *(describe(name).label for name in names)], rows


def sentences(found: Record) -> list[str]:
    """How far it went, what is left, and what that did to the scores."""
    counts = found["counts"]
    what = "channels by their mean magnitude" if found["structured"] else f"weights by {RULES[found['rule']]}"
    line = f", threshold {found['threshold']:g}" if found["threshold"] is not None else ""
    by = "; validation examples chose how far" if found["chosen"] else ""
    left = (
        f"The network was rebuilt without them: {counts['dense']:,} parameters are left"
        if found.get("compact")
        else f"Of {counts['dense']:,} parameters, {counts['nonzero']:,} are not zero"
    )
    told = [
        f"{percent(found['reached'])} of the kernels' weights are gone: {what}, {found['scope']}{line}{by}.",
        f"{left}; {counts['numbers']:,} numbers describe them ({counts['numbers_before']:,} before pruning), standard "
        "deviations of Gaussian weights included.",
    ]
    for name in names_of(found):
        stages = [(found["curve"][0], "before"), (found["pruned"], "pruned")]
        if "finetuned" in found:
            stages.append((found["finetuned"], f"after {plural(found['finetune'], 'epoch')} of fine-tuning"))
        steps = [f"{number(scores_of(record)[name])} {when}" for record, when in stages]
        told.append(f"{describe(name).label} on validation examples: {', '.join(steps)}.")
    return told


def _finding(record: Record, who: str) -> str:
    counts = record["counts"]
    left = f"{counts['numbers']:,} numbers are left of {counts['numbers_before']:,}"
    return f"{who} was pruned: {percent(record['reached'])} of the kernels' weights were removed, and {left}."


SECTION = ReportSection(
    key="pruning",
    group="Model",
    build=pruning,
    mark="pruned",
    qualifier=lambda record: f"with {percent(record['reached'])} of its kernels' weights pruned",
    finding=_finding,
)


def pruning_figure(
    source: Evaluations, score: str | None = None, *, name: str | None = None, theme: Theme = "light"
) -> "go.Figure":
    """Draw a validation score against the sparsity of a pruned run.

    Args:
        source: An evaluation, several, or a report.
        score: The score to draw; the first of the run's record by default.
        name: The recipe, if there are several.
        theme: "light" or "dark".

    Returns:
        A plotly figure.
    """
    place, evaluation = one_of(as_report(source), name)
    if "pruning" not in evaluation.manifest:
        raise Misuse(f"'{evaluation.name}' was not pruned: write murmur prune RUN")
    record = evaluation.manifest["pruning"]
    missing = f"'{evaluation.name}' has no pruning curve"
    return to_plotly(
        curve(evaluation.name, record, pick("score over the sparsity", score, names_of(record), missing), place), theme
    )
