"""The two ways a command can end badly, and how to name the nearest right word."""

from collections.abc import Iterable
from difflib import get_close_matches


class Misuse(ValueError):  # noqa: N818 - it is what the user did, not an error of ours
    """The caller asked for something that cannot be: one line that says what was got and what to write instead."""


class Failure(RuntimeError):  # noqa: N818
    """The request was right but the world was not: a damaged file, a full disk, a run that diverged."""


def unknown(kind: str, got: str, known: Iterable[str]) -> Misuse:
    """The error for a name that is not in the list, with the nearest one suggested.

    >>> print(unknown("recipe", "deep-ensmble", ["single", "deep-ensemble"]))
    unknown recipe 'deep-ensmble': did you mean 'deep-ensemble'? Known: deep-ensemble, single
    """
    names = sorted(known)
    near = get_close_matches(got, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return Misuse(f"unknown {kind} '{got}': {hint}Known: {', '.join(names)}")
