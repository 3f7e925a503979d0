"""Progress bars for training and for work in countable pieces, on a terminal and in a notebook; notebook tables."""

import html
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from murmuration.system.errors import printable

Show = Callable[[str, int, int, dict[str, Any] | None], None]  # message, steps done, steps in all, last epoch's record


def is_watched() -> bool:
    """Return whether a progress bar is visible: standard error is a terminal, or this is a notebook."""
    shell = sys.modules.get("IPython")
    kernel = shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
    return sys.stderr.isatty() or kernel


@contextmanager
def training_bar(epochs: int, quiet: bool, name: str = "") -> Iterator[Show]:
    """Yield a function that updates a bar for training: epoch, steps, time left and the last validation NLL.

    The bar appears on a terminal and in a notebook; elsewhere messages are printed, unless `quiet`.
    """
    if quiet or not is_watched():
        yield lambda text, done, total, record: print(printable(text)) if text and not quiet else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    words = TextColumn("{task.description}"), TextColumn("steps,"), TextColumn("{task.fields[note]}")
    columns = words[0], BarColumn(), MofNCompleteColumn(), words[1], TimeRemainingColumn(), words[2]
    screen = Console(stderr=True, highlight=False)
    with Progress(*columns, console=screen, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task(printable(f"{name} getting ready".strip()), total=None, note="")

        def show(text: str, done: int, total: int, record: dict[str, Any] | None) -> None:
            if text:
                return print(printable(text))
            epoch = min(done * epochs // total + 1, epochs)
            bar.update(
                task, completed=done, total=total, description=printable(f"{name} epoch {epoch}/{epochs}".strip())
            )
            if record is not None:
                bar.update(task, note=f"left, val NLL {record['ensemble']['val_nll']:.4g}")

        yield show


@contextmanager
def counting_bar(what: str, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that updates a bar for work in countable pieces: the current piece and the time left."""
    if quiet or not is_watched():
        yield lambda text, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as bar:
        task = bar.add_task(printable(what), total=None)
        yield lambda text, done, total: bar.update(
            task, completed=done, total=total, description=printable(f"{what}: {text}" if text else what)
        )


def html_table(caption: str, rows: Mapping[str, Any]) -> str:
    """Format names and values as an HTML table for a notebook.

    >>> html_table("data", {"task": "a < b"})
    '<table><caption>data</caption><tr><th>task</th><td>a &lt; b</td></tr></table>'
    """
    cells = "".join(f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows.items())
    return f"<table><caption>{html.escape(caption)}</caption>{cells}</table>"
