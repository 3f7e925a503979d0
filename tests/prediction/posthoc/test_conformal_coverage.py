"""Coverage over random splits has the mean and the variance that theory gives, for every method.

With n calibration examples and m new inputs, the number covered is beta-binomial with parameters m, k and
n + 1 - k, k = ceil((n + 1) coverage), whatever the model, if no two scores are equal. Splits of one fixed
pool are independent given the pool and have this very distribution, since only ranks count.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from murmuration.prediction.posthoc.conformal import CONFORMAL_METHODS, SetRule, covered, fit_conformal, quantile_rank
from murmuration.prediction.predictive import Predictive

SPLITS, CALIBRATION, NEW, COVERAGE = 200, 150, 350, 0.9
RANK = quantile_rank(CALIBRATION, COVERAGE)
MEAN = RANK / (CALIBRATION + 1)
VARIANCE = MEAN * (1 - MEAN) * (CALIBRATION + 1 + NEW) / (NEW * (CALIBRATION + 2))  # of the covered share


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def classification() -> tuple[Predictive, np.ndarray]:
    """Three members, overconfident, and right about half of the time."""
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(CALIBRATION + NEW, 6))
    labels = (1.5 * logits + rng.gumbel(size=logits.shape)).argmax(1)
    shown = 3 * logits + rng.normal(size=(3, *logits.shape))
    return Predictive.from_probs(torch.tensor(shown).softmax(-1)), labels


def regression(members: int) -> tuple[Predictive, np.ndarray]:
    """Members that take the noise for half of what it is."""
    rng = np.random.default_rng(2)
    mean = rng.normal(size=(members, CALIBRATION + NEW, 1))
    noise = rng.uniform(0.2, 2, size=(CALIBRATION + NEW, 1))
    y = (noise * rng.normal(size=noise.shape))[:, 0]
    return Predictive.from_moments(mean, np.repeat(noise[None] / 2, members, 0)), y


def covered_shares(method: str, *, randomised: bool = True, never_empty: bool = False) -> np.ndarray:
    """The covered share (SPLITS,) of the new inputs in each random split."""
    # quantiles of one member need no search, which would take most of the time
    pred, y = (
        classification()
        if method in CONFORMAL_METHODS["classification"]
        else regression(1 if method == "quantile" else 3)
    )
    shares = []
    for split in range(SPLITS):
        order = np.random.default_rng(split).permutation(CALIBRATION + NEW)
        calibration, new = (
            replace(pred, outputs=pred.outputs[:, part]) for part in (order[:CALIBRATION], order[CALIBRATION:])
        )
        rule = fit_conformal(method, calibration, y[order[:CALIBRATION]], coverage=COVERAGE, seed=split)
        if isinstance(rule, SetRule):
            regions = replace(rule, randomised=randomised, never_empty=never_empty).sets(new)
            shares.append(covered(regions, y[order[CALIBRATION:]]).mean())
        else:
            shares.append(covered(rule.intervals(new), y[order[CALIBRATION:]]).mean())
    return np.array(shares)


MARGINAL = [name for methods in CONFORMAL_METHODS.values() for name in methods if name != "mondrian"]


@pytest.mark.parametrize("method", MARGINAL)
def test_coverage_is_what_was_promised(method: str) -> None:
    shares = covered_shares(method)
    assert abs(shares.mean() - MEAN) < 4 * math.sqrt(VARIANCE / SPLITS)
    # the variance of 200 nearly normal shares has a relative standard error of sqrt(2 / 200)
    assert abs(((shares - MEAN) ** 2).mean() / VARIANCE - 1) < 4 * math.sqrt(2 / SPLITS)


def test_a_threshold_for_each_class_covers_no_less() -> None:
    assert covered_shares("mondrian").mean() > MEAN - 4 * math.sqrt(VARIANCE / SPLITS)


def test_without_chance_aps_covers_more() -> None:
    assert covered_shares("aps", randomised=False).mean() > MEAN + 4 * math.sqrt(VARIANCE / SPLITS)


def test_never_empty_covers_no_less_in_any_split() -> None:
    assert (covered_shares("aps", never_empty=True) >= covered_shares("aps")).all()
