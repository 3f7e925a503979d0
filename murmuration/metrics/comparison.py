"""Whether one predictive is better than another on the same examples, or only luckier."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.errors import Misuse
from murmuration.metrics.evaluation import Evaluation, Score, evaluate, overall_means
from murmuration.metrics.intervals import CHUNK, bootstrap_means, group_of, group_sums, percentile_interval
from murmuration.metrics.scores import Measure, measure_of
from murmuration.predictive import Predictive

PERMUTATIONS = 9_999


@dataclass(frozen=True)
class Comparison:
    """The difference a - b of one score on the same examples."""

    name: str
    difference: Score  # with its 95 % interval
    p_value: float  # of a difference this large, either way, if a and b were exchangeable
    test: str  # how the p-value was found

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.difference.to_json(), "p_value": self.p_value, "test": self.test}


def compare_predictives(a: Predictive, b: Predictive, y: Any, metric: str = "nll") -> Comparison:
    """The comparison of two predictives for the same inputs by a score on targets y."""
    return paired_test(evaluate(a, y), evaluate(b, y), metric)


def paired_test(a: Evaluation, b: Evaluation, name: str, *, seed: int = 0, resamples: int = 1000) -> Comparison:
    """The difference a - b of the score `name`, its paired bootstrap interval, and its p-value.

    The p-value is McNemar's exact one for accuracy. For every other score it comes from swapping a and b on
    random halves of the examples, which for a mean is the sign-flip test: exact if the examples are
    independent, whatever their distribution. Its smallest value is 1/10,000.
    """
    check_same_examples(a, b)
    measure, groups = measure_of(name, a.task), group_of(a.inputs, seed)
    pair = [group_sums(measure.features(each.columns), groups) for each in (a, b)]
    sizes = np.bincount(groups).astype(float)
    value = difference(measure, *(overall_means(measure.features(each.columns)) for each in (a, b)))
    drawn = bootstrap_means(np.concatenate(pair, axis=1), sizes, resamples=resamples, seed=seed)
    low, high = percentile_interval(value, difference(measure, *np.split(drawn, 2, axis=1)))
    if name == "accuracy":
        p_value, test = mcnemar(a.columns["correct"], b.columns["correct"]), "McNemar, exact"
    else:
        p_value, test = swap_test(measure, pair[0], pair[1], inputs=a.inputs, seed=seed), "paired permutation"
    return Comparison(name, Score(value, low, high), p_value, test)


def difference(measure: Measure, a: np.ndarray, b: np.ndarray) -> Any:
    """The difference (...) of the score between means a and b (..., F)."""
    return measure.finish(measure.combine(a)) - measure.finish(measure.combine(b))


def swap_test(measure: Measure, a: np.ndarray, b: np.ndarray, *, inputs: int, seed: int) -> float:
    """The share of random swaps of a and b (G, F), the given one included, that differ at least as much."""
    rng, moved = np.random.default_rng(seed), (b - a) / inputs
    total_a, total_b = a.sum(0) / inputs, b.sum(0) / inputs
    observed = np.abs(difference(measure, total_a, total_b))
    least = observed - 1e-12 * max(1.0, float(observed))  # equal up to rounding counts as equal
    extreme = 0
    for start in range(0, PERMUTATIONS, CHUNK):
        rows = min(CHUNK, PERMUTATIONS - start)
        shift = rng.integers(2, size=(rows, len(a)), dtype=np.int8).astype(float) @ moved
        extreme += int((np.abs(difference(measure, total_a + shift, total_b - shift)) >= least).sum())
    return (1 + extreme) / (1 + PERMUTATIONS)


def mcnemar(correct_a: np.ndarray, correct_b: np.ndarray) -> float:
    """The exact two-sided p-value (McNemar 1947) from the examples that only one of the two gets right."""
    from scipy.stats import binomtest

    only_a, only_b = int((correct_a & ~correct_b).sum()), int((correct_b & ~correct_a).sum())
    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def check_same_examples(a: Evaluation, b: Evaluation) -> None:
    """Nothing, if both evaluations are of the same targets in the same order."""
    key = "label" if a.task == "classification" else "target"
    if a.task != b.task or a.columns[key].shape != b.columns[key].shape:
        raise Misuse(f"a is {a.task} on {a.inputs} inputs, b is {b.task} on {b.inputs}: expected the same examples")
    differs = np.flatnonzero(a.columns[key].ravel() != b.columns[key].ravel())
    if len(differs):
        raise Misuse(f"a and b differ in the target of example {differs[0]}: expected the same examples, same order")
