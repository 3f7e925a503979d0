"""What every training ends with: an evaluation on the test split, two files, and a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.cli.screen import say, say_json, say_table

if TYPE_CHECKING:
    from murmuration.data import Data
    from murmuration.ensemble import Ensemble
    from murmuration.evaluation import Assessment, Exam
    from murmuration.metrics import Score
    from murmuration.reports import Report

METRICS, REPORT = "metrics.json", "report.html"


def close_run(path: Path, ensemble: "Ensemble", data: "Data", *, as_json: bool) -> None:
    """Evaluate a finished run on its own test split, write what was found beside it, and show it."""
    from murmuration.evaluation import exam_of

    assessment, report, record = judged(path, ensemble, exam_of(data))
    write_found(path / METRICS, record, report)
    write_found(path / REPORT, record, report)
    show_found(assessment, report, record, as_json=as_json)
    if not as_json:
        say(f"report: {path / REPORT}")


def judged(path: Path, ensemble: "Ensemble", exam: "Exam") -> tuple["Assessment", "Report", dict[str, Any]]:
    """The assessment of a run in an exam, the report on it, and its record in JSON."""
    from murmuration.evaluation import assess
    from murmuration.reports.bridge import report_of

    assessment = assess(ensemble, exam)
    report = report_of([assessment])
    record = {"run": str(path), "recipe": assessment.name, **assessment.to_json(), "notes": list(report.notes)}
    return assessment, report, record


def write_found(path: Path, record: dict[str, Any], report: "Report") -> None:
    """Write the record (.json) or the page (.html), whole or not at all."""
    from murmuration.reports import render
    from murmuration.runs import write_bytes, write_json

    if path.suffix == ".json":
        write_json(path, record)
    else:
        write_bytes(path, render(report).encode())


def show_found(assessment: "Assessment", report: "Report", record: dict[str, Any], *, as_json: bool) -> None:
    """Print the record, or tables and sentences that say the same."""
    if as_json:
        return say_json(record)
    exam = assessment.exam
    title = f"{assessment.name}, {assessment.ensemble.members} members, on {len(exam.split)} examples of {exam.name}"
    columns = ["score", "ensemble", "95 % interval", "a member alone", "better"]
    say_table(columns, score_rows(assessment.scores, exam.task), title=title)
    for note in report.notes:
        say(f"- {note}")


def score_rows(scores: dict[str, "Score"], task: Any) -> list[list[str]]:
    """Rows of the table of scores: value, interval, and the mean of single members where it is known."""
    from murmuration.metrics import SCORES
    from murmuration.reports.wording import ARROWS, meaning, number

    rows = []
    for name, score in scores.items():
        if name.startswith("member_"):
            continue
        alone = scores.get(f"member_{name}")
        better = SCORES[task][name].better
        arrow = ARROWS.get(better, "")
        rows.append(
            [
                meaning(name).label,
                number(score),
                interval_text(score),
                number(alone) if alone is not None else "",
                arrow,
            ]
        )
    return rows


def interval_text(score: "Score") -> str:
    """The two ends of a score's interval."""
    from murmuration.reports.wording import interval

    return interval((float(score), score.low, score.high))


def compared_rows(assessments: Sequence["Assessment"], names: Sequence[str]) -> list[list[str]]:
    """Rows of the table of recipes: scores with their intervals below, then costs."""
    from murmuration.reports.wording import duration, number

    return [
        [
            each.name,
            *(f"{number(each.scores[name])}\n{interval_text(each.scores[name])}" for name in names),
            f"{each.cost['members']:,}",
            duration(each.cost["seconds"]),
        ]
        for each in assessments
    ]
