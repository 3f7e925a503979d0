"""Write docs/cli.md: the help of `murmur` and of every command.

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

This page is the output of `--help`, with all options (`--help-all`), written by `python docs/make_cli_page.py`.
"""

# Read by typer when it is imported: the same page on every terminal, without colours.
os.environ.update(TERMINAL_WIDTH=str(WIDTH), _TYPER_FORCE_DISABLE_TERMINAL="1", NO_COLOR="1")


def help_of(command: Any, words: list[str]) -> str:
    """Return the help of a command with all its options, without trailing blanks."""
    from murmuration.cli import main

    long = any("--help-all" in parameter.opts for parameter in command.params)
    captured = io.StringIO()
    with contextlib.redirect_stdout(captured):
        main([*words, "--help-all" if long else "--help"])
    return "\n".join(line.rstrip() for line in captured.getvalue().strip().splitlines())


def commands_of(command: Any, words: list[str]) -> Iterator[tuple[Any, list[str]]]:
    """Yield a command and the words that call it, then the commands inside it."""
    yield command, words
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from commands_of(subcommand, [*words, name])


def page() -> str:
    """Return the text of the page."""
    from typer.main import get_command

    from murmuration.cli.program import app

    sections = [
        f"## {' '.join(['murmur', *words])}\n\n```text\n{help_of(command, words)}\n```\n"
        for command, words in commands_of(get_command(app), [])
    ]
    return "\n".join([OPENING, *sections])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE}")
