"""What tables of several sections share: cells of scores, heads of columns and rows, and whole small tables."""

from collections.abc import Sequence

import numpy as np

from murmuration.reports.figures import SIDES, usable
from murmuration.reports.markup import NOTHING, Markup, details, join, table, tag, text
from murmuration.reports.measured import Histogram, Reliability, Score
from murmuration.reports.summary import number_of
from murmuration.reports.wording import ARROWS, MISSING, Meaning, interval, number, percent


def arrow(better: str) -> Markup:
    """An arrow that says which way is better, in words too; nothing for a score that has no better."""
    if not better:
        return NOTHING
    return Markup(f'<span role="img" aria-label="{text(better)} is better">{ARROWS[better]}</span>')


def score_head(told: Meaning, label: str = "") -> Markup:
    """The head of a score's column: its label (or another) and its arrow."""
    return Markup(f"{text(label or told.label)} {arrow(told.better)}")


def row_head(label: str, *below: str) -> Markup:
    """The head of a row, with smaller lines below it; empty ones are left out."""
    return Markup("".join([text(label), *(tag("small", text(line)) for line in below if line)]))


def score_cell(score: Score | None, wins: bool = False) -> Markup:
    """A value with a star if it is the best, over its interval."""
    if score is None:
        return text(MISSING)
    star = Markup('<span class="star" role="img" aria-label="best">★</span>') if wins else NOTHING
    ends = tag("small", text(interval(score))) if interval(score) else NOTHING
    return Markup(f"{tag('span', text(number(score[0])), 'value')}{star}{ends}")


def share_cell(score: Score) -> Markup:
    """A share in per cent over its interval."""
    ends = tag("small", text(" to ".join(percent(end) for end in score[1:]))) if interval(score) else NOTHING
    return Markup(f"{tag('span', text(percent(score[0])), 'value')}{ends}")


def glossary(told: Sequence[Meaning]) -> Markup:
    """What each score means, to open on demand."""
    items = join(Markup(f"<dt>{text(m.label)}</dt><dd>{text(m.reading)}</dd>") for m in told if m.reading)
    return details("What each score means", tag("dl", items)) if items else NOTHING


def reliability_table(caption: str, record: Reliability) -> Markup:
    """The bins of a reliability curve, or nothing when all are empty."""
    kept = usable(record)
    if not kept:
        return NOTHING
    blank = np.full(len(record.promised), np.nan)
    low, high, count = (column if len(column) else blank for column in (record.low, record.high, record.count))
    rows = [
        (
            text(percent(record.promised[at])),
            [
                text(percent(record.observed[at])),
                text(interval((record.observed[at], low[at], high[at])) or MISSING),
                text(number_of(count[at])),
            ],
        )
        for at in kept
    ]
    columns = [text(word.capitalize()) for word in (*SIDES[record.kind], "interval", "examples")]
    return table(caption, columns, rows)


def histogram_table(caption: str, record: Histogram) -> Markup:
    """The counts of a histogram, a row for every bin."""
    edges = np.asarray(record.edges, dtype=float)
    rows = [
        (
            text(f"{number(edges[at])} to {number(edges[at + 1])}"),
            [text(number_of(counts[at])) for counts in record.groups.values()],
        )
        for at in range(len(edges) - 1)
    ]
    return table(caption, [text("Bin"), *(text(group) for group in record.groups)], rows)
