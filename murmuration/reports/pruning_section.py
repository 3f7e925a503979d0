"""The section on what pruning did to a run."""

from typing import Any

from murmuration.reports.canvas import Figure, axis, colour, layout, numbers
from murmuration.reports.dot_plots import whiskers
from murmuration.reports.figures import scale_of
from murmuration.reports.markup import Markup, details, figure, grid, join, section, table, tag, text
from murmuration.reports.measured import Score
from murmuration.reports.pruning_records import Pruned
from murmuration.reports.records import Entry, Report
from murmuration.reports.wording import meaning, number, percent

RULES = {"magnitude": "abs(mean)", "snr": "abs(mean) / std", "log-alpha": "log alpha"}
READING = (
    "Weights that matter least were set to zero for good. The curve shows the validation examples' verdict as more and "
    "more of them go, without any training afterwards, with 95 % intervals; the star is where this run was pruned, the "
    "diamond where fine-tuning took it. The test examples had no say in how far to go."
)


def pruning(report: Report) -> Markup:
    """Curves over the sparsity, what is left, and where."""
    parts = [_of_entry(entry, place) for place, entry in enumerate(report.entries) if entry.pruned is not None]
    return section("pruning", "What pruning left", READING, join(parts))


def _of_entry(entry: Entry, place: int) -> Markup:
    found = entry.pruned
    assert found is not None
    told = tag("ul", join(tag("li", text(line)) for line in sentences(found)))
    plots = grid(figure(curve(entry.name, found, name, place)) for name in found.names)
    return join([told, plots, _levels(entry.name, found), _layers(entry.name, found)])


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
    told = meaning(name).label
    scale = scale_of([value for value, _, _ in scores]) if name == "nll" else {}
    gone = axis("share of weights gone") | {"tickformat": ".0%", "range": [-0.02, 1.02]}
    panel = layout(gone, axis(told) | scale)
    label = f"{told} of {entry} on validation examples against the share of weights that is gone"
    return Figure(f"pruning-{place}-{name}", told, label, data, panel | {"showlegend": True}, 340)


def _points(across: list[float], scores: list[Score], ink: str, mark: str, name: str) -> dict[str, Any]:
    size = 8 if mark == "circle" else 14
    values, low, high = zip(*scores, strict=True)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(across),
        "y": numbers(values),
        "name": name,
        "line": {"color": ink, "width": 2},
        "marker": {"color": ink, "symbol": mark, "size": size},
        "error_y": whiskers(values, low, high) | {"color": ink, "width": 2},
        "hovertemplate": "%{x:.1%} gone: %{y:.4g}<extra></extra>",
    }


def _levels(entry: str, found: Pruned) -> Markup:
    columns, rows = table_rows(found)
    cells = [(text(first), [text(cell) for cell in rest]) for first, *rest in rows]
    heads = [text(column[:1].upper() + column[1:]) for column in columns]
    board = table(f"{entry} on validation examples as weights go, without training afterwards", heads, cells)
    return details("Numbers", board) if rows else Markup("")


def _layers(entry: str, found: Pruned) -> Markup:
    rows = [(text(name), [text(f"{count:,}"), text(percent(left))]) for name, count, left in found.layers]
    columns = [text("Kernel"), text("Weights of a member"), text("Left")]
    return details("Layer by layer", table(f"What is left of the layers of {entry}", columns, rows))


def table_rows(found: Pruned) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the curve as a table."""
    labels = [meaning(name).label for name in found.names]
    gone = ["channels gone"] if found.structured else []
    rows = [
        [
            *([percent(level.asked)] if found.structured else []),
            percent(level.sparsity),
            f"{level.nonzero:,}",
            *(number(level.scores[name][0]) for name in found.names),
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
        f"describe what is left, spreads included, {counts['numbers_before']:,} before.",
    ]
    if found.compact:
        told.append(f"The smaller network has {found.compact['dense']:,} parameters.")
    for name in found.names:
        steps = [f"{number(found.curve[0].scores[name][0])} before", f"{number(found.pruned[name][0])} pruned"]
        if found.finetuned:
            epochs = f"{found.finetune} epoch{'' if found.finetune == 1 else 's'}"
            steps.append(f"{number(found.finetuned[name][0])} after {epochs} of fine-tuning")
        told.append(f"{meaning(name).label} on validation examples: {', '.join(steps)}.")
    return told
