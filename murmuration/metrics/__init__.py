"""(predictive, y) -> numbers, each with its interval; see README.md for the path."""

from murmuration.metrics.comparison import Comparison, compare_predictives, paired_test
from murmuration.metrics.curves import (
    PitCurve,
    Reliability,
    RiskCoverage,
    pit_curve,
    reliability,
    risk_coverage,
)
from murmuration.metrics.evaluation import Evaluation, Score, evaluate, score
from murmuration.metrics.per_example import columns
from murmuration.metrics.scores import SCORES, Measure, score_names

__all__ = [
    "SCORES",
    "Comparison",
    "Evaluation",
    "Measure",
    "PitCurve",
    "Reliability",
    "RiskCoverage",
    "Score",
    "columns",
    "compare_predictives",
    "evaluate",
    "paired_test",
    "pit_curve",
    "reliability",
    "risk_coverage",
    "score",
    "score_names",
]
