"""What an ensemble is worth when its inputs are corrupted: by corruption, by severity, and all together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from murmuration.data import Split, Task
from murmuration.ensemble import Ensemble
from murmuration.errors import Misuse, unknown
from murmuration.evaluation.corrupting import Corrupting
from murmuration.evaluation.examining import Examined, answers, examine
from murmuration.evaluation.exams import Exam
from murmuration.evaluation.grids import Table, sums_of
from murmuration.evaluation.promises import set_measures
from murmuration.metrics import Comparison, Evaluation, Measure, Score, shown_in
from murmuration.metrics.comparison import paired_sums
from murmuration.metrics.intervals import group_of
from murmuration.metrics.scores import measure_of
from murmuration.posthoc.fit import PostHoc

GROUPS = 2000  # of examples, at most: intervals are then off by 1/sqrt(2 * 2000) = 1.6 %

Scores = dict[str, Score]
Show = Callable[[str, int, int], None]  # what is being done, cells done, cells in all


def say_nothing(text: str, done: int, total: int) -> None:
    """A show for nobody."""


@dataclass(frozen=True)
class Cell:
    """Scores under one corruption at one severity."""

    corruption: str
    severity: int
    scores: Scores


@dataclass(frozen=True, eq=False, repr=False)
class ShiftFound:
    """Scores under corruptions of growing severity; a mean over cells weighs every corruption and severity alike."""

    corrupting: Corrupting
    examples: int
    clean: Scores  # severity 0: the scores without corruption
    cells: tuple[Cell, ...]
    by_type: dict[str, Scores]  # mean over severities
    by_severity: dict[int, Scores]  # mean over corruptions
    pooled: Scores  # mean over all cells
    worst: Mapping[str, Evaluation] = field(default_factory=dict)  # all corruptions at the last severity, by view
    sums: Mapping[str, np.ndarray] = field(default_factory=dict)  # (G, 1), means over cells: for paired tests

    @property
    def about(self) -> str:
        names, levels = len(self.by_type), len(self.by_severity)
        kinds = "corruption" if names == 1 else "corruptions"
        steps = "severity" if levels == 1 else "severities"
        things = "example" if self.examples == 1 else "examples"
        return f"{names} {kinds}, {levels} {steps}, {self.examples:,} {things}"

    def to_json(self) -> dict[str, Any]:
        return {
            "examples": self.examples,
            "seed": self.corrupting.seed,
            "source": self.corrupting.official or "generated",
            "clean": as_json(self.clean),
            "pooled": as_json(self.pooled),
            "by_severity": {str(severity): as_json(scores) for severity, scores in self.by_severity.items()},
            "by_type": {name: as_json(scores) for name, scores in self.by_type.items()},
            "cells": [
                {"corruption": cell.corruption, "severity": cell.severity, "scores": as_json(cell.scores)}
                for cell in self.cells
            ],
        }


def as_json(scores: Mapping[str, Score]) -> dict[str, Any]:
    return {name: score.to_json() for name, score in scores.items()}


def assess_shift(
    ensemble: Ensemble,
    exam: Exam,
    corrupting: Corrupting,
    *,
    guard: PostHoc | None = None,
    applied: bool = False,
    show: Show = say_nothing,
) -> ShiftFound:
    """The scores of an ensemble on the examples of an exam under every corruption and severity.

    With `applied` they are those after the guard's calibrator.
    """
    measures = measures_of(exam.task, guard)
    clean = examine(answers(ensemble, first_of(exam.split, corrupting.examples)), guard)
    groups = np.empty(0, dtype=np.int64)
    cells, worst = [], []
    for turn, (name, severity) in enumerate(corrupting.cells):
        show(f"{name} {severity}", turn, len(corrupting.cells))
        found = examine(answers(ensemble, corrupting.split(exam, name, severity)), guard)
        groups = group_of(found.plain.inputs, seed=0, most=GROUPS)  # official arrays have a number of their own
        cells.append(sums_of(found.view(applied), measures, groups))
        worst += [found] if severity == max(corrupting.severities) and guard is not None else []
    show("", len(corrupting.cells), len(corrupting.cells))
    shape = len(corrupting.names), len(corrupting.severities)
    table = Table(shape, measures, groups, cells)
    return tabulated(table, corrupting, clean.view(applied).scores(measures=measures), worst_views(worst))


def first_of(split: Split, count: int | None) -> Split:
    return Split(split.x[:count], split.y[:count])


def measures_of(task: Task, guard: PostHoc | None) -> dict[str, Measure]:
    """The scores that are followed under shift, those of the guard's sets among them."""
    own = {name: measure_of(name, task) for name in shown_in("shift", task)}
    return {**own, **(set_measures(guard, task) if guard is not None else {})}


def worst_views(found: Sequence[Examined]) -> dict[str, Evaluation]:
    """The evaluations of several passes as one, before and after the calibrator."""
    if not found:
        return {}
    return {
        "before": Evaluation.joined([each.plain for each in found]),
        "after": Evaluation.joined([each.view(True) for each in found]),
    }


def tabulated(table: Table, corrupting: Corrupting, clean: Scores, worst: Mapping[str, Evaluation]) -> ShiftFound:
    """The record of all scores of a table, and of their means."""
    grids = {name: table.grid(name) for name in table.measures}

    def means(*cells: Any) -> Scores:
        return {name: grid.mean(*cells) for name, grid in grids.items()}

    everything = slice(None)
    return ShiftFound(
        corrupting,
        len(table.groups),
        clean,
        tuple(
            Cell(name, severity, means(t, v))
            for t, name in enumerate(corrupting.names)
            for v, severity in enumerate(corrupting.severities)
        ),
        {name: means(t) for t, name in enumerate(corrupting.names)},
        {severity: means(everything, v) for v, severity in enumerate(corrupting.severities)},
        {**means(), **pooled_errors(table)},
        worst,
        {name: table.mean_sums(name) for name, measure in table.measures.items() if measure.is_mean},
    )


def pooled_errors(table: Table) -> Scores:
    """The calibration error of all corruptions' predictions together, one for each severity, and their mean.

    The other convention of the literature beside the mean over corruptions; errors of opposite sign cancel in it.
    """
    return {"ece_pooled": table.grid("ece", together=True).mean()} if "ece" in table.measures else {}


def paired_shift(a: ShiftFound, b: ShiftFound, name: str, task: Task) -> Comparison:
    """The difference a - b of a score's mean over all cells, and whether chance may explain it."""
    if a.corrupting != b.corrupting or a.examples != b.examples:
        raise Misuse(f"a is of {a.about}, b of {b.about}: expected the same corruptions of the same examples")
    if name not in a.sums or name not in b.sums:
        raise unknown("score of paired shift", name, sorted(set(a.sums) & set(b.sums)))
    return paired_sums(name, measure_of(name, task), a.sums[name], b.sums[name], inputs=a.examples)
