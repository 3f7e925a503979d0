"""Sections on trust: calibrated, with a right to decline, with sets, on foreign inputs, group by group."""

import math
from collections.abc import Mapping, Sequence

from murmuration.metrics import shown_in
from murmuration.posthoc.abstention import larger_is_certain
from murmuration.reports.cells import (
    glossary,
    histogram_table,
    reliability_table,
    row_head,
    score_cell,
    score_head,
    share_cell,
)
from murmuration.reports.figures import histogram
from murmuration.reports.markup import NOTHING, Markup, details, figure, grid, join, section, table, tag, text
from murmuration.reports.records import Report
from murmuration.reports.summary import main_first, number_of, winners
from murmuration.reports.trust_figures import (
    MOST_ROWS,
    before_and_after,
    coverage_dots,
    detection_dots,
    group_dots,
    trusted,
)
from murmuration.reports.trust_records import Calibration, Detection, Foreign, Group, Recalibrated, Rule, Sets
from murmuration.reports.wording import MISSING, meaning, number


def calibration(report: Report) -> Markup:
    """What each calibrator did: the sentence, the scores and the curves before and after."""
    found = [(place, entry, trust.calibration) for place, entry, trust in trusted(report) if trust.calibration]
    plots = [
        figure(before_and_after(entry, place, change, f"calibration-{place}-{turn}"))
        for place, entry, each in found
        for turn, change in enumerate(each.changes)
    ]
    parts = [join([_what_was_done(entry, each), _calibration_table(report, entry, each)]) for _, entry, each in found]
    numbers = [_curve_tables(entry, change) for _, entry, each in found for change in each.changes]
    reading = (
        "A calibrator adjusts how sure the ensemble says it is, learnt from examples that were held back for it. "
        "Afterwards the curve should lie closer to the dotted line, where promise and outcome agree. ★ marks the "
        "better of before and after. What was learnt on clean examples need not fit spoiled ones."
    )
    return section("calibration", "Calibration", reading, join([*parts, grid(plots), *numbers]))


def _what_was_done(entry: str, found: Calibration) -> Markup:
    about = f" ({found.about})" if found.about else ""
    applied = (
        "It is applied: the other numbers of this report are those after it."
        if found.applied
        else "It is not applied: the other numbers of this report are those before it."
    )
    words = f"{entry}: {found.method}{about}, fitted on {number_of(found.fitted_on)} examples that are not scored here."
    return tag("p", text(f"{words} {applied}"))


def _calibration_table(report: Report, entry: str, found: Calibration) -> Markup:
    """Two rows for every set of examples."""
    both = [(change, (change.scores_before, change.scores_after)) for change in found.changes]
    names = main_first(report.task, (name for _, pair in both for scores in pair for name in scores))
    if not names:
        return NOTHING
    told = {name: meaning(name, report.directions) for name in names}
    rows = []
    for change, pair in both:
        best = {
            name: winners({turn: s[name][0] for turn, s in enumerate(pair) if name in s}, told[name].better)
            for name in names
        }
        for turn, when in enumerate(("before", "after")):
            cells = [score_cell(pair[turn].get(name), turn in best[name]) for name in names]
            rows.append((row_head(change.where, when), cells))
    columns = [text("Where"), *(score_head(told[name]) for name in names)]
    return table(f"{entry}: before and after calibration", columns, rows)


def _curve_tables(entry: str, change: Recalibrated) -> Markup:
    curves = [("before", change.before), ("after", change.after)]
    tables = join(
        reliability_table(f"Reliability of {entry} on {change.where}, {when}", curve)
        for when, curve in curves
        if curve is not None
    )
    return details(f"Numbers: {entry}, {change.where}", tables) if tables else NOTHING


def rules(report: Report) -> Markup:
    """Rules for declining, and what they do."""
    found = [(entry, rule) for _, entry, trust in trusted(report) for rule in trust.rules]
    if not found:
        return NOTHING
    several = len({entry for entry, _ in found}) > 1
    priced = any(math.isfinite(rule.cost[0]) for _, rule in found)
    wrong = "Error among the answered" if report.task == "classification" else "Mean loss among the answered"
    words = ["Rule", "Where", "Answers if", "Answered", wrong, *["Mean cost"] * priced]
    rows = [
        (row_head(rule.name, entry if several else "", rule.note), _rule_cells(rule, report.task, priced))
        for entry, rule in found
    ]
    reading = (
        "An ensemble may pass an example on to someone else when its uncertainty is too high. Each rule's threshold "
        "was chosen on other examples; this is what the rule does on these. Answering fewer should buy fewer errors."
    )
    body = tag("div", table("Rules for declining to answer", [text(word) for word in words], rows), "wrapped")
    return section("declining", "When to decline", reading, body)


def _rule_cells(rule: Rule, task: str, priced: bool) -> list[Markup]:
    threshold = row_head(meaning(rule.uncertainty).label, _bound(rule))
    risk = share_cell(rule.risk) if task == "classification" else score_cell(rule.risk)
    return [text(rule.where), threshold, share_cell(rule.answered), risk, *[score_cell(rule.cost)] * priced]


def _bound(rule: Rule) -> str:
    """Where the rule answers: above or below its threshold, or an infinite one, which is passed by all or by none."""
    surer_above = larger_is_certain(rule.uncertainty)
    if math.isinf(rule.threshold):
        return "always" if (rule.threshold < 0) == surer_above else "never"
    return f"{'at least' if surer_above else 'at most'} {number(rule.threshold)}"


def sets(report: Report) -> Markup:
    """Prediction sets: what they promise and what they hold."""
    found = {entry: trust.sets for _, entry, trust in trusted(report) if trust.sets}
    levels = dict.fromkeys(each.level for some in found.values() for each in some)
    plots = grid(figure(coverage_dots(report, level, f"sets-{turn}")) for turn, level in enumerate(levels))
    tables = {entry: _set_table(report, entry, some) for entry, some in found.items()}
    several = len(found) > 1
    boards = [details(f"Numbers: {entry}", each) if several else each for entry, each in tables.items()]
    sentences = [tag("p", text(_broken_promises(entry, some))) for entry, some in found.items()]
    kind = "a set of classes" if report.task == "classification" else "an interval"
    reading = (
        f"Instead of one answer, {kind} that promises to hold the truth with a given probability. The promise is made "
        "for examples like those it was set on: for a group of them, or for spoiled examples, it may be broken. Broken "
        f"means that the whole {report.interval} interval lies below the promise. Of sets that hold, prefer the small."
    )
    return section("sets", "Sets that hold the truth", reading, join([*sentences, plots, *boards]))


def _broken_promises(entry: str, found: Sequence[Sets]) -> str:
    """One sentence on the promises that were broken by more than noise."""
    broken = [each for each in found if each.verdict == "under"]
    if not broken:
        return f"{entry}: no promise is broken by more than noise explains."
    where = "; ".join(dict.fromkeys(each.where for each in broken))
    return f"{entry}: broken by more than noise explains are {len(broken)} of {len(found)} promises ({where})."


def _set_table(report: Report, entry: str, found: Sequence[Sets]) -> Markup:
    size = "Mean set size" if report.task == "classification" else "Mean width"
    words = ("Where", "Method", "Promised", "Held the truth", "Verdict", size, "Examples")
    rows = [(text(each.where), _set_cells(each)) for each in found]
    board = table(f"{entry}: what was promised and what was held", [text(word) for word in words], rows)
    return tag("div", board, "wrapped")


def _set_cells(each: Sets) -> list[Markup]:
    count = number_of(each.examples) if each.examples else MISSING
    return [
        text(each.method),
        text(f"{100 * each.level:g} %"),
        share_cell(each.coverage),
        _verdict(each),
        score_cell(each.size),
        text(count),
    ]


def _verdict(each: Sets) -> Markup:
    """Whether the coverage is as nominal, in words."""
    words = {"under": "✗ under-coverage", "valid": "✓ as nominal, within noise", "over": "✓ over-coverage"}
    return tag("span", text(words[each.verdict]), "mark wrong" if each.verdict == "under" else "mark right")


def foreign(report: Report) -> Markup:
    """How well uncertainty tells foreign inputs from familiar ones, one foreign set after another."""
    found = [(place, entry, each) for place, entry, trust in trusted(report) for each in trust.foreign]
    names = list(dict.fromkeys(each.name for _, _, each in found))
    several = len({entry for _, entry, _ in found}) > 1
    parts = [
        _foreign_part(report, [each for each in found if each[2].name == name], several, f"foreign-{turn}")
        for turn, name in enumerate(names)
    ]
    scores = glossary([meaning(f"detection_{name}") for name in ("auroc", "aupr", "fpr95")]) if any(parts) else NOTHING
    reading = (
        "Inputs of a kind that the ensemble was never shown. It cannot be right about them, but it can be unsure: a "
        "good uncertainty is higher for them than for the familiar test examples. ★ marks the best value of a column, "
        "however small its lead. Another foreign set may have another best: choose on one, judge on others."
    )
    return section("foreign", "Foreign inputs", reading, join([*parts, scores]))


def _foreign_part(report: Report, found: list[tuple[int, str, Foreign]], several: bool, name: str) -> Markup:
    title = f"{found[0][2].name}: {number_of(found[0][2].examples)} foreign examples"
    keys = dict.fromkeys(key for _, _, each in found for key in each.detections)
    rows = {(key, entry): each.detections[key] for key in keys for _, entry, each in found if key in each.detections}
    shown = [(place, entry, each) for place, entry, each in found if each.detections]
    compared = figure(detection_dots(shown, f"{name}-dots")) if len(shown) > 1 else NOTHING
    records = [(place, entry, turn, h) for place, entry, each in found for turn, h in enumerate(each.histograms)]
    plots = [figure(histogram(report.entries[p], h, f"{name}-histogram-{p}-{turn}")) for p, _, turn, h in records]
    tables = join(histogram_table(f"{entry}: {meaning(h.name).label.lower()}", h) for _, entry, _, h in records)
    body = [
        _detection_table(found[0][2].name, rows, several) if rows else NOTHING,
        grid([compared, *plots]),
        details("Numbers of the histograms", tables) if tables else NOTHING,
    ]
    return join([tag("h3", text(title), "part"), *body]) if any(body) else NOTHING


def _detection_table(name: str, found: Mapping[tuple[str, str], Detection], several: bool) -> Markup:
    told = [meaning(f"detection_{name}") for name in ("auroc", "aupr", "fpr95")]
    columns = {key: (each.auroc, each.aupr, each.fpr95) for key, each in found.items()}
    best = [winners({key: c[at][0] for key, c in columns.items()}, m.better) for at, m in enumerate(told)]
    rows = [
        (
            row_head(meaning(key[0]).label, key[1] if several else ""),
            [score_cell(score, key in best[at]) for at, score in enumerate(scores)],
        )
        for key, scores in columns.items()
    ]
    return table(f"Telling {name} from the familiar test examples", [text("Uncertainty"), *map(score_head, told)], rows)


def groups(report: Report) -> Markup:
    """Scores within groups of the examples."""
    found = [(entry, group) for _, entry, trust in trusted(report) for group in trust.groups]
    names = main_first(report.task, (name for _, group in found for name in group.scores))
    columns = list(dict.fromkeys(group.column for _, group in found))
    parts = []
    for turn, column in enumerate(columns):
        main = next(iter(names), shown_in("brief", report.task)[0])
        rows = [(entry, group) for entry, group in found if group.column == column]
        drawn = figure(group_dots(report, column, main, f"groups-{turn}"))
        many = len({group.value for _, group in rows}) > MOST_ROWS
        words = tag("p", text(f"Drawn are the {MOST_ROWS} largest groups; the table has all."), "aside")
        parts.append(join([drawn, words if many else NOTHING, _group_table(report, column, rows, names)]))
    reading = (
        "The same scores within groups of the test examples: a good value overall can hide a group that fares badly. "
        f"Intervals are {report.interval}; small groups have wide ones, and among many groups a few lie apart by "
        "chance alone."
    )
    return section("groups", "Groups", reading, join(parts))


def _group_table(report: Report, column: str, found: list[tuple[str, Group]], names: list[str]) -> Markup:
    several = len({entry for entry, _ in found}) > 1
    noted = any(group.note for _, group in found)
    told = [meaning(name, report.directions) for name in names]
    whole = {entry.name: entry.scores for entry in report.entries}
    rows = []
    for entry in dict.fromkeys(entry for entry, _ in found):
        cells = [score_cell(whole[entry].get(name)) for name in names]
        rows.append((row_head("all examples", entry if several else ""), [text(MISSING), *cells, *[NOTHING] * noted]))
    order = {group.value: turn for turn, (_, group) in reversed(list(enumerate(found)))}
    for entry, group in sorted(found, key=lambda each: order[each[1].value]):
        cells = [text(number_of(group.examples)), *(score_cell(group.scores.get(name)) for name in names)]
        note = [tag("span", text(group.note), "wide")] * noted
        rows.append((row_head(group.value, entry if several else ""), [*cells, *note]))
    heads = [text(column), text("Examples"), *map(score_head, told), *[tag("span", text("Note"), "wide")] * noted]
    return tag("div", table(f"Scores by {column}", heads, rows), "wrapped")
