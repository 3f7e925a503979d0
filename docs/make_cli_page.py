"""Write docs/cli.md: what `murmur --help` and the help of every command say.

python docs/make_cli_page.py
"""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "cli.md"
WIDTH = 100
OPENING = """# The command line

This page is the output of `--help`, written by `python docs/make_cli_page.py`.
"""

# Read by typer when it is imported: the same page on every terminal, without colours.
os.environ.update(TERMINAL_WIDTH=str(WIDTH), _TYPER_FORCE_DISABLE_TERMINAL="1", NO_COLOR="1")


def help_of(words: list[str]) -> str:
    """What a command prints for --help, without trailing blanks."""
    from murmuration.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main([*words, "--help"])
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())


def commands_of(command: Any, words: list[str]) -> Iterator[list[str]]:
    """The words that call a command and, after it, each of the commands inside it."""
    yield words
    for name, inside in getattr(command, "commands", {}).items():
        yield from commands_of(inside, [*words, name])


def page() -> str:
    """The whole page."""
    from typer.main import get_command

    from murmuration.cli.program import app

    commands = commands_of(get_command(app), [])
    sections = [f"## {' '.join(['murmur', *words])}\n\n```text\n{help_of(words)}\n```\n" for words in commands]
    return "\n".join([OPENING, *sections])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE}")
