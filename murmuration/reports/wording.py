"""How numbers and scores are written for a reader: digits, labels, directions, one-sentence explanations."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from murmuration.metrics import describe
from murmuration.reports.records import Score

MISSING = "\u2013"  # a dash
MINUS, TIMES = "\u2212", "\u00d7"
ARROWS = {"higher": "↑", "lower": "↓", "": ""}


class Meaning(NamedTuple):
    """What a score's name stands for."""

    label: str
    better: str  # "higher", "lower", or "" when neither
    reading: str


def meaning(name: str, directions: Mapping[str, str] | None = None) -> Meaning:
    """The label, direction and explanation of a score; a name nobody knows is its own label."""
    known = describe(name)
    better = (directions or {}).get(name, known.better)
    return Meaning(known.label, "" if better == "neutral" else better, known.meaning)


def number(value: float) -> str:
    """A number in three significant digits, thousands grouped; a dash when it is not finite.

    >>> [number(v) for v in (0.98765, 12.345, 1234567.0, 0.00001234, 0.0, float("nan"))]
    ['0.988', '12.3', '1,234,567', '1.23e-05', '0', '–']
    """
    value = float(value)
    if not math.isfinite(value):
        return MISSING
    if abs(value) < 1e-30:  # what rounding leaves of zero
        return "0"
    if abs(value) < 1e-3 or abs(value) >= 1e9:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))
    return f"{value:,.{digits}f}".replace("-", MINUS)


def finite_mean(values: Iterable[float]) -> float:
    """The mean of those values that are finite, NaN when none is.

    >>> finite_mean([1.0, float("nan"), 3.0])
    2.0
    """
    finite = [float(value) for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def interval(score: Score) -> str:
    """The two ends of a score's interval, or nothing when it has none.

    >>> interval((0.9, 0.87654, 0.93))
    '0.877 to 0.930'
    >>> interval((0.9, float("nan"), float("nan")))
    ''
    """
    _, low, high = score
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"{number(low)} to {number(high)}"


def percent(share: float) -> str:
    """A share as a percentage with one decimal.

    >>> percent(0.98765)
    '98.8 %'
    """
    return f"{100 * share:.1f} %" if math.isfinite(share) else MISSING


def duration(seconds: float) -> str:
    """A time span in the unit a person would use.

    >>> [duration(s) for s in (0.5, 75, 7320)]
    ['0.500 s', '1 min 15 s', '2 h 02 min']
    """
    if not math.isfinite(seconds):
        return MISSING
    if seconds < 60:
        return f"{number(seconds)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def answers(members: int, draws: int = 1) -> str:
    """How many answers an ensemble gives to an input.

    >>> answers(5), answers(1, 30)
    ('5 members', '1 member × 30 draws')
    """
    told = f"{members:,} member{'' if members == 1 else 's'}"
    return f"{told} {TIMES} {draws:,} draws" if draws > 1 else told


def shorten(text: str, length: int = 28) -> str:
    """The text, cut with an ellipsis when it is longer than `length`.

    >>> shorten("a very long name indeed", 10)
    'a very lo…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"
