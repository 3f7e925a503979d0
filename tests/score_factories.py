"""Scores taken apart and made up."""

import math

from murmuration.metrics import Score


def triple(score: Score) -> tuple[float, float, float]:
    """The value of a score and the ends of its interval."""
    return float(score), score.low, score.high


def exact(value: float) -> Score:
    """A score without an interval."""
    return Score(value, math.nan, math.nan)
