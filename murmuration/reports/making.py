"""Sections on how the ensembles came about: training, members, cost, and what is needed to do it again."""

import math
from collections.abc import Mapping

import numpy as np

import murmuration.reports.figures as figures
import murmuration.reports.pictures as pictures
from murmuration.reports.markup import NOTHING, Markup, details, figure, grid, join, section, table, tag, text
from murmuration.reports.records import Cost, Entry, Report
from murmuration.reports.summary import number_of
from murmuration.reports.wording import MISSING, TIMES, answers, duration, finite_mean, meaning, number


def training(report: Report) -> Markup:
    """Curves of every member and of the ensemble."""
    plots = [
        figure(figures.training(entry, measure, place, f"training-{place}-{turn}"))
        for place, entry in enumerate(report.entries)
        for turn, measure in enumerate(_measures(entry))
    ]
    reading = (
        "Thin lines are members, the thick line is the ensemble on the validation examples. A validation "
        "curve that rises again while the training loss falls means the members have begun to memorise."
    )
    return section("training", "How training went", reading, grid(plots))


def _measures(entry: Entry) -> list[str]:
    """What the history recorded for each member, in the order of its first row."""
    keys = dict.fromkeys(key for row in entry.history for key in row)
    return [key for key in keys if key not in ("epoch", "ensemble")]


def members(report: Report) -> Markup:
    """Agreement between members, and each of them alone."""
    plots = grid(figure(pictures.agreement(entry, f"agreement-{place}")) for place, entry in enumerate(report.entries))
    tables = [_member_table(entry) for entry in report.entries]
    stopped = [_frozen(entry) for entry in report.entries]
    drawn = [_own_draws(entry) for entry in report.entries]
    reading = (
        "Members that always agree are worth no more than one. The map shows how alike the predictions of "
        "each two members are; the tables show what each member scores alone."
    )
    return section("members", "The members", reading, join([*stopped, *drawn, plots, *tables]))


def _own_draws(entry: Entry) -> Markup:
    """How alike the answers of one member are, where it gives several."""
    if entry.draws == 1 or entry.agreement is None:
        return NOTHING
    own = finite_mean(np.diag(entry.agreement))
    count = answers(len(entry.agreement), entry.draws)
    return tag(
        "p",
        text(f"{entry.name}: {count}; two draws of a member are alike to {number(own)}, where 1 is the same."),
        "aside",
    )


def _member_table(entry: Entry) -> Markup:
    if not entry.members:
        return NOTHING
    names = list(dict.fromkeys(name for row in entry.members for name in row))
    one = "a draw of member" if entry.draws > 1 else "member"
    rows = [
        (text(f"{one} {place}"), [text(number(row.get(name, math.nan))) for name in names])
        for place, row in enumerate(entry.members)
    ]
    whole = [text(number(entry.scores[name][0])) if name in entry.scores else text(MISSING) for name in names]
    mean = [text(number(finite_mean(row.get(name, math.nan) for row in entry.members))) for name in names]
    rows += [(text("mean of members" if entry.draws == 1 else "mean of all draws"), mean), (text("ensemble"), whole)]
    columns = [text("Member"), *(text(meaning(name).label) for name in names)]
    return details(f"Members of {entry.name}", table(f"Each member of {entry.name} alone", columns, rows))


def _frozen(entry: Entry) -> Markup:
    if not entry.frozen:
        return NOTHING
    told = "; ".join(f"member {member} ({reason})" for member, reason in entry.frozen.items())
    return tag("p", text(f"{entry.name}: stopped early and kept as they were: {told}."), "warning")


def costs(report: Report) -> Markup:
    """What each recipe costs."""
    spent = {entry.name: entry.cost for entry in report.entries if entry.cost is not None}
    if not spent:
        return NOTHING
    quickest = min((c.seconds for c in spent.values() if math.isfinite(c.seconds)), default=math.nan)
    rows = [(text(name), _cost_cells(cost, quickest)) for name, cost in spent.items()]
    words = ("Recipe", "Members", "Parameters", "Training time", "Against the quickest", "One prediction")
    reading = (
        "What the quality above was paid with. Times were measured on the machine of the run and are only "
        "comparable within this table."
    )
    return section("cost", "Cost", reading, table("Cost of each recipe", [text(word) for word in words], rows))


def _cost_cells(cost: Cost, quickest: float) -> list[Markup]:
    ratio = cost.seconds / quickest if quickest > 0 else math.nan
    each = number(cost.ms_per_prediction)
    cells = (
        number_of(cost.members),
        number_of(cost.parameters),
        duration(cost.seconds),
        f"{ratio:.1f} {TIMES}" if math.isfinite(ratio) else MISSING,
        each if each == MISSING else f"{each} ms",
    )
    return [text(cell) for cell in cells]


def provenance(report: Report) -> Markup:
    """The exact command, the data, the seeds and the versions."""
    data, parts = report.data, []
    if report.command:
        parts.append(
            Markup(
                '<div class="command">'
                '<button type="button" class="copy" data-copy="command-text">Copy</button>'
                f'<pre tabindex="0"><code id="command-text">{text(report.command)}</code></pre></div>'
            )
        )
    facts = {
        "Data": data.name,
        "Fingerprint": data.fingerprint,
        "Splits": ", ".join(f"{split} {number_of(size)}" for split, size in data.sizes.items()),
        "Classes": ", ".join(data.classes),
        "Target": data.target,
        "Seeds": ", ".join(map(str, report.seeds)),
        "Date": report.date,
        "Versions": ", ".join(f"{name} {version}" for name, version in report.versions.items()),
    }
    parts.append(_facts(facts))
    reading = "Everything needed to do it again. If the fingerprint of your data differs, so will the numbers."
    return section("provenance", "Where this comes from", reading, join(parts))


def _facts(facts: Mapping[str, str]) -> Markup:
    items = join(Markup(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>") for name, value in facts.items() if value)
    return tag("dl", items, "facts") if items else NOTHING
