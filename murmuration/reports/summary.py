"""The opening of a report: what the reader holds, in plain sentences and a few numbers."""

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from murmuration.metrics import MEASURES, shown_in
from murmuration.metrics.scores import Task
from murmuration.reports.figures import usable
from murmuration.reports.markup import NOTHING, Markup, join, section, tag, text
from murmuration.reports.records import Entry, Report, Score
from murmuration.reports.wording import MISSING, interval, meaning, number, percent

Key = TypeVar("Key", bound=Hashable)

DECIDING = "nll"  # picks the leading recipe where it is known: it judges the whole predictive distribution
CARDS = 4


def score_names(report: Report) -> list[str]:
    """All scores of the report: the main ones of its task first, then the others as they come."""
    return main_first(report.task, (name for entry in report.entries for name in entry.scores))


def main_first(task: Task, names: Iterable[str]) -> list[str]:
    """Names of scores, each once: the main ones of the task first, then the others as they come.

    >>> main_first("regression", ["mae", "coverage_90", "rmse", "new", "mae"])
    ['rmse', 'coverage_90', 'mae', 'new']
    """
    present = dict.fromkeys(names)
    main = [name for name in shown_in("summary", task) if name in present]
    return main + [name for name in present if name not in main]


def best(report: Report, score: str) -> set[str]:
    """Names of the entries with the best value of a score; empty when there is nothing to compare."""
    values = {entry.name: entry.scores[score][0] for entry in report.entries if score in entry.scores}
    return winners(values, meaning(score, report.directions).better)


def winners(values: Mapping[Key, float], better: str) -> set[Key]:
    """Keys of the best values, "higher" or "lower" being better; empty when there is nothing to compare.

    >>> winners({"a": 0.1, "b": 0.3, "c": float("nan")}, "lower")
    {'a'}
    """
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    if not better or len(finite) < 2:
        return set()
    top = max(finite.values()) if better == "higher" else min(finite.values())
    return {name for name, value in finite.items() if value == top}


def leader(report: Report) -> tuple[Entry, str]:
    """The entry that the opening speaks of, and the score by which it leads ("" if nothing was compared)."""
    for score in sorted(score_names(report), key=lambda name: name != DECIDING):
        winners = best(report, score)
        if winners:
            return next(entry for entry in report.entries if entry.name in winners), score
    return report.entries[0], ""


def opening(report: Report) -> Markup:
    """The section "what you hold"."""
    entry, score = leader(report)
    sentences = [_about_data(report), _about_quality(report, entry), _about_trust(report, entry)]
    lead = tag("p", text(" ".join(sentence for sentence in sentences if sentence)), "lead")
    names = [name for name in score_names(report) if math.isfinite(entry.scores.get(name, (math.nan,))[0])]
    cards = tag("div", join(_card(report, name, entry.scores[name]) for name in names[:CARDS]), "cards")
    body = join([lead, _about_leader(report, entry, score), cards if names else NOTHING])
    reading = (
        f"Each number comes with a {report.interval} interval: where it would probably land on other "
        "examples of the same kind. Two numbers whose intervals overlap widely may differ by chance."
    )
    return section("summary", "What you hold", reading if names else "", body)


def _about_data(report: Report) -> str:
    count = len(report.entries)
    recipes = f"{count} recipes for ensembles" if count > 1 else f"the recipe {report.entries[0].name}"
    kind = f"{len(report.data.classes)} classes" if report.data.classes else report.data.target or report.task
    sizes = ", ".join(f"{number_of(size)} {split}" for split, size in report.data.sizes.items())
    examples = f"; examples: {sizes}" if sizes else ""
    return f"This report measures {recipes} on {report.data.name} ({kind}{examples})."


def number_of(count: float) -> str:
    """A count, thousands grouped."""
    return f"{count:,.0f}" if math.isfinite(count) else MISSING


def _about_quality(report: Report, entry: Entry) -> str:
    value, *_ = entry.scores.get("accuracy" if report.task == "classification" else "rmse", (math.nan,))
    if not math.isfinite(value):
        return ""
    if report.task == "classification":
        return f"With {entry.name}, {percent(value)} of the test examples get the right class."
    return f"With {entry.name}, a prediction is typically off by {number(value)} (root mean square)."


def _about_trust(report: Report, entry: Entry) -> str:
    """One sentence on whether promises were kept, from the reliability record."""
    record = entry.reliability
    if record is None or not len(usable(record)):
        return ""
    promised, observed = (
        np.asarray(column, dtype=float)[usable(record)] for column in (record.promised, record.observed)
    )
    if record.kind == "confidence":
        weight = np.asarray(record.count, dtype=float)[usable(record)] if len(record.count) else np.ones(len(promised))
        return _about_confidence(float(np.average(promised - observed, weights=weight)) if weight.sum() > 0 else 0.0)
    if record.kind == "quantile":
        low, high = (int(np.argmin(np.abs(promised - level))) for level in (0.05, 0.95))
        meant, held = promised[high] - promised[low], observed[high] - observed[low]
    else:
        near = int(np.argmin(np.abs(promised - 0.9)))
        meant, held = promised[near], observed[near]
    return f"Its {percent(meant)} intervals held the truth {percent(held)} of the time."


def _about_confidence(lean: float) -> str:
    if abs(lean) < 0.005:
        return "On average its confidence equals its accuracy to within half a percentage point."
    manner = "higher" if lean > 0 else "lower"
    return f"On average its confidence is {100 * abs(lean):.1f} percentage points {manner} than its accuracy."


def _about_leader(report: Report, entry: Entry, score: str) -> Markup:
    if not score:
        return NOTHING
    told = meaning(score, report.directions)
    extreme = "highest" if told.better == "higher" else "lowest"
    words = (
        f"The cards show {entry.name}, which has the {extreme} {told.label} of the {len(report.entries)} "
        "recipes. It was picked on these same test examples, so its numbers flatter it a little."
    )
    return tag("p", text(words), "aside")


def _card(report: Report, name: str, score: Score) -> Markup:
    told = meaning(name, report.directions)
    measure = MEASURES[report.task].get(name)
    shares = measure is not None and measure.proportion
    shown = percent(score[0]) if shares else number(score[0])
    ends = " to ".join(percent(end) for end in score[1:]) if shares else interval(score)
    ends = ends if interval(score) else ""
    better = tag("span", text(f"{told.better} is better"), "direction") if told.better else NOTHING
    parts = [
        tag("h3", Markup(f"{text(told.label)} {better}")),
        tag("p", text(shown), "value"),
        tag("p", text(ends), "interval") if ends else NOTHING,
        tag("p", text(told.reading), "note") if told.reading else NOTHING,
    ]
    return tag("div", join(parts), "card")
