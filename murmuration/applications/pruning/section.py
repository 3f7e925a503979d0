"""Pruning: validation scores over the sparsity, what is left, and where."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from murmuration.evaluation.metrics import Score, describe
from murmuration.reports.extension import ReportSection
from murmuration.reports.figures import Figure, axis, colour, layout, scale_of, scatter, whiskers
from murmuration.reports.formatting import number, percent, plural
from murmuration.reports.html import Markup, details, figure, grid, join, section, table, tag
from murmuration.reports.plotly_figures import Theme, to_plotly
from murmuration.reports.plots import Evaluations, as_report, one_of, pick
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
    ends = {name: [value["value"], value["low"], value["high"]] for name, value in entries.items()}
    return {name: Score(*(math.nan if end is None else float(end) for end in row)) for name, row in ends.items()}


def names_of(record: Record) -> list[str]:
    """Return the scores of the curve."""
    return list(scores_of(record["curve"][0])) if record["curve"] else []


def pruning(report: Report) -> Markup:
    """Return curves over the sparsity, what is left, and where."""
    parts: list[Markup] = []
    for place, evaluation in enumerate(report.evaluations):
        name, record = evaluation.name, evaluation.manifest.entries.get("pruning")
        if record is None:
            continue
        parts.append(tag("ul", join(tag("li", line) for line in sentences(record))))
        parts.append(grid(figure(curve(name, record, score, place)) for score in names_of(record)))
        columns, rows = table_rows(record)
        heads = [column[:1].upper() + column[1:] for column in columns]
        levels = [(first, values) for first, *values in rows]
        caption = f"{name} on validation examples as weights go, without training afterwards"
        parts.append(details("Numbers", table(caption, heads, levels)))
        layers = [(layer["name"], [f"{layer['weights']:,}", percent(layer["kept"])]) for layer in record["layers"]]
        board = table(f"What is left of the layers of {name}", ["Kernel", "Weights of a member", "Left"], layers)
        parts.append(details("Layer by layer", board))
    return section("pruning", "Pruning", READING, join(parts))


def curve(entry: str, record: Record, name: str, place: int) -> Figure:
    """Return a score against the share of weights that is gone, and where the run stands."""
    scores = [scores_of(level)[name] for level in record["curve"]]
    across = [level["sparsity"] for level in record["curve"]]
    line = _points(across, scores, colour(place), "circle", "no training afterwards") | {"mode": "lines+markers"}
    stages = [
        _points([record["reached"]], [scores_of(record[stage])[name]], ink, mark, f"this run, {words}")
        for stage, (ink, mark, words) in STAGES.items()
        if stage in record
    ]
    title = describe(name).label
    scale = scale_of(scores) if name == "nll" else {}
    gone = axis("share of weights gone") | {"tickformat": ".0%", "range": [-0.02, 1.02]}
    panel = layout(gone, axis(title) | scale)
    label = f"{title} of {entry} on validation examples against the share of weights that is gone"
    return Figure(f"pruning-{place}-{name}", title, label, [line, *stages], panel | {"showlegend": True}, 340)


def _points(across: list[float], scores: list[Score], ink: str, mark: str, name: str) -> dict[str, Any]:
    size = 8 if mark == "circle" else 14
    values, low, high = ([getattr(s, end) for s in scores] for end in ("real", "low", "high"))
    line, marker = {"color": ink, "width": 2}, {"color": ink, "symbol": mark, "size": size}
    look = {"line": line, "marker": marker, "error_y": whiskers(values, low, high) | line}
    return scatter("markers", across, values, name) | look | {"hovertemplate": "%{x:.1%} gone: %{y:.4g}<extra></extra>"}


def table_rows(record: Record) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of the curve as a table; only channels have a share of their own."""
    first = 0 if record["structured"] else 1
    columns = ["channels gone", "weights gone", "not zero", *(describe(name).label for name in names_of(record))]
    rows = []
    for level in record["curve"]:
        scores = map(number, scores_of(level).values())
        rows.append([percent(level["asked"]), percent(level["sparsity"]), f"{level['nonzero']:,}", *scores])
    return columns[first:], [row[first:] for row in rows]


def sentences(record: Record) -> list[str]:
    """Return how far it went, what is left, and what that did to the scores."""
    counts = record["counts"]
    removed = "channels by their mean magnitude" if record["structured"] else f"weights by {RULES[record['rule']]}"
    line = f", threshold {record['threshold']:g}" if record["threshold"] is not None else ""
    by = "; validation examples chose how far" if record["chosen"] else ""
    remaining = f"Of {counts['dense']:,} parameters, {counts['nonzero']:,} are not zero"
    if record.get("compact"):
        remaining = f"The network was rebuilt without them: {counts['dense']:,} parameters are left"
    lines = [
        f"{percent(record['reached'])} of the kernels' weights are gone: {removed}, {record['scope']}{line}{by}.",
        f"{remaining}; {counts['numbers']:,} numbers describe them ({counts['numbers_before']:,} before pruning), "
        "standard deviations of Gaussian weights included.",
    ]
    for name in names_of(record):
        stages = {"before": record["curve"][0], "pruned": record["pruned"]}
        if "finetuned" in record:
            stages[f"after {plural(record['finetune'], 'epoch')} of fine-tuning"] = record["finetuned"]
        steps = [f"{number(scores_of(scores)[name])} {when}" for when, scores in stages.items()]
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
    if "pruning" not in evaluation.manifest.entries:
        raise Misuse(f"'{evaluation.name}' was not pruned: write murmur prune RUN")
    record = evaluation.manifest.entries["pruning"]
    missing = f"'{evaluation.name}' has no pruning curve"
    score = pick("score over the sparsity", score, names_of(record), missing)
    return to_plotly(curve(evaluation.name, record, score, place), theme)
