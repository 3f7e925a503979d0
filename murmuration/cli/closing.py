"""What every training ends with: an evaluation on the test split, two files, and a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.cli.screen import say, say_json, say_table

if TYPE_CHECKING:
    from murmuration.cli.trust import Trial
    from murmuration.data import Data
    from murmuration.ensemble import Ensemble
    from murmuration.evaluation import Assessment, Exam
    from murmuration.metrics import Score
    from murmuration.reports import Report

METRICS, REPORT = "metrics.json", "report.html"


def close_run(path: Path, ensemble: "Ensemble", data: "Data", *, as_json: bool) -> None:
    """Evaluate a finished run on its own test split, and leave what was found."""
    from murmuration.evaluation import exam_of

    leave(path, judged(path, ensemble, exam_of(data)), as_json=as_json)


def leave(path: Path, found: tuple["Assessment", "Report", dict[str, Any]], *, as_json: bool) -> None:
    """Write what was found beside a run, and show it."""
    assessment, report, record = found
    write_found(path / METRICS, record, report)
    write_found(path / REPORT, record, report)
    show_found(assessment, report, record, as_json=as_json)
    if not as_json:
        say(f"report: {path / REPORT}")


def judged(
    path: Path, ensemble: "Ensemble", exam: "Exam", trial: "Trial | None" = None, *, quiet: bool = True
) -> tuple["Assessment", "Report", dict[str, Any]]:
    """The assessment of a run in an exam and a trial, the report on it, and its record in JSON."""
    from murmuration.cli.trust import Trial, tried
    from murmuration.evaluation import assess
    from murmuration.reports.bridge import report_of

    assessment = tried(assess(ensemble, exam), trial or Trial(), quiet=quiet)
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
    from murmuration.cli.trust import show_trials

    if as_json:
        return say_json(record)
    show_scores([assessment])
    show_trials([assessment])
    for note in report.notes:
        say(f"- {note}")


def show_scores(assessments: Sequence["Assessment"]) -> None:
    """All scores of one assessment in a table, or the main scores of several beside each other."""
    from murmuration.metrics import shown_in
    from murmuration.reports.wording import answers

    first, exam = assessments[0], assessments[0].exam
    count, of_file = first.evaluation.inputs, first.ensemble is None
    examples = counted(count, "row") if of_file else f"{counted(count, 'example')} of {exam.name}"
    if len(assessments) == 1:
        members = len(first.evaluation.agreement)
        title = f"{first.name}, {answers(members // first.draws, first.draws)}, {'' if of_file else 'on '}{examples}"
        alone = "a member alone" if first.draws == 1 else "a draw alone"
        columns = ["score", "value", "95 % interval", "better", *([alone] if members > 1 else [])]
        return say_table(columns, score_rows(first.scores, exam.task, members), title=title)
    names = shown_in("brief", exam.task)
    columns = ["", *(heading(name) for name in names), *(("members", "trained in") if first.cost else ())]
    say_table(columns, compared_rows(assessments, names), title=examples)


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def heading(name: str) -> str:
    """The label of a score, with an arrow that says which way is better."""
    from murmuration.reports.wording import ARROWS, meaning

    found = meaning(name)
    return f"{found.label} {ARROWS[found.better]}".strip()


def score_rows(scores: dict[str, "Score"], task: Any, members: int) -> list[list[str]]:
    """Rows of the table of scores: value, interval, and the mean of single members where there are several."""
    from murmuration.metrics import MEASURES
    from murmuration.reports.wording import ARROWS, meaning, number

    rows = []
    for name, score in scores.items():
        if name.startswith("member_") or (members == 1 and MEASURES[task][name].needs_members):
            continue
        alone, arrow = scores.get(f"member_{name}"), ARROWS.get(MEASURES[task][name].better, "")
        beside = [number(alone) if alone is not None else ""] if members > 1 else []
        rows.append([meaning(name).label, number(score), interval_text(score), arrow, *beside])
    return rows


def interval_text(score: "Score") -> str:
    """The two ends of a score's interval."""
    from murmuration.reports.wording import interval

    return interval((float(score), score.low, score.high))


def compared_rows(assessments: Sequence["Assessment"], names: Sequence[str]) -> list[list[str]]:
    """Rows of the table of several: scores with their intervals below, then costs where they are known."""
    from murmuration.reports.wording import duration, number

    return [
        [
            each.name,
            *(f"{number(each.scores[name])}\n{interval_text(each.scores[name])}" for name in names),
            *((f"{each.cost['members']:,}", duration(each.cost["seconds"])) if each.cost else ()),
        ]
        for each in assessments
    ]
