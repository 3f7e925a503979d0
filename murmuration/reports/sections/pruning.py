"""Pruning: validation scores over the sparsity, what is left, and where."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from murmuration.metrics import Score, describe
from murmuration.reports.figures import Figure, axis, colour, layout, scale_of, scatter, whiskers
from murmuration.reports.formatting import number, percent
from murmuration.reports.html import Markup, details, figure, grid, join, section, table, tag
from murmuration.reports.report import Report

RULES = {"magnitude": "abs(mean)", "snr": "abs(mean) / std", "log-alpha": "log alpha"}
READING = (
    "Weights of the lowest importance were set to zero. The curves show validation scores as more weights are pruned, "
    "without further training; the star marks this run, the diamond its state after fine-tuning. Test examples had no "
    "influence on how far it was pruned."
)


@dataclass(frozen=True)
class Level:
    """One sparsity that was tried, without further training."""

    asked: float  # the share of weights, or of channels, that was to go
    sparsity: float  # the share of kernels' weights that was gone
    nonzero: int
    scores: Mapping[str, Score]  # on validation examples


@dataclass(frozen=True)
class Pruned:
    """How a run was pruned, as its manifest tells it."""

    of: str
    rule: str
    scope: str
    structured: bool
    reached: float  # the share of kernels' weights that is gone
    counts: Mapping[str, int]  # dense, nonzero, numbers, numbers_before
    threshold: float | None = None
    sparsity: float | None = None
    chosen: bool = False  # whether validation examples decided how far
    finetune: int = 0  # epochs
    layers: Sequence[tuple[str, int, float]] = ()  # kernel, weights of one member, share left
    curve: Sequence[Level] = ()
    pruned: Mapping[str, Score] = field(default_factory=dict)
    finetuned: Mapping[str, Score] = field(default_factory=dict)
    compact: Mapping[str, int] = field(default_factory=dict)  # counts of the smaller network, if there is one

    @property
    def names(self) -> list[str]:
        """The scores of the curve."""
        return list(self.curve[0].scores) if self.curve else []


def pruned_of(manifest: Mapping[str, Any]) -> Pruned | None:
    """What a run's manifest tells of its pruning; None where nothing was pruned."""
    record = manifest.get("pruning")
    if record is None:
        return None
    plain = ("of", "rule", "scope", "structured", "reached", "counts", "threshold", "sparsity", "chosen", "finetune")
    return Pruned(
        **{key: record[key] for key in plain},
        layers=[(layer["name"], layer["weights"], layer["kept"]) for layer in record["layers"]],
        curve=[Level(p["asked"], p["sparsity"], p["nonzero"], _scores(p)) for p in record["curve"]],
        pruned=_scores(record.get("pruned", {})),
        finetuned=_scores(record.get("finetuned", {})),
        compact=record.get("compact", {}),
    )


def _scores(record: Mapping[str, Any]) -> dict[str, Score]:
    found = {name: value for name, value in record.items() if isinstance(value, Mapping)}
    return {name: Score(_number(v["value"]), _number(v["low"]), _number(v["high"])) for name, v in found.items()}


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def pruning(report: Report) -> Markup:
    """Curves over the sparsity, what is left, and where."""
    found = [(place, each.name, pruned_of(each.manifest)) for place, each in enumerate(report.evaluations)]
    parts = [_part(name, pruned, place) for place, name, pruned in found if pruned is not None]
    return section("pruning", "Pruning", READING, join(parts))


def _part(name: str, found: Pruned, place: int) -> Markup:
    told = tag("ul", join(tag("li", line) for line in sentences(found)))
    plots = grid(figure(curve(name, found, score, place)) for score in found.names)
    return join([told, plots, _levels(name, found), _layers(name, found)])


def curve(entry: str, found: Pruned, name: str, place: int) -> Figure:
    """A score against the share of weights that is gone, and where the run stands."""
    across, scores = [level.sparsity for level in found.curve], [level.scores[name] for level in found.curve]
    line = _points(across, scores, colour(place), "circle", "no training afterwards") | {"mode": "lines+markers"}
    data: list[dict[str, Any]] = [line]
    if name in found.pruned:
        data.append(_points([found.reached], [found.pruned[name]], "var(--ink)", "star", "this run, pruned"))
    if name in found.finetuned:
        data.append(
            _points([found.reached], [found.finetuned[name]], "var(--series-2)", "diamond", "this run, fine-tuned")
        )
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


def _levels(entry: str, found: Pruned) -> Markup:
    columns, rows = table_rows(found)
    cells = [(first, rest) for first, *rest in rows]
    heads = [column[:1].upper() + column[1:] for column in columns]
    board = table(f"{entry} on validation examples as weights go, without training afterwards", heads, cells)
    return details("Numbers", board)


def _layers(entry: str, found: Pruned) -> Markup:
    rows = [(name, [f"{count:,}", percent(left)]) for name, count, left in found.layers]
    columns = ["Kernel", "Weights of a member", "Left"]
    return details("Layer by layer", table(f"What is left of the layers of {entry}", columns, rows))


def table_rows(found: Pruned) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the curve as a table."""
    labels = [describe(name).label for name in found.names]
    gone = ["channels gone"] if found.structured else []
    rows = [
        [
            *([percent(level.asked)] if found.structured else []),
            percent(level.sparsity),
            f"{level.nonzero:,}",
            *(number(level.scores[name]) for name in found.names),
        ]
        for level in found.curve
    ]
    return [*gone, "weights gone", "not zero", *labels], rows


def sentences(found: Pruned) -> list[str]:
    """How far it went, what is left, and what that did to the scores."""
    counts = found.counts
    what = "channels by their mean magnitude" if found.structured else f"weights by {RULES[found.rule]}"
    line = f", threshold {found.threshold:g}" if found.threshold is not None else ""
    by = "; validation examples chose how far" if found.chosen else ""
    told = [
        f"{percent(found.reached)} of the kernels' weights are gone: {what}, {found.scope}{line}{by}.",
        f"{counts['dense']:,} parameters, {counts['nonzero']:,} of them not zero; {counts['numbers']:,} numbers "
        f"are stored, standard deviations included, {counts['numbers_before']:,} before.",
    ]
    if found.compact:
        told.append(f"The smaller network has {found.compact['dense']:,} parameters.")
    for name in found.names:
        steps = [f"{number(found.curve[0].scores[name])} before", f"{number(found.pruned[name])} pruned"]
        if found.finetuned:
            epochs = f"{found.finetune} epoch{'' if found.finetune == 1 else 's'}"
            steps.append(f"{number(found.finetuned[name])} after {epochs} of fine-tuning")
        told.append(f"{describe(name).label} on validation examples: {', '.join(steps)}.")
    return told
