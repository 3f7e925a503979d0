"""The two kinds of errors that users see, and how messages name values."""

import functools
import inspect
import itertools
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from fractions import Fraction
from numbers import Integral, Real
from types import FrameType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
OWN_PACKAGES = ("murmuration", "torch", "sklearn", "joblib")  # no user's line is in them
LONGEST = 1000  # characters of a message: a cell of a file may hold 200,000
MOST_NAMES = 12  # of a list in a message
ALIKE = 0.6  # similarity from which a name is suggested, 0 to 1
FEWEST_LETTERS = 3  # of the beginning of a name


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


class OneLine(Exception):  # noqa: N818 - the base of the two kinds below
    """An error whose message is one line, in a notebook too."""

    def __str__(self) -> str:
        return shortened(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the line of the caller and the message, without the frames of this package."""
        own = [*itertools.takewhile(lambda place: not is_internal(place[0]), traceback.walk_tb(self.__traceback__))]
        return [*traceback.StackSummary.extract(own[-1:]).format(), f"{type(self).__name__}: {self}"]


class Misuse(OneLine, ValueError):  # noqa: N818 - the caller's mistake
    """A request that cannot be carried out; one line says what was got, what was expected and what to write."""


class Failure(OneLine, RuntimeError):  # noqa: N818 - not the caller's mistake
    """A valid request that failed: a damaged file, a full disk, a run that diverged."""


class StopTraining(Exception):  # noqa: N818 - not an error
    """Raised by the `callback` of `fit` to end training after the epoch that it was called for."""


def unknown(kind: str, got: str, known: Iterable[str], *, see: str = "") -> Misuse:
    """Return the error for a name that is not in a list, with the nearest name suggested.

    Args:
        kind: What the name is of.
        got: The name.
        known: The names of the list; of a long one the message has the first.
        see: Where all names of a long list are, such as "murmur list recipes".

    Returns:
        The error.

    >>> print(unknown("recipe", "Deep-ensmble", ["single", "deep-ensemble"]))
    unknown recipe 'Deep-ensmble': did you mean 'deep-ensemble'? Known: deep-ensemble, single
    """
    names = sorted(known)
    rest = f"; see {see}" if see and len(names) > MOST_NAMES else ""
    return Misuse(f"unknown {kind} '{got}': {did_you_mean(got, names)}Known: {listed(names, MOST_NAMES)}{rest}")


def nearest(got: str, known: Iterable[str]) -> str | None:
    """Return the known name that resembles a misspelt one, or is the only one it begins; None if there is none.

    >>> nearest("FoRDE", ["single", "forde"]), nearest("rank_one", ["rank-one"]), nearest("loss", ["progress"])
    ('forde', 'rank-one', None)
    >>> nearest("temp", ["vector", "temperature"])
    'temperature'
    """
    plain = {str(name).lower().replace("_", "-"): name for name in known}
    word = str(got).lower().replace("_", "-")
    near = get_close_matches(word, plain, n=1, cutoff=ALIKE)
    longer = [name for name in plain if len(word) >= FEWEST_LETTERS and name.startswith(word)]
    return plain[near[0]] if near else plain[longer[0]] if len(longer) == 1 else None


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """Suggest the nearest known name, with a space after the question; empty if none is near."""
    near = nearest(got, known)
    return "" if near is None else f"did you mean '{near}'? "


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


def is_internal(frame: FrameType) -> bool:
    """Return whether a frame runs code of this package, of torch, of scikit-learn or of its joblib."""
    return package_of(frame) in OWN_PACKAGES


def package_of(frame: FrameType) -> str:
    """Return the name of the package whose code a frame runs."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


@dataclass(frozen=True)
class NoteScope:
    """A public call, within which every note is raised once, at the line that called it."""

    place: dict[str, Any]  # of `warnings.warn_explicit`
    raised: set[str] = field(default_factory=set)
    silent: bool = False


_scope: ContextVar[NoteScope | None] = ContextVar("notes", default=None)
_search: tuple[tuple[Any, ...], set[str]] | None = None  # the last call of scikit-learn, and the notes raised in it


def notes_once(call: Function) -> Function:
    """Decorate a public function: within a call, also by other public functions, every note is raised once.

    All calls of one search by scikit-learn, such as `GridSearchCV`, raise every note once.
    """

    @functools.wraps(call)
    def wrapper(*args: Any, **settings: Any) -> Any:
        if _scope.get() is not None:
            return call(*args, **settings)
        place = users_place()
        token = _scope.set(NoteScope(place, raised_by_search(place)))
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
    while frame is not None and is_internal(frame):
        frame, last = frame.f_back, frame
    user = frame or last
    assert user is not None
    registry = user.f_globals.setdefault("__warningregistry__", {})
    where = {"filename": user.f_code.co_filename, "lineno": user.f_lineno}
    return {**where, "module": user.f_globals.get("__name__"), "registry": registry}


def raised_by_search(place: dict[str, Any]) -> set[str]:
    """Return the notes that were raised in the call of scikit-learn that led here; a new set outside of one.

    Worker processes of a search know nothing of each other: each of them raises a note once.
    """
    global _search
    frame, outermost = inspect.currentframe(), None
    while frame is not None:
        outermost = frame if package_of(frame) in ("sklearn", "joblib") else outermost
        frame = frame.f_back
    if outermost is None:
        return set()
    call = (id(outermost), outermost.f_code, place["filename"], place["lineno"])  # the frame itself would keep data
    if _search is None or _search[0] != call:
        _search = call, set()
    return _search[1]


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
