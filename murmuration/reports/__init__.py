"""Evaluation records -> sections -> one self-contained HTML file; see README.md."""

from murmuration.reports.check import report_check
from murmuration.reports.page import render, write_report
from murmuration.reports.report import Report, report_of

__all__ = ["Report", "render", "report_check", "report_of", "write_report"]
