"""Plug-ins: objects that other parts of this distribution, or other distributions, register as entry points.

Extensions are imported before a command reads its arguments and before a run is loaded. An entry that cannot be
imported, or is not what its group holds, is left out with a warning.

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

from murmuration.system.errors import described, first_line, warn


@cache
def plugins(group: str, kind: Any = object) -> dict[str, Any]:
    """Load the entry points of a group that are of a kind, by name, in the order of their names."""
    loaded = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        package = "" if point.dist is None else f" of {point.dist.name}"
        entry = f"entry point '{point.name} = {point.value}'{package} in {group} is left out"
        try:
            value = point.load()
        except Exception as error:  # whatever another package raises
            warn(f"{entry}: {type(error).__name__}: {first_line(error)}")
            continue
        if isinstance(value, kind):
            loaded[point.name] = value
        else:
            warn(f"{entry}: it is {described(value)}, expected {described(kind).removeprefix('the class ')}")
    return loaded
