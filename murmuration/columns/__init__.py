"""What the columns of a table do: importance for error and uncertainty, partial dependence, unusual rows, drift."""

from murmuration.columns.dependence import PartialDependence, partial_dependence
from murmuration.columns.drift import Drift, drift
from murmuration.columns.importance import ColumnImportance, column_importance
from murmuration.columns.unusual import UnusualRow, unusual_rows

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
