"""Several training seeds: mean scores and paired differences of methods, with t-intervals over the seeds.

Intervals over examples say how sure a difference between two trained networks is. Those over seeds say how sure the
difference between two methods is, on these splits: each seed trains all recipes, so differences are paired by seed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

import murmuration.reports.html as html
from murmuration.evaluation import Evaluation
from murmuration.evaluation.metrics import MEASURES, Score, describe, holm, shown_in
from murmuration.evaluation.metrics.intervals import LEVEL
from murmuration.evaluation.metrics.scores import measure_of
from murmuration.reports.findings import DECIDING, SIGNIFICANT, Difference
from murmuration.reports.formatting import interval, number
from murmuration.reports.html import Markup


def t_interval(values: Sequence[float]) -> Score:
    """Return the mean of values (S,), one for each seed, with its 95 % t-interval.

    >>> t_interval([1.0, 2.0, 3.0])
    2 [-0.4841, 4.484]
    """
    from scipy.stats import t

    sample = np.asarray(values, dtype=float)
    half = float(t.ppf((1 + LEVEL) / 2, len(sample) - 1)) * sample.std(ddof=1) / math.sqrt(len(sample))
    return Score(sample.mean(), sample.mean() - half, sample.mean() + half)


def t_test(values: Sequence[float]) -> float:
    """Return the two-sided p-value of a mean of 0, of values that are not all equal."""
    from scipy.stats import t

    sample = np.asarray(values, dtype=float)
    error = sample.std(ddof=1) / math.sqrt(len(sample))
    return float(2 * t.sf(abs(sample.mean()) / error, len(sample) - 1))


@dataclass(frozen=True)
class SeedRun:
    """What is kept of the evaluations of one seed: scores by recipe, and paired tests over examples."""

    seed: int
    scores: dict[str, dict[str, float]]
    tests: tuple[Difference, ...]

    @staticmethod
    def of(seed: int, evaluations: Sequence[Evaluation], tests: Sequence[Difference]) -> "SeedRun":
        """Return the record of the evaluations of all recipes."""
        scores = {}
        for evaluation in evaluations:
            own = {name: float(score) for name, score in evaluation.scores.items()}
            shift = evaluation.shift.pooled if evaluation.shift is not None else {}
            own |= {f"corrupted_{name}": float(score) for name, score in shift.items()}
            scores[evaluation.name] = own
        return SeedRun(seed, scores, tuple(tests))


@dataclass(frozen=True)
class SeedDifference:
    """One score of two recipes over seeds: a - b."""

    a: str
    b: str
    name: str
    better: str  # "higher" or "lower"
    difference: Score  # mean over seeds, with its t-interval
    p_value: float  # of the paired t-test, corrected for the number of pairs by Holm's method
    by_seed: tuple[Score, ...]  # difference of each seed, with its interval over examples

    @property
    def by_chance(self) -> bool:
        return not self.p_value < SIGNIFICANT

    @property
    def chance(self) -> str:
        return "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.2g}"

    @property
    def label(self) -> str:
        """The score in words."""
        clean = self.name.removeprefix("corrupted_")
        return describe(clean).label + ("" if clean == self.name else " under corruption")

    def minus(self, other: str) -> Score:
        """Return the difference as that of one recipe minus the other named one."""
        return (
            self.difference
            if self.b == other
            else Score(-float(self.difference), -self.difference.high, -self.difference.low)
        )


@dataclass(frozen=True)
class Seeds:
    """The same recipes trained with several seeds on the same splits."""

    task: Any
    runs: tuple[SeedRun, ...]
    differences: tuple[SeedDifference, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    @property
    def recipes(self) -> tuple[str, ...]:
        return tuple(self.runs[0].scores)

    def values(self, recipe: str, score: str) -> list[float]:
        """Return the score of a recipe by seed; NaN where it does not exist."""
        return [run.scores[recipe].get(score, math.nan) for run in self.runs]

    def mean(self, recipe: str, score: str) -> Score:
        """Return the mean of a score over seeds, with its t-interval inside the range of the score."""
        mean, measure = (
            t_interval(self.values(recipe, score)),
            MEASURES[self.task].get(score.removeprefix("corrupted_")),
        )
        return mean if measure is None else Score(mean, *np.clip([mean.low, mean.high], *measure.bounds))

    @property
    def leader(self) -> str:
        """The recipe with the lowest mean NLL."""
        return min(self.recipes, key=lambda name: float(self.mean(name, DECIDING)))

    def to_reference(self, score: str, reference: str) -> dict[str, Score]:
        """Return the difference of every other recipe to one of them."""
        tests = [test for test in self.differences if test.name == score and reference in (test.a, test.b)]
        return {test.a if test.b == reference else test.b: test.minus(reference) for test in tests}

    @property
    def verdict(self) -> tuple[str, ...]:
        """Which recipe to use, by the deciding score over the seeds."""
        leader, label, count = self.leader, describe(DECIDING).label, f"{len(self.runs)} training seeds"
        against = {
            test.a if test.b == leader else test.b: test
            for test in self.differences
            if test.name == DECIDING and leader in (test.a, test.b)
        }
        close = [name for name, test in against.items() if test.by_chance]
        if close:
            largest = max((against[name] for name in close), key=lambda test: abs(float(test.difference)))
            words = (
                f"{leader} has the lowest mean {label}, but its lead over {' and '.join(close)} is within the spread"
            )
            return (f"No clear winner over {count}: {words} of the seeds ({largest.chance}).",)
        name, test = min(against.items(), key=lambda item: abs(float(item[1].difference)))
        size = test.minus(leader)
        lead = f"{number(abs(size))} lower than that of {name} (95 % interval {number(size.low)} to {number(size.high)}"
        return (f"Use {leader}: over {count} its mean {label} is {lead}, {test.chance}).",)

    def rows(self, names: Sequence[str]) -> list[tuple[str, list[Score]]]:
        """Return the mean scores of every recipe."""
        return [(recipe, [self.mean(recipe, name) for name in names]) for recipe in self.recipes]

    def pairs(self, score: str) -> list[SeedDifference]:
        """Return the differences in a score, those to the leader first."""
        tests = [test for test in self.differences if test.name == score]
        return sorted(tests, key=lambda test: self.leader not in (test.a, test.b))

    def tables(self, evaluation: Evaluation) -> list[Markup]:
        """Return mean scores and paired differences as tables of a page."""
        count, names = f"{len(self.runs)} training seeds", evaluation.shown_in("brief")
        heads = ["", *(html.score_head(describe(name, evaluation.task)) for name in names)]
        means = [(recipe, [html.score_cell(score) for score in scores]) for recipe, scores in self.rows(names)]
        board = html.table(f"Means over {count}, with t-intervals", heads, means)
        rows = []
        for test in self.pairs(DECIDING):
            values = zip(self.seeds, test.by_seed, strict=True)
            by_seed = "; ".join(f"{seed}: {number(score)} ({interval(score)})" for seed, score in values)
            rows.append((f"{test.a} \u2212 {test.b}", [html.score_cell(test.difference), test.chance, by_seed]))
        columns = ("", f"{describe(DECIDING).label} over seeds", "t-test", "By seed, with intervals over examples")
        more = html.details(
            "Differences by seed", html.tag("div", html.table("Paired by seed", columns, rows), "words")
        )
        return [html.tag("div", board, "wrapped"), more]

    def to_json(self) -> dict[str, Any]:
        """Return the record in `results.json`."""
        scores: dict[str, dict[str, list[Any]]] = {
            recipe: {name: [run.scores[recipe].get(name) for run in self.runs] for name in self.runs[0].scores[recipe]}
            for recipe in self.recipes
        }
        means = {
            recipe: {name: self.mean(recipe, name) for name, values in own.items() if None not in values}
            for recipe, own in scores.items()
        }
        return {"seeds": self.seeds, "scores": scores, "means": means, "differences": self.differences}


def seeds_of(runs: Sequence[SeedRun], task: Any) -> Seeds:
    """Return the differences of every two recipes over the seeds, with p-values corrected by Holm's method."""
    names = [name for score in shown_in("compared", task) for name in (score, f"corrupted_{score}")]
    tests = list(_differences(runs, names, task))
    for name in names:
        places = [place for place, test in enumerate(tests) if test.name == name]
        for place, p_value in zip(places, holm([tests[place].p_value for place in places]), strict=True):
            tests[place] = replace(tests[place], p_value=float(p_value))
    return Seeds(task, tuple(runs), tuple(tests))


def _differences(runs: Sequence[SeedRun], names: Sequence[str], task: Any) -> Iterator[SeedDifference]:
    for a, b in combinations(runs[0].scores, 2):
        for name in names:
            tested = [[t for t in run.tests if (t.a, t.b, t.test.name) == (a, b, name)] for run in runs]
            if not all(tested):
                continue
            by_seed = tuple(found[0].test.difference for found in tested)
            better = measure_of(name.removeprefix("corrupted_"), task).better
            first, numbers = tested[0][0].test, np.array([float(score) for score in by_seed])
            if np.ptp(numbers) <= 1e-12 * abs(numbers).max():  # models that no seed changes: examples alone decide
                yield SeedDifference(a, b, name, better, first.difference, first.p_value, by_seed)
            else:
                yield SeedDifference(a, b, name, better, t_interval(by_seed), t_test(by_seed), by_seed)
