"""(predictive, y) -> numbers, each with its interval; see README.md for the path."""

from murmuration.metrics.comparison import (
    Comparison,
    compare_predictives,
    holm,
    paired_test,
    smallest_difference,
)
from murmuration.metrics.curves import (
    PitCurve,
    Reliability,
    RiskCoverage,
    pit_curve,
    reliability,
    risk_coverage,
)
from murmuration.metrics.detection import Detection, detection
from murmuration.metrics.evaluation import Evaluation, Score, evaluate, score
from murmuration.metrics.groups import GroupScores, by_group
from murmuration.metrics.per_example import columns
from murmuration.metrics.scores import SCORES, Measure, score_names

__all__ = [
    "SCORES",
    "Comparison",
    "Detection",
    "Evaluation",
    "GroupScores",
    "Measure",
    "PitCurve",
    "Reliability",
    "RiskCoverage",
    "Score",
    "by_group",
    "columns",
    "compare_predictives",
    "detection",
    "evaluate",
    "holm",
    "paired_test",
    "pit_curve",
    "reliability",
    "risk_coverage",
    "score",
    "score_names",
    "smallest_difference",
]
