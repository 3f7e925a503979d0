"""`Report`: evaluations of several recipes on the same examples; `mm.report` and `mm.evaluate` write it to files."""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from murmuration.data.preparation import TablePreparation
from murmuration.evaluation import EvalSet, Evaluation, evaluate_ensemble
from murmuration.evaluation.baseline import BaselineScores
from murmuration.evaluation.record import Ood, Shift
from murmuration.evaluation.shift import Progress, no_progress
from murmuration.prediction.ensemble import Ensemble
from murmuration.reports.extension import report_sections
from murmuration.reports.findings import (
    Difference,
    against_nothing,
    differences,
    findings,
    quality,
    recommended,
    verdict,
)
from murmuration.reports.formatting import Words, words_of
from murmuration.reports.seeds import Seeds
from murmuration.runs.directory import EVALUATED, replace_files
from murmuration.system.errors import Misuse, described, notes_once
from murmuration.system.files import json_bytes, write_bytes
from murmuration.system.records import plain_json

METRICS, REPORT = EVALUATED


@dataclass(frozen=True, eq=False)
class Report:
    """Everything one HTML file shows: the evaluations, which its sections read directly, and where they come from."""

    evaluations: tuple[Evaluation, ...]
    differences: tuple[Difference, ...] = ()  # paired tests of every two recipes
    command: str = ""
    date: str = ""
    seeds: Seeds | None = (
        None  # scores of the same recipes with several training seeds, of which `evaluations` are the first
    )

    def __post_init__(self) -> None:
        names = self.names
        if not names:
            raise Misuse("a report without evaluations: give at least one")
        if repeated := sorted(name for name in names if names.count(name) > 1):
            raise Misuse(f"two evaluations are named '{repeated[0]}': give every one its own name")

    @property
    def task(self) -> Any:
        return self.evaluations[0].task

    @property
    def classes(self) -> tuple[str, ...]:
        return self.evaluations[0].classes

    @property
    def eval_set(self) -> EvalSet:
        return self.evaluations[0].eval_set

    @property
    def is_comparison(self) -> bool:
        """Whether there are several evaluations: what belongs to one of them opens on demand."""
        return len(self.evaluations) > 1

    @property
    def names(self) -> list[str]:
        """The names of the evaluations, in order."""
        return [evaluation.name for evaluation in self.evaluations]

    @property
    def baseline(self) -> BaselineScores:
        """Predictions without input, the same for all evaluations."""
        return self.leader.baseline

    @property
    def of_seed(self) -> str:
        """The first of several training seeds, that of `evaluations`, as the end of a title; empty with one seed."""
        return "" if self.seeds is None else self.seeds.of_first

    @property
    def words(self) -> Words:
        return words_of(self.eval_set)

    @property
    def title(self) -> str:
        if self.eval_set.audited:
            return f"Audit of {', '.join(e.name for e in self.evaluations)}"
        names = [" ".join([e.name, *(f"({s.mark})" for s in report_sections(e))]) for e in self.evaluations]
        return f"{', '.join(names)} on {Path(self.eval_set.name).name}"

    @property
    def target(self) -> str:
        """Names of the regression targets, where a table has them."""
        preparation = self.eval_set.preparation
        targets = preparation.targets if isinstance(preparation, TablePreparation) else ()
        return "" if self.classes else ", ".join(targets)

    @cached_property
    def leader(self) -> Evaluation:
        """The evaluation of the recipe that the verdict recommends, or that with the lowest NLL."""
        if self.seeds is not None:
            return next(evaluation for evaluation in self.evaluations if evaluation.name == self.seeds.leader)
        return recommended(self.evaluations, self.differences)

    @cached_property
    def verdict(self) -> tuple[str, ...]:
        """Which recipe to use and whether its lead is more than the noise of the examples, in sentences."""
        if self.seeds is None:
            return verdict(self.evaluations, self.differences)
        beside, first = against_nothing(self.leader, self.leader.name), f"Seed {self.seeds.seeds[0]}: "
        return *self.seeds.verdict, f"{first}{quality(self.leader)}", f"{first}{beside}"

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Findings on every evaluation and on the differences between them, in sentences."""
        return findings(self.evaluations, self.differences if self.seeds is None else ())

    @property
    def table(self) -> Any:
        """The scores and costs of every evaluation as a pandas DataFrame, one row per evaluation."""
        import pandas as pd

        rows = {
            e.name: {name: float(s) for name, s in e.scores.items() if not name.startswith("member_")} | e.cost
            for e in self.evaluations
        }
        return pd.DataFrame.from_dict(rows, orient="index")

    def to_json(self) -> dict[str, Any]:
        """Return the results, paired tests, verdict and findings as plain values."""
        record = {
            "results": {evaluation.name: evaluation for evaluation in self.evaluations},
            "baseline": self.baseline,
            "tests": self.differences,
            "verdict": self.verdict,
            "notes": self.notes,
        }
        return dict(plain_json(record if self.seeds is None else {**record, "seeds": self.seeds}))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as one self-contained HTML file, or its record if the name ends in .json.

        Args:
            path: The file to write.
        """
        write_results(Path(path), {**self.to_json(), "report": str(path)}, self)


def report_of(
    evaluations: Sequence[Evaluation],
    tests: Sequence[Difference] | None = None,
    *,
    command: str = "",
    seeds: Seeds | None = None,
) -> Report:
    """Collect evaluations of the same examples in a report.

    Args:
        evaluations: The evaluations.
        tests: Paired tests between them; computed by default.
        command: Command line to show; by default that of the run or of this process.
        seeds: Scores of the same recipes with several training seeds.

    Returns:
        The report.

    Raises:
        Misuse: If two evaluations have the same name.
    """
    paired = tuple(differences(evaluations) if tests is None else tests)
    command = command or evaluations[0].manifest.command or this_command()
    return Report(tuple(evaluations), paired, command, time.strftime("%Y-%m-%d %H:%M %Z"), seeds)


@notes_once
def report(
    source: Ensemble | Mapping[str, Ensemble] | Evaluation | Sequence[Evaluation],
    data: Any = None,
    path: str | os.PathLike[str] | None = None,
) -> Report:
    """Collect evaluations in a report, or evaluate ensembles on the test split first; write it as an HTML file.

    Args:
        source: An evaluation, a list of them, an ensemble, or ensembles by name.
        data: What `evaluate` takes, for ensembles.
        path: The HTML file to write; None writes none.

    Returns:
        The report with its evaluations, paired tests, verdict and findings.

    Raises:
        Misuse: If the data do not fit an ensemble, or evaluations come with data.
    """
    from murmuration.reports.page import write_report

    evaluations = [source] if isinstance(source, Evaluation) else source
    if isinstance(evaluations, Ensemble | Mapping):
        if data is None:
            raise Misuse("report of an ensemble without data: write mm.report(ensemble, data, 'report.html')")
        named = {evaluations.recipe.name: evaluations} if isinstance(evaluations, Ensemble) else evaluations
        evaluations = [evaluate_ensemble(ensemble, data, name) for name, ensemble in named.items()]
    elif data is not None:
        raise Misuse(
            "report of evaluations with data, which they have: write mm.report(evaluations, path='report.html')"
        )
    elif not isinstance(evaluations, Sequence) or not all(isinstance(item, Evaluation) for item in evaluations):
        raise Misuse(f"report of {described(source)}: expected ensembles, or evaluations (mm.evaluate)")
    result = report_of(evaluations)
    if path is not None:
        write_report(path, result)
    return result


@notes_once
def evaluate(
    ensemble: Ensemble,
    data: Any,
    *,
    shift: Shift = None,
    ood: Ood = None,
    out: str | os.PathLike[str] | None = None,
    name: str | None = None,
    progress: Progress = no_progress,
) -> Evaluation:
    """Evaluate an ensemble on labelled examples.

    Args:
        ensemble: The trained ensemble.
        data: What `fit` took: a `Data` (its test split), a split, a pair (x, y), a table with its target, or a path.
        shift: Evaluate under corruption too: True for all that fit, a list of names, or a `ShiftSuite`.
        ood: Out-of-distribution inputs to detect: a list of sources, or inputs by name.
        out: Directory for `metrics.json` and `report.html`.
        name: Name of the evaluation; by default that of the recipe.
        progress: Callback (text, done, total) of the corruptions.

    Returns:
        The evaluation: scores, calibration, conformal coverage, abstention, shift and OOD detection.

    Raises:
        Misuse: If the data do not fit the ensemble, or are multi-label.
    """
    evaluation = evaluate_ensemble(ensemble, data, name, shift=shift, ood=ood, progress=progress)
    if out is not None:
        result = report_of([evaluation])
        replace_files(Path(out), results_bytes(results_json(result, run=Path(out)), result))
    return evaluation


def results_json(made: Report, *, run: Path) -> dict[str, Any]:
    """Return the record that `metrics.json` holds."""
    evaluation = made.evaluations[0]
    sentences = {"verdict": list(made.verdict), "notes": list(made.notes)}
    added = {section.key: evaluation.manifest.entries[section.key] for section in report_sections(evaluation)}
    return {"run": str(run), "recipe": evaluation.name, **evaluation.to_json(), **sentences, **added}


def write_results(path: Path, record: dict[str, Any], made: Report) -> None:
    """Write the record (.json) or the page (.html), whole or not at all."""
    write_bytes(path, results_bytes(record, made)[METRICS if path.suffix == ".json" else REPORT])


def results_bytes(record: dict[str, Any], made: Report) -> dict[str, bytes]:
    """Return the contents of `metrics.json` and `report.html`."""
    from murmuration.reports.page import render

    return {METRICS: json_bytes(record), REPORT: render(made).encode()}


def this_command() -> str:
    """Return the command line of this process, as a shell would take it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
