"""Columns and scores of an evaluation as the numbers and curves that a report shows."""

from collections.abc import Mapping

from murmuration import metrics
from murmuration.metrics.per_example import Columns
from murmuration.reports.measured import Reliability, RiskCoverage, Score


def plain(scores: Mapping[str, metrics.Score]) -> dict[str, Score]:
    """Scores by name as (value, low, high)."""
    return {name: triple(score) for name, score in scores.items()}


def triple(score: metrics.Score) -> Score:
    return float(score), score.low, score.high


def reliability_of(columns: Columns, task: str) -> Reliability:
    """Confidence against accuracy, or predicted quantiles against the share of truths below them."""
    return confidence(columns) if task == "classification" else quantiles(columns)


def confidence(columns: Columns) -> Reliability:
    """Confidence against accuracy."""
    found = metrics.reliability(columns)
    return Reliability(found.confidence, found.accuracy, found.low, found.high, found.count)


def quantiles(columns: Columns) -> Reliability:
    """Predicted quantiles against the share of truths below them."""
    found = metrics.pit_curve(columns)
    return Reliability(found.nominal, found.observed, found.low, found.high, kind="quantile")


def declining(columns: Columns) -> RiskCoverage:
    found = metrics.risk_coverage(columns)
    return RiskCoverage(found.coverage, found.risk)
