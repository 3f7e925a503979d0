"""Paired comparison of two predictives on the same examples: difference, interval, p-value."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.evaluation.metrics.example_scores import ExampleScores, Score, score_examples
from murmuration.evaluation.metrics.intervals import CHUNK, bootstrap_means, group_of, group_sums, percentile_interval
from murmuration.evaluation.metrics.scores import Measure, measure_of
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse

PERMUTATIONS = 9_999
PERMUTED = "paired permutation"


@dataclass(frozen=True)
class PairedTest:
    """The difference a - b of one score on the same examples."""

    name: str
    difference: Score  # with its 95 % interval
    p_value: float  # of a difference this large, either way, if a and b were exchangeable
    test: str  # how the p-value was found

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.difference.to_json(), "p_value": self.p_value, "test": self.test}


def compare_predictives(a: Predictive, b: Predictive, y: Any, metric: str = "nll") -> PairedTest:
    """Compare two predictives for the same inputs by a score.

    Args:
        a: Predictions of the first model.
        b: Predictions of the second model.
        y: Their targets.
        metric: Name of the score.

    Returns:
        The difference a - b with its interval and p-value.

    Raises:
        Misuse: If the score does not exist for both.
    """
    return paired_test(score_examples(a, y), score_examples(b, y), metric)


def paired_test(a: ExampleScores, b: ExampleScores, name: str, *, seed: int = 0, resamples: int = 1000) -> PairedTest:
    """Test the difference a - b of a score on the same examples.

    The p-value is the exact one of McNemar for accuracy. For every other score it comes from swapping a and b on random
    halves of the examples, which for a mean is the sign-flip test: exact if the examples are independent, whatever
    their distribution. Its smallest value is 1/10,000.

    Args:
        a: Per-example scores of the first model.
        b: Those of the second model.
        name: Name of the score.
        seed: Seed of the resampling.
        resamples: Number of bootstrap resamples.

    Returns:
        The difference with its paired bootstrap interval and p-value.

    Raises:
        Misuse: If a and b are of different examples, or the score does not exist for both.
    """
    check_same_examples(a, b)
    measure, groups = measure_of(name, a.task), group_of(a.inputs, seed)
    for label, scores in (("a", a), ("b", b)):
        if not measure.exists(scores.columns):
            hint = "a fair score needs two members, a ranking errors"
            raise Misuse(f"{name} does not exist for {label}, {scores!r}: {hint}")
    sums_a, sums_b = (group_sums(measure.features(scores.columns), groups) for scores in (a, b))  # (G, F)
    sizes = np.bincount(groups).astype(float)
    score = paired_difference(measure, sums_a, sums_b, sizes=sizes, seed=seed, resamples=resamples)
    if name == "accuracy":
        return PairedTest(name, score, mcnemar(a.columns["correct"], b.columns["correct"]), "McNemar, exact")
    return PairedTest(name, score, swap_test(measure, sums_a, sums_b, inputs=a.inputs, seed=seed), PERMUTED)


def paired_sums(name: str, measure: Measure, a: np.ndarray, b: np.ndarray, *, inputs: int, seed: int = 0) -> PairedTest:
    """Test a difference by sums (G, F) of a measure's features over the same equally large groups of inputs."""
    score = paired_difference(measure, a, b, sizes=np.full(len(a), inputs / len(a)), seed=seed, resamples=1000)
    return PairedTest(name, score, swap_test(measure, a, b, inputs=inputs, seed=seed), PERMUTED)


def holm(p_values: Any) -> np.ndarray:
    """Adjust p-values for multiple testing (Holm 1979).

    Args:
        p_values: The p-values (T,) of T tests, which need not be independent.

    Returns:
        The adjusted p-values (T,): the smallest is multiplied by T, the next by T - 1, and so on; none falls below a
        smaller one.

    >>> holm([0.01, 0.04, 0.03]).round(6).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p_values, dtype=float)
    order, adjusted = np.argsort(raw, kind="stable"), np.empty(len(raw))
    adjusted[order] = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1)).clip(max=1)
    return adjusted


def paired_difference(
    measure: Measure, a: np.ndarray, b: np.ndarray, *, sizes: np.ndarray, seed: int, resamples: int
) -> Score:
    """Return the difference a - b of a score from sums (G, F) over groups, with its bootstrap interval."""
    value = float(difference(measure, *(sums.sum(0) / sizes.sum() for sums in (a, b))))
    resampled = bootstrap_means(np.concatenate([a, b], axis=1), sizes, resamples=resamples, seed=seed)
    return Score(value, *percentile_interval(value, difference(measure, *np.split(resampled, 2, axis=1))))


def difference(measure: Measure, a: np.ndarray, b: np.ndarray) -> Any:
    """Return the difference (...) of the score between means a and b (..., F)."""
    return measure.finish(measure.combine(a)) - measure.finish(measure.combine(b))


def swap_test(measure: Measure, a: np.ndarray, b: np.ndarray, *, inputs: int, seed: int) -> float:
    """Return the fraction of random swaps of a and b (G, F), the given one included, that differ at least as much."""
    rng, moved = np.random.default_rng(seed), (b - a) / inputs
    total_a, total_b = a.sum(0) / inputs, b.sum(0) / inputs
    observed = np.abs(difference(measure, total_a, total_b))
    least = observed - 1e-12 * max(1.0, float(observed))  # equal up to rounding counts as equal
    extreme = 0
    for start in range(0, PERMUTATIONS, CHUNK):
        shift = rng.integers(2, size=(min(CHUNK, PERMUTATIONS - start), len(a)), dtype=np.int8).astype(float) @ moved
        extreme += int((np.abs(difference(measure, total_a + shift, total_b - shift)) >= least).sum())
    return (1 + extreme) / (1 + PERMUTATIONS)


def mcnemar(correct_a: np.ndarray, correct_b: np.ndarray) -> float:
    """Return the exact two-sided p-value (McNemar 1947) from the examples that only one of the two gets right."""
    from scipy.stats import binomtest

    only_a, only_b = int((correct_a & ~correct_b).sum()), int((correct_b & ~correct_a).sum())
    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def check_same_examples(a: ExampleScores, b: ExampleScores) -> None:
    """Raise unless both are of the same targets in the same order."""
    key = "label" if a.task == "classification" else "target"
    if a.task != b.task or a.columns[key].shape != b.columns[key].shape:
        raise Misuse(f"a is {a.task} on {a.inputs} inputs, b is {b.task} on {b.inputs}: expected the same examples")
    differs = np.flatnonzero(a.columns[key].ravel() != b.columns[key].ravel())
    if len(differs):
        raise Misuse(f"a and b differ in the target of example {differs[0]}: expected the same examples, same order")
