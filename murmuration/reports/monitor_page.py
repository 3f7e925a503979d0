"""The page of `murmur monitor`: a new table against the training table."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from murmuration.evaluation.columns import LEAST, LEVEL, Drift, UnusualRow
from murmuration.evaluation.metrics import Score
from murmuration.reports.figures import Figure, Series, dot_rows, with_guide
from murmuration.reports.formatting import MISSING, number, percent
from murmuration.reports.html import NOTHING, Markup, figure, grid, join, section, table, tag
from murmuration.reports.page import framed
from murmuration.reports.sections.columns import described
from murmuration.system.errors import listed

TINY = 1e-12  # a smaller p-value is shown as below it: its digits are of the arithmetic, not of the data
EPOCH, DAY = datetime(1970, 1, 1), 24 * 3600  # of dates and durations, which are seconds
DRAWN = 30  # changes of the figure; the table has all


def monitor_page(run: str, data: str, found: Drift, unusual: Sequence[UnusualRow]) -> str:
    """Return one self-contained page."""
    reading = (
        f"Every column of the new rows against the training rows, and uncertainty against that on the test "
        f"rows, or validation rows where there are none. Drift "
        f"is a change of size {LEAST:g} or more that is significant at the level {LEVEL:g} after Holm's correction."
    )
    verdict = join(tag("p", sentence, "verdict" if not place else "") for place, sentence in enumerate(found.verdict))
    heads = ["Quantity", "Kind", "Training or test", "New", "Size", "Corrected p", "Unseen", "Drift"]
    board = table("Changes", heads, [(name, cells) for name, *cells in change_rows(found)])
    drift = section("drift", "Drift", reading, join([verdict, grid([figure(drift_figure(found))]), board]))
    return framed(f"Monitor: {run}", f"{found.rows:,} rows of {data}", join([drift, rows(unusual)]))


def drift_figure(found: Drift) -> Figure:
    """Return the size of every change, those that count apart."""
    largest = sorted(found.changes, key=lambda change: -change.size)[:DRAWN]
    labels = [f"{c.name}, {c.kind}" if c.kind == "missing values" else c.name for c in largest]
    scores: dict[bool, dict[str, Score]] = {True: {}, False: {}}
    for label, change in zip(labels, largest, strict=True):
        scores[change.drifted][label] = Score(change.size, change.size, change.size)
    series = [Series("drift", 1, scores[True]), Series("no drift", 0, scores[False])]
    title = "Size of the change, from 0 to 1"
    drawn = dot_rows("drift-sizes", title, labels, [kind for kind in series if kind.scores])
    return with_guide(drawn, LEAST, "smallest size that counts")


def change_rows(drift: Drift) -> list[list[str]]:
    """Return name, kind, values before and after, size, corrected p, unseen and drift of all changes, largest first."""
    rows = []
    for change in sorted(drift.changes, key=lambda change: (not change.drifted, -change.size)):
        values = [*(quantity(value, change.kind) for value in (change.before, change.after)), number(change.size)]
        p_value = number(change.adjusted) if change.adjusted >= TINY else "< 10⁻¹²"
        unseen = f"{percent(change.unseen)}: {listed(change.new, most=5)}" if change.unseen else MISSING
        rows.append([change.name, change.kind, *values, p_value, unseen, "yes" if change.drifted else "no"])
    return rows


def quantity(value: float, kind: str) -> str:
    """Return a mean of a column: a date, days, or a number, in which years have no separator.

    >>> quantity(1719627692.0, "dates"), quantity(90_000.0, "durations"), quantity(2013.4, "numbers")
    ('2024-06-29', '1.04 days', '2013')
    """
    if kind == "dates" and math.isfinite(value):
        return (EPOCH + timedelta(seconds=value)).date().isoformat()
    if kind == "durations" and math.isfinite(value):
        return f"{number(value / DAY)} days"
    return f"{value:.0f}" if 1000 <= value < 10_000 else number(value)


def rows(unusual: Sequence[UnusualRow]) -> Markup:
    """Return the new rows farthest from the training rows."""
    if not unusual:
        return NOTHING
    heads = ["Row", "Distance", "Columns that differ most"]
    lines = [(f"row {row.row}", [number(row.distance), described(row.columns, row.values)]) for row in unusual]
    reading = (
        "Distances to the nearest training rows in the prepared columns, in units of the median of such distances "
        "among training rows. Rows are counted from 0."
    )
    return section("rows", "Rows most unlike the training rows", reading, table("Unusual rows", heads, lines))
