"""Scores of continual learning, from the accuracy on every task after every task."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmuration.system.errors import Misuse


@dataclass(frozen=True, eq=False)
class AccuracyMatrix:
    """Accuracy (S, T): row i after segment i of the stream, column j on task j; NaN until the task has been learned.

    >>> nan = float("nan")
    >>> found = AccuracyMatrix(np.array([[0.98, nan, nan], [0.90, 0.95, nan], [0.80, 0.85, 0.97]]))
    >>> round(found.final_average, 6), round(found.forgetting, 2)
    (0.873333, 0.14)
    """

    values: NDArray[np.float64]
    examples: tuple[int, ...] = ()  # test examples of each task, for the standard error

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or not self.values.size or np.isnan(self.values[-1]).any():
            raise Misuse(
                f"accuracies of shape {self.values.shape}: expected one row for each segment and one column for each"
                " task, all known in the last row"
            )

    @property
    def final_average(self) -> float:
        """The mean accuracy over all tasks at the end."""
        return float(np.mean(self.values[-1]))

    @property
    def standard_error(self) -> float:
        """Of the final average, by the test examples of each task; NaN if their numbers are not known."""
        if not self.examples:
            return math.nan
        last = self.values[-1]
        return float(np.sqrt(np.sum(last * (1 - last) / np.array(self.examples))) / len(last))

    @property
    def forgetting(self) -> float:
        """Accuracy on a task when first learned minus at the end, mean over tasks learned before the last row."""
        learned = np.argmax(~np.isnan(self.values), axis=0)  # (T,) the first row of each task
        earlier = learned < len(self.values) - 1
        lost = self.values[learned, np.arange(len(learned))] - self.values[-1]
        return float(lost[earlier].mean()) if earlier.any() else 0.0

    @property
    def largest_forgetting(self) -> float:
        """The best accuracy on a task at any time minus that at the end, mean over the same tasks."""
        earlier = ~np.isnan(self.values[:-1]).all(axis=0) if len(self.values) > 1 else np.zeros(0, dtype=bool)
        if not earlier.any():
            return 0.0
        return float((np.nanmax(self.values[:, earlier], axis=0) - self.values[-1, earlier]).mean())

    def to_json(self) -> dict[str, Any]:
        rows = [[None if np.isnan(value) else float(value) for value in row] for row in self.values]
        names = ("final_average", "standard_error", "forgetting", "largest_forgetting")
        return {"accuracy": rows, "examples": list(self.examples), **{name: getattr(self, name) for name in names}}


def accuracy_from_json(record: dict[str, Any]) -> AccuracyMatrix:
    """Return the matrix of `AccuracyMatrix.to_json`."""
    return AccuracyMatrix(np.array(record["accuracy"], dtype=float), tuple(record["examples"]))
