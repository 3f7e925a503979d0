"""The numbers that every part of a report is made of: scores with intervals, curves, histograms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from murmuration.errors import Misuse, unknown

Numbers: TypeAlias = Sequence[float] | NDArray[Any]
Score: TypeAlias = tuple[float, float, float]  # value, low and high end of its interval (NaN where there is none)

KINDS = {"classification": ("confidence",), "regression": ("interval", "quantile")}  # of reliability, by task


@dataclass(frozen=True)
class Reliability:
    """What was promised against what happened, bin by bin (all (B,)); bins that are NaN are left out.

    Of a classification ("confidence"): mean confidence of a bin and its accuracy. Of a regression: nominal
    and observed share of truths inside central intervals ("interval") or below quantiles ("quantile").
    The two are read differently: too narrow intervals lie below the diagonal, too narrow quantiles above it
    on the left and below it on the right.
    """

    promised: Numbers
    observed: Numbers
    low: Numbers = ()
    high: Numbers = ()
    count: Numbers = ()
    kind: Literal["confidence", "interval", "quantile"] = "confidence"

    def __post_init__(self) -> None:
        if self.kind not in KINDS["classification"] + KINDS["regression"]:
            raise unknown("kind of reliability", str(self.kind), KINDS["classification"] + KINDS["regression"])
        same_length("reliability", promised=self.promised, observed=self.observed)
        optional = {"low": self.low, "high": self.high, "count": self.count}
        given = {name: values for name, values in optional.items() if len(values)}
        same_length("reliability", promised=self.promised, **given)


@dataclass(frozen=True)
class RiskCoverage:
    """Error among the most certain share of the examples, for growing shares (both (C,))."""

    coverage: Numbers
    risk: Numbers

    def __post_init__(self) -> None:
        same_length("risk_coverage", coverage=self.coverage, risk=self.risk)


@dataclass(frozen=True)
class Histogram:
    """Counts of an uncertainty in bins, one row a group of predictions: {"right": (B,), "wrong": (B,)}."""

    name: str  # "entropy", "mutual_information", "total_std"
    edges: Numbers  # (B + 1,)
    groups: Mapping[str, Numbers]

    def __post_init__(self) -> None:
        for group, counts in self.groups.items():
            if len(counts) != len(self.edges) - 1:
                raise Misuse(
                    f"histogram '{self.name}': group '{group}' has {len(counts)} counts for "
                    f"{len(self.edges)} edges; give one edge more than counts"
                )


def check_scores(owner: str, scores: Mapping[str, Any]) -> None:
    """Refuse scores that are not triples."""
    for name, score in scores.items():
        if not isinstance(score, tuple | list) or len(score) != 3:
            raise Misuse(f"score '{name}' of '{owner}' is {score!r}; give (value, low, high), NaN if unknown")


def same_length(what: str, **columns: Numbers) -> None:
    """Refuse columns of different lengths."""
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise Misuse(f"{what}: columns of different lengths ({told}); give one value a row in each")
