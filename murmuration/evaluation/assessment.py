"""All that is known of one ensemble after an exam: the record behind `metrics.json` and the report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from murmuration.data import Data
from murmuration.ensemble import Ensemble
from murmuration.evaluation.costs import cost_of
from murmuration.evaluation.doubts import ClassDoubt, doubts_by_class, doubts_json
from murmuration.evaluation.examining import answers, examine
from murmuration.evaluation.exams import Exam, exam_of
from murmuration.evaluation.foreign import ForeignFound
from murmuration.evaluation.promises import TEST, RuleFound, SetsFound, by_class, rules_found, sets_by_group, sets_found
from murmuration.evaluation.shift import ShiftFound, as_json
from murmuration.evaluation.weight_diagnosis import Diagnosis, diagnose
from murmuration.metrics import Evaluation, Score
from murmuration.metrics.groups import GroupScores
from murmuration.posthoc import FEWEST, PostHoc, to_json
from murmuration.runs import finite

ENDLESS = Score(np.inf, np.nan, np.nan)  # the size of intervals without ends


@dataclass(frozen=True, eq=False, repr=False)
class Assessment:
    """How predictions did in an exam, and what is known of how far to trust them."""

    name: str
    exam: Exam
    evaluation: Evaluation
    scores: dict[str, Score]
    cost: dict[str, float] = field(default_factory=dict)  # seconds, parameters, ms_per_prediction, members
    ensemble: Ensemble | None = None  # None: the predictions came in a file
    guard: PostHoc | None = None  # what other examples taught
    applied: bool = False  # whether the scores are those after the guard's calibrator
    before: Evaluation | None = None  # of examples that taught the guard nothing, without the calibrator
    after: Evaluation | None = None  # and with it, if there is one
    parts: Mapping[str, np.ndarray] = field(default_factory=dict)  # rows of those examples whose sets are looked at
    shift: ShiftFound | None = None
    foreign: tuple[ForeignFound, ...] = ()
    groups: Mapping[str, list[GroupScores]] = field(default_factory=dict)  # column -> its groups
    weights: Diagnosis | None = None  # what became of weights that are distributions

    def __repr__(self) -> str:
        return f"Assessment({self.name!r} on {self.exam.name!r}: {self.evaluation.inputs} examples)"

    @property
    def trouble(self) -> dict[int, str]:
        """Members that fell during training -> what happened to them."""
        manifest = self.ensemble.manifest if self.ensemble is not None else {}
        return {int(member): text for member, text in manifest.get("trouble", {}).items()}

    @property
    def draws(self) -> int:
        """How often each member answered."""
        return self.ensemble.recipe.weighs.draws if self.ensemble is not None else 1

    @property
    def members(self) -> list[dict[str, float]]:
        """The scores of each member alone; of one that answers several times, their mean."""
        return member_scores(self.evaluation, self.draws)

    @property
    def doubts(self) -> tuple[ClassDoubt, ...]:
        """How unsure the ensemble is of the examples of every class, and why."""
        return doubts_by_class(self.evaluation, self.exam.classes)

    @property
    def sets(self) -> list[SetsFound]:
        """How the promised sets did: every method on all examples, the chosen one by class, and under shift."""
        if self.guard is None or self.before is None or not self.guard.conformal:
            return []
        groups = sets_by_group(self.guard, self.before, self.parts)
        return [*sets_found(self.guard, self.before, TEST), *groups, *self._sets_under_shift()]

    def _sets_under_shift(self) -> list[SetsFound]:
        if self.shift is None or self.guard is None:
            return []
        rule = self.guard.conformal[0]
        return [
            SetsFound(
                rule.method,
                rule.coverage,
                f"corrupted, severity {severity}",
                scores["set_coverage"],
                scores.get("set_size", ENDLESS),
                self.shift.examples,
                rule.examples,
            )
            for severity, scores in self.shift.by_severity.items()
            if "set_coverage" in scores
        ]

    @property
    def rules(self) -> list[RuleFound]:
        """What the rules for declining do."""
        judge = self.after or self.before
        return rules_found(self.guard, judge) if self.guard is not None and judge is not None else []

    def to_json(self) -> dict[str, Any]:
        """The record that `metrics.json` holds; numbers that are not finite are None."""
        exam = self.exam
        record = {
            "metrics": as_json(self.scores),
            "cost": self.cost,
            "members": self.members,
            "trouble": {str(member): text for member, text in self.trouble.items()},
            "data": {
                "name": exam.name,
                "task": exam.task,
                "examples": self.evaluation.inputs,
                "fingerprint": exam.fingerprint,
            },
            "calibration": self._calibration_json(),
            "sets": [each.to_json() for each in self.sets],
            "declining": [each.to_json() for each in self.rules],
            "shift": self.shift.to_json() if self.shift is not None else None,
            "ood": [each.to_json() for each in self.foreign],
            "groups": {name: [each.to_json() for each in found] for name, found in self.groups.items()},
            "uncertainty": doubts_json(self.evaluation, self.exam.classes),
            "weights": self.weights.to_json() if self.weights is not None else None,
        }
        return finite({key: value for key, value in record.items() if value not in (None, [], {})})

    def _calibration_json(self) -> dict[str, Any] | None:
        if self.guard is None or self.guard.calibrator is None:
            return None
        views = {"before": self.before, "after": self.after}
        return {
            "calibrator": {"name": self.guard.calibrator.name, **to_json(self.guard.calibrator)},
            "about": self.guard.calibrator.about,
            "applied": self.applied,
            **{key: as_json(view.scores()) for key, view in views.items() if view is not None},
        }


def assess(ensemble: Ensemble, data: Data | Exam, name: str | None = None) -> Assessment:
    """The assessment of an ensemble on a data set's test split, or on any exam; predictions are used up as they come.

    An ensemble without post-hoc steps is scored as it is; what they would do is still found out, where there are
    validation examples to fit them on.

    >>> import murmuration as mm
    >>> data = mm.open_data("two-moons")
    >>> found = assess(mm.fit("mlp", data, members=2, epochs=1), data)
    >>> found.scores["accuracy"] > 0.5, found.cost["members"]
    (True, 2)
    """
    exam = exam_of(data) if isinstance(data, Data) else data
    guard = ensemble.posthoc or guard_of(ensemble, exam)
    applied = ensemble.posthoc is not None and ensemble.posthoc.calibrator is not None
    found = examine(answers(ensemble, exam.split), guard)
    evaluation = found.view(applied)
    return Assessment(
        name or ensemble.recipe.name,
        exam,
        evaluation,
        evaluation.scores(),
        cost_of(ensemble, exam.split.x),
        ensemble,
        guard,
        applied,
        found.plain if guard is not None else None,
        found.guarded,
        by_class(found.plain, exam.classes) if guard is not None else {},
        weights=diagnose(ensemble, exam.split.x),
    )


def guard_of(ensemble: Ensemble, exam: Exam) -> PostHoc | None:
    """The post-hoc steps that the exam's validation examples would teach the ensemble, if there are enough of them."""
    if exam.val is None or len(exam.val) < FEWEST:
        return None
    return ensemble.fit_posthoc(exam.val.x, exam.val.y).posthoc


def member_scores(evaluation: Evaluation, draws: int = 1) -> list[dict[str, float]]:
    """The scores of each member alone, in the members' order: means over its draws, which are neighbours."""
    columns = evaluation.columns
    if len(evaluation.agreement) == 1 < len(columns["member_log_prob"]):  # draws of one prediction are no members
        return []
    table = {"nll": -columns["member_log_prob"].mean(-1)}  # each (S,)
    if evaluation.task == "classification":
        table = {"accuracy": columns["member_correct"].mean(-1), **table, "brier": columns["member_brier"].mean(-1)}
    else:
        table = {"rmse": np.sqrt(columns["member_squared_error"].mean(-1)), **table}
    means = {name: values.reshape(-1, draws).mean(1) for name, values in table.items()}
    return [{name: float(values[i]) for name, values in means.items()} for i in range(len(means["nll"]))]
