"""Records written as text: a name, and after a colon what differs from its usual settings.

`input-gradients:lengthscales=pca,every=4` is a coupling, `rank-one:init=rademacher,gamma=M` a way to share. What is
written in a command, a recipe and a run directory is the same text.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from murmuration.errors import Misuse, unknown

Record = TypeVar("Record")


def read(text: str, question: str, table: Mapping[str, Record], fixed: tuple[str, ...] = ()) -> Record:
    """The record of the table that a text names, with the settings that the text changes; not those in `fixed`."""
    name, _, rest = text.partition(":")
    if name not in table:
        raise unknown(f"answer to --{question}", name, table)
    base = table[name]
    if not rest:
        return base
    if base is None:
        raise Misuse(f"{question} '{text}': {name} has no settings; write {name}")
    given = [_setting(part, question, base, fixed) for part in split_settings(rest)]
    twice = [name for i, (name, _) in enumerate(given) if name in dict(given[:i])]
    if twice:
        raise Misuse(f"{question} '{text}': {twice[0]} is given twice; write it once")
    changed: Record = replace(base, **dict(given))  # type: ignore[type-var]
    return changed


def split_settings(text: str) -> list[str]:
    """The settings of a text: a comma begins a new one only before name=.

    >>> split_settings("drive=cyclic:10,5,every=2")
    ['drive=cyclic:10,5', 'every=2']
    """
    return re.split(r",(?=\s*[a-z]+\s*=)", text)


def number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Misuse(f"{name} is '{text}': expected a number") from None


def _setting(text: str, question: str, base: Any, fixed: tuple[str, ...]) -> tuple[str, Any]:
    """The name and the value of one setting."""
    name, sign, value = (part.strip() for part in text.partition("="))
    kinds: dict[str, Any] = {field.name: field.type for field in fields(base) if field.name not in fixed}
    if not sign or name not in kinds:
        raise unknown(f"setting of a {question} (name=value)", name, kinds)
    try:
        return name, {int: int, float: float, str: str}[kinds[name]](value)
    except ValueError:
        kind = "a whole number" if kinds[name] is int else "a number"
        raise Misuse(f"{question} setting {name}={value}: expected {kind}") from None
