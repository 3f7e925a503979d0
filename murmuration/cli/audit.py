"""`murmur audit`: evaluation of the predictions of any model."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murmuration.cli.console import help_text, print_json, print_table
from murmuration.cli.options import Force, Json, Names, PostHocOptions, grouped, listed, output_path
from murmuration.system.errors import Misuse
from murmuration.system.progress import counting_bar

if TYPE_CHECKING:
    from murmuration.evaluation import Evaluation
    from murmuration.evaluation.audit import Predictions
    from murmuration.evaluation.metrics.groups import GroupScores
    from murmuration.prediction.posthoc import PostHocConfig

HELP = help_text(
    "Evaluate the uncertainty of predictions made by any model: scores with intervals, calibration, conformal "
    "prediction sets and their coverage, selective prediction (abstention), scores by group, and advice. A .npz holds "
    "probs (N, K) or (S, N, K) of S members, or logits, or mean and std, or samples (S, N), and y; a .csv or .parquet "
    "the columns prob_<class> and label, or mean, std and y. Several files on the same rows are compared with paired "
    "tests. One half of the rows fits calibrator, conformal sets and abstention rules, the other half evaluates them.",
    "murmur audit members.npz",
    "murmur audit forest.csv boosting.csv --group size",
    "murmur audit forest.csv --label-column outcome --out audit.html",
    "murmur audit unlabelled.npz --label-file truth.csv --label-column outcome",
)


@grouped
def audit(
    *,
    files: Annotated[list[str], typer.Argument(help="One or more .npz, .npy, .csv or .parquet files.", metavar="FILE")],
    labels: Annotated[
        str | None,
        typer.Option(
            "--label-file", help="File of the true labels, if FILE has none: .csv, .npz, .npy or text.", metavar="FILE"
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option("--label-column", help="Column or array of the true labels, in either file.", metavar="NAME"),
    ] = None,
    group: Annotated[
        Names, typer.Option(help="Column of groups to score apart; a list for several.", metavar="NAME")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="classification or regression; inferred if left out.", metavar="TASK")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="Report; if left out <first file>-audit.html, with a number if that exists already.", metavar="FILE"
        ),
    ] = None,
    trust: PostHocOptions,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Evaluate the predictions of any model."""
    from murmuration.evaluation.audit import open_predictions

    for file in files:
        if not file.strip():
            raise Misuse(f"'{file}' names no file: expected .npz, .npy, .csv or .parquet")
    names = names_of(files)
    path = output_path(out, (".html", ".json"), force) if out else beside(Path(files[0]), force)
    config = trust.config()
    opened = [
        replace(open_predictions(file, labels=labels, label=label, groups=listed(group), task=task), name=name)
        for file, name in zip(files, names, strict=True)
    ]
    check_alike(opened)
    evaluations = []
    with counting_bar("audit", as_json) as show:
        for turn, each in enumerate(opened):
            show(each.name, turn, len(opened))
            evaluations.append(evaluate_with(each, config))
    conclude(path, evaluations, as_json=as_json)


def beside(file: Path, force: bool) -> Path:
    """The default path of the report: next to the file, and new unless `force` is set."""
    path, turn = file.with_name(f"{file.stem}-audit.html"), 1
    while path.exists() and not force:
        turn += 1
        path = file.with_name(f"{file.stem}-audit-{turn}.html")
    return path


def names_of(files: list[str]) -> list[str]:
    """What the files are called: by their stems, or, if these are not distinct, with suffixes, or with folders.

    >>> names_of(["a/rf.csv", "a/boosting.csv"]), names_of(["a/rf.csv", "a/rf.npz"]), names_of(["a/rf.csv", "b/rf.csv"])
    (['rf', 'boosting'], ['rf.csv', 'rf.npz'], ['a/rf.csv', 'b/rf.csv'])
    """
    paths = [Path(file) for file in files]
    for names in ([path.stem for path in paths], [path.name for path in paths], files):
        if len(set(names)) == len(names):
            return names
    twice = next(file for file in files if files.count(file) > 1)
    raise Misuse(f"'{twice}' is given twice: give each file once")


def check_alike(opened: list["Predictions"]) -> None:
    """Refuse files that predict different rows."""
    from murmuration.evaluation.audit import check_same_targets

    for each in opened[1:]:
        check_same_targets(opened[0], each)


def evaluate_with(predictions: "Predictions", config: "PostHocConfig") -> "Evaluation":
    from murmuration.evaluation.audit import evaluate_predictions
    from murmuration.prediction.posthoc import check_config

    check_config(config, predictions.task)
    return evaluate_predictions(predictions, config)


def conclude(path: Path, evaluations: list["Evaluation"], *, as_json: bool) -> None:
    """Write the report, and print the record as JSON or as tables and sentences."""
    from murmuration.cli.results import show_scores, show_sentences
    from murmuration.reports.findings import differences
    from murmuration.reports.report import report_of, this_command, write_results
    from murmuration.system.files import json_numbers

    tests = differences(evaluations)
    report = report_of(evaluations, tests, command=this_command())
    record = json_numbers(
        {
            "results": {each.name: each for each in evaluations},
            "tests": tests,
            "verdict": list(report.verdict),
            "notes": list(report.notes),
            "report": str(path),
        }
    )
    write_results(path, record, report)
    if as_json:
        return print_json(record)
    show_scores(evaluations)
    show_groups(evaluations)
    show_sentences(record)
    print(f"report: {path}")


def show_groups(evaluations: list["Evaluation"]) -> None:
    """The main scores in every group, one table for each column of groups."""
    for column in dict.fromkeys(column for each in evaluations for column in each.groups):
        found = [(each.name, group) for each in evaluations for group in each.groups.get(column, ())]
        show_grouping(column, found, evaluations[0].eval_set.task, named=len(evaluations) > 1)


def show_grouping(column: str, found: list[tuple[str, "GroupScores"]], task: Any, *, named: bool) -> None:
    """The main scores in the groups of one column, and which groups are significantly worse than the rest."""
    from murmuration.cli.results import heading
    from murmuration.evaluation.metrics import shown_in
    from murmuration.reports.formatting import number

    names, some_worse = shown_in("brief", task), any(group.worse for _, group in found)
    rows = [
        [
            f"{name}, {group.value}" if named else group.value,
            f"{group.examples:,}",
            *(number(group.scores.get(score, math.nan)) for score in names),
            *(["worse" if group.worse else ""] if some_worse else []),
        ]
        for name, group in found
    ]
    print_table([column, "rows", *map(heading, names), *(["than the rest"] if some_worse else [])], rows)
