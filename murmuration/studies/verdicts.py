"""Verdicts: claims decided by 95 % intervals, with one standard for all studies and reproductions.

A claim is a list of estimates, each with a region that it predicts. An estimate holds if its whole interval lies in the
region and does not hold if the interval lies outside; otherwise the data cannot tell. No verdict rests on a point
estimate: without an interval the word is "cannot tell".
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from murmuration.evaluation.metrics.intervals import LEVEL
from murmuration.reports.formatting import MINUS

Word = Literal["holds", "does not hold", "cannot tell", "not run"]
MIN_SEEDS = 3  # for an interval over seeds: two agree by chance too often
WORDS: dict[Word, tuple[str, str]] = {  # one verdict, several verdicts
    "holds": ("holds", "hold"),
    "does not hold": ("does not hold", "do not hold"),
    "cannot tell": ("cannot be decided by these runs", "cannot be decided by these runs"),
    "not run": ("was not run", "were not run"),
}


@dataclass(frozen=True)
class Estimate:
    """An estimate, its 95 % interval, and the predicted region."""

    what: str
    value: float
    low: float
    high: float
    least: float  # of the region
    most: float
    over: str = ""  # what the interval is over: "3 seeds", "2,000 examples", "5 runs and 2,000 examples"

    @property
    def word(self) -> Word:
        """`holds` if the interval lies in the region, `does not hold` if outside; else, or without one, `cannot tell`.

        >>> Estimate("slope", 0.9, 0.8, 1.0, 0.75, 1.25).word, Estimate("slope", 0.9, 0.7, 1.1, 0.75, 1.25).word
        ('holds', 'cannot tell')
        """
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return "cannot tell"
        if self.low == self.high and self.low in (self.least, self.most) and self.least != self.most:
            return "cannot tell"  # no variation, and at the edge of a region that is not a point
        if self.least <= self.low and self.high <= self.most:
            return "holds"
        return "does not hold" if self.high < self.least or self.most < self.low else "cannot tell"

    @property
    def region(self) -> str:
        """Return the predicted region as text.

        >>> Estimate("gain", 1, 0, 2, 0, math.inf).region, Estimate("gain", 1, 0, 2, -math.inf, 3).region
        ('above 0', 'below 3')
        """
        ends = [f"{end:g}".replace("-", MINUS) for end in (self.least, self.most)]
        if math.isinf(self.most):
            return f"above {ends[0]}"
        return f"below {ends[1]}" if math.isinf(self.least) else " to ".join(ends)

    def __str__(self) -> str:
        return f"{self.what}: {self.value:.3g} [{self.low:.3g}, {self.high:.3g}], predicted {self.region}"


@dataclass(frozen=True)
class Verdict:
    """A claim and the estimates that decide it."""

    name: str
    claim: str
    estimates: tuple[Estimate, ...]
    note: str = ""
    missing: tuple[str, ...] = ()  # parts or arms that it needs and that were not run
    published: str = ""  # what the authors report, in their numbers or words
    source: str = ""  # where: "table 1", "figure 6"

    @property
    def word(self) -> Word:
        """The worst of all estimates; `cannot tell` without any, `not run` without the results they need."""
        if self.missing:
            return "not run"
        words = [estimate.word for estimate in self.estimates]
        if "does not hold" in words:
            return "does not hold"
        return "holds" if words and set(words) == {"holds"} else "cannot tell"

    def to_json(self) -> dict[str, Any]:
        estimates = [{**vars(estimate), "verdict": estimate.word} for estimate in self.estimates]
        facts = {"name": self.name, "claim": self.claim, "verdict": self.word, "estimates": estimates}
        return facts | {"note": self.note, "published": self.published, "source": self.source}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Verdict":
        """Return the verdict that `to_json` wrote; JSON has None for numbers that are not finite."""
        absent = {"value": math.nan, "low": math.nan, "high": math.nan, "least": -math.inf, "most": math.inf}
        rows = [{name: value for name, value in row.items() if name != "verdict"} for row in record["estimates"]]
        numbers = [{name: absent[name] for name in absent if row[name] is None} for row in rows]
        estimates = tuple(Estimate(**row | known) for row, known in zip(rows, numbers, strict=True))
        texts = {name: record[name] for name in ("note", "published", "source")}
        return cls(record["name"], record["claim"], estimates, **texts)

    def __str__(self) -> str:
        facts = [*map(str, self.estimates), *filter(None, [self.note])]
        return f"{self.claim}: {self.word}" + (f" ({'; '.join(facts)})" if facts else "")


def tally(verdicts: Sequence[Verdict]) -> str:
    """Return how many verdicts there are of each word, as one clause.

    >>> tally([Verdict("a", "", ()), Verdict("b", "", (), missing=("sizes",))])
    '1 cannot be decided by these runs; 1 was not run'
    """
    counts = Counter(verdict.word for verdict in verdicts)
    return "; ".join(f"{counts[word]} {WORDS[word][counts[word] > 1]}" for word in WORDS if counts[word])


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of values and its 95 % interval by Student's t; NaN limits for fewer than two values.

    >>> [round(bound, 3) for bound in mean_interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    mean = statistics.fmean(values) if values else math.nan
    if len(values) < 2:
        return mean, math.nan, math.nan
    half = student(len(values) - 1) * standard_error(values)
    return mean, mean - half, mean + half


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; NaN for fewer than two values."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def student(degrees: float) -> float:
    """Return the two-sided quantile of Student's t at the level of all intervals."""
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, degrees))


def estimate(what: str, values: Sequence[float], least: float, most: float, over: str = "seeds") -> Estimate:
    """Return the mean of one value per seed against a region; without an interval for fewer than three seeds."""
    mean, low, high = mean_interval(values)
    limits = (low, high) if len(values) >= MIN_SEEDS else (math.nan, math.nan)
    return Estimate(what, mean, *limits, least, most, f"{len(values)} {over}")


def crossed_interval(values: ArrayLike) -> tuple[float, float, float]:
    """Return the mean of values (R, N), one row a run and one column an example, and its interval over both.

    The squared standard error is the sum of those of the row means and of the column means: runs and examples are
    crossed random effects, and the residual is counted in both, so the interval is slightly wide. The quantile is that
    of R - 1 degrees of freedom, or of N - 1 for one run, whose interval is over examples alone.

    >>> [round(bound, 3) for bound in crossed_interval([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])]
    [2.0, -0.484, 4.484]
    """
    table = np.asarray(values, dtype=float)
    runs, examples = table.shape
    if examples < 2:
        return mean_interval(table[:, 0].tolist())
    errors = [table.mean(axis=0).std(ddof=1) / math.sqrt(examples)]
    if runs > 1:
        errors.append(table.mean(axis=1).std(ddof=1) / math.sqrt(runs))
    half = student((runs if runs > 1 else examples) - 1) * math.hypot(*errors)
    mean = float(table.mean())
    return mean, mean - half, mean + half


def jackknife_estimate(
    what: str,
    statistic: Callable[..., ArrayLike],
    sizes: Mapping[str, int],
    least: float,
    most: float,
    examples: str = "examples",
) -> Estimate:
    """Return a statistic of groups of networks on examples, with its interval over both, against a region.

    Args:
        what: What the estimate is of.
        statistic: Function of one list of indices per group. It returns a number, or one value per example whose mean
            is the estimate; comparisons of the same examples are thereby paired.
        sizes: Size of each group by what it consists of, such as {"runs": 5}.
        least: Lower end of the predicted region.
        most: Upper end.
        examples: What examples are called.

    Returns:
        The estimate. Its squared standard error is the sum of the delete-one jackknife of every group and of the
        variance over examples; the quantile is Student's with the degrees of freedom of Welch and Satterthwaite. A
        group of fewer than three is not resampled, and `over` names it behind the examples.

    >>> jackknife_estimate("mean", lambda rows: sum([1, 2, 3][i] for i in rows) / len(rows), {"runs": 3}, 0, 9).low
    -0.484...
    """
    everything = [list(range(count)) for count in sizes.values()]
    values = np.atleast_1d(np.asarray(statistic(*everything), dtype=float))
    squares, degrees, over, few = list[float](), list[int](), list[str](), list[str]()

    def left_out(place: int, row: int) -> float:
        rows = [[i for i in group if (at, i) != (place, row)] for at, group in enumerate(everything)]
        return float(np.asarray(statistic(*rows), dtype=float).mean())

    for place, (noun, count) in enumerate(sizes.items()):
        if count < MIN_SEEDS:
            few.append(f"{count} {noun if count != 1 else noun.removesuffix('s')}")
            continue
        squares.append((count - 1) * float(np.var([left_out(place, row) for row in range(count)])))
        degrees.append(count - 1)
        over.append(f"{count:,} {noun}")
    if len(values) > 1:
        squares.append(float(values.var(ddof=1)) / len(values))
        degrees.append(len(values) - 1)
        over.append(f"{len(values):,} {examples}")
    mean, total = float(values.mean()), sum(squares)
    decided = bool(squares) and (total > 0 or mean not in (least, most))  # no variation, and at the edge: not known
    freedom = total**2 / sum(s**2 / d for s, d in zip(squares, degrees, strict=True)) if total else 1
    half = student(freedom) * math.sqrt(total) if decided else math.nan
    text = " and ".join(over) + (f" of {' and '.join(few)}" if few else "")
    return Estimate(what, mean, mean - half, mean + half, least, most, text.removeprefix(" "))


def crossed_estimate(what: str, values: ArrayLike, least: float, most: float) -> Estimate:
    """Return the mean of values (R, N) of runs and examples against a region; no interval for fewer than three runs."""
    table = np.asarray(values, dtype=float)
    runs, examples = table.shape
    mean, low, high = crossed_interval(table)
    limits = (low, high) if runs >= MIN_SEEDS else (math.nan, math.nan)
    return Estimate(what, mean, *limits, least, most, f"{runs} runs and {examples:,} examples")
