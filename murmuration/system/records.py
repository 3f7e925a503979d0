"""The codec of records: results become plain JSON, stored records are written with their type and read with checks.

`plain_json` converts results one way. `to_json` writes a frozen dataclass with the name of its class under "type", and
`from_json` looks that name up among the classes that the caller allows: every field must be present, of its type, and
accepted by its record. A record without "type" is of the class that is expected there, and may lack fields that have a
default.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from math import inf, isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from murmuration.system.errors import Failure, Misuse

INFINITE = {"inf": inf, "-inf": -inf}  # JSON has no literal for them
MESSAGE_LENGTH = 60  # characters of a damaged value that its message repeats


def plain_json(value: Any) -> Any:
    """Convert a result to JSON values, with None for numbers that are not finite.

    A dataclass becomes a dictionary of its fields and of the properties that its class lists in `DERIVED`, unless it
    has a `to_json` method. Arrays and tuples become lists.

    >>> plain_json({"a": (1.0, float("nan"))})
    {'a': [1.0, None]}
    """
    if hasattr(value, "to_json"):
        return plain_json(value.to_json())
    if is_dataclass(value):
        value = vars(value) | {name: getattr(value, name) for name in getattr(value, "DERIVED", ())}
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(entry) for entry in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def to_json(value: Any) -> Any:
    """Convert to JSON: dataclasses to objects with their type, tuples to lists, infinity to a string.

    >>> to_json((1.5, float("inf")))
    [1.5, 'inf']
    """
    if is_dataclass(value):
        record = {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__, **record}
    if isinstance(value, Mapping):
        return {key: to_json(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return [to_json(entry) for entry in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def from_json(value: Any, of: Any, what: str, kinds: Iterable[type] = ()) -> Any:
    """Read the record of type `of`, a class or a union, that `to_json` wrote; `kinds` are records inside it.

    A damaged one raises a `Failure` of one line that begins with `what` it is.
    """
    kinds_by_name = {kind.__name__: kind for kind in (*_options(of), *kinds)}
    try:
        return _read(value, of, "the record", kinds_by_name)
    except Misuse as error:
        raise Failure(f"damaged {what}: {error}") from None


def _read(value: Any, of: Any, where: str, kinds: Mapping[str, type]) -> Any:
    """Read a JSON value as type `of`: a scalar, tuple, dict, record, or a union of records and None."""
    options = _options(of)
    if get_origin(of) is tuple and isinstance(value, list | tuple):
        inside = get_args(of)
        types = [inside[0]] * len(value) if inside[-1] is ... else inside
        if len(types) != len(value):
            raise damaged(where, value, f"a list of {len(types)}")
        pairs = enumerate(zip(value, types, strict=True))
        return tuple(_read(entry, kind, f"{where}[{i}]", kinds) for i, (entry, kind) in pairs)
    if get_origin(of) is dict and isinstance(value, dict):
        return {key: _read(entry, get_args(of)[1], f"{where}[{key!r}]", kinds) for key, entry in value.items()}
    if of is float and isinstance(value, str) and value in INFINITE:
        return INFINITE[value]
    if of is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if (of in (str, bool, int) and type(value) is of) or (value is None and NoneType in options):
        return value
    if isinstance(value, dict) and get_origin(of) in (None, UnionType):
        untyped = "type" not in value and len(options) == 1 and is_dataclass(of)
        record = _read_record({"type": of.__name__, **value} if untyped else value, where, kinds, untyped)
        if record is not None and isinstance(record, options):
            return record
    names = [option.__name__ if isinstance(option, type) else str(option) for option in options]
    raise damaged(where, value, " or ".join(names))


def fits(value: Any, of: Any) -> bool:
    """Return whether a JSON value, of which lists may be tuples, is of a type: a scalar, tuple, dict, union or class.

    >>> fits([1, 2.5], tuple[float, ...] | None), fits(True, int), fits({}, dict[str, int])
    (True, False, True)
    """
    return any(_fits_option(value, option) for option in _options(of))


def _fits_option(value: Any, of: Any) -> bool:
    """Return whether a JSON value is of a type that is no union."""
    origin, inside = get_origin(of), get_args(of)
    if of is Any or origin is Literal:
        return of is Any or value in inside
    if origin is tuple and isinstance(value, list | tuple):
        types = [inside[0]] * len(value) if inside[-1] is ... else inside
        return len(types) == len(value) and all(map(fits, value, types))
    if isinstance(value, bool):
        return of is bool
    return isinstance(value, (int, float) if of is float else origin or of)


def _options(of: Any) -> tuple[Any, ...]:
    return get_args(of) if isinstance(of, UnionType) or get_origin(of) is Union else (of,)


def _read_record(value: dict[str, Any], where: str, kinds: Mapping[str, type], lacks_defaults: bool) -> Any:
    """Return the dataclass that `value` names under "type", with its fields read; nothing, if the type is not known."""
    name = value.get("type")
    if not isinstance(name, str) or name not in kinds:
        return None
    optional = {field.name for field in fields(kinds[name]) if lacks_defaults and field.default is not MISSING}
    expected: dict[str, Any] = {
        field.name: field.type for field in fields(kinds[name]) if field.name in value or field.name not in optional
    }
    for key in {**expected, **value}:
        if (key in expected) != (key in value) and key != "type":
            raise Misuse(f"field '{key}' of {name} is {'missing' if key in expected else 'unknown'}")
    prefix = "" if where == "the record" else f"{where}."
    return kinds[name](**{key: _read(value[key], of, prefix + key, kinds) for key, of in expected.items()})


def damaged(where: str, value: Any, expected: str) -> Misuse:
    """Return the refusal of a value that `to_json` cannot have written."""
    text = repr(value)
    text = text if len(text) <= MESSAGE_LENGTH else text[: MESSAGE_LENGTH - 3] + "..."
    return Misuse(f"{where} is {text}, expected {expected}")
