"""The text form of settings: a name, and after a colon the settings that differ from its defaults.

`input-gradients:lengthscales=pca,every=4` is a coupling, `rank-one:init=rademacher,gamma=M` a sharing. Text exists at
the command line and in JSON files; it is parsed once, into frozen dataclasses, and Python code passes those.

A table maps each name to an `Answer`: the record with its defaults, and a sentence for lists. The annotation of a field
says how its value is written: numbers and strings as they are, booleans as yes or no, None as `none`, a type with a
`parse` method by that method (`Normal.parse`) and back by `str`. In a union the alternatives are tried in order.
Fields with the metadata `FIXED` identify the name and cannot be written; the fields of a record in a field with the
metadata `INLINE` are written as if they were the outer record's own.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, get_args

from murmuration.system.errors import Misuse, unknown

Record = TypeVar("Record")
OBJECT = "object:"  # marks a record that no table can make: an object of the caller's own
WORDS = {"yes": True, "no": False}
FIXED = {"text": "fixed"}  # metadata of a field that belongs to the name and cannot be set in text
INLINE = {"text": "inline"}  # metadata of a field whose record is written as part of the outer one


@dataclass(frozen=True)
class Answer(Generic[Record]):
    """One row of a table: a record with its defaults, and what it is in one sentence."""

    value: Record
    about: str


def parse(text: str, question: str, table: Mapping[str, Answer[Record]]) -> Record:
    """The record of the table that a text names, with the settings that the text changes."""
    name, _, rest = text.partition(":")
    if text.startswith(OBJECT):
        raise Misuse(f"{question} {rest} is an object of the caller's own: in Python, give the recipe again as recipe=")
    if name not in table:
        raise unknown(f"answer to --{question}", name, table)
    record = table[name].value
    if not rest:
        return record
    if record is None or not list(_settable(record)):
        raise Misuse(f"{question} '{text}': {name} has no settings; write {name}")
    given = [_setting(part, question, record) for part in split_settings(rest)]
    repeated = [name for i, (name, _) in enumerate(given) if name in dict(given[:i])]
    if repeated:
        raise Misuse(f"{question} '{text}': {repeated[0]} is given twice; write it once")
    return _changed(record, dict(given))


def format_text(record: Any, table: Mapping[str, Answer[Any]]) -> str:
    """The text that `parse` reads back as this record; `object:` and its repr for one that no table can make."""
    found = [
        (len(settings), name, settings)
        for name, answer in table.items()
        if (settings := _difference(answer.value, record)) is not None
    ]
    if not found:
        text, kind = repr(record), type(record)
        return f"{OBJECT}{kind.__module__}.{kind.__qualname__}" if " at 0x" in text else f"{OBJECT}{text}"
    _, name, settings = min(found, key=lambda row: row[0])
    return ":".join([name, ",".join(f"{key}={value}" for key, value in settings.items())]).removesuffix(":")


def split_settings(text: str) -> list[str]:
    """The settings of a text: a comma begins a new one only before name=.

    >>> split_settings("loss_scale=cyclic:10,5,every=2")
    ['loss_scale=cyclic:10,5', 'every=2']
    """
    return re.split(r",(?=\s*[a-z][a-z0-9_]*\s*=)", text)


def number(text: str, name: str) -> float:
    """The number that a text stands for."""
    try:
        return float(text)
    except ValueError:
        raise Misuse(f"{name} is '{text}': expected a number") from None


def short(value: float) -> str:
    """The shortest text that reads back as this number.

    >>> short(1.0), short(0.0001)
    ('1', '0.0001')
    """
    return repr(value).removesuffix(".0")


def _settable(record: Any) -> Iterator[tuple[Field, Any]]:
    """The fields that text may change, each with the record that holds it."""
    for each in fields(record):
        kind = each.metadata.get("text")
        if kind == "inline":
            nested = getattr(record, each.name)
            yield from _settable(nested) if is_dataclass(nested) else ()
        elif kind != "fixed":
            yield each, record


def _changed(record: Any, given: dict[str, Any]) -> Any:
    """The record with these settings, its own and those of inline records."""
    changes = {}
    for each in fields(record):
        if each.metadata.get("text") == "inline" and is_dataclass(nested := getattr(record, each.name)):
            inner = {known.name for known, _ in _settable(nested)} & set(given)
            if inner:
                changes[each.name] = _changed(nested, {name: given[name] for name in inner})
        elif each.name in given:
            changes[each.name] = given[each.name]
    return replace(record, **changes)


def _difference(base: Any, record: Any) -> dict[str, str] | None:
    """The settings that make `record` of `base`, as text; None if no settings can."""
    if type(base) is not type(record):
        return None
    if not is_dataclass(base):
        return {} if base == record else None
    settings: dict[str, str] = {}
    for each in fields(base):
        old, new = getattr(base, each.name), getattr(record, each.name)
        kind = each.metadata.get("text")
        if kind == "inline":
            inner = _difference(old, new)
            if inner is None:
                return None
            settings |= inner
        elif old != new:
            if kind == "fixed" or not _writable(new, each.type):
                return None
            settings[each.name] = _written(new)
    return settings


def _writable(value: Any, kind: Any) -> bool:
    """Whether the text of a value is read back as this value."""
    try:
        return bool(_read(_written(value), kind) == value)
    except (ValueError, TypeError):
        return False


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return short(value) if isinstance(value, float) else str(value)


def _setting(text: str, question: str, record: Any) -> tuple[str, Any]:
    """The name and the value of one setting."""
    name, sign, value = (part.strip() for part in text.partition("="))
    known = {each.name: each.type for each, _ in _settable(record)}
    if not sign or name not in known:
        raise unknown(f"setting of a {question} (name=value)", name, known)
    try:
        return name, _read(value, known[name])
    except Misuse:
        raise
    except ValueError:
        raise Misuse(f"{question} setting {name}={value}: expected {_described(known[name])}") from None


def _read(text: str, kind: Any) -> Any:
    """The value of a type that a text stands for; ValueError if none."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    problem: ValueError = ValueError(text)
    for each in kinds:
        try:
            return _read_one(text, each)
        except ValueError as error:
            problem = error
    raise problem


def _read_one(text: str, kind: Any) -> Any:
    if kind is NoneType:
        if text != "none":
            raise ValueError(text)
        return None
    if kind is bool:
        if text not in WORDS:
            raise ValueError(text)
        return WORDS[text]
    if kind in (int, float, str):
        return kind(text)
    return kind.parse(text)


def _described(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a text", bool: "yes or no", NoneType: "none"}
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return " or ".join(names.get(each, each.__name__) for each in kinds)
