"""Numbers and dates as people write them: decimal commas, separated thousands, days before months.

A column is read in one form if all its cells agree on it. Where two readings fit every cell (1,234 or 05/04/2024) it
stays text, and `refuse_ambiguous` says so.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from murmuration.system.errors import Misuse

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
GAP = ".'\u2019 \u00a0\u202f"  # what separates thousands where the decimal sign is a comma
DECIMAL_COMMA = rf"[+-]?(?:\d+|\d{{1,3}}(?:[{GAP}]\d{{3}})+)(?:,\d+)?(?:[eE][+-]?\d+)?"  # 1,5 and 1.234,50
THOUSANDS = r"[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?"  # 1,234.50
DATE = r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})((?:[T ]\d{1,2}:\d{2}(?::\d{2})?)?)"  # 31.12.2024 or 12/31/2024 23:59
MIN_NUMBERS = 3  # distinct numbers with commas in a column of training: fewer may be labels


def is_number(text: str) -> bool:
    """Return whether a string is a finite decimal number.

    >>> is_number("-1.5e3"), is_number("nan"), is_number("1,5")
    (True, False, False)
    """
    return NUMBER.fullmatch(text.strip()) is not None


@dataclass(frozen=True)
class Form:
    """One way to write numbers or dates."""

    reads: Callable[[str], str | None]  # a cell -> the plain number or ISO date; None if it is not in this form
    example: str
    dates: bool = False


def _decimal_comma(text: str) -> str | None:
    if not re.fullmatch(DECIMAL_COMMA, text):
        return None
    whole, comma, rest = text.partition(",")
    return re.sub(rf"[{GAP}]", "", whole) + ("." if comma else "") + rest


def _thousands(text: str) -> str | None:
    return text.replace(",", "") if re.fullmatch(THOUSANDS, text) else None


def _day_first(text: str) -> str | None:
    match = re.fullmatch(DATE, text)
    if match is None or not (1 <= int(match[1]) <= 31 and 1 <= int(match[3]) <= 12):
        return None
    return f"{match[4]}-{int(match[3]):02}-{int(match[1]):02}{_clock(match[5])}"


def _month_first(text: str) -> str | None:
    match = re.fullmatch(DATE, text)
    if match is None or match[2] == "." or not (1 <= int(match[1]) <= 12 and 1 <= int(match[3]) <= 31):
        return None
    return f"{match[4]}-{int(match[1]):02}-{int(match[3]):02}{_clock(match[5])}"


def _clock(text: str) -> str:
    """Return the time of a date with two digits for the hour."""
    hour, colon, rest = text[1:].partition(":")
    return f"T{int(hour):02}:{rest}" if colon else ""


FORMS = {
    "decimal comma": Form(_decimal_comma, "a number with a decimal comma such as 1.234,50"),
    "thousands": Form(_thousands, "a number such as 1,234.50"),
    "day first": Form(_day_first, "a date such as 31.12.2024, day first", dates=True),
    "month first": Form(_month_first, "a date such as 12/31/2024, month first", dates=True),
}


def plain_text(text: str, form: str | None) -> str:
    """Return a cell as a plain number or ISO date; a cell that is not in the form stays as it is.

    >>> plain_text("1.234,50", "decimal comma"), plain_text("5.4.2024 7:30", "day first"), plain_text("1,5", None)
    ('1234.50', '2024-04-05T07:30', '1,5')
    """
    reading = FORMS[form].reads(text.strip()) if form is not None else None
    return text if reading is None else reading


def is_decimal_point(text: str, form: str | None = None) -> bool:
    """Return whether a text is a plain number whose point is not one of the thousands of a decimal-comma form.

    >>> is_decimal_point("57.39", "decimal comma"), is_decimal_point("57.390", "decimal comma"), is_decimal_point("57")
    (True, False, False)
    """
    return "." in text and is_number(text) and (form is None or FORMS[form].reads(text.strip()) is None)


def forms_of(texts: Sequence[str]) -> list[str]:
    """Return the forms that fit every text; none if all are plain numbers.

    >>> forms_of(["12,5", "1.000"]), forms_of(["1,234"]), forms_of(["31/12/2024", "1/2/2024"]), forms_of(["7", "8.5"])
    (['decimal comma'], ['decimal comma', 'thousands'], ['day first'], [])
    """
    stripped = [text.strip() for text in texts]
    if not stripped or all(map(is_number, stripped)):
        return []
    return [name for name, form in FORMS.items() if all(form.reads(text) is not None for text in stripped)]


def form_of(texts: Sequence[str], fewest: int = 1) -> str | None:
    """Return the only form that fits every text, of at least `fewest` numbers; None if there is none, or several."""
    forms = forms_of(texts)
    if len(forms) != 1 or (len(set(texts)) < fewest and not is_date(texts[0])):
        return None
    return forms[0]


def is_date(text: str) -> bool:
    """Return whether a text has the form of a date with points, slashes or dashes, whatever comes first."""
    return re.fullmatch(DATE, text.strip()) is not None


def refuse_ambiguous(what: str, texts: Sequence[str]) -> None:
    """Refuse texts that are all numbers or all dates in two forms at once; as categories their order would be lost."""
    forms = forms_of(texts)
    if len(forms) < 2 or (len(set(texts)) < MIN_NUMBERS and not is_date(texts[0])):
        return
    readings = ((text, *(plain_text(text, form) for form in forms[:2])) for text in texts)
    unlike = next((reading for reading in readings if reading[1] != reading[2]), None)
    if unlike is None:  # of each date, the day is the month
        plain = plain_text(texts[0], forms[0])
        raise Misuse(f"{what} holds '{texts[0]}', and no row shows whether the day is first: write {plain}")
    example, first, second = unlike
    raise Misuse(f"{what} holds '{example}', and every row could be read in two ways: write {first} or {second}")
