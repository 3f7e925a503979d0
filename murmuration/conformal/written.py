"""A frozen record as plain JSON, and back: every field must be there, alone, and of its type."""

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from murmuration.errors import Failure, Misuse

Record = TypeVar("Record")
INFINITE = {"inf": math.inf, "-inf": -math.inf}  # JSON has no word for them


def to_record(rule: Any) -> dict[str, Any]:
    """The fields of a frozen record as JSON values; infinite numbers as the words "inf" and "-inf"."""
    return {field.name: plain(getattr(rule, field.name)) for field in fields(rule)}


def plain(value: Any) -> Any:
    """A value as JSON can write it."""
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_record(kind: Callable[..., Record], record: Any, what: str) -> Record:
    """The record of that kind that `to_record` wrote down.

    The fields must be those of the kind and of their types, and the kind itself must accept them.
    """
    if not isinstance(record, dict):
        raise Failure(f"{what} is damaged: it is a {type(record).__name__}, expected an object with fields")
    expected = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    odd = sorted(set(expected) ^ set(record), key=str)
    if odd:
        state = "missing" if odd[0] in expected else "unknown"
        raise Failure(f"{what} is damaged: field '{odd[0]}' is {state}, expected {', '.join(expected)}")
    try:
        return kind(**{name: value_of(record[name], of, f"field '{name}'") for name, of in expected.items()})
    except Misuse as error:
        raise Failure(f"{what} is damaged: {error}") from error


def value_of(value: Any, of: Any, where: str) -> Any:
    """A JSON value as the type `of`: str, bool, int, float or tuple[float, ...]."""
    if of == tuple[float, ...] and isinstance(value, list):
        return tuple(value_of(entry, float, f"{where}[{i}]") for i, entry in enumerate(value))
    if of is float and isinstance(value, str) and value in INFINITE:
        return INFINITE[value]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if of is float and number and math.isfinite(value):
        return float(value)
    if of in (str, bool, int) and type(value) is of:
        return value
    name = of.__name__ if isinstance(of, type) and of is not tuple else str(of)
    raise Misuse(f"{where} is {value!r:.40}, expected {name}")
