"""Scores taken apart and made up."""

import math

import numpy as np

from murmuration.evaluation.metrics import Score
from murmuration.evaluation.metrics.intervals import Feature, group_sums


def triple(score: Score) -> tuple[float, float, float]:
    """The value of a score and the ends of its interval."""
    return float(score), score.low, score.high


def exact(value: float) -> Score:
    """A score without an interval."""
    return Score(value, math.nan, math.nan)


def overall_means(features: list[Feature]) -> np.ndarray:
    """The means (F,) of the features over all inputs."""
    return group_sums(features, np.zeros(len(features[0].values), dtype=np.int64))[0] / len(features[0].values)
