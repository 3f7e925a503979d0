"""Write docs/cli.md: what `murmur --help` and the help of every command say.

python docs/make_cli_page.py
"""

import contextlib
import io
import os
from pathlib import Path

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


def page() -> str:
    """The whole page."""
    from typer.main import get_command

    from murmuration.cli import app

    commands: list[list[str]] = [[], *([name] for name in get_command(app).commands)]  # type: ignore[attr-defined]
    sections = [f"## {' '.join(['murmur', *words])}\n\n```text\n{help_of(words)}\n```\n" for words in commands]
    return "\n".join([OPENING, *sections])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE}")
