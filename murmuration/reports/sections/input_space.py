"""Predictions over the whole input space, for inputs of one or two numbers, before any calibrator.

The calibrator was fitted on inputs like the training examples, and most of the space is unlike them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from murmuration.data import ArrayPreparation, Preparation, TablePreparation
from murmuration.data.builtin import gaps_features
from murmuration.data.preparation import NumericColumn
from murmuration.data.scaling import Scaling
from murmuration.evaluation import Evaluation
from murmuration.evaluation.metrics import describe
from murmuration.prediction.predictive import Predictive
from murmuration.reports.figures import Figure, axis, colour, heat, layout, numbers, scatter, symbol, thin
from murmuration.reports.html import Markup, figure, grid, section
from murmuration.reports.report import Report

MOST_POINTS = 500  # of a scatter
LINE, PLANE = 200, 60  # points of a grid, along each axis
MARGIN = 0.35  # of the training range, shown on either side of it
POINTS = 400  # training points drawn, at most
CURVE = ("x/2", "(x/2)^2")  # features that are functions of one number


@dataclass(frozen=True)
class LineField:
    """A regression over a line: mean and both standard deviations on a grid (G,), training points (N,)."""

    x: NDArray[Any]
    mean: NDArray[Any]
    aleatoric_std: NDArray[Any]
    epistemic_std: NDArray[Any]
    train_x: Any = ()
    train_y: Any = ()

    def bands(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return the mean, the epistemic and the total standard deviation as floats."""
        mean, epistemic = np.asarray(self.mean, dtype=float), np.asarray(self.epistemic_std, dtype=float)
        return mean, epistemic, np.hypot(np.asarray(self.aleatoric_std, dtype=float), epistemic)


@dataclass(frozen=True)
class PlaneField:
    """An uncertainty over a plane: values (H, W) on the grid y (H,) by x (W,), and training points (N, 2)."""

    x: NDArray[Any]
    y: NDArray[Any]
    values: NDArray[Any]
    name: str = "entropy"
    points: NDArray[Any] | None = None  # (N, 2)
    labels: Any = ()  # (N,) class indices


def input_space(report: Report) -> Markup:
    """Predictions of every recipe over the input space, on one scale."""
    reading = (
        "Predictions over the whole input space, before any calibrator. Epistemic uncertainty should grow away from "
        "the training points. All recipes are drawn on one scale."
    )
    return section("field", "Input space", reading, grid(map(figure, field_figures(report))))


def field_figures(report: Report) -> list[Figure | None]:
    """Return the input space of every recipe, on one scale; None where it has more than two dimensions."""
    fields = [field_of(one) for one in report.evaluations]
    reach = common_reach([one for one in fields if one is not None])
    figures: list[Figure | None] = []
    for place, (evaluation, field) in enumerate(zip(report.evaluations, fields, strict=True)):
        title, name = evaluation.name, f"field-{place}"
        if isinstance(field, LineField):
            figures.append(line_figure(title, field, name, reach))
        else:
            figures.append(None if field is None else plane_figure(title, field, report.classes, name, reach))
    return figures


def field_of(evaluation: Evaluation) -> LineField | PlaneField | None:
    """Return the field of an ensemble over its input space; None where that has more than two dimensions."""
    eval_set = evaluation.eval_set
    scaling = scaling_of(eval_set.preparation)
    if scaling is None or eval_set.train is None or evaluation.ensemble is None or len(scaling.centre) > 2:
        return None
    if eval_set.task == "regression" and eval_set.train.y.shape[1] > 1:
        return None
    train = scaling.invert(eval_set.train.prepared.double().numpy())  # (N, D) in the source's units
    if eval_set.preparation.names == CURVE:
        return line(evaluation, 2 * train[:, 0], gaps_features)
    if train.shape[1] == 1 and eval_set.task == "regression":
        return line(evaluation, train[:, 0], lambda x: scaling.exact(x[:, None]))
    return plane(evaluation, train, scaling) if train.shape[1] == 2 else None


def scaling_of(preparation: Preparation) -> Scaling | None:
    """Return the scaling between the numbers of the source and prepared ones; None where inputs are not all numbers."""
    if isinstance(preparation, ArrayPreparation) and len(preparation.shape) == 1:
        return preparation.scaling
    if not isinstance(preparation, TablePreparation):
        return None
    columns = [c for c in preparation.columns if isinstance(c, NumericColumn) and not c.flags_missing]
    if len(columns) < len(preparation.columns):
        return None
    clip, quantiles = columns[0].clip, tuple(column.quantiles for column in columns)
    centre, scale = (tuple(getattr(column, name) for column in columns) for name in ("mean", "std"))
    return Scaling(centre, scale, clip, quantiles if all(quantiles) else ())


def line(evaluation: Evaluation, train_x: np.ndarray, prepare: Callable[[np.ndarray], np.ndarray]) -> LineField:
    """Mean and standard deviations along the line, with the training points."""
    assert evaluation.eval_set.train is not None
    x, rows = np.linspace(*widened(train_x), LINE), thin(len(train_x), POINTS)
    predictive = predict(evaluation, prepare(x))
    variances = (predictive.aleatoric_var, predictive.epistemic_var)
    aleatoric, epistemic = (variance[:, 0].sqrt().numpy() for variance in variances)
    targets = evaluation.eval_set.train.y[:, 0].numpy()[rows]
    return LineField(x, predictive.mean[:, 0].numpy(), aleatoric, epistemic, train_x[rows], targets)


def plane(evaluation: Evaluation, train: np.ndarray, scaling: Scaling) -> PlaneField:
    """Return the total uncertainty of a classification, the epistemic one of a regression, over the plane."""
    eval_set = evaluation.eval_set
    assert eval_set.train is not None
    x, y = (np.linspace(*widened(train[:, axis]), PLANE) for axis in (0, 1))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)  # (PLANE * PLANE, 2)
    predictive = predict(evaluation, scaling.exact(grid))
    rows, classes = thin(len(train), POINTS), eval_set.task == "classification"
    values = predictive.entropy if classes else predictive.epistemic_var[:, 0].sqrt()
    labels = eval_set.train.y.numpy()[rows] if classes else ()
    name = "entropy" if classes else "epistemic_std"
    return PlaneField(x, y, values.numpy().reshape(PLANE, PLANE), name, train[rows], labels)


def widened(values: np.ndarray) -> tuple[float, float]:
    """Return the range of the values and a margin on either side."""
    low, high = float(values.min()), float(values.max())
    margin = MARGIN * (high - low or 1.0)
    return low - margin, high + margin


def predict(evaluation: Evaluation, inputs: np.ndarray) -> Predictive:
    """Predict prepared inputs (N, D) before any calibrator."""
    assert evaluation.ensemble is not None
    return evaluation.ensemble.predict(torch.from_numpy(inputs.astype(np.float32)), calibrated=False, prepared=True)


def common_reach(records: Sequence[LineField | PlaneField]) -> tuple[float, float] | None:
    """Return the range of values that holds every field: what two recipes differ in is seen only on one scale.

    Lines end where they are further from the training targets than one and a half times those are apart: a wild
    recipe must not flatten the others.
    """
    values = np.concatenate([_drawn(record) for record in records]) if records else np.empty(0)
    finite = values[np.isfinite(values)]
    low, high = finite.min(initial=np.inf), finite.max(initial=-np.inf)
    return (float(low), float(high)) if low < high else None


def _drawn(record: LineField | PlaneField) -> NDArray[Any]:
    """Return the values that a field's scale must hold."""
    if isinstance(record, PlaneField):
        return np.append(np.asarray(record.values, dtype=float), 0.0)
    mean, _, total = record.bands()
    ends = np.concatenate([mean + 2 * total, mean - 2 * total])
    targets = np.asarray(record.train_y, dtype=float)
    if not len(targets):
        return ends
    beyond = 1.5 * (targets.max() - targets.min())
    return np.append(np.clip(ends, targets.min() - beyond, targets.max() + beyond), targets)


def line_figure(title: str, record: LineField, name: str, reach: tuple[float, float] | None = None) -> Figure:
    """Mean, epistemic (inner band) and total uncertainty (outer band), two standard deviations each."""
    x, (mean, epistemic, total) = np.asarray(record.x, dtype=float), record.bands()
    data = [
        _band(x, mean, 2 * total, "total", "var(--band-outer)"),
        _band(x, mean, 2 * epistemic, "epistemic", "var(--band-inner)"),
        scatter("lines", x, mean, "mean") | {"line": {"color": "var(--series-1)", "width": 2}},
    ]
    if len(record.train_x):
        data.append(_points(np.column_stack([record.train_x, record.train_y]), "training", "var(--series-2)", 0))
    label = f"{title}: mean, and bands of two standard deviations, over the input"
    up = axis("y") | ({"range": numbers(reach)} if reach is not None else {})
    return Figure(name, title, label, data, layout(axis("x"), up) | {"showlegend": True}, 380)


def _band(x: Any, centre: Any, reach: Any, name: str, fill: str) -> dict[str, Any]:
    """Return a closed outline: forward along the top, back along the bottom."""
    outline = scatter("lines", [*x, *x[::-1]], [*(centre + reach), *(centre - reach)[::-1]], name)
    return outline | {"fill": "toself", "fillcolor": fill, "line": {"width": 0}, "hoverinfo": "skip"}


def _points(points: Any, name: str, ink: str, place: int) -> dict[str, Any]:
    rows = np.asarray(points, dtype=float)[thin(len(points), MOST_POINTS)]
    rim = {"color": "var(--paper)", "width": 0.7}
    marks = {"color": ink, "symbol": symbol(place), "size": 6, "line": rim}
    return scatter("markers", rows[:, 0], rows[:, 1], name) | {"marker": marks, "hovertemplate": "%{x:.3g}, %{y:.3g}"}


def plane_figure(
    title: str, record: PlaneField, classes: tuple[str, ...], name: str, reach: tuple[float, float] | None = None
) -> Figure:
    """Return an uncertainty over the plane, with the training points in the colours of their classes."""
    quantity = describe(record.name).label
    grid = {"x": numbers(record.x), "y": numbers(record.y), "zsmooth": "best", "hovertemplate": "%{z:.3g}"}
    scale = dict(zip(("zmin", "zmax"), numbers(reach), strict=True)) if reach is not None else {}
    data = [heat(record.values) | grid | scale | {"name": quantity.lower()}]
    if record.points is not None and len(record.points):
        labels = np.asarray(record.labels) if len(record.labels) else np.zeros(len(record.points), dtype=int)
        for place, label in enumerate(np.unique(labels)):
            named = len(record.labels) > 0 and 0 <= int(label) < len(classes)
            group = classes[int(label)] if named else "training"
            data.append(_points(np.asarray(record.points)[labels == label], group, colour(place + 1), place))
    panel = layout(axis("x₁") | {"showgrid": False}, axis("x₂") | {"showgrid": False}) | {"showlegend": True}
    return Figure(name, title, f"{quantity} of {title} over the plane of inputs", data, panel, 400)
