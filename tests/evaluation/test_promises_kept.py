"""Whether promises were kept: a handful of examples by hand, and the chance of a false alarm."""

import math
from bisect import bisect_left

import numpy as np
import pytest
import torch
from prediction_factories import classification_sample
from scipy.stats import betabinom

from murmuration.evaluation import SetsFound, examine
from murmuration.evaluation.promises import (
    by_class,
    mean_score,
    rules_found,
    set_measures,
    sets_by_group,
    sets_found,
    unlucky_coverage,
)
from murmuration.metrics import Evaluation, Score, evaluate
from murmuration.metrics.intervals import wilson
from murmuration.posthoc.abstention import Abstention
from murmuration.posthoc.conformal import IntervalRule, SetRule
from murmuration.posthoc.fit import PostHoc, fit_posthoc
from murmuration.predictive import Predictive
from murmuration.reports.curves import triple

LAC = SetRule("lac", 0.6, 0.55, 10, 2)  # classes of probability 0.45 or more
COST = Abstention("cost", "confidence", 0.7, 0.2, "none", 10, (3.0, 0.5))
RISK = Abstention("error-rate", "confidence", 2.0, 0.05, "none", 10)  # answers nothing
GUARD = PostHoc(None, (LAC,), (COST, RISK), 0, 10)

PRED = Predictive.from_probs([[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.2, 0.8]])
LABELS = [0, 1, 1, 0]


def made_up() -> Evaluation:
    return examine([(PRED, LABELS)], GUARD).plain


def wilson_of(share: float, count: int) -> tuple[float, float, float]:
    low, high = wilson(np.array(share * count), np.array(count))
    return share, float(low), float(high)


# Sets


def test_sets_by_hand():
    """Sets {0}, {0}, {0, 1}, {1} and truths 0, 1, 1, 0."""
    columns = made_up().columns
    assert columns["covered_lac"].tolist() == [True, False, True, False]
    assert columns["size_lac"].tolist() == [1, 1, 2, 1]
    (found,) = sets_found(GUARD, made_up(), "here")
    assert triple(found.coverage) == wilson_of(0.5, 4)
    assert found.size == 1.25
    assert (found.method, found.level, found.where, found.examples, found.taught) == ("lac", 0.6, "here", 4, 10)


def test_rows_choose_the_examples():
    (found,) = sets_found(GUARD, made_up(), "two", np.array([0, 2]))
    assert triple(found.coverage) == wilson_of(1.0, 2)
    assert found.size == 1.5
    assert found.examples == 2


def test_groups_have_the_first_rule_and_ten_examples_at_least():
    pred, y = classification_sample(300)
    guard = fit_posthoc(pred, y)
    evaluation = examine([(pred, y)], guard).plain
    parts = {"few": np.arange(9), "enough": np.arange(10), "all": np.arange(300)}
    found = sets_by_group(guard, evaluation, parts)
    assert [(each.method, each.where, each.examples) for each in found] == [("lac", "enough", 10), ("lac", "all", 300)]
    assert triple(found[1].coverage) == triple(sets_found(guard, evaluation, "test")[0].coverage)
    inside = guard.conformal[0].sets(guard.calibrated(pred))[np.arange(10), y[:10]]  # type: ignore[union-attr]
    assert found[0].coverage == inside.mean()


def test_classes_are_listed_by_their_truths():
    evaluation = evaluate(PRED, LABELS)
    found = by_class(evaluation, ("cat", "dog"))
    assert {name: rows.tolist() for name, rows in found.items()} == {"class cat": [0, 3], "class dog": [1, 2]}
    assert by_class(evaluation, ()) == {}
    assert by_class(evaluation, tuple(map(str, range(31)))) == {}  # too many to list


def test_measures_of_sets_are_means_of_their_columns():
    found = made_up().scores(measures=set_measures(GUARD, "classification"))
    assert triple(found["set_coverage"]) == wilson_of(0.5, 4)
    assert found["set_size"] == 1.25
    assert set_measures(PostHoc(None, (), (), 0, 0), "classification") == {}
    for threshold, names in ((1.0, ["set_coverage", "set_size"]), (math.inf, ["set_coverage"])):
        rule = IntervalRule("absolute", 0.9, (1.0, threshold), 5)
        assert list(set_measures(PostHoc(None, (rule,), (), 0, 5), "regression")) == names


# Whether a promise is broken


def found_of(held: int, examples: int, taught: int, level: float = 0.9) -> SetsFound:
    return SetsFound(
        "lac", level, "test", Score(*wilson_of(held / examples, examples)), Score(1, 1, 1), examples, taught
    )


def test_the_unlucky_coverage_is_a_quantile_of_what_thresholds_reach():
    """Coverage of uniform scores is the threshold itself: 40,000 of them know the 2.5 % quantile to 0.0006."""
    draws = np.sort(np.random.default_rng(0).random((40_000, 49)), axis=1)[:, 44]  # ceil(50 * 0.9) = 45
    assert unlucky_coverage(49, 0.9) == pytest.approx(np.quantile(draws, 0.025), abs=0.003)
    assert unlucky_coverage(8, 0.9) == 0.9  # everything is inside: nothing to be unlucky with


@pytest.mark.parametrize(("taught", "examples"), [(20, 2000), (100, 100), (100, 20_000), (1000, 360)])
def test_false_alarms_are_rare_though_both_samples_are_small(taught, examples):
    """What kept promises give is beta-binomial: at most 3 in 100 may look broken."""
    place = math.ceil(round((taught + 1) * 0.9, 9))
    held = range(examples + 1)
    chance = betabinom(examples, place, taught + 1 - place)
    least = bisect_left(held, True, key=lambda count: not found_of(int(count), examples, taught).broken)
    assert chance.cdf(least - 1) < 0.03
    assert chance.cdf(least - 1) > 0.003  # and not for want of looking


def test_broken_promises_are_noticed():
    assert found_of(600, 1000, 100).broken
    assert not found_of(890, 1000, 100).broken
    assert not found_of(860, 1000, 100).broken  # by chance in the hundred, though a thousand could tell 0.86 from 0.9
    assert found_of(860, 1000, 100_000).broken


def test_exchangeable_examples_seldom_look_broken():
    """The whole way: of 200 guards on data like their own, about 1 in 40 may look broken; 13 is 3.6 sigma too many."""
    pred, y = classification_sample(200 * 160, members=1, seed=9)
    broken = 0
    for trial in range(200):
        learn = torch.arange(trial * 160, trial * 160 + 40)
        test = torch.arange(trial * 160 + 40, (trial + 1) * 160)
        guard = fit_posthoc_of_lac(pred.at(learn), y[learn])
        kept = guard.per_example(pred.at(test), y[test])
        share = float(kept["covered_lac"].mean())
        broken += SetsFound("lac", 0.9, "", Score(*wilson_of(share, 120)), Score(1, 1, 1), 120, 40).broken
    assert broken < 13


def fit_posthoc_of_lac(pred: Predictive, y: np.ndarray) -> PostHoc:
    from murmuration.posthoc.conformal import fit_conformal

    return PostHoc(None, (fit_conformal("lac", pred, y),), (), 0, len(y))


# Rules for declining


def test_rules_by_hand():
    """Confidences 0.9, 0.6, 0.5, 0.8, right, wrong, wrong (a tie goes to the first), wrong; 0.7 answers two of them."""
    cost, risk = rules_found(GUARD, made_up())
    assert triple(cost.answered) == wilson_of(0.5, 4)
    assert triple(cost.risk) == wilson_of(0.5, 2)
    assert cost.cost == (0 + 0.5 + 0.5 + 3.0) / 4
    assert cost.where == "test"
    assert risk.answered == 0.0
    assert math.isnan(risk.risk)
    assert risk.cost is None
    record = cost.to_json()
    assert (record["name"], record["answered"]["value"], record["risk"]["value"]) == ("cost", 0.5, 0.5)
    assert record["cost"]["value"] == 1.0
    assert "cost" not in risk.to_json()


def test_a_rule_of_numbers_loses_absolute_errors():
    pred = Predictive.from_moments([[[0.0], [1.0], [2.0]]], [[[1.0], [2.0], [3.0]]])
    rule = Abstention("cost", "total_std", 2.5, 0.5, "none", 10, (2.0, 1.5))
    guard = PostHoc(None, (), (rule,), 0, 10)
    (found,) = rules_found(guard, examine([(pred, [[0.5], [0.0], [9.0]])], guard).plain)
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
