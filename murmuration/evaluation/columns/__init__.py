"""What the columns of a table do: importance for error and uncertainty, partial dependence, unusual rows, drift."""

from murmuration.evaluation.columns.dependence import PartialDependence, partial_dependence
from murmuration.evaluation.columns.drift import Drift, drift
from murmuration.evaluation.columns.importance import ColumnImportance, column_importance
from murmuration.evaluation.columns.unusual import UnusualRow, unusual_rows

__all__ = [
    "ColumnImportance",
    "Drift",
    "PartialDependence",
    "UnusualRow",
    "column_importance",
    "drift",
    "partial_dependence",
    "unusual_rows",
]
