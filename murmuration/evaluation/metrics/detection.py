"""Out-of-distribution detection: AUROC, average precision and FPR95 of a score that is larger for OOD inputs."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from murmuration.data.numpy_arrays import as_array
from murmuration.evaluation.metrics.example_scores import Score
from murmuration.evaluation.metrics.intervals import CHUNK, LEVEL
from murmuration.evaluation.metrics.ranking import delong_interval
from murmuration.system.errors import Misuse

EDGES = 1000  # of either group that bound the cells whose counts are resampled
FEWER = 30  # a resample without mistakes counts as one with so many times fewer than the scores at hand
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
DOUBT = NormalDist().inv_cdf((1 + LEVEL) / 2) ** 2  # 3.84: so many unseen examples are added by Wilson's limit of n/n


@dataclass(frozen=True)
class Detection:
    """How well a score separates OOD inputs from in-distribution ones, each number with its 95 % interval."""

    auroc: Score  # P(an OOD input scores higher than an in-distribution one), ties counting half
    aupr: Score  # average precision with the OOD inputs as positives
    fpr95: Score  # fraction of OOD inputs accepted where 95 % of in-distribution ones are
    aupr_in: Score  # average precision with the in-distribution inputs as positives, by minus the score

    def to_json(self) -> dict[str, dict[str, float]]:
        return {name: score.to_json() for name, score in vars(self).items()}


def score_detection(in_distribution: Any, ood: Any, *, seed: int = 0, resamples: int = 1000) -> Detection:
    """Score how well a number separates out-of-distribution (OOD) from in-distribution inputs.

    Neither the AUROC nor `fpr95` depends on N and M; average precision does: a constant score has an `aupr` of M / (M +
    N). `fpr95` follows the literature (Hendrycks and Gimpel 2017; Liang et al. 2018): the in-distribution inputs are
    the positives, the threshold is the smallest that accepts 95 % of them, and the number is the fraction of OOD inputs
    at or below it.

    Intervals treat the inputs of both groups as independent draws and keep N and M: `delong_interval`,
    `fpr95_interval`, and a bootstrap of both average precisions (`resampled_precisions`).

    Args:
        in_distribution: Scores (N,) of in-distribution inputs.
        ood: Scores (M,) of OOD inputs, which should be higher.
        seed: Seed of the resampling.
        resamples: Number of bootstrap resamples.

    Returns:
        AUROC, average precisions and FPR95, each with its 95 % interval.

    Raises:
        Misuse: If there are no scores, or one is NaN.

    >>> found = score_detection([0.1, 0.2, 0.3], [0.3, 0.4])
    >>> float(found.auroc) * 6  # pairs in the right order: five, and one tie
    5.5
    >>> float(found.fpr95)
    0.5
    """
    low_group, high_group = checked_scores(in_distribution, "in-distribution"), checked_scores(ood, "OOD")
    precisions = resampled_precisions(cell_counts(low_group, high_group), seed=seed, resamples=resamples)
    mirrored = -low_group[::-1], -high_group[::-1]
    return Detection(
        auroc=Score(*delong_interval(low_group, high_group)),
        aupr=precision_interval(high_group, low_group, precisions[0]),
        fpr95=fpr95_interval(low_group, high_group, seed=seed, resamples=resamples),
        aupr_in=precision_interval(*mirrored, precisions[1]),
    )


def checked_scores(values: Any, group: str) -> np.ndarray:
    """Return scores (N,) in increasing order, float64."""
    scores = as_array(values).astype(np.float64)
    if scores.ndim != 1 or not len(scores):
        raise Misuse(f"{group} scores of shape {scores.shape}: expected one number per input, (N,), and at least one")
    bad = np.flatnonzero(np.isnan(scores))
    if len(bad):
        raise Misuse(f"{group} scores are NaN at [{bad[0]}] and {len(bad) - 1} other places: expected numbers")
    return np.sort(scores)


def logit(share: Any) -> Any:
    return np.log(share) - np.log1p(-share)


def expit(value: float) -> float:
    return float(np.exp(-np.logaddexp(0, -value)))  # no overflow on either side


def fpr95_interval(known: np.ndarray, ood: np.ndarray, *, seed: int, resamples: int) -> Score:
    """Return the share of OOD inputs at or below the 95 % threshold of sorted in-distribution ones, and its interval.

    Resampled without resampling: the k-th smallest of N draws from the in-distribution scores has rank ceil(N U) among
    them, with U from Beta(k, N - k + 1). The share below that threshold is drawn from Jeffreys' posterior,
    which unlike a binomial does not collapse to a point where no OOD input was accepted.
    """
    count, most = len(known), len(ood)
    accepted = -(-95 * count // 100)  # in whole numbers: 0.95 * 20 must be 19
    rng = np.random.default_rng(seed)
    ranks = np.ceil(count * rng.beta(accepted, count - accepted + 1, size=resamples)).astype(int).clip(1, count)
    below = np.searchsorted(ood, known[ranks - 1], "right")
    shares = rng.beta(below + 0.5, most - below + 0.5)
    value = float(np.searchsorted(ood, known[accepted - 1], "right") / most)
    low, high = np.quantile(shares, TAILS)
    return Score(value, min(value, low), max(value, high))


def average_precision(sought: np.ndarray, others: np.ndarray) -> float:
    """Return the mean, over the sorted scores sought, of the share of them among all scores at least as high."""
    right = len(sought) - np.searchsorted(sought, sought, "left")
    wrong = len(others) - np.searchsorted(others, sought, "left")
    return float((right / (right + wrong)).mean())


def precision_interval(sought: np.ndarray, others: np.ndarray, resampled: np.ndarray) -> Score:
    """Return the average precision of sorted scores, with the interval that its resamples (B,) give on the logit scale.

    Their quantiles are shifted by the bias that the resamples show; a resample without mistakes counts as one
    with a thirtieth of those at hand. Groups wholly apart make none in any resample: the low end is then
    what 3.84 unseen examples of either group on the wrong side would make of it, as in Wilson's limit for n
    successes of n.
    """
    value = average_precision(sought, others)
    if sought[0] > others[-1]:
        return Score(value, min(limits_apart(len(sought), len(others))), 1.0)
    logits = logit(np.minimum(resampled, 1 - (1 - value) / FEWER))
    low, high = np.quantile(logits, TAILS) - logits.mean() + logit(value)
    return Score(value, min(value, expit(low)), max(value, expit(high)))


def limits_apart(sought: int, others: int, doubt: float = DOUBT) -> tuple[float, float]:
    """Return the average precision of separate groups with 3.84 others above all sought, or 3.84 sought below all."""
    rank = np.arange(1, sought + 1)
    more = sought + doubt
    return float((rank / (rank + doubt)).mean()), (sought + doubt * more / (more + others)) / more


def resampled_precisions(cells: np.ndarray, *, seed: int, resamples: int) -> np.ndarray:
    """Resample counts in cells (2, C) B times; return the average precisions (2, B) of OOD, then other inputs."""
    rng = np.random.default_rng(seed)
    precisions = np.empty((2, resamples))
    for start in range(0, resamples, CHUNK):
        rows = min(CHUNK, resamples - start)
        resampled = [rng.multinomial(counts.sum(), counts / counts.sum(), size=rows) for counts in cells]
        precisions[:, start : start + rows] = both_precisions(*resampled)
    return precisions


def cell_counts(known: np.ndarray, ood: np.ndarray, most: int = EDGES) -> np.ndarray:
    """Count either sorted group in each cell (2, C); cells have increasing scores and none is empty.

    Cells are the values at up to `most` evenly ranked edges of either group, and what lies between. With no more
    distinct scores than that in a group, resampling their counts is the bootstrap itself. Otherwise a cell
    holds at most a thousandth of a group and counts as a tie, which changes the spread by far less than the
    noise of a thousand resamples (2 %).
    """
    edges = np.unique(np.concatenate([evenly_ranked(known, most), evenly_ranked(ood, most)]))
    places = [np.searchsorted(edges, group, "left") + np.searchsorted(edges, group, "right") for group in (known, ood)]
    counts = np.stack([np.bincount(place, minlength=2 * len(edges) + 1) for place in places])
    return counts[:, counts.any(0)]


def evenly_ranked(group: np.ndarray, most: int) -> np.ndarray:
    """Return all distinct values of a sorted group, or `most` of evenly spaced rank."""
    distinct = np.unique(group)
    return distinct if len(distinct) <= most else group[np.linspace(0, len(group) - 1, most).round().astype(int)]


def both_precisions(known: np.ndarray, ood: np.ndarray) -> np.ndarray:
    """Return the average precision (2, ...) of OOD, then other inputs, from counts (..., C) by rising cell."""
    return np.stack([cell_precision(ood[..., ::-1], known[..., ::-1]), cell_precision(known, ood)])


def cell_precision(sought: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the average precision (...) from counts (..., C) in cells, the most likely cell first."""
    right = sought.cumsum(-1)
    return (sought * right / np.maximum(right + others.cumsum(-1), 1)).sum(-1) / right[..., -1]
