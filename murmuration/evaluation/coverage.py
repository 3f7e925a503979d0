"""Empirical coverage of conformal sets and what abstention rules do, on examples that neither was fitted on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

import murmuration.evaluation.metrics.intervals as intervals
from murmuration.evaluation.metrics import ExampleScores, Measure, Score, holm
from murmuration.evaluation.metrics.scores import ANY, POSITIVE, UNIT, Bounds, Task, column
from murmuration.prediction.posthoc import PostHoc
from murmuration.prediction.posthoc.abstention import Abstention
from murmuration.prediction.posthoc.conformal import Rule, SetRule, quantile_rank
from murmuration.system.records import to_json

TEST = "test"
MOST_CLASSES = 30  # whose coverage is listed one by one
UNDEFINED = Score(np.nan, np.nan, np.nan)  # a share of nothing
FALSE_ALARM = 0.025  # probability that a valid rule is called under-covering, and as well over-covering


@dataclass(frozen=True)
class SetCoverage:
    """Nominal and empirical coverage of the sets of one conformal rule, on a subset of the examples."""

    method: str
    nominal: float
    subset: str
    coverage: Score  # empirical
    size: Score  # mean number of classes, or mean width
    examples: int
    calibration_examples: int  # that the rule was fitted on
    p_value: float  # of so few covered examples under a valid rule; adjusted where several subsets are looked at
    DERIVED: ClassVar = ("verdict",)

    @staticmethod
    def of(rule: Rule, subset: str, coverage: Score, size: Score, examples: int) -> "SetCoverage":
        """Return the record of what a rule covers of a number of examples."""
        p_value = coverage_tail(coverage, examples, rule.examples, rule.coverage)
        return SetCoverage(rule.method, rule.coverage, subset, coverage, size, examples, rule.examples, p_value)

    @property
    def verdict(self) -> Literal["under", "valid", "over"]:
        """Whether the coverage is below or above nominal by more than sampling noise of both samples explains.

        This is the only place where coverage is judged; see `coverage_tail`.
        """
        if self.p_value < FALSE_ALARM:
            return "under"
        above = coverage_tail(self.coverage, self.examples, self.calibration_examples, self.nominal, above=True)
        return "over" if above < FALSE_ALARM else "valid"


@dataclass(frozen=True)
class AbstentionResult:
    """What an abstention rule does on the examples."""

    rule: Abstention
    subset: str
    answered: Score  # fraction of the examples
    risk: Score  # mean loss among the answered
    cost: Score | None  # mean cost per example, for a rule that weighs costs

    def to_json(self) -> dict[str, Any]:
        measured = {name: value for name, value in vars(self).items() if name != "rule" and value is not None}
        return {**to_json(self.rule), **measured}


def coverage_tail(
    coverage: float, examples: int, calibration_examples: int, nominal: float, *, above: bool = False
) -> float:
    """Return the probability that a valid split-conformal rule covers at most (at least) this fraction of the examples.

    With n calibration examples and the k-th smallest score as threshold, k = ceil((n + 1) nominal), the coverage given
    the calibration set is distributed as Beta(k, n + 1 - k) (Vovk 2012), so the number covered among m test examples
    is beta-binomial: both samples are allowed for. Tied scores only raise the coverage. A rule with too few
    calibration examples covers everything.

    >>> round(coverage_tail(0.85, 1000, 90, 0.9), 3), round(coverage_tail(0.85, 1000, 100_000, 0.9), 3)
    (0.072, 0.0)
    """
    from scipy.stats import betabinom

    place = quantile_rank(calibration_examples, nominal)
    if place > calibration_examples:
        return 1.0
    covered = round(coverage * examples, 6)
    count = betabinom(examples, place, calibration_examples + 1 - place)
    return float(count.sf(math.ceil(covered) - 1) if above else count.cdf(math.ceil(covered)))


def set_measures(posthoc: PostHoc, task: Task) -> dict[str, Measure]:
    """Return coverage and size of the primary rule's sets as scores of columns; no size for unbounded intervals."""
    if not posthoc.conformal:
        return {}
    rule, shared = posthoc.conformal[0], {"task": task, "shown": ()}
    about, covered = "Fraction of prediction sets that contain the target.", column(f"covered_{rule.method}")
    share: dict[str, Any] = {"better": "neutral", "bounds": UNIT, "proportion": True, **shared}
    measures = {"set_coverage": Measure("set_coverage", "Set coverage", about, covered, **share)}
    if isinstance(rule, SetRule) or math.isfinite(rule.threshold):  # with too few examples, intervals are infinite
        size: dict[str, Any] = {"bounds": POSITIVE, **shared}
        values = column(f"size_{rule.method}")
        measures["set_size"] = Measure("set_size", "Set size", "Mean size of the sets.", values, **size)
    return measures


def set_coverage(
    posthoc: PostHoc, scores: ExampleScores, subset: str = TEST, rows: np.ndarray | None = None
) -> list[SetCoverage]:
    """Return the coverage of every rule's sets on all examples, or on those in `rows`.

    All classes together have the calibration examples of all: with shares n_k / n of n, and variances p (1 - p) / n_k
    of the coverage of each, that of the whole is p (1 - p) / n. A class without a threshold is always covered.
    """
    selected = slice(None) if rows is None else rows
    whole = {"mondrian": posthoc.rule_examples}
    rules = (replace(rule, examples=whole.get(rule.method, rule.examples)) for rule in posthoc.conformal)
    return [coverage_of(rule, scores, subset, selected) for rule in rules]


def coverage_of(rule: Rule, scores: ExampleScores, subset: str, rows: Any) -> SetCoverage:
    """Return the coverage of one rule's sets on some examples."""
    covered, sizes = (scores.columns[f"{kind}_{rule.method}"][rows] for kind in ("covered", "size"))
    return SetCoverage.of(rule, subset, mean_score(covered, proportion=True), mean_score(sizes, POSITIVE), len(sizes))


def coverage_by_group(posthoc: PostHoc, scores: ExampleScores, groups: Mapping[str, np.ndarray]) -> list[SetCoverage]:
    """Return the coverage of the primary rule's sets in each group (name -> rows) that has examples.

    Their p-values are adjusted for how many groups there are (Holm 1979).
    """
    listed = {name: rows for name, rows in groups.items() if len(rows)}
    coverages = [coverage_of(posthoc.conformal[0], scores, name, rows) for name, rows in listed.items()]
    adjusted = holm([coverage.p_value for coverage in coverages])
    return [replace(coverage, p_value=float(p)) for coverage, p in zip(coverages, adjusted, strict=True)]


def rows_by_class(scores: ExampleScores, classes: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return the examples of every true class, where there are not too many classes to list."""
    if not classes or len(classes) > MOST_CLASSES:
        return {}
    labels = scores.columns["label"]
    return {f"class {name}": np.flatnonzero(labels == k) for k, name in enumerate(classes)}


def abstention_results(posthoc: PostHoc, scores: ExampleScores, subset: str = TEST) -> list[AbstentionResult]:
    """Return what every abstention rule does on the examples."""
    classes = scores.task == "classification"
    losses = 1.0 - scores.columns["correct"] if classes else scores.columns["absolute_error"]
    results = []
    for rule in posthoc.abstention:
        answers = scores.columns[f"answered_{rule.name}"].astype(bool)
        cost = mean_score(np.where(answers, rule.costs[0] * losses, rule.costs[1]), POSITIVE) if rule.costs else None
        risk = mean_score(losses[answers], POSITIVE, proportion=classes) if answers.any() else UNDEFINED
        results.append(AbstentionResult(rule, subset, mean_score(answers, proportion=True), risk, cost))
    return results


def mean_score(values: np.ndarray, bounds: Bounds = ANY, *, proportion: bool = False) -> Score:
    """Return the mean of values (N,) with its 95 % interval, clipped to the bounds of the values.

    Proportions of zeros and ones get Wilson's interval, everything else the percentile bootstrap.
    """
    numbers = np.asarray(values, dtype=float)
    mean = float(numbers.mean())
    if proportion and np.isin(numbers, (0.0, 1.0)).all():  # several targets make fractions in between
        return Score(mean, *(float(end) for end in intervals.wilson(np.array(numbers.sum()), np.array(len(numbers)))))
    if not np.isfinite(numbers).all():
        return Score(mean, np.nan, np.nan)
    groups = intervals.group_of(len(numbers), seed=0)
    sums, sizes = intervals.group_sums([intervals.Feature(numbers)], groups), np.bincount(groups).astype(float)
    resampled = intervals.bootstrap_means(sums, sizes, resamples=1000, seed=0)[:, 0]
    return Score(mean, *np.clip(intervals.percentile_interval(mean, resampled), *(UNIT if proportion else bounds)))
