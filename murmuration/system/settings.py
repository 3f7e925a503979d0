"""Settings declared once, as dataclass fields `lr: Annotated[float, Doc("Learning rate."), Positive(0.001)] = 0.005`.

Checks, docstrings, command-line options and pages are made from the declaration.
"""

import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from murmuration.system.errors import Misuse, require_integer, require_number, unknown

LARGEST = 3.4e38  # of settings: weights are in single precision
Record = TypeVar("Record")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Doc:
    """The documentation of a setting: one or two sentences."""

    text: str


@dataclass(frozen=True)
class AtLeast:
    """A check: a whole number, `least` or larger."""

    least: int

    def check(self, name: str, value: Any) -> None:
        require_integer(name, value, self.least)


@dataclass(frozen=True)
class Number:
    """A check: any number; refusals suggest `example`."""

    example: float

    def check(self, name: str, value: Any) -> None:
        require_number(name, value, self.example)


@dataclass(frozen=True)
class Positive(Number):
    """A check: a number above 0, finite in single precision."""

    def check(self, name: str, value: Any) -> None:
        super().check(name, value)
        if not 0 < value <= LARGEST:
            finite = " that is finite," if value > LARGEST else ""
            raise Misuse(f"{name}={value}: need a positive number{finite} such as {self.example:g}")


@dataclass(frozen=True)
class NonNegative(Number):
    """A check: a number of `unit`, 0 or larger, and finite unless `infinite`."""

    unit: str = ""
    infinite: bool = False

    def check(self, name: str, value: Any) -> None:
        super().check(name, value)
        if not value >= 0 or (value > LARGEST and not self.infinite):
            kind = f"number of {self.unit}" if self.unit else "number"
            finite = " and finite" if value > LARGEST else ""
            raise Misuse(f"{name}={value}: need a {kind} that is not negative{finite}, such as {self.example:g}")


@dataclass(frozen=True)
class Fraction(Number):
    """A check: a number between 0 and 1, both excluded."""

    def check(self, name: str, value: Any) -> None:
        super().check(name, value)
        if not 0 < value < 1:
            raise Misuse(f"{name}={value}: need a number between 0 and 1, such as {self.example:g}")


@dataclass(frozen=True)
class OneOf:
    """A check: one of some names.

    Attributes:
        names: The names, or a function that returns them, called at the first check.
        kind: What refusals call a name; the setting's name by default.
    """

    names: Iterable[str] | Callable[[], Iterable[str]]
    kind: str = ""

    def check(self, name: str, value: Any) -> None:
        names = self.names() if callable(self.names) else self.names
        if not isinstance(value, str) or value not in names:
            raise unknown(self.kind or name, value, names)


def imported(module: str, name: str) -> Callable[[], Any]:
    """Return a function that imports an attribute of a module: a table for `OneOf` that is costly to load."""
    return lambda: getattr(import_module(module), name)


class Switch:
    """The check of settings that are on or off."""

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, bool):
            raise Misuse(f"{name}={value!r}: need True or False")


class Text:
    """The check of settings whose type is text, unless they have a `OneOf`."""

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, str):
            raise Misuse(f"{name}={value!r}: need a name as text")


class Setting(NamedTuple):
    """One declared setting.

    Attributes:
        name: Name of the field.
        types: Types of its values, without None; a `Literal` counts as `str`.
        optional: Whether None is a value.
        default: Default value; `dataclasses.MISSING` for a required setting.
        doc: Documentation.
        checks: Checks of values other than None; of a tuple, of its items.
    """

    name: str
    types: tuple[Any, ...]
    optional: bool
    default: Any
    doc: str
    checks: tuple[Any, ...]


@functools.cache
def settings_of(record: Any) -> tuple[Setting, ...]:
    """List the settings that a dataclass declares.

    Args:
        record: A dataclass with fields `name: Annotated[type, Doc(...), checks...] = default`.

    Returns:
        One `Setting` per field, in order.

    >>> @dataclass
    ... class Example:
    ...     lr: Annotated[float, Doc("Learning rate."), Positive(0.001)] = 0.005
    >>> settings_of(Example)[0].doc, settings_of(Example)[0].default
    ('Learning rate.', 0.005)
    """
    hints = get_type_hints(record, include_extras=True)
    return tuple(_setting(field, hints[field.name]) for field in dataclasses.fields(record))


def _setting(field: Any, hint: Any) -> Setting:
    """Read one field of a record."""
    hint, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    types = [kind for kind in alternatives if kind is not NoneType]
    checks: list[Any] = [note for note in metadata if hasattr(note, "check")]
    checks[:0] = [OneOf(get_args(kind)) for kind in types if get_origin(kind) is Literal]
    types = [str if get_origin(kind) is Literal else kind for kind in types]
    if types == [str] and not any(isinstance(rule, OneOf) for rule in checks):
        checks.insert(0, Text())
    if types == [bool] and not checks:
        checks.append(Switch())
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    doc = " ".join(note.text for note in metadata if isinstance(note, Doc))
    return Setting(field.name, tuple(types), NoneType in alternatives, default, doc, tuple(checks))


def check_settings(record: Any) -> None:
    """Check every setting of a record by its declaration.

    Args:
        record: An instance of a dataclass that `settings_of` reads.

    Raises:
        Misuse: For the first value that fails; one line says what was got, what was expected and what to write.
    """
    declared: Any = type(record)
    for setting in settings_of(declared):
        value = getattr(record, setting.name)
        if value is None and setting.optional:
            continue
        repeated = get_origin(setting.types[0]) is tuple and isinstance(value, tuple | list)
        for item in value if repeated else (value,):
            for rule in setting.checks:
                rule.check(setting.name, item)


def documented(record: type[Record]) -> type[Record]:
    """Add an "Attributes" section, made from the declarations, to the docstring of a dataclass.

    Args:
        record: A dataclass that `settings_of` reads.

    Returns:
        The same class.
    """
    declared: Any = record
    rows = [f"        {setting.name}: {setting.doc}" for setting in settings_of(declared)]
    record.__doc__ = "\n".join([f"{record.__doc__}\n", "    Attributes:", *rows]) + "\n    "
    return record


def declared_by(record: type, name: str) -> Callable[[Function], Function]:
    """Make the fields of a record the keywords `**name` of a function, in its signature and in its docstring.

    Args:
        record: A dataclass that `settings_of` reads.
        name: Name of the function's parameter, documented as the last row of its "Args".

    Returns:
        A decorator; the function itself makes the record of its keywords.
    """
    wrapper = textwrap.TextWrapper(120, initial_indent=" " * 8, subsequent_indent=" " * 12)
    rows = "".join(wrapper.fill(f"{setting.name}: {setting.doc}") + "\n" for setting in settings_of(record))
    placeholder = f"        **{name}: As declared by `{record.__name__}`.\n"
    hints = get_type_hints(record)

    def declare(function: Function) -> Function:
        own = inspect.signature(function)
        parameters = [parameter for parameter in own.parameters.values() if parameter.name != name]
        for field in inspect.signature(record).parameters.values():
            parameters.append(field.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name]))
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        function.__doc__ = (function.__doc__ or "").replace(placeholder, rows)
        return function

    return declare
