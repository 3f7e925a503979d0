"""Intervals that hold the truth as often as they say, and curves that agree with the scores."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from murmuration.evaluation.metrics import (
    MEASURES,
    ExampleScores,
    columns,
    example_scores as example_scores_module,
    pit_curve,
    reliability,
    risk_coverage,
    score,
    score_examples,
)
from murmuration.evaluation.metrics.intervals import (
    GROUPS,
    Feature,
    bootstrap_means,
    group_of,
    group_sums,
    percentile_interval,
    wilson,
)
from murmuration.likelihoods import Categorical
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse


def calibrated(inputs: int, seed: int) -> tuple[Predictive, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.5, 1, size=inputs)
    right = rng.random(inputs) < confidence
    return Predictive.from_probs(np.stack([confidence, 1 - confidence], -1)), np.where(right, 0, 1)


def test_bootstrap_spread_is_the_standard_error() -> None:
    values = np.random.default_rng(0).exponential(size=2000)
    sums = group_sums([Feature(values)], group_of(2000, 0))
    means = bootstrap_means(sums, np.ones(2000), resamples=2000, seed=0)
    assert means.std() == pytest.approx(values.std() / math.sqrt(2000), rel=4 / math.sqrt(2 * 2000))
    low, high = percentile_interval(values.mean(), means[:, 0])
    theirs = stats.bootstrap((values,), np.mean, n_resamples=2000, method="percentile", random_state=1)
    interval = theirs.confidence_interval
    error = 4 * means.std() / math.sqrt(2000) * 2.7  # of a 2.5 % quantile: sqrt(pq/n) / density
    assert (low, high) == pytest.approx((interval.low, interval.high), abs=1.5 * error)


@pytest.mark.slow
def test_bootstrap_intervals_cover_the_truth() -> None:
    """Of 1,000 intervals of the mean of 150 normal values 95 % hold it, less half a point for the factor of Student."""
    hits, runs = 0, 1000
    for seed in range(runs):
        values = np.random.default_rng(seed).normal(size=150)
        sums = group_sums([Feature(values)], group_of(150, 0))
        drawn = bootstrap_means(sums, np.ones(150), resamples=300, seed=seed)
        low, high = percentile_interval(float(values.mean()), drawn[:, 0])
        hits += low <= 0 <= high
    assert abs(hits / runs - 0.945) < 3 * math.sqrt(0.95 * 0.05 / runs)  # 0.924 to 0.966


def test_the_interval_has_the_outer_quantiles_less_the_bias_of_the_resamples() -> None:
    resampled = np.linspace(7.0, 9.0, 2001)  # of a value of 3: a bias of 5
    assert percentile_interval(3.0, resampled) == pytest.approx((2.05, 3.95), abs=1e-12)


def test_bias_of_the_resamples_is_taken_off() -> None:
    """Resamples of the square of a mean are too large by the variance of that mean."""
    values = np.random.default_rng(0).normal(size=400)
    values -= values.mean() - values.std() / math.sqrt(400)  # one standard error from zero
    value = float(values.mean()) ** 2
    sums = group_sums([Feature(values)], group_of(400, 0))
    drawn = bootstrap_means(sums, np.ones(400), resamples=4000, seed=0)[:, 0] ** 2
    bias = float(drawn.mean()) - value
    assert bias == pytest.approx(values.var() / 400, rel=0.1)
    low, high = percentile_interval(value, drawn)
    assert (low, high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975]) - bias), abs=1e-15)


def gaps_of(inputs: int, gap: float, seed: int) -> dict[str, np.ndarray]:
    """Columns of a model whose accuracy is its confidence, mostly high, less a gap."""
    rng = np.random.default_rng(seed)
    confidence = 1 - 0.5 * rng.beta(0.8, 2.5, size=inputs)
    return {"confidence": confidence, "correct": rng.random(inputs) < confidence - gap}


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [200, 500, 1000])
@pytest.mark.parametrize("gap", [0.0, 0.05, 0.15])
def test_intervals_of_calibration_errors_cover_the_error(inputs: int, gap: float) -> None:
    """Also where the model is calibrated and every estimate is above the error, which is 0."""
    runs, allowed = 120, 0.95 - 4 * math.sqrt(0.95 * 0.05 / 120)
    ece, mce = (MEASURES["classification"][name] for name in ("ece", "mce"))
    found, largest = [], []
    for seed in range(runs):
        table = gaps_of(inputs, gap, seed)
        found.append(ece.interval(table))
        if inputs == 200:
            largest.append(mce.interval(table))
    for low, high in (np.array(each).T for each in (found, largest) if each):
        assert np.mean((low <= gap) & (gap <= high)) >= allowed
    low, high = np.mean(found, axis=0)
    assert high - low < 2.5 / math.sqrt(inputs)  # and they tell something
    assert low > 0.5 * gap or gap < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.15])
def test_the_interval_of_the_debiased_error_covers_it(gap: float) -> None:
    runs, measures = 120, {"ece_debiased": MEASURES["classification"]["ece_debiased"]}
    hits = 0
    for seed in range(runs):
        table = gaps_of(500, gap, seed)
        examples = ExampleScores("classification", {**table, "log_prob": np.zeros(500)}, np.eye(1))
        found = examples.scores(resamples=200, measures=measures)["ece_debiased"]
        hits += found.low <= gap <= found.high
    assert hits / runs >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs)


def test_the_interval_of_a_calibration_error_has_width_where_every_example_is_right() -> None:
    """24 of 24 right with a confidence of 0.99 or 1 are no evidence of an error, nor of none; of 0.6 they are."""
    interval = MEASURES["classification"]["ece"].interval
    for confidence in (0.99, 0.9999, 1.0):
        low, high = interval({"confidence": np.full(24, confidence), "correct": np.ones(24, dtype=bool)})
        assert low == 0
        assert 0.05 < high < 0.14  # Wilson's interval of the accuracy begins at 0.86
    low, high = interval({"confidence": np.full(24, 0.6), "correct": np.ones(24, dtype=bool)})
    assert 0.2 < low < 0.4 < high


def test_groups_stand_in_for_inputs() -> None:
    """More inputs than groups: every input is in one group, sizes differ by one, the spread is the same."""
    count = 3 * GROUPS + 17
    groups = group_of(count, seed=0)
    sizes = np.bincount(groups)
    assert (len(sizes), sizes.sum(), np.ptp(sizes)) == (GROUPS, count, 1)
    values = np.sort(np.random.default_rng(0).normal(size=count))  # sorted: contiguous groups would be wrong
    sums = group_sums([Feature(values)], groups)
    drawn = bootstrap_means(sums, sizes.astype(float), resamples=400, seed=0)
    assert drawn.std() == pytest.approx(1 / math.sqrt(count), rel=4 / math.sqrt(2 * 400))
    assert sums.sum() == pytest.approx(values.sum(), abs=1e-9)


def test_binned_sums() -> None:
    feature = Feature(np.array([1.0, 2.0, 4.0, 8.0]), np.array([0, 1, 1, 2]), 3)
    plain = Feature(np.array([1.0, 1.0, 1.0, 1.0]))
    sums = group_sums([feature, plain], np.array([0, 0, 1, 1]))
    np.testing.assert_array_equal(sums, [[1, 2, 0, 2], [0, 4, 8, 2]])


def test_wilson_against_scipy() -> None:
    low, high = wilson(np.array([0, 3, 10]), np.array([10, 10, 10]))
    for i, successes in enumerate((0, 3, 10)):
        theirs = stats.binomtest(successes, 10).proportion_ci(method="wilson")
        assert (low[i], high[i]) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert [float(end) for end in wilson(np.array(0), np.array(0))] == [0, 1]


def test_reliability_curve_gives_the_ece_back() -> None:
    pred, y = calibrated(1000, 1)
    table = columns(pred, y)
    curve = reliability(table)
    assert curve.count.sum() == 1000
    filled = curve.count > 0
    gaps = np.abs(curve.confidence - curve.accuracy)[filled] * curve.count[filled] / 1000
    assert gaps.sum() == pytest.approx(score(pred, y)["ece"], abs=1e-12)
    assert (curve.low[filled] <= curve.accuracy[filled]).all()
    assert (curve.accuracy[filled] <= curve.high[filled]).all()
    assert np.isnan(curve.accuracy[~filled]).all()
    assert len(reliability(table, bins=4).edges) == 5


def test_risk_coverage_curve_by_hand() -> None:
    confidence, right = np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False])
    pred = Predictive.from_probs(np.stack([confidence, 1 - confidence], -1))
    curve = risk_coverage(columns(pred, np.where(right, 0, 1)))
    np.testing.assert_allclose(curve.coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.risk, [0, 1 / 2, 1 / 3, 1 / 2])


def test_risk_coverage_is_thinned_and_ends_at_the_error_rate() -> None:
    pred, y = calibrated(5000, 2)
    curve, scores = risk_coverage(columns(pred, y)), score(pred, y)
    assert len(curve.risk) == 200
    assert (curve.coverage[-1], curve.risk[-1]) == (1, pytest.approx(1 - scores["accuracy"], abs=1e-12))
    assert np.trapezoid(curve.risk, curve.coverage) == pytest.approx(scores["aurc"], abs=0.005)


def test_curves_of_the_other_task_are_refused() -> None:
    table = columns(*calibrated(10, 0))
    with pytest.raises(Misuse, match="no 'pit': this curve is for regression"):
        pit_curve(table)
    with pytest.raises(Misuse, match="no 'confidence': this curve is for classification"):
        reliability({"pit": np.zeros(3)})


def test_bootstrap_means_are_the_means_of_resampled_inputs() -> None:
    """The matrix product against the definition: rows drawn with replacement, then averaged."""
    values = np.random.default_rng(0).exponential(size=50)
    means = bootstrap_means(group_sums([Feature(values)], group_of(50, 0)), np.ones(50), resamples=40, seed=3)
    drawn = np.random.default_rng(3).integers(50, size=(40, 50))
    np.testing.assert_allclose(means[:, 0], values[drawn].mean(1), rtol=1e-13)


@pytest.mark.parametrize("inputs", [300, 2 * GROUPS])
def test_all_scores_share_one_set_of_resamples_of_at_most_ten_thousand_groups(inputs, monkeypatch) -> None:
    """Intervals are cheap for this reason; each is that of the score resampled alone."""
    shapes = []

    def counted(sums, sizes, **settings):
        shapes.append(sums.shape)
        return bootstrap_means(sums, sizes, **settings)

    monkeypatch.setattr(example_scores_module.intervals, "bootstrap_means", counted)
    generator = torch.Generator().manual_seed(0)
    pred = Predictive(torch.randn(3, inputs, 10, generator=generator), Categorical(10))
    evaluation = score_examples(pred, torch.randint(10, (inputs,), generator=generator))
    together = evaluation.scores(resamples=20)
    assert len(shapes) == 1
    assert shapes[0][0] == min(inputs, GROUPS)
    for name in ("nll", "brier", "ece"):
        measures = {name: example_scores_module.MEASURES["classification"][name]}
        alone = evaluation.scores(resamples=20, measures=measures)[name]
        assert together[name].to_json() == pytest.approx(alone.to_json(), rel=1e-12)
