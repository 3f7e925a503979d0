"""Plug-ins: objects that other parts of this distribution, or other distributions, register as entry points.

Extensions are imported before a command reads its arguments and before a run is loaded.

| group | an entry is |
|---|---|
| `murmuration.extensions` | a module that adds rows to tables (calibrators, measures, ...) when it is imported |
| `murmuration.commands` | a function or a `typer.Typer`: a command of `murmur`, with its help in its docstring |
| `murmuration.lists` | a table for `murmur list NAME`: names with a text, or with rows that have `about` |
| `murmuration.nets` | a `murmuration.models.nets.NetEntry`: a network by name |
| `murmuration.run_kinds` | a `murmuration.runs.kinds.RunKind` |
| `murmuration.report_sections` | a `murmuration.reports.extension.ReportSection` |
"""

from functools import cache
from importlib.metadata import entry_points
from typing import Any


@cache
def plugins(group: str) -> dict[str, Any]:
    """Load every entry point of a group, by name, in the order of their names."""
    return {point.name: point.load() for point in sorted(entry_points(group=group), key=lambda point: point.name)}
