"""Output of commands: help texts, tables and JSON."""

import json
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from murmuration.system.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

NOTHING_WRITTEN = "nothing was written"
CONTINUES = "the same command continues from here"
WIDTH = 100  # of tables that do not go to a terminal
NAME = 32  # characters of the first column of a table that are never folded
GAP = 3  # between two columns

HELP_ALL = "help_all"
COMMON = {  # parameters of commands with many options that --help shows; --help-all shows all
    *("data", "out", "as_json", "verbose", HELP_ALL),
    *("recipe", "recipes", "baselines", "net", "target", "task", "members", "epochs", "patience"),
    *("seed", "lr", "batch_size", "device", "ranks", "budget", "corruptions"),
}


class Interrupted(Exception):  # noqa: N818 - the user asked for it
    """Ctrl-C, with a message on how to continue."""


@contextmanager
def interruptible(path: Path) -> Iterator[None]:
    """Remove a new file that an interrupted block has written, so that its command can be repeated.

    A file that the block has replaced stays, and the interrupt says so.
    """
    before = _identity(path)
    try:
        yield
    except KeyboardInterrupt:
        if (after := _identity(path)) == before:
            raise
        if before is not None or after is None:
            raise Interrupted(f"{path} is written") from None
        path.unlink()
        raise


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return what tells a file from one that replaced it; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


class PlainGroup(TyperGroup):
    """A group of commands with its help from a docstring (see `help_texts`), and the help of switches without a type.

    It shows `--json`, not `--json <bool>`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | help_texts(settings["help"]))

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_bool(super().get_params(ctx))


class PlainCommand(TyperCommand):
    """A command with the same help as `PlainGroup`.

    If it has an option `--help-all`, `--help` shows only the options of `COMMON`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | help_texts(settings["help"]))

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_bool(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        brief = HELP_ALL not in ctx.meta and any(option.name == HELP_ALL for option in self.params)
        parameters: list[Any] = self.params
        for option in parameters:
            option.hidden = brief and option.name not in COMMON
        super().format_help(ctx, formatter)


def show_all_options(context: typer.Context, requested: bool) -> None:
    """Print the help of a command with all its options, and end: the callback of `--help-all`."""
    if requested:
        context.meta[HELP_ALL] = True
        context.get_help()
        raise typer.Exit


class Details(logging.Handler):
    """Prints what the library logs on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        print(printable(record.getMessage()), file=sys.stderr)


def show_details(requested: bool) -> None:
    """Print what the library logs, such as the engine, or no longer: the callback of `--verbose`."""
    log = logging.getLogger("murmuration")
    log.handlers = [Details()] if requested else []
    log.setLevel(logging.INFO if requested else logging.NOTSET)


def _without_bool(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def help_texts(docstring: str | None) -> dict[str, str]:
    """Return the help of a command from its docstring: examples, then the description; and in short, its first line."""
    summary, _, rest = (docstring or "").partition("\n\n")
    about, *sections = re.split(r"^(\w+):\n", rest, flags=re.MULTILINE)
    examples = dedent(dict(zip(sections[::2], sections[1::2], strict=True)).get("Examples", "")).strip()
    about = re.sub(r"(?<!\n)\n(?!\n)", " ", about.strip()) or summary
    return {"help": f"Examples:\n\n[cyan]{examples}[/cyan]\n\n{about}" if examples else about, "short_help": summary}


def console() -> "Console":
    """Return a console on the current standard output: a terminal, a pipe or a buffer."""
    from rich.console import Console

    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=WIDTH)


def say(text: str) -> None:
    """Print a sentence, with names from data files in printable characters."""
    print(printable(text))


def print_json(record: Any) -> None:
    """Print a record as JSON."""
    from murmuration.system.records import plain_json

    print(json.dumps(plain_json(record), indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", right: bool = True) -> None:
    """Print a table. With `right`, all columns but the first hold numbers, which are aligned right and never folded."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if title:
        say(title)  # a title inside the table would be folded to its width
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    lines = [[len(line) for cell in column for line in cell.split("\n")] for column in zip(columns, *rows, strict=True)]
    room = console().width - sum(max(lengths) + GAP for lengths in lines[1:])  # beside numbers that are not folded
    wide = right and room >= NAME and max(lines[0]) > NAME
    for place, column in enumerate(columns):
        justify: Any = "right" if right and place else "left"
        table.add_column(Text(printable(column)), justify=justify, overflow="fold", no_wrap=bool(place) == wide)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # Text: names may hold brackets, and keeps ESC
    console().print(table)
