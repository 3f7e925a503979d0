"""(predictive, y) -> numbers, each with its interval; see README.md for the path."""

from murmuration.evaluation.metrics.comparison import PairedTest, compare_predictives, holm, paired_test
from murmuration.evaluation.metrics.curves import (
    PitCurve,
    Reliability,
    RiskCoverage,
    pit_curve,
    reliability,
    risk_coverage,
)
from murmuration.evaluation.metrics.detection import Detection, score_detection
from murmuration.evaluation.metrics.example_scores import ExampleScores, Score, score, score_examples
from murmuration.evaluation.metrics.groups import GroupScores, by_group
from murmuration.evaluation.metrics.per_example import columns
from murmuration.evaluation.metrics.scores import MEASURES, Measure, add_measure, describe, remove_measure, shown_in

__all__ = [
    "MEASURES",
    "Detection",
    "ExampleScores",
    "GroupScores",
    "Measure",
    "PairedTest",
    "PitCurve",
    "Reliability",
    "RiskCoverage",
    "Score",
    "add_measure",
    "by_group",
    "columns",
    "compare_predictives",
    "describe",
    "holm",
    "paired_test",
    "pit_curve",
    "reliability",
    "remove_measure",
    "risk_coverage",
    "score",
    "score_detection",
    "score_examples",
    "shown_in",
]
