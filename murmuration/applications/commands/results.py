"""Scores of a finished run of an application: its files, and what the command prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from murmuration.cli.console import print_json, print_table, say

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]  # title, columns but the first, rows


def leave_page(
    path: Path, record: dict[str, Any], page: str, table: Table, sentences: Sequence[str], *, as_json: bool
) -> None:
    """Write metrics.json and report.html into a run directory, and print the record, or a table and sentences."""
    from murmuration.reports.report import METRICS, REPORT
    from murmuration.runs.directory import replace_files
    from murmuration.system.files import json_bytes

    replace_files(path, {METRICS: json_bytes(record), REPORT: page.encode()})
    if as_json:
        return print_json(record)
    title, columns, rows = table
    print_table(["", *columns], rows, title=title)
    for sentence in sentences:
        say(f"- {sentence}")
    say(f"report: {path / REPORT}")
