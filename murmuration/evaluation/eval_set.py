"""The labelled examples an ensemble is evaluated on, and one pass of predictions over them."""

import math
import timeit
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from murmuration.data import Data, Preparation, Split, Task
from murmuration.data.preparation import unchanged
from murmuration.data.streamed import Streamed
from murmuration.evaluation.metrics import ExampleScores
from murmuration.evaluation.metrics.example_scores import ScoreAccumulator
from murmuration.likelihoods import CLASSIFICATION
from murmuration.prediction.ensemble import Ensemble, stream_size
from murmuration.prediction.posthoc import PostHoc
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse
from murmuration.training.folds import out_of_fold

TIMED = 1000  # inputs whose prediction is timed, at most


@dataclass(frozen=True)
class EvalSet:
    """Labelled examples, with what it takes to show them to a reader and to fit post-hoc steps.

    Attributes:
        name: Name of the set in reports.
        task: "classification", "regression" or "multi-label".
        split: The examples.
        classes: Names of the classes; empty for regression.
        preparation: Preparation of raw inputs.
        sizes: Number of examples by part of the data.
        fingerprint: Fingerprint of the data.
        train: The training examples, where they are at hand.
        val: Examples to fit post-hoc steps on, where they are at hand.
        audited: Whether the examples are rows of a file of predictions: one half fits post-hoc steps, the other
            evaluates them.
        part: Part of the data; where no rows test validation or out-of-fold, and scores are before calibration.
        predicted: Predictions of the examples in order, before any calibrator; None: by the ensemble.
    """

    name: str
    task: Task
    split: Split
    classes: tuple[str, ...]  # empty for regression
    preparation: Preparation
    sizes: Mapping[str, int] = field(default_factory=dict)  # part -> number of examples
    fingerprint: str = ""
    train: Split | None = None  # the training examples, where they are at hand
    val: Split | None = None  # examples to fit post-hoc steps on, where they are at hand
    audited: bool = False  # rows of a file of predictions: one half fits post-hoc steps, the other evaluates them
    part: str = "test"  # of the data; where no rows test validation or out-of-fold, and scores are before calibration
    predicted: Predictive | None = None  # of the examples in order, before any calibrator; None: by the ensemble


VALIDATION, OUT_OF_FOLD = "validation", "out-of-fold"


def eval_set_of(data: Data, *, validation: bool = False) -> EvalSet:
    """Return the test split of a data set as an evaluation set.

    Args:
        data: The data set.
        validation: Use the validation examples of a data set without test examples. Training may have stopped on them
            and the calibrator is fitted on them, so they are evaluated without post-hoc steps.

    Returns:
        The evaluation set.

    Raises:
        Misuse: If there are no examples to evaluate on.
    """
    if validation and not len(data.test) and len(data.val):
        eval_set = eval_set_of(replace(data, test=data.val))
        return replace(eval_set, sizes={**eval_set.sizes, "test": 0}, val=None, part=VALIDATION)
    if not len(data.test):
        raise Misuse(f"{data.name} has no test examples: evaluate on (x, y) or other data, or open it with test=0.2")
    about = data.name, data.task, data.test, data.classes, data.preparation
    sizes = {part: len(getattr(data, part)) for part in ("train", "val", "test")}
    train = None if isinstance(data.train.prepared, Streamed) else data.train
    return EvalSet(*about, sizes, data.fingerprint, train, data.val)


def held_out_set(ensemble: Ensemble, data: Data) -> EvalSet:
    """Return the held-out examples of a run.

    Args:
        ensemble: The trained ensemble.
        data: The data that it was trained on.

    Returns:
        Its test split; without one its validation examples or, for a run with folds, all examples with out-of-fold
        predictions: all but one of the folds have trained on any validation example.
    """
    if not ensemble.manifest.folds:
        return eval_set_of(data, validation=True)
    if len(data.test):
        return replace(eval_set_of(data), val=None)
    predicted, examples = out_of_fold(ensemble, data)
    eval_set = eval_set_of(replace(data, test=examples))
    return replace(eval_set, sizes={**eval_set.sizes, "test": 0}, val=None, part=OUT_OF_FOLD, predicted=predicted)


def eval_set_for(ensemble: Ensemble, data: Any, target: str | tuple[str, ...] | None = None) -> EvalSet:
    """Open labelled examples, prepared as the training examples of an ensemble were.

    Args:
        ensemble: The trained ensemble.
        data: An `EvalSet`, a `Data` (its test split), a split, a pair (x, y), a table with its target, or a path.
        target: Target columns of a table; by default those of training.

    Returns:
        The evaluation set.

    Raises:
        Misuse: If there are no examples.
    """
    if isinstance(data, EvalSet):
        return data
    if isinstance(data, Data):
        eval_set = eval_set_of(data)
        if ensemble.preparation is None or data.preparation == ensemble.preparation:
            return eval_set
        return replace(eval_set, split=ensemble.labelled(data), preparation=ensemble.preparation, train=None, val=None)
    split = ensemble.labelled(data, target=target)
    if not len(split):
        raise Misuse("no examples to evaluate on: expected at least one")
    name = str(data) if isinstance(data, str | Path) else "examples"
    if ensemble.preparation is None:  # networks trained elsewhere
        likelihood = ensemble.predict(split.prepared[:1], prepared=True).likelihood
        labels = tuple(map(str, range(likelihood.width))) if likelihood.task == CLASSIFICATION else ()
        task: Task = cast(Task, likelihood.task)
        preparation: Preparation = unchanged(split.prepared[:1])
    else:
        record, preparation = ensemble.manifest.data, ensemble.preparation
        task, labels = record["task"], tuple(record["classes"])
    return EvalSet(name, task, split, labels, preparation, {"test": len(split)})


@dataclass(frozen=True, eq=False)
class EvalResult:
    """Per-example scores of predictions before and after the calibrator.

    With post-hoc steps, the columns of both also hold for each example whether it lies in each conformal set, the
    size of that set, and whether each abstention rule answers: all three after the calibrator.
    """

    uncalibrated: ExampleScores
    calibrated: ExampleScores | None = None  # None where there is no calibrator

    def view(self, calibrated: bool) -> ExampleScores:
        """Return the scores after the calibrator if that is asked for and there is one, else those before it."""
        return self.calibrated if calibrated and self.calibrated is not None else self.uncalibrated


def score_predictions(chunks: Iterable[tuple[Predictive, Any]], posthoc: PostHoc | None = None) -> EvalResult:
    """Score predictions that come one chunk after another and are not kept.

    Args:
        chunks: Pairs (predictive, y).
        posthoc: Post-hoc steps to apply.

    Returns:
        Per-example scores before and after the calibrator.
    """
    before, after = ScoreAccumulator(), ScoreAccumulator()
    for pred, y in chunks:
        if posthoc is None:
            before.add(pred, y)
            continue
        changed = posthoc.calibrated(pred)
        final = posthoc.widened(changed)
        columns = posthoc.per_example(final, y, first=before.inputs)
        before.add(final if changed is pred else pred, y, columns)
        if changed is not pred:
            after.add(final, y, columns)
    return EvalResult(before.result(), after.result() if after.inputs else None)


def predict_split(ensemble: Ensemble, split: Split) -> Iterator[tuple[Predictive, Tensor]]:
    """Yield pairs (predictive, y) of a few examples at a time, in order, before any calibrator."""
    targets = split.y.split(stream_size(split.prepared))
    yield from zip(ensemble.stream(split.prepared, calibrated=False, prepared=True), targets, strict=True)


def cost_of(ensemble: Ensemble, x: Tensor) -> dict[str, float]:
    """Return the costs of an ensemble.

    Args:
        ensemble: The trained ensemble.
        x: Inputs (N, ...) whose prediction is timed.

    Returns:
        Training seconds by the clock and of the CPU, stored parameters, milliseconds per prediction, and members.
    """
    timed = x[: min(TIMED, stream_size(x))]
    seconds = min(timeit.repeat(lambda: ensemble.predict(timed, prepared=True), repeat=2, number=1))
    return {
        "seconds": ensemble.manifest.seconds or math.nan,
        "cpu_seconds": ensemble.manifest.cpu_seconds or math.nan,
        "parameters": sum(group.population.parameters_stored() for group in ensemble.groups) or math.nan,
        "ms_per_prediction": 1e3 * seconds / len(timed),
        "members": ensemble.members,
    }
