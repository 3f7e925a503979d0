"""Fair scores: the same on average for every number of members, where plain ones fall with it."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from score_factories import overall_means

from murmuration.evaluation.metrics import ExampleScores, columns, score, score_examples
from murmuration.evaluation.metrics.scores import MEASURES
from murmuration.prediction.predictive import Predictive

DRAWS = 20_000  # ensembles, each an input of its own: their columns are independent


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def close(values: np.ndarray, expected: float) -> bool:
    return abs(values.mean() - expected) < 4 * values.std() / math.sqrt(len(values))


@pytest.mark.parametrize("weights", [None, [0.5, 0.3, 0.2]])
def test_brier_of_infinitely_many(weights: list[float] | None) -> None:
    """Members drawn from Dirichlet(2, 1, 1): infinitely many say (1/2, 1/4, 1/4); the label is 1.

    Their Brier score is 1/4 + 9/16 + 1/16 = 0.875. The variance of a member, summed over classes, is
    (1/4 + 3/16 + 3/16) / 5 = 0.125, of which three leave a third, or sum(w^2), in their mean.
    """
    members = np.random.default_rng(0).dirichlet([2, 1, 1], size=(3, DRAWS))
    table = columns(Predictive.from_probs(members, weights), np.ones(DRAWS, dtype=int))
    left = 0.125 * sum(w * w for w in weights or [1 / 3] * 3)
    assert close(table["brier"], 0.875 + left)
    assert not close(table["brier"], 0.875)
    assert close(table["brier_fair"], 0.875)
    assert table["brier_fair"].std() < 1.5 * table["brier"].std()


def test_brier_is_the_mean_product_of_two_members_errors() -> None:
    """A second derivation: over pairs of distinct members, (p_i - e)(p_j - e), which is never negative."""
    rng = np.random.default_rng(0)
    members, y = rng.dirichlet([1, 1, 1], size=(4, 30)), rng.integers(3, size=30)
    errors = members - np.eye(3)[y]
    products = np.einsum("ink,jnk->ijn", errors, errors)
    expected = (products.sum((0, 1)) - np.einsum("iin->n", products)) / 12
    found = columns(Predictive.from_probs(members), y)["brier_fair"]
    np.testing.assert_allclose(found, expected, atol=1e-13)
    assert (found > -1e-15).all()


@pytest.mark.parametrize("weights", [None, [0.5, 0.3, 0.2]])
def test_numbers_of_infinitely_many(weights: list[float] | None) -> None:
    """Means drawn from N(1, 2^2) with noise 1: infinitely many are N(1, 5); targets are 0 and 3 in two columns.

    Squared errors are then 1 and 4, and the CRPS has its closed form; three members are off by 4 / 3, or
    4 sum(w^2), in the first. In the second pairs of distinct members are 10 apart in variance, and a member
    is 2 from itself, which is taken for its share of sum(w^2) of all pairs.
    """
    mean = 1 + 2 * np.random.default_rng(0).normal(size=(3, DRAWS, 2))
    table = columns(Predictive.from_moments(mean, 1.0, weights), np.tile([[0.0, 3.0]], (DRAWS, 1)))
    same = sum(w * w for w in weights or [1 / 3] * 3)
    assert close(table["squared_error_fair"], 2.5)
    assert close(table["squared_error"], 2.5 + 4 * same)
    assert not close(table["squared_error"], 2.5)
    expected = np.mean([gaussian_crps(1, math.sqrt(5), y) for y in (0, 3)])
    bias = same * (math.sqrt(20 / math.pi) - math.sqrt(4 / math.pi)) / 2
    assert close(table["crps_fair"], expected)
    assert close(table["crps"], expected + bias)
    assert not close(table["crps"], expected)


def gaussian_crps(mean: float, std: float, y: float) -> float:
    z = (y - mean) / std
    return std * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))


def test_ensembles_of_any_size_have_the_same_fair_score() -> None:
    rng = np.random.default_rng(1)
    members, y = rng.dirichlet([3, 2, 1], size=(12, 4000)), rng.choice(3, p=[0.5, 1 / 3, 1 / 6], size=4000)
    pred = Predictive.from_probs(members)
    found = [score_examples(pred.select(range(size)), y) for size in (2, 4, 12)]
    plain, fair = ([each.columns[name] for each in found] for name in ("brier", "brier_fair"))
    for i, j in ((0, 1), (1, 2)):
        gap = fair[i] - fair[j]
        assert abs(gap.mean()) < 4 * gap.std() / math.sqrt(4000)
        assert (plain[i] - plain[j]).mean() > 4 * (plain[i] - plain[j]).std() / math.sqrt(4000)


def test_equal_members_need_no_correction() -> None:
    pred = Predictive.from_moments(np.ones((3, 4, 1)), 2.0)
    scores = score(pred, [0.0, 1.0, 2.0, 3.0])
    assert scores["rmse_fair"] == pytest.approx(scores["rmse"], abs=1e-12)
    assert scores["crps_fair"] == pytest.approx(scores["crps"], abs=1e-12)


def test_the_fair_root_keeps_its_sign() -> None:
    """Means -1 and 1 of a target of 0: the product of their errors is -1."""
    found = score(Predictive.from_moments([[[-1.0]] * 5, [[1.0]] * 5], 1.0), np.zeros(5))
    assert found["rmse_fair"] == pytest.approx(-1, abs=1e-12)
    assert found["rmse"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0]])
def test_one_member_has_no_fair_score(weights: list[float]) -> None:
    """Nor has one that alone counts."""
    many = len(weights)
    labelled = score_examples(Predictive.from_probs(np.full((many, 8, 2), 0.5), weights), np.zeros(8, dtype=int))
    measured = score_examples(Predictive.from_moments(np.ones((many, 8, 1)), 1.0, weights), np.arange(8.0))
    missing = [name for name in MEASURES["classification"] if name not in labelled.scores()]
    one_class = ["auroc", "average_precision", "brier_fair", "error_auroc"]  # all are of one class, and right
    assert missing == one_class
    missing = [name for name in MEASURES["regression"] if name not in measured.scores()]
    assert missing == ["pinball", "rmse_fair", "crps_fair"]  # and the predictions are no quantiles


def test_given_measures_alone_are_scored() -> None:
    evaluation: ExampleScores = score_examples(Predictive.from_moments(np.ones((2, 8, 1)), 1.0), np.zeros(8))
    chosen = {"mine": MEASURES["regression"]["mae"]}
    found = evaluation.scores(measures=chosen)
    assert {name: float(value) for name, value in found.items()} == {"mine": 1.0}
    assert overall_means(chosen["mine"].features(evaluation.columns))[0] == 1.0
