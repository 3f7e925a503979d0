"""Uncertainty along training: what draws of a network disagree about, checkpoint by checkpoint.

For every checkpoint of a trajectory the whole state of the members is read, standard deviations of Gaussian weights
included, and predictions are made by draws as at the end of training. Uncertainty of a classification is the trace of
the covariance of the label (Kwon et al. 2020), within draws (aleatoric) and between them (epistemic); of a regression
the variance, summed over targets.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from murmuration.data import Split
from murmuration.evaluation.metrics import MEASURES, score_examples
from murmuration.evaluation.weight_diagnosis import diagnose
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.predictive import Predictive
from murmuration.studies.cells import Cells
from murmuration.studies.landscape import Result, Show, digest, silent
from murmuration.studies.trajectory import Trajectory
from murmuration.studies.verdicts import Estimate, Verdict, crossed_interval
from murmuration.system.errors import Misuse

Array = NDArray[np.float64]
KINDS = ("aleatoric", "epistemic")
SCORE = {"classification": "accuracy", "multi-label": "accuracy", "regression": "rmse"}


@dataclass(frozen=True, eq=False)
class UncertaintyPath(Result):
    """Uncertainty, scores and weights at C checkpoints, the initial weights first."""

    epoch: Array  # (C,)
    score: str  # accuracy, or rmse of a regression
    train_score: Array  # (C,)
    test_score: Array  # (C,)
    nll: Array  # (C,), of the test examples
    aleatoric: Array  # (C,), mean over test examples
    epistemic: Array  # (C,)
    kl: Array  # (C,), nats of a member; NaN without Gaussian weights
    median_std: Array  # (C,)
    median_snr: Array  # (C,), of |mean| / std
    ends: Mapping[str, Array]  # kind -> (2, N), uncertainty of each test example at the first checkpoint and the last
    DERIVED = ("verdicts",)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_json().items() if name != "ends"}

    def frame(self) -> pd.DataFrame:
        """Return one row for each checkpoint."""
        names = ("epoch", "train_score", "test_score", "nll", *KINDS, "kl", "median_std", "median_snr")
        return pd.DataFrame({name: getattr(self, name) for name in names})

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return fall_verdicts([self])


def fall_verdicts(paths: list[UncertaintyPath]) -> tuple[Verdict, ...]:
    """Return whether uncertainty is lower at the end than after the first checkpoint, over runs and test examples."""
    runs = f"{len(paths)} runs and " if len(paths) > 1 else ""
    estimates = []
    for kind in KINDS:
        changes = np.stack([path.ends[kind][1] - path.ends[kind][0] for path in paths])  # (R, N)
        what = f"{kind} uncertainty, last checkpoint less first"
        over = f"{runs}{changes.shape[1]:,} examples"
        estimates.append(Estimate(what, *crossed_interval(changes), -math.inf, 0, over))
    gains = [float(path.train_score[-1] - path.train_score[1]) for path in paths]
    note = f"meanwhile the {paths[0].score} of training examples changes by {np.mean(gains):+.3f}"
    claim = "uncertainty falls as the network learns its training examples"
    return (Verdict("falls", claim, tuple(estimates), note, source="contribution 4"),)


def uncertainty_path(
    ensemble: Ensemble,
    trajectory: Trajectory | None,
    test: Split,
    *,
    train: Split,
    draws: int | None = None,
    folder: Path | None = None,
    show: Show = silent,
) -> UncertaintyPath:
    """Follow uncertainty along the training of a run.

    Args:
        ensemble: The ensemble of the run.
        trajectory: Its trajectory.
        test: Test examples.
        train: Training examples; at most as many as of the test are scored.
        draws: Draws of each member; by default those of its recipe.
        folder: Directory for finished checkpoints, from which an interrupted computation resumes; None stores nothing.
        show: Progress callback `show(text, done, total)`.

    Returns:
        Uncertainty, scores and weights at every checkpoint.

    Raises:
        Misuse: If there is no trajectory of a run, or one prediction per input.
    """
    if trajectory is None or trajectory.ensemble_at is None:
        raise Misuse("the run has no trajectory: train it with --trajectory every-epoch (trajectory='every-epoch')")
    if ensemble.members == 1 and not ensemble.family.stochastic:
        raise Misuse("one network with fixed weights predicts once: uncertainty between draws needs members or draws")
    steps, some = (0, *trajectory.steps), train[: len(test)]
    about = {"examples": digest(test.prepared, test.y, some.prepared, some.y), "draws": draws}
    cells, rows = Cells(folder, about), []
    for place, step in enumerate(steps):
        show(f"checkpoint {place}", place, len(steps))
        rows.append(cells(f"step-{step}", partial(checkpoint, trajectory, step, test, some, draws)))
    show("", len(steps), len(steps))
    columns = {name: np.array([float(row[name][0]) for row in rows]) for name in rows[0] if name not in KINDS}
    means = {kind: np.array([row[kind].mean() for row in rows]) for kind in KINDS}
    ends = {kind: np.stack([rows[1][kind], rows[-1][kind]]) for kind in KINDS}
    epochs = np.array([0.0, *trajectory.epochs])
    return UncertaintyPath(epochs, score_of(ensemble), **columns, **means, ends=ends)


def score_of(ensemble: Ensemble) -> str:
    """Return the measure that is followed: accuracy, or RMSE of a regression."""
    return SCORE[ensemble.manifest.data["task"]]


def checkpoint(trajectory: Trajectory, step: int, test: Split, train: Split, draws: int | None) -> dict[str, Array]:
    """Return scores, uncertainty of each test example and weights at one checkpoint."""
    assert trajectory.ensemble_at is not None
    ensemble = trajectory.ensemble_at(step)
    score, task = score_of(ensemble), ensemble.manifest.data["task"]
    chosen = {name: MEASURES[task][name] for name in (score, "nll")}

    def predict(split: Split) -> Predictive:
        number = draws if ensemble.family.stochastic else None
        return ensemble.predict(split.prepared, draws=number, calibrated=False, prepared=True)

    predictive = predict(test)
    scores = score_examples(predictive, test.y).scores(measures=chosen)
    train_scores = score_examples(predict(train), train.y).scores(measures={score: chosen[score]})
    numbers = {"train_score": train_scores[score], "test_score": scores[score], "nll": scores["nll"]}
    values = {name: np.array([float(value)]) for name, value in (numbers | weights_of(ensemble)).items()}
    return values | {kind: tensor.double().numpy() for kind, tensor in uncertainties(predictive).items()}


def uncertainties(predictive: Predictive) -> dict[str, Tensor]:
    """Return aleatoric and epistemic uncertainty (N,): traces of covariances.

    >>> probs = torch.tensor([[[0.7, 0.2, 0.1]], [[0.5, 0.3, 0.2]], [[0.6, 0.1, 0.3]], [[0.4, 0.4, 0.2]]])
    >>> found = uncertainties(Predictive.from_probs(probs))
    >>> round(float(found["aleatoric"]), 3), round(float(found["epistemic"]), 3)
    (0.565, 0.03)
    """
    return {"aleatoric": predictive.aleatoric_var.sum(1), "epistemic": predictive.epistemic_var.sum(1)}


def weights_of(ensemble: Ensemble) -> dict[str, float]:
    """Return KL, median standard deviation and median signal-to-noise ratio; NaN without Gaussian weights."""
    found = diagnose(ensemble)
    if found is None:
        return dict.fromkeys(("kl", "median_std", "median_snr"), math.nan)
    family, population = ensemble.family, ensemble.groups[0].population
    stds = torch.cat([p.std.flatten() for p in family.family.posteriors(population, family.spec)])
    return {"kl": found.kl, "median_std": float(stds.median()), "median_snr": found.median_snr}
