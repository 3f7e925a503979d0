"""What tables of records have in common."""

import math
import statistics
from collections.abc import Sequence

SCORES = {"classification": ("accuracy", "nll", "ece"), "regression": ("rmse", "nll", "coverage_90")}


def head(names: list[str]) -> list[str]:
    """The first two lines of a table with these columns."""
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]


def score(metrics: dict[str, dict[str, float]], name: str) -> str:
    """A score of a record with its interval; a calibration error, which noise raises, has none.

    >>> metrics = {"nll": {"value": 0.98765, "low": 0.981, "high": 0.994}, "ece": {"value": 0.01, "low": 0, "high": 1}}
    >>> score(metrics, "nll"), score(metrics, "ece")
    ('0.988 (0.981 to 0.994)', '0.01')
    """
    found = metrics[name]
    return (
        f"{found['value']:.3g}"
        if name == "ece"
        else f"{found['value']:.3g} ({found['low']:.3g} to {found['high']:.3g})"
    )


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of values and its 95 % interval by Student's t; NaN limits for fewer than two values.

    >>> [round(value, 3) for value in mean_interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    mean = statistics.fmean(values) if values else math.nan
    if len(values) < 2:
        return mean, math.nan, math.nan
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half
