"""`murmur audit`: how far to trust predictions that anything made."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murmuration.cli.options import Force, Json, TrustOptions, grouped
from murmuration.cli.screen import counting_bar, help_text, say, say_json
from murmuration.errors import Misuse

if TYPE_CHECKING:
    from murmuration.audit import Predictions
    from murmuration.evaluation import Assessment

HELP = help_text(
    "Report how far predictions can be trusted, whatever made them: scores with intervals, reliability, sets that hold "
    "the truth, what declining would gain, groups that fare worse, and what would help. A .npz holds probs (N, K) or "
    "(S, N, K) of S members, or logits, or mean and std, or samples (S, N), and y; a .csv or .parquet the columns "
    "prob_<class> and label, or mean, std and y. Several files on the same rows are compared with paired tests. Half "
    "of the rows teach a calibrator and sets, the other half shows what they are worth.",
    "murmur audit predictions.npz",
    "murmur audit forest.csv boosting.csv --group region",
    "murmur audit predictions.csv --label outcome --out audit.html",
    "murmur audit predictions.npz --labels truth.csv --label outcome",
)


@grouped
def audit(
    *,
    files: Annotated[list[str], typer.Argument(help="One or more .npz, .csv or .parquet files.", metavar="FILE...")],
    labels: Annotated[
        str | None,
        typer.Option(help="What was true, where FILE does not say: .csv, .npz, .npy or text.", metavar="FILE"),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of what was true.", metavar="NAME")] = None,
    group: Annotated[list[str] | None, typer.Option(help="Column of groups to tell apart; again for more.")] = None,
    task: Annotated[
        str | None, typer.Option(help="classification or regression, if it cannot be told.", metavar="TASK")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Report; <first file>-audit.html if left out.", metavar="FILE")
    ] = None,
    trust: TrustOptions,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Report how far anyone's predictions can be trusted."""
    from murmuration.audit import open_predictions
    from murmuration.cli.writers import writable

    path = writable(out, (".html", ".json"), force) if out else beside(Path(files[0]))
    wishes = trust.wishes()
    opened = [open_predictions(file, labels=labels, label=label, groups=group or (), task=task) for file in files]
    check_alike(opened)
    assessments = []
    with counting_bar("audit", as_json) as show:
        for turn, each in enumerate(opened):
            show(each.name, turn, len(opened))
            assessments.append(judged_with(each, wishes))
    conclude(path, assessments, as_json=as_json)


def beside(file: Path) -> Path:
    """Where the report goes when nobody says: next to the file, replacing an earlier one."""
    return file.with_name(f"{file.stem}-audit.html")


def check_alike(opened: list["Predictions"]) -> None:
    """Refuse files that cannot be compared: of other rows, or of one name."""
    from murmuration.audit import check_same_targets

    names = [each.name for each in opened]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Misuse(f"two files are named '{twice}': give each its own name, it stands in the table")
    for each in opened[1:]:
        check_same_targets(opened[0], each)


def judged_with(predictions: "Predictions", wishes: Any) -> "Assessment":
    from murmuration.audit import judged
    from murmuration.safeguards import check_wishes

    check_wishes(wishes, predictions.task)
    return judged(predictions, wishes)


def conclude(path: Path, assessments: list["Assessment"], *, as_json: bool) -> None:
    """Write the report, and print the record or tables and sentences that say the same."""
    from murmuration.cli.closing import show_scores, write_found
    from murmuration.reports.bridge import report_of, this_command
    from murmuration.reports.findings import differences
    from murmuration.runs import finite

    tests = differences(assessments)
    report = report_of(assessments, tests, command=this_command())
    record = finite(
        {
            "results": {each.name: each.to_json() for each in assessments},
            "tests": [test.to_json() for test in tests],
            "notes": list(report.notes),
            "report": str(path),
        }
    )
    write_found(path, record, report)
    if as_json:
        return say_json(record)
    show_scores(assessments)
    for note in report.notes:
        say(f"- {note}")
    say(f"report: {path}")
