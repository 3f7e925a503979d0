"""The command line: one file per command, which parses arguments, calls the library once and prints the result."""

import warnings
from collections.abc import Callable
from functools import partial


def load() -> Callable[..., int]:
    """Import the commands and return what runs one of them, with the notes of plug-ins as those of the command."""
    with warnings.catch_warnings(record=True) as notes:
        from murmuration.cli.program import main as run

    return partial(run, notes=[note.message for note in notes])


def main(arguments: list[str] | None = None) -> int:
    """Run one command of `murmur` and return its exit code; the arguments are those of the process by default."""
    return load()(arguments)
