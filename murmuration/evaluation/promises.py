"""Whether sets hold the truth and rules for declining keep their word on examples that taught them nothing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.metrics import Evaluation, Measure, Score
from murmuration.metrics.intervals import Feature, bootstrap_means, group_of, group_sums, percentile_interval, wilson
from murmuration.metrics.scores import ANY, POSITIVE, UNIT, Bounds, Task, column
from murmuration.posthoc.abstention import Abstention
from murmuration.posthoc.conformal import Rule, SetRule, quantile_rank
from murmuration.posthoc.fit import PostHoc
from murmuration.posthoc.serialization import to_json

TEST = "test"
MOST_CLASSES = 30  # whose coverage is listed one by one
FEWEST = 10  # examples of a class or group whose coverage is worth listing


@dataclass(frozen=True)
class SetsFound:
    """How often the sets of one rule held the truth, among some examples."""

    method: str
    level: float
    where: str
    coverage: Score
    size: Score  # mean number of classes, or mean width
    examples: int
    taught: int  # examples that the rule learned from

    @property
    def broken(self) -> bool:
        """Whether the truths held are fewer than promised by more than chance explains.

        Chance had two turns: in the examples looked at here, and in those that taught the rule. The distances to both
        limits are added as squares, as those of independent errors are (Zou and Donner 2008).
        """
        reach = math.hypot(self.coverage.high - self.coverage, self.level - unlucky_coverage(self.taught, self.level))
        return self.coverage + reach < self.level

    def to_json(self) -> dict[str, Any]:
        scores = {"coverage": self.coverage.to_json(), "size": self.size.to_json()}
        return {"method": self.method, "level": self.level, "where": self.where, "examples": self.examples, **scores}


@dataclass(frozen=True)
class RuleFound:
    """What a rule for declining does on examples."""

    rule: Abstention
    where: str
    answered: Score  # share of the examples
    risk: Score  # mean loss among the answered
    cost: Score | None  # of an example on average, for a rule that weighs costs

    def to_json(self) -> dict[str, Any]:
        scores = {"answered": self.answered.to_json(), "risk": self.risk.to_json()}
        cost = {"cost": self.cost.to_json()} if self.cost is not None else {}
        return {**to_json(self.rule), "where": self.where, **scores, **cost}


def unlucky_coverage(taught: int, level: float) -> float:
    """The coverage that a rule taught by so many examples exceeds with probability 0.975.

    With n examples and the k-th smallest score as threshold it is distributed as Beta(k, n + 1 - k) (Vovk 2012): a
    rule keeps its promise on average, and one in a few falls short of it for ever.

    >>> round(unlucky_coverage(99, 0.9), 3)  # Beta(90, 10)
    0.834
    """
    from scipy.special import betaincinv

    place = quantile_rank(taught, level)
    return float(betaincinv(place, taught + 1 - place, 0.025)) if place <= taught else level


def set_measures(guard: PostHoc, task: Task) -> dict[str, Measure]:
    """Coverage and size of the sets that predictions are written with, as scores of columns; no size without end."""
    if not guard.conformal:
        return {}
    method = guard.conformal[0].method
    covered = Measure(
        "set_coverage",
        "Set coverage",
        "Fraction of prediction sets that contain the target.",
        column(f"covered_{method}"),
        task=task,
        better="neutral",
        bounds=UNIT,
        proportion=True,
        shown=(),
    )
    size = Measure(
        "set_size", "Set size", "Mean size of the sets.", column(f"size_{method}"), task=task, bounds=POSITIVE, shown=()
    )
    return {"set_coverage": covered, **({} if endless(guard.conformal[0]) else {"set_size": size})}


def endless(rule: Rule) -> bool:
    """Whether a rule had too few examples for its level, so that its intervals have no ends."""
    return not isinstance(rule, SetRule) and not math.isfinite(rule.threshold)


def sets_found(guard: PostHoc, evaluation: Evaluation, where: str, rows: np.ndarray | None = None) -> list[SetsFound]:
    """How every rule's sets did among all examples, or among those in `rows`."""
    columns = evaluation.columns
    chosen = slice(None) if rows is None else rows
    return [
        SetsFound(
            rule.method,
            rule.coverage,
            where,
            mean_score(columns[f"covered_{rule.method}"][chosen], proportion=True),
            mean_score(columns[f"size_{rule.method}"][chosen], POSITIVE),
            len(columns[f"size_{rule.method}"][chosen]),
            rule.examples,
        )
        for rule in guard.conformal
    ]


def sets_by_group(guard: PostHoc, evaluation: Evaluation, groups: Mapping[str, np.ndarray]) -> list[SetsFound]:
    """How the sets that predictions are written with did in each group (name -> rows) that has enough examples."""
    first = PostHoc(None, guard.conformal[:1], (), 0, 0)
    kept = {name: rows for name, rows in groups.items() if len(rows) >= FEWEST}
    return [found for name, rows in kept.items() for found in sets_found(first, evaluation, name, rows)]


def by_class(evaluation: Evaluation, classes: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The examples of every true class, where there are not too many classes to list."""
    if not classes or len(classes) > MOST_CLASSES:
        return {}
    labels = evaluation.columns["label"]
    return {f"class {name}": np.flatnonzero(labels == k) for k, name in enumerate(classes)}


def rules_found(guard: PostHoc, evaluation: Evaluation, where: str = TEST) -> list[RuleFound]:
    """What every rule for declining does on the examples."""
    columns = evaluation.columns
    classes = evaluation.task == "classification"
    losses = 1.0 - columns["correct"] if classes else columns["absolute_error"]
    found = []
    for rule in guard.abstention:
        answers = columns[f"answered_{rule.name}"].astype(bool)
        cost = None
        if rule.costs:
            cost = mean_score(np.where(answers, rule.costs[0] * losses, rule.costs[1]), POSITIVE)
        risk = (
            mean_score(losses[answers], POSITIVE, proportion=classes)
            if answers.any()
            else Score(np.nan, np.nan, np.nan)
        )
        found.append(RuleFound(rule, where, mean_score(answers, proportion=True), risk, cost))
    return found


def mean_score(values: np.ndarray, bounds: Bounds = ANY, *, proportion: bool = False) -> Score:
    """The mean of values (N,) with its 95 % interval, clipped to the bounds of the values.

    Proportions of zeros and ones get Wilson's interval, everything else the percentile bootstrap.
    """
    numbers = np.asarray(values, dtype=float)
    mean = float(numbers.mean())
    if proportion and np.isin(numbers, (0.0, 1.0)).all():  # several targets make shares in between
        return Score(mean, *(float(end) for end in wilson(np.array(numbers.sum()), np.array(len(numbers)))))
    if not np.isfinite(numbers).all():
        return Score(mean, np.nan, np.nan)
    groups = group_of(len(numbers), seed=0)
    sizes = np.bincount(groups).astype(float)
    drawn = bootstrap_means(group_sums([Feature(numbers)], groups), sizes, resamples=1000, seed=0)
    ends = percentile_interval(mean, drawn[:, 0])
    return Score(mean, *np.clip(ends, *(UNIT if proportion else bounds)))
