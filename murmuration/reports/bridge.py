"""From ensembles and data to a report: the only way in for networks, predictions and examples."""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from murmuration.data import Data
from murmuration.data.preparation import TablePreparation
from murmuration.ensemble import Ensemble
from murmuration.evaluation import Assessment, Exam, assess
from murmuration.metrics import MEASURES
from murmuration.reports.entries import entry_of
from murmuration.reports.examples import doubtful_examples, uncertain_examples
from murmuration.reports.findings import Difference, differences, findings
from murmuration.reports.page import write_report
from murmuration.reports.records import DataCard, Report


def report(ensembles: Ensemble | Mapping[str, Ensemble], data: Data | Exam, path: str | os.PathLike[str]) -> Report:
    """The report on one ensemble, or on several by name, judged by the test split and written to an HTML file."""
    named = {ensembles.recipe.name: ensembles} if isinstance(ensembles, Ensemble) else ensembles
    made = report_of([assess(ensemble, data, name) for name, ensemble in named.items()])
    write_report(path, made)
    return made


def report_of(
    assessments: Sequence[Assessment], tests: Sequence[Difference] | None = None, *, command: str = ""
) -> Report:
    """The record of assessments in one exam; the examples are those that the best by NLL was least sure of."""
    exam = assessments[0].exam
    ranked = sorted(assessments, key=lambda each: float(each.scores["nll"]))
    leader, doubter = ranked[0], next((each for each in ranked if len(each.evaluation.agreement) > 1), ranked[0])
    names = ", ".join(each.name for each in assessments)
    manifest = manifest_of(leader)
    return Report(
        title=f"{names} on {Path(exam.name).name}",
        task=exam.task,
        data=card(exam),
        entries=tuple(entry_of(each) for each in assessments),
        examples=uncertain_examples(leader),
        examples_of=leader.name if len(assessments) > 1 else "",
        doubtful=doubtful_examples(doubter),
        doubtful_of=doubter.name if len(assessments) > 1 else "",
        notes=findings(assessments, differences(assessments) if tests is None else tests),
        directions={name: measure.better for name, measure in MEASURES[exam.task].items()},
        command=command or manifest.get("command", "") or this_command(),
        versions=manifest.get("versions", {}),
        seeds=sorted({seed for each in assessments for seed in seeds_of(manifest_of(each))}),
        date=time.strftime("%Y-%m-%d %H:%M %Z"),
    )


def card(exam: Exam) -> DataCard:
    """What the report says of the data."""
    targets = exam.preparation.targets if isinstance(exam.preparation, TablePreparation) else ()
    target = "" if exam.classes else ", ".join(targets)
    return DataCard(exam.name, exam.fingerprint, exam.sizes, exam.classes, target)


def manifest_of(assessment: Assessment) -> Mapping[str, Any]:
    """How the ensemble came to be; nothing is known of predictions that came in a file."""
    return assessment.ensemble.manifest if assessment.ensemble is not None else {}


def seeds_of(manifest: Mapping[str, Any]) -> list[int]:
    return [manifest["plan"]["seed"]] if "plan" in manifest else []


def this_command() -> str:
    """The command line of this process, as a shell would take it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
