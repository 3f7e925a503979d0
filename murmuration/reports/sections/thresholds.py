"""Two classes: ROC and precision-recall curves of the rarer one, and the costs of a threshold on its probability."""

import murmuration.reports.html as html
from murmuration.evaluation.two_classes import (
    RATIOS,
    average_precision,
    has_two_classes,
    precision_recall_curve,
    rarer_class,
    roc_curve,
    threshold_costs,
)
from murmuration.reports.figures import DIAGONAL, GUIDE, Figure, axis, colour, dash, layout, numbers, scatter, thin
from murmuration.reports.formatting import number, percent
from murmuration.reports.html import NOTHING, Markup
from murmuration.reports.report import Report

MOST_POINTS = 400  # of a curve
READING = (
    "The rarer class, {0}, against the other. An example is said to be of it if its probability reaches a threshold; "
    "the curves show every threshold. Costs are those of one example, over those of the cheaper of always and never "
    "saying {0}: above 1 a rule is worse than none. Where a missed example costs r times a false alarm, the best "
    "threshold of calibrated probabilities is 1 / (1 + r)."
)


def thresholds(report: Report) -> Markup:
    """Return the curves of every recipe, and a table of thresholds by cost."""
    if not has_two_classes(report.leader):
        return NOTHING
    plots = [roc_figure(report, "roc"), precision_recall_figure(report, "precision-recall")]
    places = range(len(report.evaluations))
    costs = html.per_recipe(html.figure(cost_figure(report, place, f"costs-{place}")) for place in places)
    tables = html.per_recipe(_table(report, place) for place in places)
    body = html.grid([*map(html.figure, plots), costs, tables])
    return html.section("thresholds", "Two classes", READING.format(f"'{rarer_class(report.leader).name}'"), body)


def _look(report: Report, place: int) -> dict[str, object]:
    return {
        "line": {"color": colour(place), "width": 2, "dash": dash(place) if len(report.evaluations) > 1 else "solid"}
    }


def roc_figure(report: Report, name: str) -> Figure | None:
    """Return true against false positive rates of every recipe; None for other than two classes."""
    if not has_two_classes(report.leader):
        return None
    data, areas = [DIAGONAL], []
    for place, evaluation in enumerate(report.evaluations):
        false, true = roc_curve(rarer_class(evaluation))
        rows = thin(len(false), MOST_POINTS)
        data.append(scatter("lines", false[rows], true[rows], evaluation.name) | _look(report, place))
        data[-1] |= {"hovertemplate": "%{y:.1%} found at %{x:.1%} false alarms"}
        if "auroc" in evaluation.scores:
            areas.append(f"{evaluation.name} {number(evaluation.scores['auroc'])}")
    found = f"fraction of '{rarer_class(report.leader).name}' found"
    panel = layout(axis("fraction of the others called so") | {"range": [0, 1.01]}, axis(found) | {"range": [0, 1.03]})
    return Figure(
        name,
        "ROC curve",
        f"ROC curve: area {', '.join(areas)}",
        data,
        panel | {"showlegend": len(report.evaluations) > 1},
        320,
    )


def precision_recall_figure(report: Report, name: str) -> Figure | None:
    """Return precision against recall of every recipe, with that of chance; None for other than two classes."""
    if not has_two_classes(report.leader):
        return None
    share, data, areas = rarer_class(report.leader).share, [], []
    for place, evaluation in enumerate(report.evaluations):
        recall, precision = precision_recall_curve(rarer_class(evaluation))
        rows = thin(len(recall), MOST_POINTS)
        data.append(scatter("lines", recall[rows], precision[rows], evaluation.name) | _look(report, place))
        data[-1] |= {"hovertemplate": "precision %{y:.1%} at recall %{x:.1%}"}
        areas.append(f"{evaluation.name} {number(average_precision(evaluation))}")
    chance = {**GUIDE, "x": [0, 1], "y": numbers([share, share]), "name": f"chance, {percent(share)}"}
    panel = layout(axis("recall") | {"range": [0, 1.01]}, axis("precision") | {"range": [0, 1.03]})
    label = f"Precision and recall: average precision {', '.join(areas)}, of chance {number(share)}"
    return Figure(name, "Precision and recall", label, [chance, *data], panel | {"showlegend": True}, 320)


def cost_figure(report: Report, place: int, name: str) -> Figure | None:
    """Return the relative cost of one recipe by threshold, a line for every ratio of costs."""
    evaluation = report.evaluations[place]
    if not has_two_classes(evaluation):
        return None
    rare, data, words = rarer_class(evaluation), [], []
    for turn, ratio in enumerate(RATIOS):
        curve = threshold_costs(rare, ratio)
        label = f"missed = {ratio:g} false alarm{'s' if ratio > 1 else ''}"
        shown = curve.costs.clip(max=2.0)
        data.append(scatter("lines", curve.thresholds, shown, label))
        data[-1] |= {"line": {"color": colour(turn + 3), "width": 2, "dash": dash(turn)}}
        data[-1] |= {"hovertemplate": "threshold %{x:.2f}: %{y:.3g}"}
        words.append(f"{label}: {number(curve.cost_at(curve.calibrated))} at {number(curve.calibrated)}")
    guide = {**GUIDE, "x": [0, 1], "y": [1, 1], "name": "constant decision"}
    panel = layout(axis("threshold") | {"range": [0, 1.01]}, axis("relative cost") | {"range": [0, 2.02]})
    title = f"{evaluation.name}: cost by threshold"
    return Figure(name, title, f"{title}; {'; '.join(words)}", [guide, *data], panel | {"showlegend": True}, 320)


def _table(report: Report, place: int) -> Markup:
    evaluation = report.evaluations[place]
    if not has_two_classes(evaluation):
        return NOTHING
    rare, rows = rarer_class(evaluation), []
    for ratio in RATIOS:
        curve = threshold_costs(rare, ratio)
        best = float(curve.thresholds[curve.costs.argmin()])
        cells = [number(curve.calibrated), number(curve.cost_at(curve.calibrated)), number(best)]
        rows.append((f"{ratio:g} : 1", [*cells, number(curve.costs.min())]))
    columns = ("Missed : false alarm", "Threshold 1 / (1 + r)", "Relative cost", "Best here", "Its cost")
    board = html.table(f"{evaluation.name}: cost of thresholds, where 1 is a constant decision", columns, rows)
    return html.tag("div", board, "wrapped compact")
