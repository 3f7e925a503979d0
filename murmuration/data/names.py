"""How labels and levels are spelt, ordered and listed."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def as_text(value: Any) -> str:
    """The one spelling of a label or level, whatever type a file gave it.

    >>> as_text(3.0), as_text(np.int8(3)), as_text(True), as_text("a")
    ('3', '3', 'True', 'a')
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def is_number(text: str) -> bool:
    """Whether a text is a finite decimal number.

    >>> is_number("-1.5e3"), is_number("nan"), is_number("1,5")
    (True, False, False)
    """
    return NUMBER.fullmatch(text.strip()) is not None


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct names sorted: by value if all are numbers, else alphabetically.

    >>> in_order(["10", "9", "9"]), in_order(["b", "10", "9"])
    (('9', '10'), ('10', '9', 'b'))
    """
    distinct = set(names)
    if all(is_number(name) for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (float(name), name)))
    return tuple(sorted(distinct))


def listed(names: Iterable[str], most: int = 20) -> str:
    """Names in one line, cut after `most`.

    >>> listed("abcde", most=3)
    'a, b, c, ... (5 in all)'
    """
    known = list(names)
    end = f", ... ({len(known)} in all)" if len(known) > most else ""
    return ", ".join(known[:most]) + end
