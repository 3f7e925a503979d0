"""Records -> figures -> one self-contained HTML file."""

from murmuration.reports.check import report_check
from murmuration.reports.page import render, write_report
from murmuration.reports.records import (
    Cost,
    DataCard,
    Entry,
    Example,
    Field1D,
    Field2D,
    Histogram,
    Parity,
    Reliability,
    Report,
    RiskCoverage,
)

__all__ = [
    "Cost",
    "DataCard",
    "Entry",
    "Example",
    "Field1D",
    "Field2D",
    "Histogram",
    "Parity",
    "Reliability",
    "Report",
    "RiskCoverage",
    "render",
    "report_check",
    "write_report",
]
