"""Tests: two predictives on the same examples, and groups of examples against the rest."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from murmuration.data.numpy_arrays import as_array
from murmuration.evaluation.metrics.example_scores import ExampleScores, Score
from murmuration.evaluation.metrics.intervals import CHUNK, bootstrap_means, group_of, group_sums, percentile_interval
from murmuration.evaluation.metrics.ranking import selective
from murmuration.evaluation.metrics.scores import Measure, measure_of
from murmuration.system.errors import Misuse

PERMUTATIONS = 9_999
PERMUTED = "paired permutation"
MIN_GROUP_EXAMPLES = 10  # examples a group has to have to stand alone
POOLED = f"(fewer than {MIN_GROUP_EXAMPLES})"  # where the others go, together
DOUBT = 0.05  # the chance of calling any group worse when none is


@dataclass(frozen=True)
class PairedTest:
    """The difference a - b of one score on the same examples."""

    name: str
    difference: Score  # with its 95 % interval
    p_value: float  # of a difference this large, either way, if a and b were exchangeable
    test: str  # how the p-value was found

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.difference.to_json(), "p_value": self.p_value, "test": self.test}


def paired_test(a: ExampleScores, b: ExampleScores, name: str, *, seed: int = 0, resamples: int = 1000) -> PairedTest:
    """Test the difference a - b of a score on the same examples.

    The p-value is the exact one of McNemar for accuracy. For every other score it comes from swapping a and b on random
    halves of the examples, which for a mean is the sign-flip test: exact if the examples are independent and the two
    scores of an example are exchangeable. Where only their expectations are equal it is approximate: 8 % were seen for
    5 % nominal with one sure and one cautious model on 60 examples. Its smallest value is 1/10,000. The spread over
    training seeds is not in it.

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
    key = "label" if a.task == "classification" else "target"
    if a.task != b.task or a.columns[key].shape != b.columns[key].shape:
        raise Misuse(f"a is {a.task} on {a.inputs} inputs, b is {b.task} on {b.inputs}: expected the same examples")
    differs = np.flatnonzero(a.columns[key].ravel() != b.columns[key].ravel())
    if len(differs):
        expected = "expected the same examples, same order"
        raise Misuse(f"a and b differ in the target of example {differs[0]}: {expected}")
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


def paired_interval(a: ExampleScores, b: ExampleScores, name: str, *, seed: int = 0, resamples: int = 1000) -> Score:
    """Return the difference a - b of a score on the same examples with its paired interval, without a p-value."""
    measure, groups = measure_of(name, a.task), group_of(a.inputs, seed)
    sums_a, sums_b = (group_sums(measure.features(scores.columns), groups) for scores in (a, b))
    sizes = np.bincount(groups).astype(float)
    return paired_difference(measure, sums_a, sums_b, sizes=sizes, seed=seed, resamples=resamples)


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
    return measure.finished(measure.combine(a)) - measure.finished(measure.combine(b))


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


# Groups of examples


@dataclass(frozen=True)
class GroupScores:
    """The scores of the examples of one group, and a test against the rest."""

    value: str  # what the group's examples have in common
    examples: int
    scores: dict[str, Score]
    p_value: float  # of its error rate, or the ranks of its absolute errors, if it were like the rest; 1 without a rest
    worse: bool  # than the rest, by more than chance explains when so many groups are looked at (Holm 1979)


def by_group(evaluation: ExampleScores, groups: Any, *, seed: int = 0, resamples: int = 1000) -> list[GroupScores]:
    """Score every group of inputs and test it against all other inputs.

    Args:
        evaluation: Per-example scores.
        groups: The group (N,) of every input, as text.
        seed: Seed of the resampling.
        resamples: Number of bootstrap resamples.

    Returns:
        The scores of the groups in the order of their texts; groups of fewer than 10 examples are pooled at the end as
        "(fewer than 10)".

    Raises:
        Misuse: If there is not one group per input.
    """
    texts, inputs = as_array(groups).astype(str), evaluation.inputs
    if texts.shape != (inputs,):
        raise Misuse(f"groups of shape {texts.shape} for {inputs} inputs: expected one text per input, ({inputs},)")
    results, rows = [], rows_by_group(texts)
    for (value, members), test in zip(rows.items(), worse_than_rest(evaluation, list(rows.values())), strict=True):
        scores = evaluation.select(members).scores(seed=seed, resamples=resamples)
        results.append(GroupScores(value, len(members), scores, *test))
    return results


def rows_by_group(texts: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs of each group, from texts (N,): in order, small groups pooled at the end."""
    values, inverse, counts = np.unique(texts, return_inverse=True, return_counts=True)
    parts = np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts)[:-1])
    large = {str(value): part for value, part in zip(values, parts, strict=True) if len(part) >= MIN_GROUP_EXAMPLES}
    small = [part for part in parts if len(part) < MIN_GROUP_EXAMPLES]
    return {**large, POOLED: np.sort(np.concatenate(small))} if small else large


def worse_than_rest(evaluation: ExampleScores, parts: list[np.ndarray]) -> list[tuple[float, bool]]:
    """For each part of the inputs: the p-value against all others, and whether it is worse when all are looked at."""
    if len(parts) == 1:
        return [(1.0, False)]
    _, losses = selective(evaluation.columns)
    tests = fisher(losses, parts) if evaluation.task == "classification" else rank_sum(losses, parts)
    adjusted = holm([p_value for p_value, _ in tests])
    return [(p_value, bool(more and raised < DOUBT)) for (p_value, more), raised in zip(tests, adjusted, strict=True)]


def fisher(errors: np.ndarray, parts: list[np.ndarray]) -> list[tuple[float, bool]]:
    """For each part: Fisher's exact two-sided p-value of its errors, and whether its rate is the higher one."""
    from scipy.stats import fisher_exact

    total, results = int(errors.sum()), []
    for part in parts:
        wrong, outside = int(errors[part].sum()), len(errors) - len(part)
        table = [[wrong, len(part) - wrong], [total - wrong, outside - (total - wrong)]]
        results.append((float(fisher_exact(table).pvalue), wrong * outside > (total - wrong) * len(part)))
    return results


def rank_sum(losses: np.ndarray, parts: list[np.ndarray]) -> list[tuple[float, bool]]:
    """For each part: the two-sided p-value of its rank sum (Mann and Whitney 1947), and whether its ranks are higher.

    By the normal approximation with ties, which ten examples allow. Ranks and not means: one enormous error
    does not make a group worse.
    """
    from scipy.stats import rankdata

    count, ranks = len(losses), rankdata(losses)
    variance = ranks.var()  # (N^2 - 1) / 12, less what ties take
    results = []
    for part in parts:
        size, excess = len(part), ranks[part].sum() - len(part) * (count + 1) / 2
        std = np.sqrt(variance * size * (count - size) / (count - 1))
        z = max(abs(excess) - 0.5, 0.0) / std if std > 0 else 0.0  # a rank sum moves in steps
        results.append((2 * NormalDist().cdf(-z), bool(excess > 0)))
    return results
