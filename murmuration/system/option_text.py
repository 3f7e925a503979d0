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
OBJECT = "object:"  # marks a user-defined object, which no table contains
WORDS = {"yes": True, "no": False}
FIXED = {"text": "fixed"}  # metadata of a field that belongs to the name and cannot be set in text
INLINE = {"text": "inline"}  # metadata of a field whose record is written as part of the outer one


@dataclass(frozen=True)
class Answer(Generic[Record]):
    """One row of a table: a record with its defaults, and a one-sentence description."""

    value: Record
    about: str


def parse(text: str, question: str, table: Mapping[str, Answer[Record]]) -> Record:
    """Parse a name of a table and its settings.

    Args:
        text: For example `input-gradients:every=4`.
        question: What is being set, for messages.
        table: Names with records.

    Returns:
        The record of that name, with the settings changed.

    Raises:
        Misuse: For an unknown name or setting, or a value that cannot be read.
    """
    name, _, settings_text = text.partition(":")
    if text.startswith(OBJECT):
        problem = "is a user-defined object, which is not stored: in Python, pass the recipe again as recipe="
        raise Misuse(f"{question} {settings_text} {problem}")
    if name not in table:
        raise unknown(f"answer to --{question}", name, table)
    record = table[name].value
    if not settings_text:
        return record
    if record is None or not list(_settable(record)):
        raise Misuse(f"{question} '{text}': {name} has no settings; write {name}")
    settings = [_setting(part, question, record) for part in split_settings(settings_text)]
    repeated = [name for i, (name, _) in enumerate(settings) if name in dict(settings[:i])]
    if repeated:
        raise Misuse(f"{question} '{text}': {repeated[0]} is given twice; write it once")
    return _changed(record, dict(settings))


def format_text(record: Any, table: Mapping[str, Answer[Any]]) -> str:
    """Return the text that `parse` reads back as this record; `object:` and its repr for a user-defined object.

    Args:
        record: A record, with defaults of the table or changed ones.
        table: Names with records.

    Returns:
        The shortest such text.
    """
    differences = {name: _difference(answer.value, record) for name, answer in table.items()}
    matches = {name: settings for name, settings in differences.items() if settings is not None}
    if not matches:
        text, kind = repr(record), type(record)
        return f"{OBJECT}{kind.__module__}.{kind.__qualname__}" if " at 0x" in text else f"{OBJECT}{text}"
    name = min(matches, key=lambda name: len(matches[name]))
    return ":".join([name, ",".join(f"{key}={value}" for key, value in matches[name].items())]).removesuffix(":")


def split_settings(text: str) -> list[str]:
    """Split a text into settings: a comma starts a new one only before name=.

    >>> split_settings("loss_scale=cyclic:10,5,every=2")
    ['loss_scale=cyclic:10,5', 'every=2']
    """
    return re.split(r",(?=\s*[a-z][a-z0-9_]*\s*=)", text)


def number(text: str, name: str) -> float:
    """Parse a number."""
    try:
        return float(text)
    except ValueError:
        raise Misuse(f"{name} is '{text}': expected a number") from None


def short(value: float) -> str:
    """Return the shortest text that reads back as this number.

    >>> short(1.0), short(0.0001)
    ('1', '0.0001')
    """
    return repr(value).removesuffix(".0")


def _settable(record: Any) -> Iterator[tuple[Field, Any]]:
    """Yield the fields that text may change, each with its record."""
    for item in fields(record):
        kind = item.metadata.get("text")
        if kind == "inline":
            nested = getattr(record, item.name)
            yield from _settable(nested) if is_dataclass(nested) else ()
        elif kind != "fixed":
            yield item, record


def _changed(record: Any, settings: dict[str, Any]) -> Any:
    """Change settings of a record and of its inline records."""
    changes = {}
    for item in fields(record):
        if item.metadata.get("text") == "inline" and is_dataclass(nested := getattr(record, item.name)):
            inner = {inner_field.name for inner_field, _ in _settable(nested)} & set(settings)
            if inner:
                changes[item.name] = _changed(nested, {name: settings[name] for name in inner})
        elif item.name in settings:
            changes[item.name] = settings[item.name]
    return replace(record, **changes)


def _difference(base: Any, record: Any) -> dict[str, str] | None:
    """Return the settings, as text, that turn `base` into `record`; None if no settings do."""
    if type(base) is not type(record):
        return None
    if not is_dataclass(base):
        return {} if base == record else None
    settings: dict[str, str] = {}
    for item in fields(base):
        old, new = getattr(base, item.name), getattr(record, item.name)
        kind = item.metadata.get("text")
        if kind == "inline":
            inner = _difference(old, new)
            if inner is None:
                return None
            settings |= inner
        elif old != new:
            if kind == "fixed" or not _writable(new, item.type):
                return None
            settings[item.name] = _written(new)
    return settings


def _writable(value: Any, kind: Any) -> bool:
    """Return whether a value survives writing and reading."""
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
    """Parse the name and the value of one setting."""
    name, sign, value = (part.strip() for part in text.partition("="))
    kinds = {item.name: item.type for item, _ in _settable(record)}
    if not sign or name not in kinds:
        raise unknown(f"setting of a {question} (name=value)", name, kinds)
    try:
        return name, _read(value, kinds[name])
    except Misuse:
        raise
    except ValueError:
        raise Misuse(f"{question} setting {name}={value}: expected {_described(kinds[name])}") from None


def _read(text: str, kind: Any) -> Any:
    """Read a value of a type, trying the alternatives of a union in order; ValueError if none fits."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    problem: ValueError = ValueError(text)
    for alternative in kinds:
        try:
            return _read_one(text, alternative)
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
    return " or ".join(names.get(alternative, alternative.__name__) for alternative in kinds)
