"""`murmur audit`: evaluation of the predictions of any model."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import murmuration as mm
from murmuration.cli.console import interruptible, print_json, print_table, say
from murmuration.cli.options import Force, Json, Names, PostHocOptions, listed, output_path
from murmuration.system.errors import Misuse


def audit(
    *,
    files: Annotated[list[str], typer.Argument(metavar="FILE")],
    labels: Annotated[str | None, typer.Option("--label-file", metavar="FILE")] = None,
    label: Annotated[str | None, typer.Option("--label-column", metavar="NAME")] = None,
    group: Annotated[Names, typer.Option(metavar="NAME")] = None,
    task: Annotated[str | None, typer.Option(metavar="TASK")] = None,
    out: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    trust: PostHocOptions,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Evaluate the predictions of any model.

    Evaluate the uncertainty of predictions made by any model: scores with intervals, calibration, conformal prediction
    sets and their coverage, selective prediction (abstention), scores by group, and advice. A .npz holds probs (N, K)
    or (S, N, K) of S members, or logits, or mean and std, or samples (S, N), and y; a .csv or .parquet the columns
    prob_<class> and label, or mean, std and y. Several files on the same rows are compared with paired tests. One half
    of the rows fits calibrator, conformal sets and abstention rules, the other half evaluates them.

    Args:
        files: One or more .npz, .npy, .csv or .parquet files.
        labels: File of the true labels, if FILE has none: .csv, .npz, .npy or text.
        label: Column or array of the true labels, in either file.
        group: Column of groups to score apart; a list for several.
        task: classification or regression; inferred if left out.
        out: Report; if left out <first file>-audit.html, with a number if that exists already.
        trust: Calibration, conformal sets and abstention.
        force: Whether to replace the file.
        as_json: Whether to print JSON.

    Examples:
        murmur audit members.npz
        murmur audit forest.csv boosting.csv --group size
        murmur audit forest.csv --label-column outcome --out audit.html
        murmur audit unlabelled.npz --label-file truth.csv --label-column outcome
    """
    from murmuration.cli.results import show_scores, show_sentences

    for file in files:
        if not file.strip():
            raise Misuse(f"'{file}' names no file: expected .npz, .npy, .csv or .parquet")
    path = output_path(out, (".html", ".json"), force) if out else beside(Path(files[0]), force)
    settings: dict[str, Any] = {"label": label, "groups": listed(group), "task": task, "config": trust.config()}
    with interruptible(path):
        report = mm.audit(files, labels, out=path, progress=not as_json, **settings)
        record = {**report.to_json(), "report": str(path)}
        if as_json:
            return print_json(record)
        show_scores(report.evaluations)
        show_groups(report.evaluations)
        show_sentences(record)
        say(f"report: {path}")


def beside(file: Path, force: bool) -> Path:
    """Return the default path of the report: next to the file, and new unless `force` is set."""
    paths = (file.with_name(f"{file.stem}-audit{f'-{n}' if n > 1 else ''}.html") for n in itertools.count(1))
    return next(path for path in paths if force or not path.exists())


def show_groups(evaluations: Sequence["mm.Evaluation"]) -> None:
    """Print the main scores in every group, one table for each column, with groups that are significantly worse."""
    from murmuration.evaluation.metrics import shown_in
    from murmuration.reports.formatting import heading, number

    names, compared = shown_in("brief", evaluations[0].task), len(evaluations) > 1
    for column in dict.fromkeys(column for evaluation in evaluations for column in evaluation.groups):
        groups = [(e.name, group) for e in evaluations for group in e.groups.get(column, ())]
        any_worse = any(group.worse for _, group in groups)
        rows = [
            [
                f"{name}, {group.value}" if compared else group.value,
                f"{group.examples:,}",
                *(number(group.scores.get(score, math.nan)) for score in names),
                *(["worse" if group.worse else ""] if any_worse else []),
            ]
            for name, group in groups
        ]
        print_table([column, "rows", *map(heading, names), *(["than the rest"] if any_worse else [])], rows)
