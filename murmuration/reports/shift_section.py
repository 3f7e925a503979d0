"""The section on scores under corruptions of growing severity."""

import math

from murmuration.metrics import shown_in
from murmuration.reports.cells import glossary, score_cell, score_head
from murmuration.reports.markup import NOTHING, Markup, details, figure, grid, join, png, section, table, tag, text
from murmuration.reports.records import Report, Score
from murmuration.reports.summary import main_first, winners
from murmuration.reports.trust_figures import by_severity, shift_curves, trusted
from murmuration.reports.trust_records import Shift
from murmuration.reports.wording import finite_mean, meaning, number

CORRUPTED = {  # what the literature calls a mean over corruptions and severities
    "accuracy": "cA",
    "nll": "cNLL",
    "brier": "cBrier",
    "ece": "cECE",
    "ece_pooled": "cECE, pooled",
    "mutual_information": "cMI",
    "rmse": "cRMSE",
    "crps": "cCRPS",
}
GOAL = {
    "classification": "Accuracy falls; a trustworthy ensemble grows unsure as it does, so that NLL and ECE stay low.",
    "regression": "Errors grow; a trustworthy ensemble widens its intervals as they do, so that they hold 90 % still.",
}
APPROXIMATE = (
    "Corruptions called approximate are our own stand-ins for those of that name in published benchmarks: "
    "compare their numbers with other reports of murmuration, not with papers."
)
SHEET = 960, 1200  # small sheets are enlarged to fit into so many pixels, width and height


def shift(report: Report) -> Markup:
    """Scores by severity as boxes and lines, all together in a table, one by one on demand."""
    shifts = shifts_of(report)
    if not shifts:
        return NOTHING
    names = [
        name for name in shown_in("shift", report.task) if any(by_severity(each, name) for each in shifts.values())
    ]
    drawn = [shift_curves(report, name, f"shift-{place}") for place, name in enumerate(names)]
    told = [meaning(name, report.directions) for name in names]
    body = [
        _pooled_table(report),
        grid(map(figure, drawn)),
        _left_out(report, names),
        *(_by_corruption(report, entry, names) for entry in shifts),
        _sheet(report),
        glossary(told),
    ]
    about = "; ".join(dict.fromkeys(each.about for each in shifts.values() if each.about))
    reading = (
        f"The test examples again, spoiled on purpose{f': {about}' if about else ''}. Severity 0 is the clean test, "
        "5 is the strongest. A box spans the middle half of the corruptions, with a bar at the median and whiskers to "
        f"the smallest and the largest value; the line joins their means. {GOAL[report.task]}"
    )
    return section("shift", "Under shift", reading, join(body))


def shifts_of(report: Report) -> dict[str, Shift]:
    """What is known of shift, by entry."""
    return {entry: trust.shift for _, entry, trust in trusted(report) if trust.shift is not None}


def corruptions_of(found: Shift) -> list[str]:
    """The corruptions in the order they came."""
    return list(dict.fromkeys([*(point.corruption for point in found.points), *found.by_type]))


def spaced(corruption: str) -> str:
    """A corruption's name for a reader.

    >>> spaced("approximate_motion_blur")
    'approximate motion blur'
    """
    return corruption.replace("_", " ")


def _pooled_table(report: Report) -> Markup:
    """Means over all corruptions and severities, each over its clean value."""
    shifts = shifts_of(report)
    names = main_first(report.task, (name for each in shifts.values() for name in each.pooled))
    if not names:
        return NOTHING
    told = {name: meaning(name, report.directions) for name in names}
    best = {
        name: winners({e: s.pooled[name][0] for e, s in shifts.items() if name in s.pooled}, told[name].better)
        for name in names
    }
    heads = [score_head(told[name], CORRUPTED.get(name, f"{told[name].label}, corrupted")) for name in names]
    rows = [
        (text(entry), [_pooled_cell(found, name, entry in best[name]) for name in names])
        for entry, found in shifts.items()
    ]
    words = (
        "The c in front stands for corrupted: cA is the accuracy over all corruptions and severities, each weighing "
        "the same. The clean value stands below."
    )
    board = table("Means over all corruptions and severities", [text("Recipe"), *heads], rows)
    return join([board, tag("p", text(words), "aside")])


def _pooled_cell(found: Shift, name: str, wins: bool) -> Markup:
    clean = found.clean.get(name)
    below = tag("small", text(f"clean {number(clean[0])}")) if clean is not None else NOTHING
    return Markup(f"{score_cell(found.pooled.get(name), wins)}{below}")


def _left_out(report: Report, names: list[str]) -> Markup:
    """Notes on numbers that cannot be drawn, and on corruptions that are not the published ones."""
    found = list(shifts_of(report).values())
    values = [point.scores[n][0] for each in found for point in each.points for n in names if n in point.scores]
    lost = sum(not math.isfinite(value) for value in values)
    words = [
        f"{lost} of {len(values)} values are not finite: boxes, lines and means are without them." if lost else "",
        APPROXIMATE if any("approximate" in c.lower() for each in found for c in corruptions_of(each)) else "",
    ]
    return join(tag("p", text(each), "aside") for each in words if each)


def _by_corruption(report: Report, entry: str, names: list[str]) -> Markup:
    """Every number of one entry, to open on demand."""
    found = shifts_of(report)[entry]
    tables = join(_score_table(report, entry, found, name) for name in names)
    return details(f"By corruption and severity: {entry}", tag("div", tables, "shaded")) if tables else NOTHING


def _score_table(report: Report, entry: str, found: Shift, name: str) -> Markup:
    """One score by corruption and severity, with means; colour grows with the distance from the clean value."""
    cells = {(p.corruption, p.severity): p.scores[name] for p in found.points if name in p.scores}
    if not cells:
        return NOTHING
    severities = sorted({severity for _, severity in cells})
    clean = found.clean.get(name)
    start = clean[0] if clean is not None else math.nan
    furthest = max((abs(value - start) for value, *_ in cells.values() if math.isfinite(value - start)), default=0.0)
    rows = [(text("none (clean)"), [_shade(each, start, furthest) for each in (*(None for _ in severities), clean)])]
    for corruption in corruptions_of(found):
        line = [cells.get((corruption, severity)) for severity in severities]
        mean = found.by_type.get(corruption, {}).get(name)
        rows.append((text(spaced(corruption)), [_shade(each, start, furthest) for each in (*line, mean)]))
    together = [_mean_at(found, name, severity) for severity in severities]
    rows.append(
        (text("all corruptions"), [_shade(each, start, furthest) for each in (*together, found.pooled.get(name))])
    )
    columns = [text("Corruption"), *(text(f"Severity {severity}") for severity in severities), text("Mean")]
    told = meaning(name, report.directions).label
    return table(f"{told} of {entry}: the further from the clean value, the stronger the colour", columns, rows)


def _mean_at(found: Shift, name: str, severity: int) -> Score:
    """The mean over corruptions at a severity: the one given, with its interval, or one worked out without."""
    given = found.by_severity.get(severity, {}).get(name)
    return given or (finite_mean(by_severity(found, name).get(severity, ())), math.nan, math.nan)


def _shade(score: Score | None, start: float, furthest: float) -> Markup:
    depth = abs(score[0] - start) / furthest if score is not None and furthest else math.nan
    look = f' style="--depth:{100 * min(depth, 1):.0f}%"' if math.isfinite(depth) else ""
    return Markup(f'<div class="shade"{look}>{score_cell(score)}</div>')


def _sheet(report: Report) -> Markup:
    """Pictures of the corruptions; all entries saw the same, so the first sheet serves."""
    found = next((each for each in shifts_of(report).values() if each.sheet is not None), None)
    if found is None or found.sheet is None:
        return NOTHING
    height, width = found.sheet.shape[:2]
    scale = max(1, min(SHEET[0] // width, SHEET[1] // height))
    alt = f"Test pictures under the corruptions {', '.join(map(spaced, corruptions_of(found)))}"
    size = f'width="{scale * width}" height="{scale * height}"'
    image = Markup(f'<img class="sheet" {size} src="{png(found.sheet)}" alt="{text(alt)}">')
    words = tag("p", text(found.sheet_about), "note") if found.sheet_about else NOTHING
    return details("What the corruptions look like", join([words, image]))
