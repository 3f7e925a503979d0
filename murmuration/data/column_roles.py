"""Which columns of a training table are no inputs unless the caller insists: identifiers and free text.

A column of texts is left out if more than half of the rows have a text of their own, or if it has more distinct texts
than one-hot columns can hold; texts of three words or more on average are called free text. A column of whole numbers
is left out only if its name is that of a key (`id`, `customer_id`, `uuid`, `index`) and nearly every row has a number
of its own. Other whole numbers that never repeat stay inputs, with a note where they look like numbers of rows.
A column of numbers or dates with at most one odd cell in ten is refused, as is one of numbers with a unit.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from murmuration.data.columns import ISO_DATE, is_numeric, row_number, to_texts
from murmuration.data.local_forms import FORMS, refuse_ambiguous
from murmuration.data.targets import is_number
from murmuration.system.errors import Misuse, warn

MIN_ROWS = 20  # rows below which a column of distinct values says nothing
MOST_CATEGORIES = 1000  # one column each
OWN_TEXTS, OWN_NUMBERS = 0.5, 0.95  # share of rows with a value of their own
FREE_TEXT_WORDS = 3  # on average
MOSTLY_NUMBERS = 0.9  # share of the cells of a column of numbers with some odd ones
WITH_UNIT = 0.5  # share of the cells of a column of numbers with the same unit
MOST_CODES = 10  # distinct numbers that may be codes, such as 1, 2, other
NUMBER_WITH_UNIT = re.compile(r"([€$£¥]\s?)\d[\d.,']*|[+-]?\d[\d.,']*\s?([^\W\d_]\D{0,9}|[€$£¥%°]\D{0,4})")  # 5 km
CHANCE = 1e-6  # probability of numbers drawn at random from their range that never repeat
KEY_WORDS = {"id", "uuid", "guid"}
LAST_KEY_WORDS = {"key", "no", "nr", "number", "rowid", "userid"}
KEY_NAMES = {"index", "idx", "row", "record"}


READINGS: dict[str, Callable[[str], Any]] = {  # what most cells of a column may be -> whether a text is
    "numbers": is_number,
    "dates": re.compile(ISO_DATE).fullmatch,
    "decimal commas": FORMS["decimal comma"].reads,
    "numbers with separated thousands": FORMS["thousands"].reads,
    "dates with the day first": FORMS["day first"].reads,
    "dates with the month first": FORMS["month first"].reads,
}


def is_key_name(name: str) -> bool:
    """Return whether a column is called like a key.

    >>> [is_key_name(name) for name in ("id", "customer_id", "PassengerId", "index", "paid", "price_index", "km")]
    [True, True, True, True, False, False, False]
    """
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    return bool(words) and (bool(KEY_WORDS & set(words)) or words[-1] in LAST_KEY_WORDS or "".join(words) in KEY_NAMES)


def is_left_out(values: Any) -> bool:
    """Return whether a pandas column of the training table is an identifier or free text, and say so in a note."""
    if len(values) < MIN_ROWS:
        return False
    if values.dtype.kind in "iu":
        return is_number_key(values)
    if is_numeric(values):
        return False
    name, about = str(values.name), f"left out {values.name}"
    texts = [text for text in to_texts(values).tolist() if text is not None]
    distinct = len(set(texts))
    if distinct <= OWN_TEXTS * len(values) and distinct <= MOST_CATEGORIES:
        return False
    if np.mean([len(text.split()) for text in texts]) >= FREE_TEXT_WORDS:
        insist = f"text='{name}' takes its words as inputs, keep='{name}' takes it as categories"
        warn(f"column '{name}' holds free text, {distinct:,} in {len(values):,} rows: it is left out; {insist}", about)
        return True
    if not is_key_name(name):
        refuse_ambiguous(f"column '{name}'", texts)
        refuse_number_texts(values)
    many = f"has {distinct:,} distinct values in {len(values):,} rows"
    warn(f"column '{name}' {many} and looks like an identifier: it is left out; keep='{name}' insists", about)
    return True


def is_number_key(values: Any) -> bool:
    """Return whether a column of whole numbers is a key by its name and values; note one that only looks like it."""
    name, about, distinct = str(values.name), f"left out {values.name}", int(values.nunique())
    if distinct >= OWN_NUMBERS * len(values) and is_key_name(name):
        many = f"has {distinct:,} distinct values in {len(values):,} rows"
        warn(f"column '{name}' {many} and the name of a key: it is left out; keep='{name}' insists", about)
        return True
    if distinct == len(values) and numbers_rows(values.to_numpy()):
        warn(f"column '{name}' never repeats and looks like a number of the row: leave it out with drop='{name}'")
    return False


def numbers_rows(values: np.ndarray) -> bool:
    """Return whether distinct whole numbers (N,) rise or fall from row to row, or fill their range too well for chance.

    N draws from a range of R numbers are all different with a probability of about exp(-N^2 / 2R).

    >>> numbers_rows(np.random.default_rng(0).permutation(60)), numbers_rows(np.arange(60) ** 3 * (-1) ** np.arange(60))
    (True, False)
    """
    signs = np.sign(np.diff(values))
    rows, span = len(values), float(values.max()) - float(values.min()) + 1
    return bool((signs == signs[0]).all()) or rows**2 > -2 * math.log(CHANCE) * span


def refuse_number_texts(values: Any) -> None:
    """Refuse a pandas column of numbers that are texts, which must not be left out as an identifier."""
    if all(is_number(str(text)) for text in values.dropna().tolist()):
        name = str(values.name)
        choice = f"drop='{name}' leaves the column out"
        raise Misuse(f"column '{name}' holds numbers as texts: convert it with pandas.to_numeric, or {choice}")


def refuse_odd_cells(values: Any) -> None:
    """Refuse a pandas column of texts that are nearly all numbers or dates, or numbers with a unit.

    Columns of few distinct numbers are codes and stay categories, as do keys.
    """
    from pandas.api import types

    name, present = str(values.name), values.dropna()
    if isinstance(values.dtype, types.CategoricalDtype) or is_numeric(values) or is_key_name(name):
        return
    cells = [str(text).strip() for text in present.tolist()]
    counts = Counter(cells)
    if len(counts) <= MOST_CODES:
        return
    choice = f"keep='{name}' takes the column as categories, drop='{name}' leaves it out"
    units = {text: match[1] or match[2] for text in counts if (match := NUMBER_WITH_UNIT.fullmatch(text))}
    unit, rows = max(
        Counter(units[text] for text in cells if text in units).items(), key=itemgetter(1), default=("", 0)
    )
    if rows >= WITH_UNIT * len(cells) and list(units.values()).count(unit) > MOST_CODES:
        problem = (
            f"column '{name}' holds '{next(text for text in cells if text in units)}' and other numbers with a unit"
        )
        raise Misuse(f"{problem}: expected numbers alone; {choice}")
    readings = {reading: {text for text in counts if reads(text)} for reading, reads in READINGS.items()}
    reading, usual = max(readings.items(), key=lambda item: sum(counts[text] for text in item[1]))
    readable = set[str]().union(*readings.values())
    if len(usual) == len(counts) or len(usual) <= MOST_CODES:
        return
    if sum(counts[text] for text in readable) < MOSTLY_NUMBERS * len(cells):
        return
    odd = next(position for position, text in enumerate(cells) if text not in usual)
    problem = (
        f"column '{name}' holds '{present.tolist()[odd]}' in row {row_number(present, odd)} and {reading} elsewhere"
    )
    raise Misuse(f"{problem}: empty the cell if it is a missing value; {choice}")
