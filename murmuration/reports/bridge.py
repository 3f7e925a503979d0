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
from murmuration.evaluation import EvalSet, Evaluation, evaluate_ensemble
from murmuration.metrics import MEASURES
from murmuration.reports.entries import entry_of
from murmuration.reports.examples import doubtful_examples, uncertain_examples
from murmuration.reports.findings import Difference, differences, findings
from murmuration.reports.page import write_report
from murmuration.reports.records import DataCard, Report


def report(ensembles: Ensemble | Mapping[str, Ensemble], data: Data | EvalSet, path: str | os.PathLike[str]) -> Report:
    """The report on one ensemble, or on several by name, judged by the test split and written to an HTML file."""
    named = {ensembles.recipe.name: ensembles} if isinstance(ensembles, Ensemble) else ensembles
    made = report_of([evaluate_ensemble(ensemble, data, name) for name, ensemble in named.items()])
    write_report(path, made)
    return made


def report_of(
    evaluations: Sequence[Evaluation], tests: Sequence[Difference] | None = None, *, command: str = ""
) -> Report:
    """The record of evaluations in one eval_set; the examples are those that the best by NLL was least sure of."""
    eval_set = evaluations[0].eval_set
    ranked = sorted(evaluations, key=lambda each: float(each.scores["nll"]))
    leader, doubter = ranked[0], next((each for each in ranked if len(each.examples.agreement) > 1), ranked[0])
    names = ", ".join(each.name for each in evaluations)
    manifest = manifest_of(leader)
    return Report(
        title=f"{names} on {Path(eval_set.name).name}",
        task=eval_set.task,
        data=card(eval_set),
        entries=tuple(entry_of(each) for each in evaluations),
        examples=uncertain_examples(leader),
        examples_of=leader.name if len(evaluations) > 1 else "",
        doubtful=doubtful_examples(doubter),
        doubtful_of=doubter.name if len(evaluations) > 1 else "",
        notes=findings(evaluations, differences(evaluations) if tests is None else tests),
        directions={name: measure.better for name, measure in MEASURES[eval_set.task].items()},
        command=command or manifest.get("command", "") or this_command(),
        versions=manifest.get("versions", {}),
        seeds=sorted({seed for each in evaluations for seed in seeds_of(manifest_of(each))}),
        date=time.strftime("%Y-%m-%d %H:%M %Z"),
    )


def card(eval_set: EvalSet) -> DataCard:
    """What the report says of the data."""
    targets = eval_set.preparation.targets if isinstance(eval_set.preparation, TablePreparation) else ()
    target = "" if eval_set.classes else ", ".join(targets)
    return DataCard(eval_set.name, eval_set.fingerprint, eval_set.sizes, eval_set.classes, target)


def manifest_of(evaluation: Evaluation) -> Mapping[str, Any]:
    """How the ensemble came to be; nothing is known of predictions that came in a file."""
    return evaluation.ensemble.manifest if evaluation.ensemble is not None else {}


def seeds_of(manifest: Mapping[str, Any]) -> list[int]:
    return [manifest["plan"]["seed"]] if "plan" in manifest else []


def this_command() -> str:
    """The command line of this process, as a shell would take it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
