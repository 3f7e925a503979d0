"""Coverage of conformal sets and abstention: a handful of examples by hand, and the chance of a false alarm."""

import math
from bisect import bisect_left

import numpy as np
import pytest
import torch
from prediction_factories import classification_sample
from scipy.stats import beta, betabinom
from score_factories import triple

from murmuration.evaluation import SetCoverage, score_predictions
from murmuration.evaluation.coverage import (
    abstention_results,
    coverage_by_group,
    coverage_tail,
    mean_score,
    rows_by_class,
    set_coverage,
    set_measures,
)
from murmuration.evaluation.metrics import ExampleScores, Score, holm, score_examples
from murmuration.evaluation.metrics.intervals import wilson
from murmuration.prediction.posthoc.abstention import Abstention
from murmuration.prediction.posthoc.conformal import IntervalRule, SetRule, fit_conformal
from murmuration.prediction.posthoc.fit import PostHoc, fit_posthoc
from murmuration.prediction.predictive import Predictive
from murmuration.system.records import plain_json

LAC = SetRule("lac", 0.6, 0.55, 10, 2)  # classes of probability 0.45 or more
COST = Abstention("cost", "confidence", 0.7, 0.2, "none", 10, (3.0, 0.5))
RISK = Abstention("error-rate", "confidence", 2.0, 0.05, "none", 10)  # answers nothing
GUARD = PostHoc(None, (LAC,), (COST, RISK), 0, 10)

PRED = Predictive.from_probs([[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.2, 0.8]])
LABELS = [0, 1, 1, 0]


def made_up() -> ExampleScores:
    return score_predictions([(PRED, LABELS)], GUARD).uncalibrated


def wilson_of(share: float, count: int) -> tuple[float, float, float]:
    low, high = wilson(np.array(share * count), np.array(count))
    return share, float(low), float(high)


# Sets


def test_sets_by_hand():
    """Sets {0}, {0}, {0, 1}, {1} and truths 0, 1, 1, 0."""
    columns = made_up().columns
    assert columns["covered_lac"].tolist() == [True, False, True, False]
    assert columns["size_lac"].tolist() == [1, 1, 2, 1]
    (found,) = set_coverage(GUARD, made_up(), "here")
    assert triple(found.coverage) == wilson_of(0.5, 4)
    assert found.size == 1.25
    assert (found.method, found.nominal, found.subset, found.examples, found.calibration_examples) == (
        "lac",
        0.6,
        "here",
        4,
        10,
    )


def test_rows_choose_the_examples():
    (found,) = set_coverage(GUARD, made_up(), "two", np.array([0, 2]))
    assert triple(found.coverage) == wilson_of(1.0, 2)
    assert found.size == 1.5
    assert found.examples == 2


def test_groups_have_the_first_rule_however_few_examples_they_have():
    pred, y = classification_sample(300)
    posthoc = fit_posthoc(pred, y)
    evaluation = score_predictions([(pred, y)], posthoc).uncalibrated
    parts = {"none": np.arange(0), "one": np.arange(1), "ten": np.arange(10), "all": np.arange(300)}
    found = coverage_by_group(posthoc, evaluation, parts)
    assert [(each.method, each.subset, each.examples) for each in found] == [
        *(("lac", "one", 1), ("lac", "ten", 10), ("lac", "all", 300))
    ]
    assert triple(found[2].coverage) == triple(set_coverage(posthoc, evaluation, "test")[0].coverage)
    inside = posthoc.conformal[0].sets(posthoc.calibrated(pred))[np.arange(10), y[:10]]  # type: ignore[union-attr]
    assert found[1].coverage == inside.mean()


def test_classes_are_listed_by_their_truths():
    evaluation = score_examples(PRED, LABELS)
    found = rows_by_class(evaluation, ("cat", "dog"))
    assert {name: rows.tolist() for name, rows in found.items()} == {"class cat": [0, 3], "class dog": [1, 2]}
    assert rows_by_class(evaluation, ()) == {}
    assert rows_by_class(evaluation, tuple(map(str, range(31)))) == {}  # too many to list


def test_measures_of_sets_are_means_of_their_columns():
    found = made_up().scores(measures=set_measures(GUARD, "classification"))
    assert triple(found["set_coverage"]) == wilson_of(0.5, 4)
    assert found["set_size"] == 1.25
    assert set_measures(PostHoc(None, (), (), 0, 0), "classification") == {}
    for threshold, names in ((1.0, ["set_coverage", "set_size"]), (math.inf, ["set_coverage"])):
        rule = IntervalRule("absolute", 0.9, (1.0, threshold), 5)
        assert list(set_measures(PostHoc(None, (rule,), (), 0, 5), "regression")) == names


# The verdict on coverage


def verdict_of(covered: int, examples: int, calibration: int, nominal: float = 0.9) -> str:
    coverage = Score(*wilson_of(covered / examples, examples))
    p_value = coverage_tail(coverage, examples, calibration, nominal)
    return SetCoverage("lac", nominal, "test", coverage, Score(1, 1, 1), examples, calibration, p_value).verdict


@pytest.mark.parametrize(("calibration", "examples"), [(20, 2000), (90, 360), (100, 100), (1000, 10_000)])
def test_a_valid_rule_is_flagged_in_at_most_5_percent_of_cases(calibration, examples):
    """Split conformal on uniform scores: the threshold is the k-th of n, and a test score is covered if it is below.

    The limits of the verdict are found once, the covered counts of 20,000 valid rules are simulated from their ranks.
    """
    trials, rng = 20_000, np.random.default_rng(calibration)
    place = math.ceil(round((calibration + 1) * 0.9, 9))
    thresholds = rng.beta(place, calibration + 1 - place, size=trials)  # of the k-th smallest of n uniform scores
    covered = rng.binomial(examples, thresholds)
    counts = range(examples + 1)
    least = bisect_left(counts, True, key=lambda count: verdict_of(count, examples, calibration) != "under")
    error = math.sqrt(0.05 * 0.95 / trials)
    assert (covered < least).mean() <= 0.05 + 3 * error
    assert (covered < least).mean() > 0.01  # and not for want of looking
    above = bisect_left(counts, True, key=lambda count: verdict_of(count, examples, calibration) == "over")
    assert (covered >= above).mean() <= 0.05 + 3 * error


def test_thresholds_of_sorted_scores_are_beta_distributed():
    """The shortcut of the simulation above against sorted uniform scores: 20,000 know a quantile to 0.001."""
    draws = np.sort(np.random.default_rng(0).random((20_000, 49)), axis=1)[:, 44]  # ceil(50 * 0.9) = 45
    expected = beta(45, 5).ppf([0.025, 0.5, 0.975])
    np.testing.assert_allclose(np.quantile(draws, [0.025, 0.5, 0.975]), expected, atol=0.003)


@pytest.mark.parametrize(("calibration", "examples"), [(20, 200), (1000, 360)])
def test_the_tail_is_that_of_the_beta_binomial(calibration, examples):
    place = math.ceil(round((calibration + 1) * 0.9, 9))
    chance = betabinom(examples, place, calibration + 1 - place)
    for covered in (examples // 2, examples - 40, examples - 20, examples):
        assert coverage_tail(covered / examples, examples, calibration, 0.9) == pytest.approx(chance.cdf(covered))
        above = coverage_tail(covered / examples, examples, calibration, 0.9, above=True)
        assert above == pytest.approx(chance.sf(covered - 1))
    assert coverage_tail(0.5, 100, 8, 0.9) == 1.0  # too few to calibrate: everything is covered


def test_under_and_over_coverage_are_noticed():
    assert verdict_of(600, 1000, 100) == "under"
    assert verdict_of(890, 1000, 100) == "valid"
    assert verdict_of(860, 1000, 100) == "valid"  # noise of the hundred, though a thousand could tell 0.86 from 0.9
    assert verdict_of(860, 1000, 100_000) == "under"
    assert verdict_of(1000, 1000, 1000) == "over"


def test_of_many_groups_chance_flags_none():
    """Ten groups with p-values of 0.01: alone each would be flagged, together none is (Holm)."""
    pred, y = classification_sample(300)
    posthoc = fit_posthoc(pred, y)
    scores = score_predictions([(pred, y)], posthoc).uncalibrated
    parts = {f"part {k}": np.arange(30 * k, 30 * k + 30) for k in range(10)}
    alone = [set_coverage(posthoc, scores, name, rows)[0].p_value for name, rows in parts.items()]
    together = [each.p_value for each in coverage_by_group(posthoc, scores, parts)]
    assert together == pytest.approx(holm(alone))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lac", "mondrian"])
def test_exchangeable_examples_are_seldom_flagged(method):
    """The whole way: of 200 rules on data like their own about 1 in 40 may be flagged; 13 is 3.6 sigma too many.

    Examples of which the label was exchanged after the rule was fitted are flagged, also where a class is rare.
    """
    pred, y = classification_sample(200 * 160, members=1, seed=9)
    flagged = found = 0
    for trial in range(200):
        learn = torch.arange(trial * 160, trial * 160 + 40)
        test = torch.arange(trial * 160 + 40, (trial + 1) * 160)
        rule = fit_conformal(method, pred.at(learn), y[learn])
        posthoc = PostHoc(None, (rule,), (), 0, 40)
        scores = score_predictions([(pred.at(test), y[test])], posthoc).uncalibrated
        flagged += set_coverage(posthoc, scores)[0].verdict == "under"
        wrong = score_predictions([(pred.at(test), np.roll(y[test], 1))], posthoc).uncalibrated
        found += set_coverage(posthoc, wrong)[0].verdict == "under"
    assert flagged < 13
    assert found > 100


# Abstention


def test_rules_by_hand():
    """Confidences 0.9, 0.6, 0.5, 0.8, right, wrong, wrong (a tie goes to the first), wrong; 0.7 answers two of them."""
    cost, risk = abstention_results(GUARD, made_up())
    assert triple(cost.answered) == wilson_of(0.5, 4)
    assert triple(cost.risk) == wilson_of(0.5, 2)
    assert cost.cost == (0 + 0.5 + 0.5 + 3.0) / 4
    assert cost.subset == "test"
    assert risk.answered == 0.0
    assert math.isnan(risk.risk)
    assert risk.cost is None
    record = plain_json(cost)
    assert (record["name"], record["answered"]["value"], record["risk"]["value"]) == ("cost", 0.5, 0.5)
    assert record["cost"]["value"] == 1.0
    assert "cost" not in risk.to_json()


def test_a_rule_of_numbers_loses_absolute_errors():
    pred = Predictive.from_moments([[[0.0], [1.0], [2.0]]], [[[1.0], [2.0], [3.0]]])
    rule = Abstention("cost", "total_std", 2.5, 0.5, "none", 10, (2.0, 1.5))
    posthoc = PostHoc(None, (), (rule,), 0, 10)
    (found,) = abstention_results(posthoc, score_predictions([(pred, [[0.5], [0.0], [9.0]])], posthoc).uncalibrated)
    assert found.answered == pytest.approx(2 / 3)
    assert found.risk == pytest.approx((0.5 + 1.0) / 2)
    assert found.cost == pytest.approx((2 * 0.5 + 2 * 1.0 + 1.5) / 3)


# Means


def test_a_mean_of_zeros_and_ones_has_wilsons_interval():
    values = np.array([True] * 7 + [False] * 3)
    assert triple(mean_score(values, proportion=True)) == wilson_of(0.7, 10)
    assert triple(mean_score(np.ones(10), proportion=True)) == wilson_of(1.0, 10)


@pytest.mark.parametrize("count", [400, 25_000])
def test_any_other_mean_has_the_interval_of_its_standard_error(count):
    """1000 resamples know a spread to 3 %; more examples than 10,000 go in groups."""
    values = np.random.default_rng(2).gamma(2.0, size=count)
    found = mean_score(values)
    assert found == pytest.approx(values.mean(), rel=1e-12)
    error = values.std() / math.sqrt(count)
    assert (found.high - found.low) / (2 * 1.96) == pytest.approx(error, rel=0.1)
    assert abs((found.low + found.high) / 2 - values.mean()) < 0.3 * error


def test_shares_of_several_targets_stay_shares():
    found = mean_score(np.array([1.0] * 30 + [0.5]), proportion=True)
    assert found == pytest.approx(30.5 / 31)
    assert found.low < found <= found.high <= 1.0


def test_a_mean_without_end_has_no_interval():
    assert mean_score(np.array([1.0, np.inf])) == np.inf
    assert math.isnan(mean_score(np.array([1.0, np.inf])).low)
