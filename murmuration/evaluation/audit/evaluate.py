"""Evaluation of predictions from a file: scores of all rows, and post-hoc steps fitted on one half of them."""

from dataclasses import replace
from typing import cast

import numpy as np
import torch

from murmuration.data import ArrayPreparation, Split, Task
from murmuration.evaluation import EvalSet, Evaluation, score_predictions
from murmuration.evaluation.audit.predictions import Predictions
from murmuration.evaluation.coverage import rows_by_class
from murmuration.evaluation.metrics import ExampleScores
from murmuration.evaluation.metrics.groups import by_group, rows_by_group
from murmuration.prediction.posthoc import FEWEST, PostHocConfig, fit_posthoc

DECOMPOSITION = ("aleatoric_std", "epistemic_std", "rmse_fair", "crps_fair")  # undefined for samples of y
MOST_ROWS = 10_000  # that post-hoc steps are fitted on, and as many that they are evaluated on


def evaluate_predictions(predictions: Predictions, config: PostHocConfig | None = None) -> Evaluation:
    """Evaluate predictions of any model.

    Args:
        predictions: The predictions with their targets.
        config: Settings of calibration, conformal sets and abstention.

    Returns:
        Scores of all rows and groups. Post-hoc steps are fitted on random rows and evaluated on others; with fewer than
        40 rows there are none.
    """
    examples = ExampleScores.from_chunks(predictions.pairs())
    scores = examples.scores()
    if predictions.form == "samples":  # of y: one model, and noise cannot be told from disagreement
        examples = replace(examples, agreement=np.ones((1, 1)))
        unsplit = {name: score for name, score in examples.scores().items() if name not in DECOMPOSITION}
        scores = {name: score for name, score in unsplit.items() if not name.startswith("member_")}
    groups = {column: by_group(examples, values) for column, values in predictions.groups.items()}
    evaluation = Evaluation(predictions.name, eval_set(predictions), examples, scores, groups=groups)
    if predictions.rows < 2 * FEWEST:
        return evaluation
    count = min(MOST_ROWS, predictions.rows // 2)
    order = np.random.default_rng(0).permutation(predictions.rows)
    fitted, tested = np.sort(order[:count]), np.sort(order[count : 2 * count])
    posthoc = fit_posthoc(predictions.rows_at(fitted), predictions.targets[fitted], config)
    result = score_predictions([(predictions.rows_at(tested), predictions.targets[tested])], posthoc)
    subsets = rows_by_class(result.uncalibrated, predictions.classes) | rows_of_groups(predictions, tested)
    return replace(evaluation, posthoc=posthoc, before=result.uncalibrated, after=result.calibrated, subsets=subsets)


def eval_set(predictions: Predictions) -> EvalSet:
    """Return the evaluation set of a file: its targets, without inputs."""
    split = Split(torch.empty(predictions.rows, 0), torch.from_numpy(predictions.targets))
    nothing, task = ArrayPreparation((0,), (), ()), cast(Task, predictions.task)
    sizes = {"rows": predictions.rows}
    return EvalSet(predictions.name, task, split, predictions.classes, nothing, sizes, audited=True)


def rows_of_groups(predictions: Predictions, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the positions of each group among the rows (n,), by column and value."""
    return {
        f"{column} {value}": members
        for column, values in predictions.groups.items()
        for value, members in rows_by_group(values[rows].astype(str)).items()
    }
