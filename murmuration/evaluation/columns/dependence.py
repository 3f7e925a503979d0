"""Partial dependence of predictions on one column, with the standard deviation over members (Friedman 2001).

All rows get the same value of the column, each member predicts them, and the mean over rows is the member's curve. The
mean of the curves is the partial dependence; their standard deviation over members is its epistemic part: where no
training rows were, members continue in different ways.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmuration.data.columns import to_numbers
from murmuration.data.preparation import CategoricalColumn
from murmuration.data.raw import is_table
from murmuration.evaluation.columns.importance import ROWS, labelled_table
from murmuration.likelihoods import REGRESSION
from murmuration.prediction.ensemble import Ensemble
from murmuration.system.errors import Misuse, unknown

POINTS = 20  # of a numeric column


@dataclass(frozen=True, eq=False)
class PartialDependence:
    """The prediction as a function of one column, over the values (G,) of a grid."""

    column: str
    values: tuple[Any, ...]  # numbers, or texts of categories
    numeric: bool
    outputs: tuple[str, ...]  # classes or targets, K
    members: NDArray[np.float64]  # (S, G, K) curves: class probabilities, or means of targets
    weights: NDArray[np.float64]  # (S,) of the members
    rows: int

    @property
    def mean(self) -> NDArray[np.float64]:
        """The partial dependence (G, K)."""
        return np.einsum("s,sgk->gk", self.weights, self.members)

    @property
    def std(self) -> NDArray[np.float64]:
        """The standard deviation (G, K) of the members' curves."""
        return np.sqrt(np.einsum("s,sgk->gk", self.weights, (self.members - self.mean) ** 2))

    def to_json(self) -> dict[str, Any]:
        about = {"column": self.column, "values": list(self.values), "outputs": list(self.outputs), "rows": self.rows}
        return {**about, "mean": self.mean.tolist(), "std": self.std.tolist()}


def partial_dependence(
    ensemble: Ensemble, data: Any, column: str, *, points: int = POINTS, rows: int = ROWS
) -> PartialDependence:
    """Compute the mean prediction as a function of one column.

    Args:
        ensemble: An ensemble that was trained on a table.
        data: Rows to average over: a `Data` (its test split), a split or a table.
        column: Name of the column.
        points: Largest number of quantiles of a numeric column; a categorical column takes all its categories.
        rows: Largest number of rows, evenly spaced.

    Returns:
        The curve of every member.

    Raises:
        Misuse: If the column is unknown, or `points` is below 2.
    """
    table = data if is_table(data) else labelled_table(ensemble, data)[0]
    by_name = {spec.name: spec for spec in getattr(ensemble.preparation, "columns", ())}
    if column not in by_name:
        raise unknown("column", column, by_name)
    if points < 2:
        raise Misuse(f"points={points}: need at least 2")
    table = table.iloc[:: max(1, -(-len(table) // rows))]
    key = next(key for key in table.columns if str(key) == column)
    numeric = not isinstance(by_name[column], CategoricalColumn)
    values = grid(table[key], points) if numeric else by_name[column].categories
    curves = []
    for value in values:
        pred = ensemble.predict(table.assign(**{key: value}))
        outputs = pred.member_mean if pred.task == REGRESSION else pred.probs
        curves.append(outputs.double().mean(1).numpy())  # (S, K)
    names = tuple(ensemble.names or ()) or tuple(str(k) for k in range(curves[0].shape[-1]))
    return PartialDependence(
        column, tuple(values), numeric, names, np.stack(curves, 1), pred.member_weights.double().numpy(), len(table)
    )


def grid(values: Any, points: int) -> list[float]:
    """Return quantiles of a numeric column from the lowest to the highest, each value once."""
    present = to_numbers(values.dropna())  # dates as seconds
    if not len(present):
        raise Misuse(f"column '{values.name}' is missing in every row: expected some numbers")
    return np.unique(np.quantile(present, np.linspace(0, 1, points))).tolist()
