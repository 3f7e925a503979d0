"""Verdicts on predictions: an estimate with its interval against the predicted region."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from murmuration.metrics.intervals import LEVEL
from murmuration.reports.formatting import MINUS

Word = Literal["holds", "does not hold", "cannot tell"]


@dataclass(frozen=True)
class Estimate:
    """An estimate, its 95 % interval, and the predicted region."""

    what: str
    value: float
    low: float
    high: float
    least: float  # of the region
    most: float

    @property
    def word(self) -> Word:
        """`holds` if the interval lies in the region, `does not hold` if outside; else, or without one, `cannot tell`.

        >>> Estimate("slope", 0.9, 0.8, 1.0, 0.75, 1.25).word, Estimate("slope", 0.9, 0.7, 1.1, 0.75, 1.25).word
        ('holds', 'cannot tell')
        """
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return "cannot tell"
        if self.least <= self.low and self.high <= self.most:
            return "holds"
        return "does not hold" if self.high < self.least or self.most < self.low else "cannot tell"

    @property
    def region(self) -> str:
        ends = [f"{end:g}".replace("-", MINUS) for end in (self.least, self.most)]
        return f"above {ends[0]}" if math.isinf(self.most) else " to ".join(ends)

    def __str__(self) -> str:
        return f"{self.what}: {self.value:.3g} [{self.low:.3g}, {self.high:.3g}], predicted {self.region}"


@dataclass(frozen=True)
class Verdict:
    """A prediction and the estimates that decide it."""

    name: str
    claim: str
    estimates: tuple[Estimate, ...]
    note: str = ""

    @property
    def word(self) -> Word:
        """The worst of all estimates; `cannot tell` without any."""
        words = [estimate.word for estimate in self.estimates]
        if "does not hold" in words:
            return "does not hold"
        return "holds" if words and set(words) == {"holds"} else "cannot tell"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "claim": self.claim,
            "verdict": self.word,
            "estimates": [{**vars(each), "verdict": each.word} for each in self.estimates],
            "note": self.note,
        }


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean of values and its 95 % interval by Student's t; NaN limits for fewer than two values.

    >>> [round(each, 3) for each in mean_interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    mean = statistics.fmean(values) if values else math.nan
    if len(values) < 2:
        return mean, math.nan, math.nan
    from scipy.stats import t

    half = float(t.ppf((1 + LEVEL) / 2, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def standard_error(values: Sequence[float]) -> float:
    """The standard error of the mean; NaN for fewer than two values."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def estimate(what: str, values: Sequence[float], least: float, most: float) -> Estimate:
    """The mean over seeds of one value per seed, against a region."""
    return Estimate(what, *mean_interval(values), least, most)


def slope(x: Sequence[float], y: Sequence[float]) -> float | None:
    """The least-squares slope of points; None with fewer than two different x.

    >>> slope([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    2.0
    """
    if len(set(x)) < 2:
        return None
    return statistics.linear_regression(x, y).slope
