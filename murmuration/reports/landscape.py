"""The prediction over the whole input space, for inputs of one or two numbers, as the members say it.

A calibrator is left out: it has learned from inputs like the training examples, and most of the space is unlike them.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from murmuration.data import ArrayPreparation, Preparation, TablePreparation
from murmuration.data.builtin import gaps_features
from murmuration.data.preparation import NumericColumn
from murmuration.evaluation import Evaluation
from murmuration.predictive import Predictive
from murmuration.reports.records import Field1D, Field2D

LINE, PLANE = 200, 60  # points of a grid, along each axis
MARGIN = 0.35  # of the training range, shown on either side of it
POINTS = 400  # training points drawn, at most
CURVE = ("x/2", "(x/2)^2")  # features that are one number in disguise


def field_of(evaluation: Evaluation) -> Field1D | Field2D | None:
    """The field of an ensemble over its input space; None where that has more than two dimensions."""
    eval_set = evaluation.eval_set
    units = units_of(eval_set.preparation)
    if units is None or eval_set.train is None or evaluation.ensemble is None or len(units[0]) > 2:
        return None
    if eval_set.task == "regression" and eval_set.train.y.shape[1] > 1:
        return None
    train = eval_set.train.x.double().numpy() * units[1] + units[0]  # (N, D) in the source's units
    if eval_set.preparation.names == CURVE:
        return line(evaluation, 2 * train[:, 0], gaps_features)
    if train.shape[1] == 1 and eval_set.task == "regression":
        return line(evaluation, train[:, 0], lambda x: (x[:, None] - units[0]) / units[1])
    return plane(evaluation, train, units) if train.shape[1] == 2 else None


def units_of(preparation: Preparation) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean and std (D,) that turn prepared numbers into those of the source; None where they are not all numbers."""
    if isinstance(preparation, ArrayPreparation) and len(preparation.shape) == 1:
        return np.array(preparation.mean), np.array(preparation.std)
    if not isinstance(preparation, TablePreparation):
        return None
    columns = [
        column for column in preparation.columns if isinstance(column, NumericColumn) and not column.flags_missing
    ]
    if len(columns) < len(preparation.columns):
        return None
    return np.array([column.mean for column in columns]), np.array([column.std for column in columns])


def line(evaluation: Evaluation, train_x: np.ndarray, prepare: Callable[[np.ndarray], np.ndarray]) -> Field1D:
    """Mean and spreads along the line, with the training points."""
    assert evaluation.eval_set.train is not None
    assert evaluation.ensemble is not None
    x = np.linspace(*widened(train_x), LINE)
    predictive = evaluation.ensemble.predict(as_input(prepare(x)), calibrated=False)
    kept = some(len(train_x))
    return Field1D(
        x,
        predictive.mean[:, 0].numpy(),
        predictive.aleatoric_var[:, 0].sqrt().numpy(),
        predictive.epistemic_var[:, 0].sqrt().numpy(),
        train_x[kept],
        evaluation.eval_set.train.y[:, 0].numpy()[kept],
    )


def plane(evaluation: Evaluation, train: np.ndarray, units: tuple[np.ndarray, np.ndarray]) -> Field2D:
    """The total uncertainty of a classification, the epistemic one of a regression, over the plane."""
    eval_set = evaluation.eval_set
    assert eval_set.train is not None
    assert evaluation.ensemble is not None
    x, y = (np.linspace(*widened(train[:, axis]), PLANE) for axis in (0, 1))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)  # (PLANE * PLANE, 2)
    inputs = as_input((grid - units[0]) / units[1])
    name, values = uncertainty(evaluation.ensemble.predict(inputs, calibrated=False))
    kept = some(len(train))
    labels = eval_set.train.y.numpy()[kept] if eval_set.task == "classification" else ()
    return Field2D(x, y, values.numpy().reshape(PLANE, PLANE), name, train[kept], labels)


def uncertainty(predictive: Predictive) -> tuple[str, Tensor]:
    """The name and the values (N,) of the uncertainty that a plane shows."""
    if predictive.task == "classification":
        return "entropy", predictive.entropy
    return "epistemic_std", predictive.epistemic_var[:, 0].sqrt()


def widened(values: np.ndarray) -> tuple[float, float]:
    """The range of the values and a margin on either side."""
    low, high = float(values.min()), float(values.max())
    margin = MARGIN * (high - low or 1.0)
    return low - margin, high + margin


def some(count: int) -> np.ndarray:
    """At most POINTS places among `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))


def as_input(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
