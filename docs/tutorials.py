"""Tutorials: programs of `examples/` in cells (percent format), run and written as Markdown and as notebooks.

Every example whose name begins with a number is a tutorial. `murmuration` runs it cell by cell in a folder of its own.
"""

import ast
import contextlib
import html
import io
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import jupytext

EXAMPLES = Path(__file__).parents[1] / "examples"
TUTORIALS = sorted(EXAMPLES.glob("[0-9]*.py"))


class Outputs(list[str]):
    """What a cell prints and shows, as Markdown; figures are numbered over the page."""

    figures = 0


def cells(path: Path) -> list[Any]:
    """Return the cells of a tutorial."""
    return jupytext.read(path, fmt="py:percent").cells


def run(path: Path) -> tuple[dict[str, Any], list[list[str]]]:
    """Run a tutorial in an empty folder; return its names and the outputs of every code cell."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    outputs: list[list[str]] = []
    started = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        os.chdir(folder)
        try:
            for cell in cells(path):
                if cell.cell_type == "code":
                    outputs.append(run_cell(cell.source, names))
        finally:
            os.chdir(started)
    return names, outputs


def run_cell(source: str, names: dict[str, Any]) -> list[str]:
    """Run one cell; return what it printed and the value of a last expression, as Markdown."""
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "tutorial", "exec"), names)
        value = eval(compile(last, "tutorial", "eval"), names) if last else None
    texts = [f"```text\n{printed.getvalue().rstrip()}\n```"] if printed.getvalue().strip() else []
    return texts + ([] if value is None else [shown(value)])


def shown(value: Any) -> str:
    """Return a value as a page shows it: a figure, a table, or its text."""
    if hasattr(value, "to_plotly_json"):
        return f'<div class="tutorial-figure" data-figure="{html.escape(value.to_json(), quote=True)}"></div>'
    if hasattr(value, "to_html"):  # a table of pandas
        return value.to_html(border=0).replace(' class="dataframe"', "")
    if hasattr(value, "_repr_html_"):
        return f'<div class="tutorial-html">\n{value._repr_html_()}\n</div>'
    return f"```text\n{value!r}\n```"


def page(path: Path, executed: bool = True) -> str:
    """Return a tutorial as Markdown, with the outputs of its cells if it is run."""
    outputs = iter(run(path)[1] if executed else [])
    parts = []
    for cell in cells(path):
        if cell.cell_type == "markdown":
            parts.append(cell.source.replace("](", "](../") if "](" in cell.source else cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        if texts := next(outputs, []):
            parts.append('<div class="tutorial-output" markdown>\n\n' + "\n\n".join(texts) + "\n\n</div>")
    source = f"[examples/{path.name}](../../examples/{path.name})"
    parts.append(f"*This page is {source}; [download the notebook]({path.stem}.ipynb).*")
    return "\n\n".join(parts) + "\n"


def notebook(path: Path) -> str:
    """Return a tutorial as a notebook without outputs."""
    return jupytext.writes(jupytext.read(path, fmt="py:percent"), fmt="ipynb")
