"""`murmur monitor`: new rows against the training rows of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from murmuration.cli.console import interruptible, print_json, print_table, say
from murmuration.cli.options import Force, Json, RunPath, output_path

if TYPE_CHECKING:
    from murmuration.evaluation.columns import Drift

SHOWN = 12  # changes on the screen; the page has all
DRIFTED = 3  # exit code


def monitor(
    *,
    run: RunPath,
    data: Annotated[str, typer.Argument(metavar="DATA")],
    out: Annotated[str | None, typer.Option(metavar="FILE.html")] = None,
    force: Force = False,
    fail_on_drift: Annotated[bool, typer.Option("--fail-on-drift")] = False,
    as_json: Json = False,
) -> None:
    """Compare new rows of a table with those of training.

    Compare new rows with the rows that a run was trained on: every column, missing values, the uncertainty of
    predictions and, of classes, the size of conformal sets, by tests that are corrected for their number. The page also
    names the rows most unlike the training rows. Targets are not needed.

    Args:
        run: The run.
        data: New rows: a file of a table, such as FILE.csv.
        out: Page; RUN/monitor-DATA.html if left out.
        force: Whether to replace the page.
        fail_on_drift: End with exit code 3 where there is drift, for scripts.
        as_json: Whether to print JSON.

    Examples:
        murmur monitor runs/prices new.csv
        murmur monitor runs/prices new.csv --out drift.html
        murmur monitor runs/prices new.csv --json
        murmur monitor runs/prices new.csv --fail-on-drift
    """
    from murmuration.cli.training import load_run, reopen_data
    from murmuration.evaluation.columns import drift, read_table, unusual_rows
    from murmuration.reports.comparison import run_name
    from murmuration.reports.monitor_page import monitor_page
    from murmuration.system.files import write_bytes

    path = output_path(out, (".html",), force) if out else Path(run) / f"monitor-{run_name(Path(data).stem)}.html"
    ensemble, training = load_run(Path(run)), reopen_data(Path(run))
    table = read_table(data, ensemble.preparation)
    changes = drift(ensemble, training, table)
    unusual = unusual_rows(ensemble, training.train.x, table)
    with interruptible(path):
        write_bytes(path, monitor_page(run, Path(data).name, changes, unusual).encode())
        if as_json:
            rows = [{"row": row.row, "distance": row.distance, "columns": row.columns} for row in unusual]
            print_json({"run": run, "data": data, **changes.to_json(), "unusual": rows, "page": str(path)})
        else:
            show(changes)
            say(f"written: {path}")
    if fail_on_drift and changes.drifted:
        raise typer.Exit(DRIFTED)


def show(drift: "Drift") -> None:
    """Print the largest changes in a table, then the verdict."""
    from murmuration.reports.monitor_page import change_rows

    rows = [[*cells, drifted] for *cells, _, drifted in change_rows(drift)[:SHOWN]]
    heads = ["quantity", "kind", "before", "now", "size", "corrected p", "drift"]
    print_table(heads, rows, title=f"{drift.rows:,} new rows, the largest of {len(drift.changes)} changes")
    for sentence in drift.verdict:
        say(f"- {sentence}")
