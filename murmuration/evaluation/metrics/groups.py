"""Scores of groups of examples, and which groups are worse than the rest by more than chance."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from murmuration.evaluation.metrics.comparison import holm
from murmuration.evaluation.metrics.example_scores import ExampleScores, Score
from murmuration.evaluation.metrics.ranking import selective
from murmuration.system.errors import Misuse

MIN_GROUP_EXAMPLES = 10  # examples a group has to have to stand alone
POOLED = f"(fewer than {MIN_GROUP_EXAMPLES})"  # where the others go, together
DOUBT = 0.05  # the chance of calling any group worse when none is


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
    texts, inputs = np.asarray(groups).astype(str), evaluation.inputs
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
