"""Figures on trust as plain dictionaries: scores under shift, foreign inputs, calibration, sets and groups."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmuration.reports.canvas import Figure, axis, colour, dash, layout, numbers, plot_text, symbol
from murmuration.reports.dot_plots import Series, dot_rows, titled
from murmuration.reports.figures import DIAGONAL, GUIDE, reliability_curve, reliability_panel, usable
from murmuration.reports.records import Report
from murmuration.reports.trust_records import Foreign, Group, Recalibrated, Sets, Shift, Trust
from murmuration.reports.wording import finite_mean, meaning, number

PROMISED = {"coverage_50": 0.5, "coverage_90": 0.9, "coverage_95": 0.95}  # scores that have one right value
QUARTILES = ("lowerfence", "q1", "median", "q3", "upperfence")
MOST_ROWS = 20  # groups of one column that are drawn; the table has all


def trusted(report: Report) -> list[tuple[int, str, Trust]]:
    """Place, name and trust of the entries that have any."""
    return [(place, entry.name, entry.trust) for place, entry in enumerate(report.entries) if entry.trust is not None]


def by_severity(shift: Shift, score: str) -> dict[int, NDArray[np.float64]]:
    """The finite values of a score over the corruptions, by severity; severity 0 is the clean value alone."""
    found = {0: [shift.clean[score][0]] if score in shift.clean else []}
    for point in sorted(shift.points, key=lambda each: each.severity):
        if score in point.scores:
            found.setdefault(point.severity, []).append(point.scores[score][0])
    finite = {severity: np.array([v for v in values if np.isfinite(v)]) for severity, values in found.items()}
    return {severity: values for severity, values in finite.items() if len(values)}


def quartiles(values: NDArray[np.float64]) -> dict[str, float]:
    """Smallest, lower quartile, median, upper quartile, largest.

    >>> list(quartiles(np.array([1.0, 2.0, 3.0, 4.0, 9.0])).values())
    [1.0, 2.0, 3.0, 4.0, 9.0]
    """
    return dict(zip(QUARTILES, np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist(), strict=True))


def shift_curves(report: Report, score: str, name: str) -> Figure | None:
    """A score by severity: boxes of quartiles over the corruptions (Ovadia et al. 2019), a line through the means.

    Whiskers reach to the smallest and the largest. Entries stand side by side around their severity.
    """
    found = [
        (place, entry, by_severity(trust.shift, score))
        for place, entry, trust in trusted(report)
        if trust.shift is not None
    ]
    kept = [each for each in found if any(each[2])]  # a clean value alone is no curve
    if not kept:
        return None
    step = min(0.8 / len(kept), 0.34)
    data: list[dict[str, Any]] = []
    for turn, (place, entry, values) in enumerate(kept):
        aside = step * (turn - (len(kept) - 1) / 2)
        data += [_boxes(values, aside, step, place), _means(entry, values, aside, place)]
    severities = sorted({severity for _, _, values in kept for severity in values})
    if score in PROMISED:
        ends = [severities[0] - 0.5, severities[-1] + 0.5]
        data.append({**GUIDE, "x": ends, "y": [PROMISED[score]] * 2, "name": "promised"})
    told = meaning(score, report.directions)
    across = axis("severity") | {"tickvals": severities, "showgrid": False}
    panel = layout(across, axis() | {"nticks": 6, "hoverformat": ".4g"})
    panel |= {"showlegend": len(kept) > 1, "boxmode": "overlay"}
    spoken = "; ".join(f"{entry} {', '.join(number(v.mean()) for v in values.values())}" for _, entry, values in kept)
    label = f"{told.label}, mean over corruptions at severities {', '.join(map(str, severities))}: {spoken}"
    return Figure(name, titled(told), label, data, panel, 330)


def _boxes(values: dict[int, NDArray[np.float64]], aside: float, step: float, place: int) -> dict[str, Any]:
    """Boxes of the severities above 0, from quartiles worked out here."""
    drawn = {severity: quartiles(each) for severity, each in values.items() if severity}
    return {
        "type": "box",
        "x": numbers(severity + aside for severity in drawn),
        **{name: numbers(box[name] for box in drawn.values()) for name in QUARTILES},
        "width": 0.8 * step,
        "line": {"color": colour(place), "width": 1.2},
        "showlegend": False,
    }


def _means(entry: str, values: dict[int, NDArray[np.float64]], aside: float, place: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": numbers(severity + aside for severity in values),
        "y": numbers(each.mean() for each in values.values()),
        "name": plot_text(entry),
        "line": {"color": colour(place), "width": 2, "dash": dash(place)},
        "marker": {"color": colour(place), "symbol": symbol(place), "size": 8},
        "hovertemplate": "mean %{y:.4g}",
    }


def detection_dots(found: Sequence[tuple[int, str, Foreign]], name: str) -> Figure:
    """How well each uncertainty of each entry tells one foreign set from the familiar (AUROC)."""
    rows = list(dict.fromkeys(uncertainty for _, _, foreign in found for uncertainty in foreign.detections))
    labels = {uncertainty: meaning(uncertainty).label for uncertainty in rows}
    series = [
        Series(entry, place, {labels[key]: detection.auroc for key, detection in foreign.detections.items()})
        for place, entry, foreign in found
    ]
    drawn = dot_rows(name, titled(meaning("detection_auroc")), [labels[key] for key in rows], series)
    return with_legend(drawn)


def before_and_after(entry: str, place: int, change: Recalibrated, name: str) -> Figure | None:
    """Two reliability curves, before and after a calibrator."""
    before, after = (curve if curve is not None and usable(curve) else None for curve in (change.before, change.after))
    known = before or after
    if known is None:
        return None
    data: list[dict[str, Any]] = [DIAGONAL]
    if before is not None:
        first = reliability_curve(before, "var(--series-7)", "circle-open")
        data.append(first | {"name": "before", "line": first["line"] | {"dash": "dash"}})
    if after is not None:
        data.append(reliability_curve(after, colour(place), symbol(place)) | {"name": "after"})
    gaps = [
        f"{number(finite_mean(abs(np.subtract(curve.observed, curve.promised))))} {when}"
        for when, curve in (("before", before), ("after", after))
        if curve is not None
    ]
    label = f"Reliability of {entry} on {change.where}: from the diagonal on average {', '.join(gaps)}"
    panel = reliability_panel(known) | {"showlegend": True}
    return Figure(name, f"{entry}: {change.where}", label, data, panel, 350)


def coverage_dots(report: Report, level: float, name: str) -> Figure:
    """How often the sets of one level held the truth, by where, against the promise."""
    found = [
        (place, entry, [each for each in trust.sets if each.level == level]) for place, entry, trust in trusted(report)
    ]
    rows = list(dict.fromkeys(each.where for _, _, sets in found for each in sets))
    series = _series_of_sets([each for each in found if each[2]])
    promised = f"promised {100 * level:g} %"
    drawn = with_guide(dot_rows(name, f"Truth held, {promised}", rows, series), level, promised)
    drawn.layout["xaxis"] |= {"tickformat": ".0%"}
    return with_legend(drawn)


def _series_of_sets(found: Sequence[tuple[int, str, list[Sets]]]) -> list[Series]:
    """A series for every entry and method, named by what tells it apart; a lone entry's methods get the colours."""
    pairs = [(place, entry, method) for place, entry, sets in found for method in dict.fromkeys(s.method for s in sets)]
    several = len({entry for _, entry, _ in pairs}) > 1, len({method for _, _, method in pairs}) > 1
    held = {entry: sets for _, entry, sets in found}
    one_each = several[0] and not several[1]
    return [
        Series(
            ": ".join(part for part, shown in zip((entry, method), several, strict=True) if shown) or method,
            place if one_each else turn,
            {each.where: each.coverage for each in held[entry] if each.method == method},
        )
        for turn, (place, entry, method) in enumerate(pairs)
    ]


def group_dots(report: Report, column: str, score: str, name: str) -> Figure | None:
    """A score by the groups of one column, with the overall value of each entry as an upright line."""
    found = {
        place: [group for group in trust.groups if group.column == column and score in group.scores]
        for place, _, trust in trusted(report)
    }
    rows = _largest([group for groups in found.values() for group in groups])
    if not rows:
        return None
    names = [entry.name for entry in report.entries]
    series = [
        Series(names[place], place, {g.value: g.scores[score] for g in groups if g.value in rows})
        for place, groups in found.items()
        if groups
    ]
    drawn = dot_rows(name, f"{column}: {titled(meaning(score, report.directions))}", rows, series)
    for one in reversed(series):
        whole = report.entries[one.place].scores.get(score, (np.nan,))[0]
        words = "all examples" if len(series) == 1 else f"all examples, {one.name}"
        drawn = with_guide(drawn, whole, words, one.place if len(series) > 1 else None)
    return with_legend(drawn)


def _largest(groups: Sequence[Group]) -> list[str]:
    """Values of the largest groups, in the order they came."""
    sizes = {group.value: group.examples for group in groups}
    most = sorted(sizes, key=lambda value: -sizes[value])[:MOST_ROWS]
    return [value for value in sizes if value in most]


def with_legend(drawn: Figure) -> Figure:
    return replace(drawn, layout=drawn.layout | {"showlegend": len(drawn.data) > 1})


def with_guide(drawn: Figure, value: float, words: str, place: int | None = None) -> Figure:
    """The figure of rows with an upright line at a value, in the look of a place; as it is for one not finite."""
    if not np.isfinite(value):
        return drawn
    line = GUIDE | {"x": numbers([value, value]), "y": drawn.layout["yaxis"]["range"], "name": plot_text(words)}
    if place is not None:
        line["line"] = {"color": colour(place), "width": 1.5, "dash": dash(place + 1)}
    return replace(drawn, data=[line, *drawn.data], label=f"{drawn.label}; {words}: {number(value)}")
