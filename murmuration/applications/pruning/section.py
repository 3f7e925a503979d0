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
    """Return the scores among the entries of a record, such as a point of the curve."""
    entries = {name: value for name, value in record.items() if isinstance(value, Mapping)}
    return {name: Score(*(_number(value[end]) for end in ("value", "low", "high"))) for name, value in entries.items()}


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def names_of(found: Mapping[str, Any]) -> list[str]:
    """Return the scores of the curve."""
    return list(scores_of(found["curve"][0])) if found["curve"] else []


def pruning(report: Report) -> Markup:
    """Return curves over the sparsity, what is left, and where."""
    records = [
        (place, evaluation.name, evaluation.manifest.get("pruning"))
        for place, evaluation in enumerate(report.evaluations)
    ]
    parts = [_part(name, record, place) for place, name, record in records if record is not None]
    return section("pruning", "Pruning", READING, join(parts))


def _part(name: str, record: Record, place: int) -> Markup:
    items = tag("ul", join(tag("li", line) for line in sentences(record)))
    plots = grid(figure(curve(name, record, score, place)) for score in names_of(record))
    return join([items, plots, _levels(name, record), _layers(name, record)])


def curve(entry: str, record: Record, name: str, place: int) -> Figure:
    """Return a score against the share of weights that is gone, and where the run stands."""
    across, scores = (
        [level["sparsity"] for level in record["curve"]],
        [scores_of(point)[name] for point in record["curve"]],
    )
    line = _points(across, scores, colour(place), "circle", "no training afterwards") | {"mode": "lines+markers"}
    data: list[dict[str, Any]] = [line]
    for stage, (ink, mark, words) in STAGES.items():
        if stage in record:
            data.append(_points([record["reached"]], [scores_of(record[stage])[name]], ink, mark, f"this run, {words}"))
    title = describe(name).label
    scale = scale_of(scores) if name == "nll" else {}
    gone = axis("share of weights gone") | {"tickformat": ".0%", "range": [-0.02, 1.02]}
    panel = layout(gone, axis(title) | scale)
    label = f"{title} of {entry} on validation examples against the share of weights that is gone"
    return Figure(f"pruning-{place}-{name}", title, label, data, panel | {"showlegend": True}, 340)


def _points(across: list[float], scores: list[Score], ink: str, mark: str, name: str) -> dict[str, Any]:
    size = 8 if mark == "circle" else 14
    values, low, high = ([getattr(s, end) for s in scores] for end in ("real", "low", "high"))
    return scatter("markers", across, values, name) | {
        "line": {"color": ink, "width": 2},
        "marker": {"color": ink, "symbol": mark, "size": size},
        "error_y": whiskers(values, low, high) | {"color": ink, "width": 2},
        "hovertemplate": "%{x:.1%} gone: %{y:.4g}<extra></extra>",
    }


def _levels(entry: str, record: Record) -> Markup:
    columns, rows = table_rows(record)
    cells = [(first, values) for first, *values in rows]
    heads = [column[:1].upper() + column[1:] for column in columns]
    board = table(f"{entry} on validation examples as weights go, without training afterwards", heads, cells)
    return details("Numbers", board)


def _layers(entry: str, found: Record) -> Markup:
    rows = [(layer["name"], [f"{layer['weights']:,}", percent(layer["kept"])]) for layer in found["layers"]]
    columns = ["Kernel", "Weights of a member", "Left"]
    return details("Layer by layer", table(f"What is left of the layers of {entry}", columns, rows))


def table_rows(found: Record) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of the curve as a table."""
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


def sentences(record: Record) -> list[str]:
    """Return how far it went, what is left, and what that did to the scores."""
    counts = record["counts"]
    removed = "channels by their mean magnitude" if record["structured"] else f"weights by {RULES[record['rule']]}"
    line = f", threshold {record['threshold']:g}" if record["threshold"] is not None else ""
    by = "; validation examples chose how far" if record["chosen"] else ""
    remaining = (
        f"The network was rebuilt without them: {counts['dense']:,} parameters are left"
        if record.get("compact")
        else f"Of {counts['dense']:,} parameters, {counts['nonzero']:,} are not zero"
    )
    lines = [
        f"{percent(record['reached'])} of the kernels' weights are gone: {removed}, {record['scope']}{line}{by}.",
        f"{remaining}; {counts['numbers']:,} numbers describe them ({counts['numbers_before']:,} before pruning), "
        "standard deviations of Gaussian weights included.",
    ]
    for name in names_of(record):
        stages = [(record["curve"][0], "before"), (record["pruned"], "pruned")]
        if "finetuned" in record:
            stages.append((record["finetuned"], f"after {plural(record['finetune'], 'epoch')} of fine-tuning"))
        steps = [f"{number(scores_of(stage_record)[name])} {when}" for stage_record, when in stages]
        lines.append(f"{describe(name).label} on validation examples: {', '.join(steps)}.")
    return lines


def _finding(record: Record, who: str) -> str:
    counts = record["counts"]
    numbers = f"{counts['numbers']:,} numbers are left of {counts['numbers_before']:,}"
    return f"{who} was pruned: {percent(record['reached'])} of the kernels' weights were removed, and {numbers}."


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
