"""Distribution shift: scores under corruptions of growing severity, and detection of out-of-distribution inputs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import murmuration.reports.figures as figures
import murmuration.reports.html as html
from murmuration.data import ImagePreparation
from murmuration.data.inputs import visible_inputs
from murmuration.data.preparation import before_features
from murmuration.data.shift.images import sheet
from murmuration.evaluation import Evaluation, OodResult, ShiftResult
from murmuration.evaluation.metrics import MEASURES, Score, describe, shown_in
from murmuration.reports.figures import Figure
from murmuration.reports.formatting import MISSING, count, number, percent
from murmuration.reports.html import NOTHING, Markup, text
from murmuration.reports.report import Report
from murmuration.reports.sections.summary import winners

NOMINAL = {"coverage_50": 0.5, "coverage_90": 0.9, "coverage_95": 0.95}  # scores that have one right value
QUARTILES = ("lowerfence", "q1", "median", "q3", "upperfence")
CORRUPTED = {  # what the literature calls a mean over corruptions and severities
    **{"accuracy": "cA", "nll": "cNLL", "brier": "cBrier", "ece": "cECE", "ece_pooled": "cECE, pooled"},
    **{"mutual_information": "cMI", "rmse": "cRMSE", "crps": "cCRPS"},
}
GOAL = {
    "classification": (
        "Accuracy falls; if uncertainty grows with it, NLL and ECE stay low. Means of ECE and their intervals have its "
        "upward bias on few examples."
    ),
    "regression": "Errors grow; if intervals widen with them, their coverage stays at 90 %.",
}
APPROXIMATE = (
    "Corruptions called approximate are our own stand-ins for those of that name in published benchmarks: "
    "compare their numbers with other reports of murmuration, not with papers."
)
CONSTANTS = (
    "The strengths of the corruptions are those of CIFAR-10-C, chosen for colour photographs of 32 x 32 pixels; on "
    "images of {0} they can be much weaker or stronger, so compare recipes here, not with numbers on CIFAR-10-C."
)
POOLED = (
    "The c in front stands for corrupted: cA is the accuracy over all corruptions and severities, each weighing "
    "the same. The clean value stands below."
)
MAIN = 2  # figures of scores that a comparison draws at once
SHEET = 960, 1200  # small sheets are enlarged to fit into so many pixels, width and height
DETECTION = ("auroc", "aupr", "fpr95")
Found = list[tuple[int, str, OodResult]]  # place and name of the recipe, and its result on one set


def shift(report: Report) -> Markup:
    """Return scores by severity as boxes and lines, all together in a table, one by one on demand."""
    shifts = shifts_of(report)
    if not shifts:
        return NOTHING
    names = shift_scores(report)
    figures = [shift_curves(report, name, f"shift-{place}") for place, name in enumerate(names)]
    figures = [figures[0], *map(without_legend, figures[1:])]  # the first one's serves all
    first, more = (figures[:MAIN], figures[MAIN:]) if report.is_comparison else (figures, [])
    notes = _left_out(report, names)
    tables = {entry: [_score_table(report, entry, result, n) for n in names] for entry, result in shifts.items()}
    body = [
        _pooled_table(report),
        html.grid(map(html.figure, first)),
        html.details("More scores under corruption", html.grid(map(html.figure, more))),
        html.details("About these corruptions", notes) if report.is_comparison else notes,
        html.per_recipe(
            html.details(
                f"By corruption and severity: {entry}", html.tag("div", html.join(tables.get(entry, [])), "shaded")
            )
            for entry in report.names
        ),
        _sheet(report),
        html.glossary(names, report.task),
    ]
    about = "; ".join(dict.fromkeys(result.description for result in shifts.values() if result.description))
    reading = (
        f"The {report.words.examples} under corruption{f' ({about})' if about else ''}. Severity 0 is clean, 5 the "
        f"strongest. Boxes span the quartiles over corruptions, whiskers the range; the line joins the means. "
        f"{GOAL[report.task]}"
    )
    return html.section("shift", "Distribution shift", reading, html.join(body))


def without_legend(figure: Figure | None) -> Figure | None:
    """Return the figure without its legend."""
    return None if figure is None else replace(figure, layout=figure.layout | {"showlegend": False})


def shifts_of(report: Report) -> dict[str, ShiftResult]:
    """Return the results under shift by recipe."""
    return {e.name: e.shift for e in report.evaluations if e.shift is not None}


def shift_scores(report: Report) -> list[str]:
    """Return the scores that were measured under shift and are drawn."""
    shifts = shifts_of(report).values()
    return [name for name in shown_in("shift", report.task) if any(by_severity(result, name) for result in shifts)]


def corruptions_of(found: ShiftResult) -> list[str]:
    """Return the corruptions in the order they came."""
    return list(dict.fromkeys([*(point.corruption for point in found.cells), *found.by_type]))


def spaced(corruption: str) -> str:
    """Return a corruption's name for a reader.

    >>> spaced("approximate_motion_blur")
    'approximate motion blur'
    """
    return corruption.replace("_", " ")


def _pooled_table(report: Report) -> Markup:
    """Return means over all corruptions and severities, each over its clean value."""
    pooled = {entry: result.pooled for entry, result in shifts_of(report).items()}
    names = list(dict.fromkeys(name for scores in pooled.values() for name in scores if not name.startswith("set_")))
    heads, best = [], {}
    for name in names:
        description = describe(name, report.task)
        heads.append(html.score_head(description, CORRUPTED.get(name, f"{description.label}, corrupted")))
        values = {entry: float(scores[name]) for entry, scores in pooled.items() if name in scores}
        best[name] = winners(values, description.better)
    rows = [
        (e.name, [_pooled_cell(e, name, e.name in best[name]) if applies(e, name) else MISSING for name in names])
        for e in report.evaluations
        if e.shift is not None
    ]
    board = html.table("Means over all corruptions and severities", ["Recipe", *heads], rows)
    return html.join([html.tag("div", board, "compact"), html.tag("p", POOLED, "aside")])


def applies(evaluation: Evaluation, name: str) -> bool:
    """Return whether a score means something for an evaluation: one member cannot disagree."""
    measure = MEASURES[evaluation.task].get(name)
    return evaluation.predictions > 1 or measure is None or not measure.needs_members


def _pooled_cell(evaluation: Evaluation, name: str, wins: bool) -> Markup:
    assert evaluation.shift is not None
    measure, clean = MEASURES[evaluation.task].get(name), evaluation.shift.clean.get(name)
    proportion = measure is not None and measure.proportion
    show = percent if proportion else number
    below = html.tag("small", f"clean {show(clean)}") if clean is not None else NOTHING
    return Markup(f"{html.score_cell(evaluation.shift.pooled.get(name), best=wins, proportion=proportion)}{below}")


def _left_out(report: Report, names: list[str]) -> Markup:
    """Return notes on numbers that cannot be drawn, and on corruptions that are not the published ones."""
    results = list(shifts_of(report).values())
    values = [float(cell.scores[n]) for result in results for cell in result.cells for n in names if n in cell.scores]
    lost, images = sum(not math.isfinite(value) for value in values), unlike_cifar(report)
    words = [
        f"{lost} of {len(values)} values are not finite: boxes, lines and means are without them." if lost else "",
        APPROXIMATE if any("approximate" in c.lower() for result in results for c in corruptions_of(result)) else "",
        CONSTANTS.format(images) if images else "",
    ]
    return html.join(html.tag("p", sentence, "aside") for sentence in words)


def unlike_cifar(report: Report) -> str:
    """Name the kind of images that corruptions were not designed for; "" for CIFAR images and tables."""
    preparation = before_features(report.eval_set.preparation)
    official = any(result.suite.official is not None for result in shifts_of(report).values())
    if official or not isinstance(preparation, ImagePreparation) or preparation.shape == (3, 32, 32):
        return ""
    channels, height, width = preparation.shape
    return f"{height} x {width} pixels{' in grey' if channels == 1 else ''}"


def _score_table(report: Report, entry: str, found: ShiftResult, name: str) -> Markup:
    """Return one score by corruption and severity, with means; colour grows with the distance from the clean value."""
    cells = {(p.corruption, p.severity): p.scores[name] for p in found.cells if name in p.scores}
    if not cells:
        return NOTHING
    severities = sorted({severity for _, severity in cells})
    clean = found.clean.get(name)
    start = float(clean) if clean is not None else math.nan
    furthest = max((abs(value - start) for value in cells.values() if math.isfinite(value - start)), default=0.0)
    lines = [("none", [*(None for _ in severities), clean])]
    for corruption in corruptions_of(found):
        mean = found.by_type.get(corruption, {}).get(name)
        lines.append((spaced(corruption), [*(cells.get((corruption, severity)) for severity in severities), mean]))
    together = [found.by_severity.get(severity, {}).get(name) for severity in severities]
    lines.append(("all corruptions", [*together, found.pooled.get(name)]))
    rows = [(head, [_shade(value, start, furthest) for value in values]) for head, values in lines]
    columns = ["Corruption", *(f"Severity {severity}" for severity in severities), "Mean"]
    label = describe(name, report.task).label
    return html.table(f"{label} of {entry}: the further from the clean value, the stronger the colour", columns, rows)


def _shade(score: Score | None, start: float, furthest: float) -> Markup:
    depth = abs(score - start) / furthest if score is not None and furthest else math.nan
    look = f' style="--depth:{100 * min(depth, 1):.0f}%"' if math.isfinite(depth) else ""
    return Markup(f'<div class="shade"{look}>{html.score_cell(score)}</div>')


def sheet_of(evaluation: Evaluation) -> np.ndarray | None:
    """Return one example under the corruptions (H, W, 3); None where inputs are not images, or came corrupted."""
    eval_set, shift = evaluation.eval_set, evaluation.shift
    if shift is None or shift.suite.official is not None:
        return None
    preparation, first = visible_inputs(eval_set.split, eval_set.preparation, slice(1))
    if not isinstance(preparation, ImagePreparation) or preparation.shape[0] not in (1, 3):
        return None
    return sheet(preparation.pixels_of(first), names=shift.suite.names, seed=shift.suite.seed)


def _sheet(report: Report) -> Markup:
    """Images of the corruptions; all recipes were given the same, so those of the first serve."""
    first = next(e for e in report.evaluations if e.shift is not None)
    image = sheet_of(first)
    if image is None or first.shift is None:
        return NOTHING
    height, width = image.shape[:2]
    scale = max(1, min(SHEET[0] // width, SHEET[1] // height))
    alt = f"Test images under the corruptions {', '.join(map(spaced, corruptions_of(first.shift)))}"
    size = f'width="{scale * width}" height="{scale * height}"'
    picture = Markup(f'<img class="sheet" {size} src="{html.png(image)}" alt="{text(alt)}">')
    words = "One test example: a row for every corruption, as it is and at every severity."
    return html.details("Corruptions as images", html.join([html.tag("p", words, "note"), picture]))


def by_severity(shift: ShiftResult, score: str) -> dict[int, NDArray[np.float64]]:
    """Return the finite values of a score over the corruptions, by severity; severity 0 is the clean value alone."""
    by_level = {0: [float(shift.clean[score])] if score in shift.clean else []}
    for cell in sorted(shift.cells, key=lambda each: each.severity):
        if score in cell.scores:
            by_level.setdefault(cell.severity, []).append(float(cell.scores[score]))
    finite = {severity: np.array([v for v in values if np.isfinite(v)]) for severity, values in by_level.items()}
    return {severity: values for severity, values in finite.items() if len(values)}


def quartiles(values: NDArray[np.float64]) -> dict[str, float]:
    """Smallest, lower quartile, median, upper quartile, largest.

    >>> list(quartiles(np.array([1.0, 2.0, 3.0, 4.0, 9.0])).values())
    [1.0, 2.0, 3.0, 4.0, 9.0]
    """
    return dict(zip(QUARTILES, np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist(), strict=True))


def shift_curves(report: Report, score: str, name: str) -> Figure | None:
    """Draw a score by severity: boxes over the corruptions (Ovadia et al. 2019), a line through the means.

    Whiskers reach to the smallest and the largest. Entries stand side by side around their severity.
    """
    curves = [
        (place, e.name, by_severity(e.shift, score))
        for place, e in enumerate(report.evaluations)
        if e.shift is not None and applies(e, score)
    ]
    curves = [curve for curve in curves if any(curve[2])]  # severities above 0: a clean value alone is not a curve
    if not curves:
        return None
    step = min(0.8 / len(curves), 0.34)
    data: list[dict[str, Any]] = []
    for turn, (place, entry, values) in enumerate(curves):
        aside, ink = step * (turn - (len(curves) - 1) / 2), figures.colour(place)
        boxes = {severity: quartiles(sample) for severity, sample in values.items() if severity}
        columns: dict[str, Any] = {"type": "box", "x": figures.numbers(severity + aside for severity in boxes)}
        columns |= {name: figures.numbers(box[name] for box in boxes.values()) for name in QUARTILES}
        data.append(columns | {"width": 0.8 * step, "line": {"color": ink, "width": 1.2}, "showlegend": False})
        x, y = (severity + aside for severity in values), (sample.mean() for sample in values.values())
        data.append(figures.scatter("lines+markers", x, y, entry))
        data[-1] |= {"line": {"color": ink, "width": 2, "dash": figures.dash(place)}}
        data[-1] |= {"marker": {"color": ink, "symbol": figures.symbol(place), "size": 8}}
        data[-1] |= {"hovertemplate": "mean %{y:.4g}"}
    severities = sorted({severity for _, _, values in curves for severity in values})
    if score in NOMINAL:
        ends = [severities[0] - 0.5, severities[-1] + 0.5]
        data.append({**figures.GUIDE, "x": ends, "y": [NOMINAL[score]] * 2, "name": "nominal"})
    description = describe(score, report.task)
    across = figures.axis("severity") | {"tickvals": severities, "showgrid": False}
    panel = figures.layout(across, figures.axis() | {"nticks": 6, "hoverformat": ".4g"})
    panel |= {"showlegend": len(curves) > 1, "boxmode": "overlay"}
    spoken = "; ".join(f"{entry} {', '.join(number(v.mean()) for v in values.values())}" for _, entry, values in curves)
    label = f"{description.label}, mean over corruptions at severities {', '.join(map(str, severities))}: {spoken}"
    return Figure(name, figures.titled(description), label, data, panel, 260)


def out_of_distribution(report: Report) -> Markup:
    """Show the detection of every OOD set by every uncertainty."""
    sets = enumerate(ood_sets(report).values())
    parts = [_part(results, f"ood-{turn}", len(report.evaluations) > 1) for turn, results in sets]
    explanation = html.glossary(f"detection_{score}" for score in DETECTION) if any(parts) else NOTHING
    reading = (
        "Inputs of a kind that was not in the training data. Predictions on them cannot be right, but uncertainty can "
        "be higher than on the test examples. ★ marks the best value of a column; the best uncertainty differs from "
        "set to set, so choose it on one and report it on others."
    )
    return html.section("ood", "Out-of-distribution inputs", reading, html.join([*parts, explanation]))


def ood_sets(report: Report) -> dict[str, Found]:
    """Return the results of every recipe by OOD set, in the order the sets came."""
    sets: dict[str, Found] = {}
    for place, evaluation in enumerate(report.evaluations):
        for result in evaluation.ood:
            sets.setdefault(result.name, []).append((place, evaluation.name, result))
    return sets


def _part(found: Found, name: str, several: bool) -> Markup:
    first = found[0][2]
    values = {
        (key, recipe): {score: getattr(result.detections[key], score) for score in DETECTION}
        for key in dict.fromkeys(key for _, _, result in found for key in result.detections)
        for _, recipe, result in found
        if key in result.detections
    }
    descriptions, best = [describe(f"detection_{score}") for score in DETECTION], {}
    for score, description in zip(DETECTION, descriptions, strict=True):
        best[score] = winners({row: scores[score] for row, scores in values.items()}, description.better)
    rows = []
    for row, scores in values.items():
        cells = [html.score_cell(value, best=row in best[score]) for score, value in scores.items()]
        rows.append((html.row_head(describe(row[0]).label, row[1] if several else ""), cells))
    columns = ["Uncertainty", *map(html.score_head, descriptions)]
    board = html.table(f"Separating {first.name} from the test examples", columns, rows)
    compared = html.figure(detection_figure(found, f"{name}-auroc")) if len(found) > 1 else NOTHING
    plots = [
        html.figure(histogram_figure(place, recipe, result, key, name))
        for place, recipe, result in found
        for key in result.histograms
    ]
    title = html.tag("h3", f"{first.name}: {count(first.examples)} inputs", "part")
    numbers = html.details("Numbers", board) if compared else board
    return html.join([title, html.grid([compared, *plots[: 4 if len(found) > 1 else 2]]), numbers])


def detection_figure(found: Found, name: str) -> Figure:
    """Return the AUROC of every uncertainty of several recipes."""
    labels = {key: describe(key).label for _, _, result in found for key in result.detections}
    series = [
        figures.Series(recipe, place, {labels[key]: scores.auroc for key, scores in result.detections.items()})
        for place, recipe, result in found
    ]
    return figures.dot_rows(name, figures.titled(describe("detection_auroc")), list(labels.values()), series)


def histogram_figure(place: int, recipe: str, found: OodResult, key: str, name: str) -> Figure:
    """Return an uncertainty of the test examples and of the OOD inputs."""
    edges, reference, ood = found.histograms[key]
    description, place_name = describe(key), f"{name}-{place}-{key.replace('_', '-')}"
    title, groups = f"{recipe}: {description.label.lower()}", {"test": reference, found.name: ood}
    return figures.histogram(place_name, description, title, edges, groups)
