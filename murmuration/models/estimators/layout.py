"""Columns of a table as trees take them, read back from prepared inputs."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from murmuration.data import Preparation
from murmuration.data.preparation import TablePreparation

MOST_CATEGORIES = 254  # of one column that scikit-learn's histograms take as categories
CATEGORICAL, NUMERIC = "categorical", "numeric"


@dataclass(frozen=True)
class Layout:
    """The prepared inputs (N, D) that belong to each column of a table: its kind and their number, in order.

    A numeric column is one prepared input, or two if the second flags missing values; a categorical column is one-hot.
    Trees split on the order of numbers, so that standardised values serve them as well as raw ones.
    """

    columns: tuple[tuple[str, int], ...]

    @staticmethod
    def of(preparation: Preparation, width: int) -> "Layout":
        """Return the layout of D = `width` inputs of this preparation; all numeric if it is not that of a table."""
        if not isinstance(preparation, TablePreparation):
            return Layout(((NUMERIC, 1),) * width)
        return Layout(tuple((column.kind, len(column.prepared_names)) for column in preparation.columns))

    @cached_property
    def categorical(self) -> np.ndarray:
        """Which columns (C,) are categories; those of very many levels count as numbers."""
        return np.array([kind == CATEGORICAL and width <= MOST_CATEGORIES for kind, width in self.columns])

    def table(self, x: np.ndarray) -> np.ndarray:
        """Convert prepared inputs (N, D) to columns (N, C) float64: numbers, NaN where missing, and category codes."""
        columns = np.empty((len(x), len(self.columns)))
        first = 0
        for i, (kind, width) in enumerate(self.columns):
            part = x[:, first : first + width]
            if kind == CATEGORICAL:
                columns[:, i] = part.argmax(1)
            else:
                columns[:, i] = part[:, 0] if width == 1 else np.where(part[:, 1] > 0.5, np.nan, part[:, 0])
            first += width
        return columns
