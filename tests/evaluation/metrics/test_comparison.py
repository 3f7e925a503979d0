"""Paired tests: silent under the null, loud under a known shift."""

import math

import numpy as np
import pytest
from scipy import stats

from murmuration.evaluation.metrics import ExampleScores, holm, paired_test, score_examples
from murmuration.evaluation.metrics.comparison import PairedTest, mcnemar, paired_sums, swap_test
from murmuration.evaluation.metrics.scores import measure_of
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse


def pair(inputs: int = 400, noise: float = 0.5, seed: int = 0) -> tuple[Predictive, Predictive, np.ndarray]:
    """Two models of one truth: a sees it, b sees it through more noise."""
    rng = np.random.default_rng(seed)
    truth = 2 * rng.normal(size=(inputs, 4))
    y = (truth + rng.gumbel(size=truth.shape)).argmax(-1)

    def model(std: float) -> Predictive:
        logits = truth + std * rng.normal(size=truth.shape)
        exp = np.exp(logits - logits.max(-1, keepdims=True))
        return Predictive.from_probs(exp / exp.sum(-1, keepdims=True))

    return model(0.5), model(0.5 + noise), y


def compare(a: Predictive, b: Predictive, y: np.ndarray, name: str) -> PairedTest:
    return paired_test(score_examples(a, y), score_examples(b, y), name)


@pytest.mark.parametrize("name", ["nll", "accuracy", "ece", "aurc"])
def test_a_model_does_not_differ_from_itself(name: str) -> None:
    a, _, y = pair()
    same = compare(a, a, y, name)
    assert (same.difference, same.p_value) == (0, 1)
    # Two columns of one matrix product may be rounded differently: a few units of 1e-16, far below any score.
    assert max(abs(same.difference.low), abs(same.difference.high)) < 1e-15


@pytest.mark.parametrize("name", ["nll", "brier", "accuracy", "aurc"])
def test_a_worse_model_is_found_out(name: str) -> None:
    a, b, y = pair(inputs=1500, noise=2.0)
    comparison = compare(a, b, y, name)
    assert comparison.p_value < 1e-3
    better = comparison.difference < 0 if name != "accuracy" else comparison.difference > 0
    assert better
    assert not comparison.difference.low <= 0 <= comparison.difference.high
    mirrored = compare(b, a, y, name)
    assert mirrored.difference == pytest.approx(-comparison.difference, abs=1e-14)
    assert mirrored.p_value == pytest.approx(comparison.p_value, abs=1e-3)


def test_sign_flips_by_enumeration() -> None:
    """Six differences: the p-value is the share of the 64 sign patterns whose mean is at least as far from zero."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 1)) + 0.8, rng.normal(size=(6, 1))
    d = (a - b)[:, 0]
    signs = np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1).T
    exact = np.mean(np.abs(signs @ d) >= abs(d.sum()) - 1e-12)
    ours = swap_test(measure_of("brier", "classification"), a, b, inputs=6, seed=0)
    assert ours == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 9999))


def test_p_values_are_uniform_under_the_null() -> None:
    measure = measure_of("brier", "classification")
    values = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        a, b = rng.normal(size=(40, 1)), rng.normal(size=(40, 1))
        values.append(swap_test(measure, a, b, inputs=40, seed=seed))
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_mcnemar_by_hand() -> None:
    """a alone is right 9 times, b alone once: twice the chance of at most 1 head in 10, 22 / 1024."""
    a = np.array([True] * 9 + [False] + [True] * 5)
    b = np.array([False] * 9 + [True] + [True] * 5)
    assert mcnemar(a, b) == pytest.approx(22 / 1024, abs=1e-12)


def test_root_of_squares_is_compared_on_its_own_scale() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=300)
    good = score_examples(Predictive.from_moments((y + 0.1 * rng.normal(size=300))[None, :, None], 1.0), y)
    poor = score_examples(Predictive.from_moments((y + 0.4 * rng.normal(size=300))[None, :, None], 1.0), y)
    comparison = paired_test(good, poor, "rmse")
    assert comparison.difference == pytest.approx(good.scores()["rmse"] - poor.scores()["rmse"], abs=1e-12)
    assert comparison.p_value < 1e-3
    assert comparison.to_json()["test"] == "paired permutation"


def test_holm_by_hand() -> None:
    """0.01 * 4, then 0.02 * 3, then 0.03 * 2, which equals it, then 0.5 * 1; and none above 1."""
    np.testing.assert_allclose(holm([0.03, 0.01, 0.5, 0.02]), [0.06, 0.04, 0.5, 0.06], atol=1e-15)
    np.testing.assert_allclose(holm([0.04, 0.03]), [0.06, 0.06], atol=1e-15)  # never below a smaller one
    np.testing.assert_allclose(holm([0.9, 0.4, 0.6]), [1, 1, 1], atol=1e-15)
    assert holm([0.2]).tolist() == [0.2]
    assert holm([]).tolist() == []


def test_holm_keeps_the_chance_of_any_false_alarm() -> None:
    """Twenty true nulls, 500 times: an alarm in about 5 % of them; without correction in 1 - 0.95^20 = 64 %."""
    p_values = np.random.default_rng(0).random((500, 20))
    alarms = np.mean([holm(row).min() < 0.05 for row in p_values])
    assert alarms == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 500))
    assert (p_values.min(1) < 0.05).mean() > 0.5


def test_the_interval_of_a_mean_is_two_standard_errors_of_the_paired_differences() -> None:
    """For a mean: 1.96 standard errors of the differences, which fall with the number of examples."""
    a, b, y = pair(inputs=2000)
    left, right = score_examples(a, y), score_examples(b, y)
    d = left.columns["brier"] - right.columns["brier"]
    expected = 1.96 * d.std() / math.sqrt(2000)
    noise = 4 * 0.06  # of two 2.5 % quantiles of 1,000 resamples, relative to their distance
    difference = paired_test(left, right, "brier").difference
    assert (difference.high - difference.low) / 2 == pytest.approx(expected, rel=noise)
    first = np.arange(200)
    difference = paired_test(left.select(first), right.select(first), "brier").difference
    assert (difference.high - difference.low) / 2 > 2 * expected


def test_sums_are_compared_as_the_examples_are() -> None:
    a, b, y = pair()
    left, right = score_examples(a, y), score_examples(b, y)
    sums = [each.columns["brier"][:, None] for each in (left, right)]
    theirs, ours = (
        paired_test(left, right, "brier"),
        paired_sums("brier", measure_of("brier", "classification"), *sums, inputs=400),
    )
    assert (float(ours.difference), ours.p_value) == (
        pytest.approx(float(theirs.difference), abs=1e-14),
        theirs.p_value,
    )
    assert ours.difference.low == pytest.approx(theirs.difference.low, abs=1e-14)


def test_scores_that_do_not_exist_are_refused() -> None:
    a, b, y = pair()
    left, right = score_examples(a, y), score_examples(b, y)
    with pytest.raises(Misuse, match=r"brier_fair does not exist for a, ExampleScores\(.*members=1\).*two members"):
        paired_test(left, right, "brier_fair")


def test_other_examples_are_refused() -> None:
    a, b, y = pair()
    left, right = score_examples(a, y), score_examples(b, np.roll(y, 1))
    with pytest.raises(Misuse, match="differ in the target of example"):
        paired_test(left, right, "nll")
    short = ExampleScores.from_chunks((part, y[:100]) for part in list(b.batches(100))[:1])
    with pytest.raises(Misuse, match="classification on 400 inputs, b is classification on 100"):
        paired_test(left, short, "nll")
    with pytest.raises(Misuse, match="unknown classification score 'acuracy': did you mean 'accuracy'"):
        paired_test(left, left, "acuracy")
