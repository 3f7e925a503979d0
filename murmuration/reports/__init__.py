"""Evaluation records -> sections -> one self-contained HTML file; see README.md."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.reports.page import render, write_report
from murmuration.reports.report import Report, report_of
