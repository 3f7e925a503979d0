"""Groups: their scores are those of their examples alone, and only what is really worse is called so."""

import math

import numpy as np
import pytest
from scipy import stats

from murmuration.evaluation.metrics import ExampleScores, by_group, score, score_examples
from murmuration.evaluation.metrics.comparison import POOLED, rank_sum, rows_by_group, worse_than_rest
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse
from murmuration.system.records import plain_json


def classes(rates: dict[str, float], each: int = 200, seed: int = 0) -> tuple[Predictive, np.ndarray, np.ndarray]:
    """Predictions that are right at a given rate in each group."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(list(rates), each)
    right = rng.random(len(groups)) < np.repeat(list(rates.values()), each)
    confidence = rng.uniform(0.5, 1, size=(2, len(groups)))
    return Predictive.from_probs(np.stack([confidence, 1 - confidence], -1)), np.where(right, 0, 1), groups


def numbers(spreads: dict[str, float], each: int = 200, seed: int = 0) -> tuple[ExampleScores, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups, std = np.repeat(list(spreads), each), np.repeat(list(spreads.values()), each)
    y = std * rng.standard_t(3, size=len(std))
    return score_examples(Predictive.from_moments(np.zeros((2, len(y), 1)), 1.0), y), groups


def test_a_group_is_scored_as_if_it_were_alone() -> None:
    pred, y, groups = classes({"b": 0.8, "a": 0.6})
    found = by_group(score_examples(pred, y), groups)
    assert [(each.value, each.examples) for each in found] == [("a", 200), ("b", 200)]
    alone = score(Predictive(pred.outputs[:, groups == "a"], pred.likelihood), y[groups == "a"])
    assert list(alone) == list(found[0].scores)
    for name, value in alone.items():
        assert found[0].scores[name].to_json() == pytest.approx(value.to_json(), abs=1e-12), name


def test_the_worse_group_is_found_and_the_better_one_is_not_called_worse() -> None:
    pred, y, groups = classes({"good": 0.97, "plain": 0.85, "poor": 0.6})
    good, plain, poor = by_group(score_examples(pred, y), groups, resamples=50)
    assert poor.worse
    assert not good.worse
    assert not plain.worse
    assert max(good.p_value, poor.p_value) < 1e-6
    wrong = [int((y[groups == name] == 1).sum()) for name in ("poor", "good", "plain")]
    table = [[wrong[0], 200 - wrong[0]], [sum(wrong[1:]), 400 - sum(wrong[1:])]]
    assert poor.p_value == pytest.approx(stats.fisher_exact(table).pvalue, rel=1e-9)


def test_regression_groups_are_told_by_the_ranks_of_their_errors() -> None:
    evaluation, groups = numbers({"a": 1.0, "b": 1.0, "c": 2.0})
    found = by_group(evaluation, groups, resamples=50)
    assert [each.worse for each in found] == [False, False, True]
    errors = evaluation.columns["absolute_error"]
    theirs = stats.mannwhitneyu(errors[groups == "c"], errors[groups != "c"], method="asymptotic").pvalue
    assert found[2].p_value == pytest.approx(theirs, rel=1e-9)
    tied = np.round(errors)
    theirs = stats.mannwhitneyu(tied[:200], tied[200:], method="asymptotic").pvalue
    assert rank_sum(tied, [np.arange(200)])[0][0] == pytest.approx(theirs, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_alarms_are_rare_where_no_group_differs(task: str) -> None:
    """Ten groups alike, 60 times: any alarm in at most about 5 % of them; one uncorrected test each would give 40 %."""
    names, alarms = [f"g{i}" for i in range(10)], 0
    for seed in range(60):
        if task == "classification":
            pred, y, groups = classes(dict.fromkeys(names, 0.8), each=40, seed=seed)
            evaluation = score_examples(pred, y)
        else:
            evaluation, groups = numbers(dict.fromkeys(names, 1.0), each=40, seed=seed)
        alarms += any(worse for _, worse in worse_than_rest(evaluation, list(rows_by_group(groups).values())))
    assert alarms / 60 < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 60)


def test_small_groups_are_pooled_and_nobody_is_lost() -> None:
    texts = np.array(["x"] * 30 + ["rare"] * 9 + ["y"] * 10 + ["rarer"] * 2)
    rows = rows_by_group(texts)
    assert {value: len(part) for value, part in rows.items()} == {"x": 30, "y": 10, POOLED: 11}
    assert sorted(np.concatenate(list(rows.values()))) == list(range(51))
    assert set(texts[rows[POOLED]]) == {"rare", "rarer"}


def test_one_group_has_no_rest() -> None:
    pred, y, groups = classes({"only": 0.7})
    (only,) = by_group(score_examples(pred, y), groups, resamples=50)
    assert (only.p_value, only.worse, only.examples) == (1, False, 200)
    assert plain_json(only)["scores"]["accuracy"]["value"] == float(only.scores["accuracy"])


def test_groups_may_be_numbers_and_must_fit() -> None:
    pred, y, _ = classes({"a": 0.7, "b": 0.7}, each=20)
    found = by_group(score_examples(pred, y), np.arange(40) % 2, resamples=50)
    assert [each.value for each in found] == ["0", "1"]
    with pytest.raises(Misuse, match=r"groups of shape \(3,\) for 40 inputs"):
        by_group(score_examples(pred, y), ["a", "b", "c"])


def test_selected_inputs_keep_their_values_and_forget_the_agreement() -> None:
    pred, y, groups = classes({"a": 0.7, "b": 0.7}, each=20)
    whole = score_examples(pred, y)
    half = whole.select(groups == "b")
    assert half.inputs == 20
    np.testing.assert_array_equal(half.columns["member_brier"], whole.columns["member_brier"][:, 20:])
    assert half.agreement.shape == (2, 2)
    assert np.isnan(half.agreement).all()


def test_evaluations_are_joined_in_order() -> None:
    pred, y, _ = classes({"a": 0.7, "b": 0.7}, each=20)
    whole = score_examples(pred, y)
    halves = [
        score_examples(Predictive(pred.outputs[:, part], pred.likelihood), y[part])
        for part in (slice(15), slice(15, 40))
    ]
    again = ExampleScores.joined(halves)
    for name, values in whole.columns.items():
        np.testing.assert_allclose(again.columns[name], values, atol=1e-14, err_msg=name)
    np.testing.assert_allclose(again.agreement, whole.agreement, atol=1e-14)
    numbered, _ = numbers({"a": 1.0}, each=12)
    assert np.isnan(ExampleScores.joined([numbered, numbered]).agreement).all()
    assert ExampleScores.joined([numbered, numbered]).inputs == 24
