"""From predictions made by anything to an assessment: what they are worth, and what would help."""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch

from murmuration.audit.predictions import Predictions
from murmuration.data import ArrayPreparation, Split, Task
from murmuration.evaluation import Assessment, Exam, Examined, examine
from murmuration.evaluation.promises import by_class
from murmuration.metrics import Evaluation, Score
from murmuration.metrics.groups import by_group, rows_by_group
from murmuration.posthoc import FEWEST, PostHoc, PostHocConfig, fit_posthoc

NOISE_OR_DOUBT = ("aleatoric_std", "epistemic_std", "rmse_fair", "crps_fair")
TAUGHT = 10_000  # rows, at most, that post-hoc steps are fitted on, and as many that they are tried on


@dataclass(frozen=True, eq=False)
class Tried:
    """Post-hoc steps that some rows taught, and how they do on others."""

    guard: PostHoc
    found: Examined
    rows: np.ndarray  # (n,) that they were tried on


def judged(predictions: Predictions, config: PostHocConfig | None = None) -> Assessment:
    """The assessment of predictions from a file: scores of all rows, and post-hoc steps fitted to one half of
    them and tried on the other."""
    evaluation = as_one(Evaluation.from_chunks(predictions.pairs()), predictions.form)
    groups = {column: by_group(evaluation, values) for column, values in predictions.groups.items()}
    tried = try_posthoc(predictions, config)
    return Assessment(
        predictions.name,
        exam_of_file(predictions),
        evaluation,
        scores_of(evaluation, predictions.form),
        guard=tried.guard if tried is not None else None,
        before=tried.found.plain if tried is not None else None,
        after=tried.found.guarded if tried is not None else None,
        parts=parts_of(predictions, tried) if tried is not None else {},
        groups=groups,
    )


def as_one(evaluation: Evaluation, form: str) -> Evaluation:
    """The evaluation with one member where the file held draws of y: they describe one prediction together."""
    return replace(evaluation, agreement=np.ones((1, 1))) if form == "samples" else evaluation


def scores_of(evaluation: Evaluation, form: str) -> dict[str, Score]:
    """The scores; draws of y cannot tell noise from doubt, so what would is left out for them."""
    found = evaluation.scores()
    split = [name for name in found if name.startswith("member_") or name in NOISE_OR_DOUBT]
    return {name: score for name, score in found.items() if form != "samples" or name not in split}


def exam_of_file(predictions: Predictions) -> Exam:
    """The exam that the rows of a file are: what was true is known, what was asked is not."""
    split = Split(torch.empty(predictions.rows, 0), torch.from_numpy(predictions.targets))
    nothing = ArrayPreparation((0,), (), ())
    sizes = {"rows": predictions.rows}
    return Exam(predictions.name, cast(Task, predictions.task), split, predictions.classes, nothing, sizes)


def try_posthoc(predictions: Predictions, config: PostHocConfig | None) -> Tried | None:
    """Post-hoc steps learned from random rows and tried on other random rows; None where there are too few."""
    if predictions.rows < 2 * FEWEST:
        return None
    order = np.random.default_rng(0).permutation(predictions.rows)
    count = min(TAUGHT, predictions.rows // 2)
    taught, tried = np.sort(order[:count]), np.sort(order[count : 2 * count])
    guard = fit_posthoc(predictions.rows_at(taught), predictions.targets[taught], config)
    return Tried(guard, examine([(predictions.rows_at(tried), predictions.targets[tried])], guard), tried)


def parts_of(predictions: Predictions, tried: Tried) -> dict[str, np.ndarray]:
    """The rows that post-hoc steps were tried on, by true class and by group."""
    found = by_class(tried.found.plain, predictions.classes)
    for column, values in predictions.groups.items():
        rows = rows_by_group(values[tried.rows].astype(str))
        found |= {f"{column} {value}": chosen for value, chosen in rows.items()}
    return found
