"""The evaluation of one ensemble: the one record behind `metrics.json`, the screen and the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

import murmuration.evaluation.by_class as by_class
import murmuration.evaluation.coverage as coverages
import murmuration.evaluation.eval_set as eval_sets
from murmuration.data import Data, open_inputs
from murmuration.evaluation.baseline import IMBALANCED, BaselineScores, baseline_of
from murmuration.evaluation.coverage import AbstentionResult, SetCoverage, abstention_results, rows_by_class
from murmuration.evaluation.eval_set import EvalSet
from murmuration.evaluation.metrics import ExampleScores, Score, shown_in
from murmuration.evaluation.metrics.comparison import GroupScores
from murmuration.evaluation.metrics.scores import Place
from murmuration.evaluation.ood import OodResult, evaluate_ood, in_distribution
from murmuration.evaluation.shift import Progress, ShiftResult, ShiftSuite, evaluate_shift, no_progress, shift_suite
from murmuration.evaluation.weight_diagnosis import Diagnosis, diagnose
from murmuration.likelihoods import MULTI_LABEL
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc import FEWEST, PostHoc, to_json
from murmuration.runs.manifest import Manifest
from murmuration.system.errors import Misuse, described
from murmuration.system.progress import html_table
from murmuration.system.records import plain_json

INFINITE = Score(np.inf, np.nan, np.nan)  # the size of unbounded intervals

Shift = bool | Sequence[str] | ShiftSuite | None
Ood = Mapping[str, Any] | Sequence[Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The results of predictions on an evaluation set; reports read it directly.

    Attributes:
        name: Name of the ensemble in reports.
        eval_set: The evaluation set.
        examples: Scores of every example, after the calibrator where it is applied.
        scores: Scores of all examples, with intervals.
        cost: Seconds, parameters, ms_per_prediction and members.
        ensemble: The ensemble; None if the predictions came in a file.
        posthoc: Calibrator, conformal rules and abstention rules, fitted on other examples.
        calibrated: Whether the calibrator is applied.
        before: Scores of examples that no post-hoc step was fitted on, before the calibrator.
        after: The same after the calibrator, if there is one.
        subsets: Rows of `before` whose coverage is shown, by name.
        shift: Results under distribution shift.
        ood: Results of out-of-distribution detection.
        groups: Scores by group, for each column of groups.
        weights: Diagnosis of Gaussian weights.
        imbalance: Scores by frequency of the training classes, where these are imbalanced.
    """

    name: str
    eval_set: EvalSet
    examples: ExampleScores  # after the calibrator, where it is applied
    scores: dict[str, Score]  # of these
    cost: dict[str, float] = field(default_factory=dict)  # seconds, parameters, ms_per_prediction, members
    ensemble: Ensemble | None = None  # None: the predictions came in a file
    posthoc: PostHoc | None = None  # calibrator, conformal rules and abstention rules, fitted on other examples
    calibrated: bool = False  # whether the calibrator is applied
    before: ExampleScores | None = None  # of examples that no post-hoc step was fitted on, before the calibrator
    after: ExampleScores | None = None  # and after it, if there is one
    subsets: Mapping[str, np.ndarray] = field(default_factory=dict)  # rows of `before` whose coverage is looked at
    shift: ShiftResult | None = None
    ood: tuple[OodResult, ...] = ()
    groups: Mapping[str, list[GroupScores]] = field(default_factory=dict)  # column -> its groups
    weights: Diagnosis | None = None  # of Gaussian weights
    imbalance: by_class.ClassImbalance | None = None  # scores by frequency of imbalanced training classes

    def __repr__(self) -> str:
        return f"Evaluation({self.name!r} on {self.eval_set.name!r}: {self.examples.inputs} examples)"

    def _repr_html_(self) -> str:
        return html_table(repr(self), {name: repr(self.scores[name]) for name in self.shown_in("summary")})

    @property
    def task(self) -> Any:
        return self.eval_set.task

    @property
    def classes(self) -> tuple[str, ...]:
        return self.eval_set.classes

    @property
    def draws(self) -> int:
        """Predictions that each member makes for an input."""
        return self.ensemble.recipe.weights.draws if self.ensemble is not None else 1

    @property
    def predictions(self) -> int:
        """Predictions for an input that can differ: members times draws."""
        return len(self.examples.agreement)

    @property
    def manifest(self) -> Manifest:
        """How the ensemble came to be; empty for predictions from a file."""
        return self.ensemble.manifest if self.ensemble is not None else Manifest()

    @property
    def failures(self) -> dict[int, str]:
        """Members that failed during training -> what happened to them."""
        return {int(member): text for member, text in self.manifest.diverged.items()}

    @property
    def uncalibrated(self) -> ExampleScores:
        """The examples before the calibrator, which scores of members are compared with."""
        return self.before if self.calibrated and self.before is not None else self.examples

    @cached_property
    def member_scores(self) -> list[dict[str, float]]:
        """The scores of each member alone, before the calibrator; means over its draws, if it makes several."""
        return member_scores(self.examples, self.draws)

    @cached_property
    def baseline(self) -> BaselineScores:
        """Predictions without input, scored on the same examples."""
        return baseline_of(self)

    @property
    def imbalanced(self) -> bool:
        """Whether one class has so many more examples than another that accuracy says little."""
        return bool(self.classes) and self.baseline.imbalance >= IMBALANCED

    def shown_in(self, place: Place) -> list[str]:
        """Return the names of the scores that are shown in a place and exist, the most telling ones first.

        Args:
            place: One of `PLACES`, such as "summary".
        """
        names = shown_in(place, self.task, members=self.predictions, imbalanced=self.imbalanced)
        return [name for name in names if name in self.scores]

    @cached_property
    def confusion(self) -> np.ndarray:
        """The number of examples (K, K) by true class (rows) and predicted class (columns)."""
        return by_class.confusion_matrix(self.examples, len(self.classes))

    @cached_property
    def class_scores(self) -> tuple[by_class.ClassScores, ...]:
        """Precision, recall and F1 of every class; empty for a regression."""
        return by_class.class_scores(self.confusion, self.classes) if self.classes else ()

    @cached_property
    def class_uncertainty(self) -> tuple[by_class.ClassUncertainty, ...]:
        """Aleatoric and epistemic uncertainty of every true class; empty for a regression."""
        return by_class.uncertainty_by_class(self.examples, self.classes)

    @cached_property
    def coverage(self) -> list[SetCoverage]:
        """Coverage of the conformal sets: every method on all examples, the primary one by subset, and under shift."""
        if self.posthoc is None or self.before is None or not self.posthoc.conformal:
            return []
        groups = coverages.coverage_by_group(self.posthoc, self.before, self.subsets)
        results = [*coverages.set_coverage(self.posthoc, self.before), *groups]
        if self.shift is None:
            return results
        rule, examples = self.posthoc.conformal[0], self.shift.examples
        for severity, scores in self.shift.by_severity.items():
            if "set_coverage" in scores:
                name, size = f"corrupted, severity {severity}", scores.get("set_size", INFINITE)
                results.append(SetCoverage.of(rule, name, scores["set_coverage"], size, examples))
        return results

    @cached_property
    def abstention(self) -> list[AbstentionResult]:
        """What the abstention rules do."""
        scores = self.after or self.before
        return [] if self.posthoc is None or scores is None else abstention_results(self.posthoc, scores)

    def to_json(self) -> dict[str, Any]:
        """Return the record that `metrics.json` holds; numbers that are not finite are None."""
        eval_set = self.eval_set
        record = {
            "metrics": self.scores,
            "baseline": self.baseline,
            "cost": self.cost,
            "members": self.member_scores,
            "failures": {str(member): text for member, text in self.failures.items()},
            "data": {
                "name": eval_set.name,
                "task": eval_set.task,
                "examples": self.examples.inputs,
                "part": eval_set.part,
                "fingerprint": eval_set.fingerprint,
            },
            "classes": self.class_scores,
            "confusion": self.confusion.tolist() if self.classes else None,
            "calibration": self._calibration_json(),
            "conformal": self.coverage,
            "abstention": self.abstention,
            "shift": self.shift,
            "ood": self.ood,
            "groups": self.groups,
            "imbalance": self.imbalance,
            "uncertainty": {
                f"by_{kind}_class": by_class.uncertainty_by_class(self.examples, self.classes, column)
                for column, kind in (by_class.GROUPINGS if self.classes else {}).items()
            },
            "weights": self.weights,
        }
        return plain_json({key: value for key, value in record.items() if value})

    def _calibration_json(self) -> dict[str, Any] | None:
        if self.posthoc is None or self.posthoc.calibrator is None:
            return None
        views, choice = {"before": self.before, "after": self.after}, self.posthoc.choice
        return {
            "calibrator": {"name": self.posthoc.calibrator.name, **to_json(self.posthoc.calibrator)},
            "about": self.posthoc.calibrator.about,
            "choice": None if choice is None else {**to_json(choice), "about": choice.about},
            "applied": self.calibrated,
            **{key: view.scores() for key, view in views.items() if view is not None},
        }


def evaluate_ensemble(
    ensemble: Ensemble,
    data: Any,
    name: str | None = None,
    *,
    shift: Shift = None,
    ood: Ood = None,
    progress: Progress = no_progress,
) -> Evaluation:
    """Evaluate an ensemble on the test split of a data set, or on other labelled examples.

    Args:
        ensemble: The trained ensemble.
        data: A `Data`, an `EvalSet`, a split, a pair (x, y), a table with its target, or a path.
        name: Name of the evaluation; by default that of the recipe.
        shift: Corruptions: True for all that fit, a list of names, or a `ShiftSuite`.
        ood: Out-of-distribution inputs: sources that `open_data` takes, or inputs by name.
        progress: Callback (text, done, total) of the corruptions.

    Returns:
        The evaluation. An ensemble without post-hoc steps is scored as it is; their effect is still evaluated if there
        are validation examples to fit them on.

    Raises:
        Misuse: For multi-label predictions, or data without examples.

    >>> import murmuration as mm
    >>> data = mm.open_data("two-moons")
    >>> found = mm.evaluate(mm.fit("mlp", data, members=2, epochs=1), data)
    >>> found.scores["accuracy"] > 0.5, found.cost["members"]
    (True, 2)
    """
    if not isinstance(ensemble, Ensemble):
        raise Misuse(
            f"evaluate got {described(ensemble)} first: expected an ensemble; write mm.evaluate(ensemble, data)"
        )
    if ensemble.likelihood is not None and ensemble.likelihood.task == MULTI_LABEL:
        raise Misuse("a report on multi-label predictions: there is none; write mm.score(ensemble.predict(x), y)")
    eval_set = eval_sets.eval_set_for(ensemble, data)
    return evaluate_on(ensemble, eval_set, name, suite_of(shift, eval_set), ood_inputs(ood, eval_set), progress)


def evaluate_on(
    ensemble: Ensemble,
    eval_set: EvalSet,
    name: str | None,
    suite: ShiftSuite | None,
    foreign: Mapping[str, Tensor],
    progress: Progress,
) -> Evaluation:
    """Evaluate an ensemble on an evaluation set, under corruption and on OOD inputs.

    Args:
        ensemble: The trained ensemble.
        eval_set: The labelled examples.
        name: Name of the evaluation; by default that of the recipe.
        suite: The corruptions, if any.
        foreign: Prepared out-of-distribution inputs by name.
        progress: Callback (text, done, total) of the corruptions.

    Returns:
        The evaluation.

    Raises:
        Misuse: For corruptions or OOD inputs of out-of-fold predictions.
    """
    if eval_set.part == eval_sets.OUT_OF_FOLD and (suite is not None or foreign):
        inputs = "corruptions and out-of-distribution inputs of a run with folds and no test rows"
        hint = "evaluate it on other labelled rows"
        raise Misuse(f"{inputs}: most members have trained on its examples; {hint}")
    if eval_set.part in (eval_sets.VALIDATION, eval_sets.OUT_OF_FOLD):  # post-hoc steps were fitted on them
        ensemble = replace(ensemble, posthoc=None)
    posthoc = ensemble.posthoc
    if posthoc is None and eval_set.val is not None and len(eval_set.val) >= FEWEST:
        fitted = ensemble.fit_posthoc(eval_set.val).posthoc
        posthoc = None if fitted is None else replace(fitted, baseline=None)  # predictions are those of the members
    calibrated = ensemble.posthoc is not None and ensemble.posthoc.calibrator is not None
    counts, means = by_class.training_counts(ensemble), by_class.MeanProbabilities(posthoc if calibrated else None)
    chunks: Any = eval_sets.predict_split(ensemble, eval_set.split)
    if eval_set.predicted is not None:
        chunks = [(eval_set.predicted, eval_set.split.y)]
    result = eval_sets.score_predictions(means.kept(chunks) if counts else chunks, posthoc)
    examples, scores = result.view(calibrated), result.view(calibrated).scores()
    cost = eval_sets.cost_of(ensemble, eval_set.split.prepared)
    about = name or ensemble.recipe.name, eval_set, examples, scores, cost
    evaluation = Evaluation(*about, ensemble, posthoc, calibrated, weights=diagnose(ensemble, eval_set.split.prepared))
    if posthoc is not None:
        subsets = rows_by_class(result.uncalibrated, eval_set.classes)
        evaluation = replace(evaluation, before=result.uncalibrated, after=result.calibrated, subsets=subsets)
    if suite is not None:
        steps: dict[str, Any] = {"posthoc": posthoc, "calibrated": calibrated, "progress": progress}
        evaluation = replace(evaluation, shift=evaluate_shift(ensemble, eval_set, suite, **steps))
    if foreign:
        reference = in_distribution(ensemble, eval_set)
        detections = tuple(evaluate_ood(ensemble, reference, key, x) for key, x in foreign.items())
        evaluation = replace(evaluation, ood=detections)
    if counts:
        imbalance = by_class.class_imbalance(counts, examples, np.concatenate(means.parts))
        evaluation = replace(evaluation, imbalance=imbalance)
    return evaluation


def suite_of(shift: Shift, eval_set: EvalSet) -> ShiftSuite | None:
    """Return the suite of corruptions that `shift` asks for."""
    if shift is None or shift is False or isinstance(shift, ShiftSuite):
        return shift or None
    if isinstance(shift, str):
        raise Misuse(f"shift={shift!r}: expected True, a list of names, or a ShiftSuite")
    return shift_suite(eval_set, None if shift is True else shift)


def ood_inputs(ood: Ood, eval_set: EvalSet) -> dict[str, Tensor]:
    """Open and prepare out-of-distribution inputs.

    Args:
        ood: A list of sources, or sources by name.
        eval_set: The evaluation set whose preparation applies.

    Returns:
        Prepared inputs by name.

    Raises:
        Misuse: If a source does not fit, or is named twice.
    """
    if isinstance(ood, str):
        raise Misuse(f"ood={ood!r}: expected a list of sources, or sources by name")
    named: dict[str, Any] = dict(ood) if isinstance(ood, Mapping) else {}
    for source in () if ood is None or isinstance(ood, Mapping) else ood:
        name = source.name if isinstance(source, Data) else Path(str(source)).name or str(source)
        if name in named:
            raise Misuse(f"ood= names '{name}' twice: give each set once")
        named[name] = source
    opened = {}
    for name, source in named.items():
        try:
            opened[name] = open_inputs(source, preparation=eval_set.preparation, adapt=True)
        except Misuse as error:
            text = str(source) if isinstance(source, str | Path) else name
            raise error if f"'{text}" in str(error) else Misuse(f"ood='{text}': {error}") from None
    return opened


def member_scores(examples: ExampleScores, draws: int = 1) -> list[dict[str, float]]:
    """Return the scores of each member alone, in the members' order: means over its draws, which are neighbours."""
    columns = examples.columns
    if len(examples.agreement) == 1 < len(columns["member_log_prob"]):  # draws of one prediction are no members
        return []
    nll = -columns["member_log_prob"].mean(-1)  # (S,), as the others
    if examples.task == "classification":
        table = {"accuracy": columns["member_correct"].mean(-1), "nll": nll, "brier": columns["member_brier"].mean(-1)}
    else:
        table = {"rmse": np.sqrt(columns["member_squared_error"].mean(-1)), "nll": nll}
    means = zip(*(values.reshape(-1, draws).mean(1).tolist() for values in table.values()), strict=True)
    return [dict(zip(table, member, strict=True)) for member in means]
