"""The opening: the verdict, the headline scores of the leading recipe, and the findings."""

import math
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TypeVar

from murmuration.core.dynamics.optimizer import OPTIMIZERS, make_optimizer
from murmuration.evaluation.metrics import MEASURES, Score
from murmuration.reports.formatting import count, interval, number, percent
from murmuration.reports.html import NOTHING, Markup, details, join, section, tag, text
from murmuration.reports.report import Report
from murmuration.reports.sections.differences import differences
from murmuration.system.option_text import OBJECT

Key = TypeVar("Key", bound=Hashable)

CARDS = 5  # headline scores
OPEN = 4  # findings that are shown at once


def summary(report: Report) -> Markup:
    """Return the verdict, what was evaluated, headline scores and findings."""
    first, *more = report.verdict
    lead = join([tag("p", first, "verdict"), tag("p", " ".join(more), "lead")])
    leader = report.leader
    names = [n for n in leader.shown_in("summary") if math.isfinite(leader.scores[n])]
    cards = tag("div", join(_card(report, name, leader.scores[name]) for name in names[:CARDS]), "cards")
    drawn = [differences(report)] if report.is_comparison else []  # the scores of all follow below
    body = join([lead, *drawn, tag("p", _about(report), "aside"), *([] if drawn else [cards]), _findings(report)])
    return section("summary", "Summary", "", body)


def _about(report: Report) -> str:
    """Return what was evaluated on which data, and whose scores the cards hold."""
    eval_set, compared = report.eval_set, len(report.evaluations)
    kind = f"{len(report.classes)} classes" if report.classes else report.target or report.task
    sizes = ", ".join(f"{count(size)} {part}" for part, size in eval_set.sizes.items())
    data = f"Data: {Path(eval_set.name).name} ({kind}{f'; {sizes}' if sizes else ''})."
    if eval_set.audited:
        data, before = f"Data: {sizes} ({kind}).", report.leader.before
        if before is None:
            data += " All numbers are of all rows."
        else:
            steps = "calibrator, conformal sets and abstention rules, fitted on as many others, are evaluated"
            data += f" Numbers are of all rows, but for the {count(before.inputs)} held-out rows on which {steps}."
    if report.words.caution:
        data = f"{data} {report.words.caution}"
    if compared == 1:
        return f"{data} {_training(report)}Ranges are 95 % intervals."
    words = report.words
    caution = (
        f"{report.leader.name}, one of {compared} {words.subject}s, was chosen on these same {words.examples}, so its "
        "scores are slightly optimistic."
    )
    return f"{data} Ranges are 95 % intervals. {caution}"


def _training(report: Report) -> str:
    """Return the network by name and the settings it was trained with; nothing where there is no run or no name."""
    manifest = report.leader.manifest
    net, plan = manifest.net, manifest.plan
    if not net.get("name") or not {"optimizer", "lr", "batch_size", "weight_decay"} <= plan.keys():
        return ""
    dynamics = manifest.recipe["dynamics"].partition(":")[0]
    optimizer = plan["optimizer"] or ("adam" if dynamics == "optimizer" else dynamics)
    named = optimizer in OPTIMIZERS
    decay = make_optimizer(optimizer, weight_decay=plan["weight_decay"]).weight_decay if named else plan["weight_decay"]
    settings = f"learning rate {plan['lr']:g}{f', weight decay {decay:g}' if decay else ''}"
    trained = f"{optimizer.removeprefix(OBJECT)}, {settings}, batches of {plan['batch_size']}"
    return f"Network: {net['name']}, trained by {trained}. "


def _card(report: Report, name: str, score: Score) -> Markup:
    measure = MEASURES[report.task][name]
    show = percent if measure.proportion else number
    value, ends = show(score), interval(score, show)
    better = tag("span", f"{measure.better} is better", "direction") if measure.better != "neutral" else NOTHING
    without = report.baseline.scores.get(name)
    beside = "" if without is None else f"without input {show(without)}"
    title = tag("h3", Markup(f"{text(measure.label)} {better}"))
    return tag(
        "div", join([title, tag("p", value, "value"), tag("p", ends, "interval"), tag("p", beside, "interval")]), "card"
    )


def _findings(report: Report) -> Markup:
    items = [tag("li", note) for note in report.notes]
    if not items:
        return NOTHING
    visible, hidden = (items, []) if len(items) <= OPEN + 2 else (items[:OPEN], items[OPEN:])
    more = details(f"{len(hidden)} more findings", tag("ul", join(hidden), "findings"))
    return join([tag("h3", f"Findings{report.of_seed}", "part"), tag("ul", join(visible), "findings"), more])


def winners(values: Mapping[Key, float], better: str) -> set[Key]:
    """Keys of the best values, "higher" or "lower" being better; empty when there is nothing to compare.

    >>> winners({"a": 0.1, "b": 0.3, "c": float("nan")}, "lower")
    {'a'}
    """
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    if better == "neutral" or len(finite) < 2:
        return set()
    top = max(finite.values()) if better == "higher" else min(finite.values())
    return {name for name, value in finite.items() if value == top}
