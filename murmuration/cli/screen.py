"""How things look: help texts, tables, bars and JSON."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100  # of tables that do not go to a terminal

Show = Callable[[str, int, int, dict[str, Any] | None], None]


class Interrupted(Exception):  # noqa: N818 - the user's wish, not an error
    """Ctrl-C, with a word on how to go on."""


def help_text(about: str, *examples: str) -> str:
    """The help of a command: lines to copy first, then what it does."""
    lines = "\n".join(f"  {example}" for example in examples)
    return f"[bold]Examples[/bold]\n\n\b\n{lines}\n\n{about}"


def console() -> "Console":
    """The standard output as it is now: a terminal, a pipe or a test's buffer."""
    from rich.console import Console

    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=WIDTH)


def say(text: str) -> None:
    """A plain line on the standard output, never cut or wrapped."""
    print(text)


def say_json(record: Any) -> None:
    """The record, and nothing else, on the standard output."""
    from murmuration.evaluation import finite

    print(json.dumps(finite(record), indent=2))


def say_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", right: bool = True) -> None:
    """A table; all columns but the first are numbers, unless told otherwise."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if right and place else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # Text: names of classes and files may hold brackets
    console().print(table)


@contextmanager
def training_bar(epochs: int, quiet: bool, name: str = "") -> Iterator[Show]:
    """A `show` for training: on a terminal a bar with epoch, steps, time left and the last validation NLL."""
    if quiet or not sys.stderr.isatty():
        yield lambda text, done, total, record: say(text) if text and not quiet else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    steps, note = MofNCompleteColumn(), TextColumn("{task.fields[note]}")
    label = TextColumn("{task.description}")
    screen = Console(stderr=True, highlight=False)
    with Progress(label, BarColumn(), steps, TextColumn("steps,"), TimeRemainingColumn(), note, console=screen) as bar:
        task = bar.add_task(f"{name} epoch 1/{epochs}".strip(), total=None, note="")

        def show(text: str, done: int, total: int, record: dict[str, Any] | None) -> None:
            if text:
                return say(text)
            bar.update(task, completed=done, total=total)
            if record is not None:
                epoch = min(record["epoch"] + 1, epochs)
                note = f"left, val NLL {record['ensemble']['val_nll']:.4g}"
                bar.update(task, description=f"{name} epoch {epoch}/{epochs}".strip(), note=note)

        yield show
