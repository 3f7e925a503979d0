"""The two kinds of errors that users see, and how messages name values."""

import functools
import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
OWN_PACKAGES = ("murmuration", "torch", "sklearn")  # no user's line is in them
LONGEST = 1000  # characters of a message: a cell of a file may hold 200,000


def shortened(text: str, most: int = LONGEST) -> str:
    r"""Convert text to one printable line of at most `most` characters; the middle of longer text is omitted.

    >>> shortened("cell 'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz': expected a number", 40)
    "cell 'zzzzzzzz ... z': expected a number"
    >>> shortened("a" + chr(27) + "[2J" + chr(10) + "b")
    'a\\x1b[2J b'
    """
    cut = text if len(text) <= most else f"{text[: (most - 5) * 2 // 5]} ... {text[len(text) - (most - 5) * 3 // 5 :]}"
    line = cut if cut.isprintable() else " ".join(cut.splitlines())
    return printable(line)


def printable(text: str) -> str:
    r"""Spell out characters that a terminal would obey or hide: control characters, and those that turn the direction.

    >>> printable("two\nlines" + chr(27) + "[2J" + chr(0x202e))
    'two\nlines\\x1b[2J\\u202e'
    """
    plain = text.replace("\n", "")
    return text if plain.isprintable() else "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


class Misuse(ValueError):  # noqa: N818 - the caller's mistake
    """A request that cannot be carried out; one line says what was got, what was expected and what to write."""

    def __str__(self) -> str:
        return shortened(super().__str__())


class Failure(RuntimeError):  # noqa: N818 - not the caller's mistake
    """A valid request that failed: a damaged file, a full disk, a run that diverged."""

    def __str__(self) -> str:
        return shortened(super().__str__())


def unknown(kind: str, got: str, known: Iterable[str]) -> Misuse:
    """Return the error for a name that is not in a list, with the nearest name suggested.

    >>> print(unknown("recipe", "deep-ensmble", ["single", "deep-ensemble"]))
    unknown recipe 'deep-ensmble': did you mean 'deep-ensemble'? Known: deep-ensemble, single
    """
    names = sorted(known)
    return Misuse(f"unknown {kind} '{got}': {did_you_mean(got, names)}Known: {', '.join(names)}")


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """Suggest the nearest known name, with a space after the question; empty if none is near."""
    near = get_close_matches(str(got), list(known), n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'? " if near else ""


def listed(names: Iterable[str], most: int = 20) -> str:
    """Join names in one line, cut after `most`.

    >>> listed("abcde", most=3)
    'a, b, c, ... (5 in all)'
    """
    items = list(names)
    end = f", ... ({len(items)} in all)" if len(items) > most else ""
    return ", ".join(items[:most]) + end


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def described(value: object) -> str:
    """Name an object that is not what was expected, by its type; arrays and tensors with their shape.

    >>> described([1.0]), described(None), described(dict)
    ('a list', 'None', 'the class dict')
    """
    if value is None or isinstance(value, type):
        return "None" if value is None else f"the class {value.__name__}"
    shape = f" of shape {tuple(shape)}" if isinstance(shape := getattr(value, "shape", None), tuple) else ""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}{shape}"


def require_integer(name: str, value: object, least: int) -> None:
    """Refuse a setting that is not an integer, or below `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise Misuse(f"{name}={value!r}: need a whole number, at least {least}")


def names_of(name: str, value: object) -> tuple[str, ...]:
    """Return the names in a setting: one, several between commas, a list of them, or none."""
    split = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
    names = () if split is None else split
    if not isinstance(names, tuple | list) or not all(isinstance(item, str) for item in names):
        raise Misuse(f"{name}={value!r:.60}: need a name as text, or a list of names")
    return tuple(names)


def require_choices(record: object, **choices: Collection[str]) -> None:
    """Refuse a record if one of these fields is not among its choices."""
    for name, known in choices.items():
        if getattr(record, name) not in known:
            raise unknown(name, getattr(record, name), known)


def require_number(name: str, value: object, usual: float) -> None:
    """Refuse a setting that is not a number."""
    if not isinstance(value, Real) or isinstance(value, bool | Fraction):
        raise Misuse(f"{name}={value!r}: need a number such as {usual:g}")


@dataclass(frozen=True)
class NoteScope:
    """A public call, within which every note is raised once, at the line that called it."""

    place: dict[str, Any]  # of `warnings.warn_explicit`
    raised: set[str] = field(default_factory=set)
    silent: bool = False


_scope: ContextVar[NoteScope | None] = ContextVar("notes", default=None)


def notes_once(call: Function) -> Function:
    """Decorate a public function: within a call, also by other public functions, every note is raised once."""

    @functools.wraps(call)
    def wrapper(*args: Any, **settings: Any) -> Any:
        if _scope.get() is not None:
            return call(*args, **settings)
        token = _scope.set(NoteScope(users_place()))
        try:
            return call(*args, **settings)
        finally:
            _scope.reset(token)

    return wrapper  # type: ignore[return-value]


@contextmanager
def without_notes() -> Iterator[None]:
    """Raise no notes within the block."""
    token = _scope.set(NoteScope({}, silent=True))
    try:
        yield
    finally:
        _scope.reset(token)


def users_place() -> dict[str, Any]:
    """Return the place of the innermost line outside of this package, of torch and of scikit-learn."""
    frame = last = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OWN_PACKAGES:
        frame, last = frame.f_back, frame
    user = frame or last
    assert user is not None
    registry = user.f_globals.setdefault("__warningregistry__", {})
    where = {"filename": user.f_code.co_filename, "lineno": user.f_lineno}
    return {**where, "module": user.f_globals.get("__name__"), "registry": registry}


def warn(message: str, about: str | None = None) -> None:
    """Raise a warning that points to the line outside of this package that led here; within a public call, once.

    Notes with the same `about`, by default the message, are one note.
    """
    scope = _scope.get()
    if scope is None:
        warnings.warn_explicit(message, UserWarning, **users_place())
    elif not scope.silent and (about or message) not in scope.raised:
        scope.raised.add(about or message)
        warnings.warn_explicit(message, UserWarning, **scope.place)
