"""Scores of continual learning, from the accuracy on every task after every task."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmuration.errors import Misuse


@dataclass(frozen=True, eq=False)
class AccuracyMatrix:
    """Accuracy (T, T): row i after task i was learned, column j on task j; NaN above the diagonal.

    >>> nan = float("nan")
    >>> found = AccuracyMatrix(np.array([[0.98, nan, nan], [0.90, 0.95, nan], [0.80, 0.85, 0.97]]))
    >>> round(found.final_average, 6), round(found.forgetting, 2)
    (0.873333, 0.14)
    """

    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[0] != self.values.shape[1]:
            raise Misuse(f"accuracies of shape {self.values.shape}: expected one row and one column for each task")

    @property
    def final_average(self) -> float:
        """The mean accuracy over all tasks at the end."""
        return float(np.mean(self.values[-1]))

    @property
    def forgetting(self) -> float:
        """Accuracy on a task when it was learned minus at the end, mean over all tasks but the last; 0 for one task."""
        lost = np.diagonal(self.values)[:-1] - self.values[-1, :-1]
        return float(lost.mean()) if len(lost) else 0.0

    @property
    def largest_forgetting(self) -> float:
        """The best accuracy on a task at any time minus that at the end, mean over all tasks but the last."""
        lost = np.nanmax(self.values[:, :-1], axis=0) - self.values[-1, :-1] if len(self.values) > 1 else np.zeros(0)
        return float(lost.mean()) if len(lost) else 0.0

    def to_json(self) -> dict[str, Any]:
        rows = [[None if np.isnan(value) else float(value) for value in row] for row in self.values]
        return {"accuracy": rows, "final_average": self.final_average, "forgetting": self.forgetting}
