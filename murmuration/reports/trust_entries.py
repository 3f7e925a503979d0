"""What an evaluation found of trust, as the record a report shows of it."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from murmuration.data import ImagePreparation
from murmuration.data.shift.sheet import sheet
from murmuration.evaluation import AbstentionResult, Evaluation, OodResult, SetCoverage, ShiftResult
from murmuration.metrics import ExampleScores, Score, shown_in
from murmuration.metrics.groups import GroupScores
from murmuration.metrics.scores import Task
from murmuration.reports.curves import plain, reliability_of, triple
from murmuration.reports.measured import Histogram
from murmuration.reports.measured import Score as Triple
from murmuration.reports.trust_records import (
    Calibration,
    Detection,
    Foreign,
    Group,
    Recalibrated,
    Rule,
    Sets,
    Shift,
    ShiftPoint,
    Trust,
)

NONE = Score(np.nan, np.nan, np.nan)
RULES = {
    "cost": "least cost: an error {0:g}, abstaining {1:g}",
    "error-rate": "at most {0:.3g} of the answers wrong",
    "risk-control": "at most {0:.3g} of all inputs answered wrongly",
}


def trust_of(evaluation: Evaluation) -> Trust:
    """All that the evaluation found of trust."""
    return Trust(
        shift=shift_of(evaluation.shift, evaluation) if evaluation.shift is not None else None,
        foreign=tuple(foreign_of(each) for each in evaluation.ood),
        calibration=calibration_of(evaluation),
        sets=tuple(sets_of(each) for each in evaluation.coverage),
        rules=tuple(rule_of(each) for each in evaluation.abstention),
        groups=tuple(
            group_of(column, each, evaluation.eval_set.task)
            for column, found in evaluation.groups.items()
            for each in found
        ),
    )


def shift_of(found: ShiftResult, evaluation: Evaluation) -> Shift:
    """Scores under shift, with a sheet of one example under every corruption."""
    picture = sheet_of(found, evaluation)
    return Shift(
        about=found.description,
        clean=plain(found.clean),
        points=tuple(ShiftPoint(cell.corruption, cell.severity, plain(cell.scores)) for cell in found.cells),
        by_type={name: plain(scores) for name, scores in found.by_type.items()},
        pooled=plain(found.pooled),
        sheet=picture,
        by_severity={severity: plain(scores) for severity, scores in found.by_severity.items()},
        sheet_about="one test example: a row for every corruption, as it is and at every severity"
        if picture is not None
        else "",
    )


def sheet_of(found: ShiftResult, evaluation: Evaluation) -> np.ndarray | None:
    """One example under the corruptions that were used; None where inputs are not pictures, or came corrupted."""
    eval_set, suite = evaluation.eval_set, found.suite
    if not isinstance(eval_set.preparation, ImagePreparation) or suite.official is not None:
        return None
    if eval_set.preparation.shape[0] not in (1, 3):
        return None
    return sheet(eval_set.preparation.pixels_of(eval_set.split.x[:1]), names=suite.names, seed=suite.seed)


def foreign_of(found: OodResult) -> Foreign:
    """One foreign set."""
    detections = {
        name: Detection(triple(each.auroc), triple(each.aupr), triple(each.fpr95))
        for name, each in found.detections.items()
    }
    histograms = tuple(
        Histogram(name, edges, {"familiar": familiar, found.name: foreign})
        for name, (edges, familiar, foreign) in found.histograms.items()
    )
    return Foreign(found.name, found.examples, detections, histograms)


def calibration_of(evaluation: Evaluation) -> Calibration | None:
    """What the calibrator changes on the eval_set, and under the strongest corruptions."""
    posthoc, before, after = evaluation.posthoc, evaluation.before, evaluation.after
    if posthoc is None or posthoc.calibrator is None or before is None or after is None:
        return None
    changes = [recalibrated("test", before, after)]
    shift = evaluation.shift
    if shift is not None and shift.worst:
        where = f"all corruptions, severity {max(shift.suite.severities)}"
        changes.append(without_intervals(recalibrated(where, shift.worst["before"], shift.worst["after"])))
    return Calibration(
        method=posthoc.calibrator.name,
        about=posthoc.calibrator.about,
        fitted_on=posthoc.calibrator_examples,
        applied=evaluation.calibrated,
        changes=tuple(changes),
    )


def recalibrated(where: str, before: ExampleScores, after: ExampleScores) -> Recalibrated:
    """Scores and reliability of the same examples, without and with the calibrator."""
    scores = [
        plain({name: found[name] for name in shown_in("recalibration", before.task) if name in found})
        for found in (before.scores(), after.scores())
    ]
    return Recalibrated(
        where, scores[0], scores[1], *(reliability_of(each.columns, each.task) for each in (before, after))
    )


def without_intervals(found: Recalibrated) -> Recalibrated:
    """The same without intervals: they would take corrupted versions of one example for examples of their own."""

    def bare(scores: Mapping[str, Triple]) -> dict[str, Triple]:
        return {name: (value, np.nan, np.nan) for name, (value, _, _) in scores.items()}

    curves = [replace(curve, low=(), high=()) if curve is not None else None for curve in (found.before, found.after)]
    return Recalibrated(found.where, bare(found.scores_before), bare(found.scores_after), *curves)


def sets_of(found: SetCoverage) -> Sets:
    return Sets(
        found.method,
        found.nominal,
        found.subset,
        triple(found.coverage),
        triple(found.size),
        found.examples,
        found.verdict,
    )


def rule_of(found: AbstentionResult) -> Rule:
    """One rule for declining, named by what it aims at."""
    rule = found.rule
    return Rule(
        name=RULES[rule.name].format(*(rule.costs or (rule.target,))),
        uncertainty=rule.uncertainty,
        threshold=rule.threshold,
        answered=triple(found.answered),
        risk=triple(found.risk),
        cost=triple(found.cost or NONE),
        where=found.subset,
        note=rule.guarantee,
    )


def group_of(column: str, found: GroupScores, task: Task) -> Group:
    scores = plain({name: found.scores[name] for name in shown_in("brief", task) if name in found.scores})
    note = "worse than the rest by more than chance explains" if found.worse else ""
    return Group(column, found.value, found.examples, scores, note)
