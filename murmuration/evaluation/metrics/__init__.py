"""(predictive, y) -> numbers, each with its interval; see README.md for the path."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.evaluation.metrics.comparison import GroupScores, PairedTest, by_group, holm, paired_test
from murmuration.evaluation.metrics.curves import PitCurve, RiskCoverage, pit_curve, reliability, risk_coverage
from murmuration.evaluation.metrics.detection import Detection, score_detection
from murmuration.evaluation.metrics.example_scores import ExampleScores, Score, score, score_examples
from murmuration.evaluation.metrics.per_example import columns
from murmuration.evaluation.metrics.scores import MEASURES, Measure, add_measure, describe, remove_measure, shown_in
