"""Numbers as text: three significant digits, percentages, intervals, times."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from murmuration.evaluation.eval_set import OUT_OF_FOLD, VALIDATION, EvalSet
from murmuration.evaluation.metrics import Score, describe

MISSING = "\u2013"  # a dash
MINUS, TIMES = "\u2212", "\u00d7"
ARROWS = {"higher": "↑", "lower": "↓", "neutral": ""}
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


NEXT_TO_NOTHING, ROUNDING = 5e-4, 1e-15


def number(value: float) -> str:
    """Return a number in three significant digits, thousands grouped; a dash when it is not finite.

    >>> [number(v) for v in (0.98765, 12.345, 1234567.0, -0.00001234, 0.0, 2.5e-12, float("nan"))]
    ['0.988', '12.3', '1,234,567', '−0.0000123', '0', '2.50 × 10⁻¹²', '–']
    """
    value = float(value)
    if not math.isfinite(value):
        return MISSING
    if abs(value) < ROUNDING:  # of zero
        return "0"
    if abs(value) < 1e-7 or abs(value) >= 1e12:
        digits, power = f"{value:.2e}".split("e")
        return f"{digits.replace('-', MINUS)} {TIMES} 10{str(int(power)).translate(SUPERSCRIPTS)}"
    digits_after = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))
    return f"{value:,.{digits_after}f}".replace("-", MINUS)


def count(value: float) -> str:
    """Return a count, thousands grouped; a dash when it is not finite."""
    return f"{value:,.0f}" if math.isfinite(value) else MISSING


def plural(amount: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "member"), plural(1200, "row")
    ('1 member', '1,200 rows')
    """
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def finite_mean(values: Iterable[float]) -> float:
    """Return the mean of those values that are finite, NaN when none is.

    >>> finite_mean([1.0, float("nan"), 3.0])
    2.0
    """
    finite = [float(value) for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def interval(score: Score, show: Callable[[float], str] = number) -> str:
    """Return the two ends of a score's interval, or nothing when it has none.

    An end that is next to nothing beside the other one is rounded to it.

    >>> interval(Score(0.9, 0.87654, 0.93)), interval(Score(0.9, float("nan"), float("nan")))
    ('0.877 to 0.930', '')
    >>> interval(Score(0.5, 3.98e-7, 1.0)), interval(Score(5.8e-17, 0.0, 1e-16))
    ('0.000 to 1.00', '0 to 0')
    """
    low, high = score.low, score.high
    tiny = min(NEXT_TO_NOTHING, NEXT_TO_NOTHING * max(abs(low), abs(high)))
    finite = math.isfinite(low) and math.isfinite(high)
    ends = ("0.000" if show is number and ROUNDING <= abs(end) < tiny else show(end) for end in (low, high))
    return " to ".join(ends) if finite else ""


def heading(name: str) -> str:
    """Return the label of a score, with an arrow for the better direction."""
    description = describe(name)
    return f"{description.label} {ARROWS[description.better]}".strip()


def percent(fraction: float) -> str:
    """Return a fraction as a percentage with one decimal.

    >>> percent(0.98765)
    '98.8 %'
    """
    return f"{100 * fraction:.1f} %".replace("-", MINUS) if math.isfinite(fraction) else MISSING


def duration(seconds: float) -> str:
    """Return a time span in the unit a person would use.

    >>> [duration(s) for s in (0.5, 75, 7320)]
    ['0.500 s', '1 min 15 s', '2 h 02 min']
    """
    if not math.isfinite(seconds):
        return MISSING
    if seconds < 60:
        return f"{number(seconds)} s"
    rounded = round(seconds)
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


@dataclass(frozen=True)
class Words:
    """What a page calls the things it evaluates, and the examples it scores them on."""

    subject: str
    examples: str  # of the scores
    held_out: str  # of calibrator, conformal sets and abstention rules
    fitted: str  # that these were fitted on
    caution: str = ""  # a sentence on the scores


TRAINED = Words("recipe", "test examples", "test examples", "validation examples")
VALIDATED = Words(
    *("recipe", "validation examples", "validation examples", "validation examples"),
    "There is no test split: all scores are of the validation examples, before calibration. Early stopping used them "
    "too, so scores are optimistic.",
)
CROSS_FITTED = Words(
    *("recipe", "examples out of fold", "examples out of fold", "examples out of fold"),
    "There is no test split: every row is scored by the members that did not train on it, before calibration. Early "
    "stopping used these rows too, so scores are a little optimistic.",
)
AUDITED = Words("model", "rows", "held-out rows", "rows set aside")


def words_of(eval_set: EvalSet) -> Words:
    """Return what a page calls the examples of an evaluation: rows of a file, test examples or validation examples."""
    parts = {VALIDATION: VALIDATED, OUT_OF_FOLD: CROSS_FITTED}
    return AUDITED if eval_set.audited else parts.get(eval_set.part, TRAINED)


def members_and_draws(members: int, draws: int = 1) -> str:
    """Return the size of an ensemble in words.

    >>> members_and_draws(5), members_and_draws(1, 30)
    ('5 members', '1 member × 30 draws')
    """
    words = plural(members, "member")
    return f"{words} {TIMES} {draws:,} draws" if draws > 1 else words


def shorten(text: str, length: int = 28) -> str:
    """Return the text, cut with an ellipsis when it is longer than `length`.

    >>> shorten("a very long name indeed", 10)
    'a very lo…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"
