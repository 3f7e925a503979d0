"""Intervals: by hand, several targets, scales, groups, JSON, and what is refused."""

import json
import math
from typing import Any

import numpy as np
import pytest

from murmuration.prediction.posthoc.conformal import (
    CONFORMAL_METHODS,
    GroupedRule,
    IntervalRule,
    SetRule,
    covered,
    fit_conformal,
    fit_conformal_by_group,
    region_sizes,
)
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse
from murmuration.system.records import from_json, to_json


def read(record: Any) -> Any:
    return from_json(record, SetRule | IntervalRule, "conformal rule")


def regression(inputs: int = 100, members: int = 3, targets: int = 1, seed: int = 0) -> tuple[Predictive, np.ndarray]:
    """Members around a truth whose noise grows with the input."""
    rng = np.random.default_rng(seed)
    truth, noise = rng.normal(size=(inputs, targets)), rng.uniform(0.2, 2, size=(inputs, targets))
    mean = truth + 0.5 * noise * rng.normal(size=(members, inputs, targets))
    y = truth + noise * rng.normal(size=truth.shape)
    return Predictive.from_moments(mean, np.broadcast_to(noise, mean.shape).copy()), y


ONE = Predictive.from_moments(np.array([[0.0], [1.0], [2.0]])[None], np.array([[1.0], [2.0], [4.0]])[None])
TARGETS = [0.5, 0.0, 4.0]  # errors 0.5, 1, 2; in standard deviations 0.5, 0.5, 0.5


def test_absolute_by_hand() -> None:
    rule = fit_conformal("absolute", ONE, TARGETS, coverage=0.5)  # the ceil(4 * 0.5) = 2nd smallest error
    assert rule.threshold == 1.0
    low, high = rule.intervals(ONE)
    assert (low.ravel().tolist(), high.ravel().tolist()) == ([-1, 0, 1], [1, 2, 3])
    assert covered((low, high), TARGETS).tolist() == [True, True, False]
    assert region_sizes((low, high)).tolist() == [2, 2, 2]


def test_normalised_by_hand_with_one_member() -> None:
    rule = fit_conformal("normalised", ONE, TARGETS, coverage=0.5)
    assert isinstance(rule, IntervalRule)
    assert rule.scale == "total"
    assert rule.threshold == pytest.approx(0.5, abs=1e-12)
    assert region_sizes(rule.intervals(ONE)) == pytest.approx([1, 2, 4], abs=1e-12)


def test_quantile_moves_both_ends_by_the_threshold() -> None:
    # A standard normal's central half ends at -+0.6745; the median target lies 0.2 outside it.
    three = Predictive.from_moments(np.zeros((1, 3, 1)), 1.0)
    rule = fit_conformal("quantile", three, np.array([0.0, -0.8744897501960817, 3.0]), coverage=0.5)
    assert rule.threshold == pytest.approx(0.2, abs=1e-12)
    low, high = rule.intervals(three)
    assert high.ravel() == pytest.approx(np.full(3, 0.8744897501960817), abs=1e-12)
    assert low.ravel() == pytest.approx(-high.ravel(), abs=1e-12)


def test_an_interval_turned_inside_out_becomes_its_middle() -> None:
    # All targets at the mean of wide predictions: the score is minus the half-width, and the narrow one vanishes.
    wide = Predictive.from_moments(np.zeros((1, 3, 1)), 10.0)
    rule = fit_conformal("quantile", wide, np.zeros(3), coverage=0.5)
    narrow = Predictive.from_moments(np.full((1, 1, 1), 7.0), 1.0)
    low, high = rule.intervals(narrow)
    assert low.item() == high.item() == pytest.approx(7.0, abs=1e-12)
    assert region_sizes((low, high)).tolist() == [0.0]


def test_the_epistemic_scale_is_the_spread_of_members_with_a_floor() -> None:
    mean = np.array([[[0.0], [5.0], [1.0]], [[2.0], [5.0], [3.0]]])  # spread 1, 0, 1
    two = Predictive.from_moments(mean, 3.0)
    rule = fit_conformal("normalised", two, [3.0, 5.0, 2.0], coverage=0.5)
    assert isinstance(rule, IntervalRule)
    assert rule.scale == "epistemic"
    low, high = IntervalRule("normalised", 0.5, (2.0,), 3, "epistemic").intervals(two)
    # the floor is 1e-3 of the total standard deviation, which is the noise 3 where members agree
    assert ((high - low) / 4).ravel() == pytest.approx([1, 0.003, 1], abs=1e-12)


def test_with_one_member_the_epistemic_scale_gives_the_intervals_of_the_total() -> None:
    pred, y = regression(members=1)
    ends = [fit_conformal("normalised", pred, y, scale=scale).intervals(pred) for scale in ("epistemic", "total")]
    assert np.allclose(ends[0], ends[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", CONFORMAL_METHODS["regression"])
def test_several_targets_are_treated_each_on_its_own(method: str) -> None:
    pred, y = regression(targets=2)
    both = fit_conformal(method, pred, y)
    assert isinstance(both, IntervalRule)
    ends = both.intervals(pred)
    mean, std = pred.member_mean.numpy(), pred.member_var.sqrt().numpy()
    for target in range(2):
        alone = Predictive.from_moments(mean[:, :, [target]], std[:, :, [target]])
        rule = fit_conformal(method, alone, y[:, target])
        assert rule.threshold == pytest.approx(both.thresholds[target], abs=1e-12)
        assert np.allclose(rule.intervals(alone), [end[:, [target]] for end in ends], atol=1e-12)
    inside = (ends[0] <= y) & (y <= ends[1])
    assert (covered(ends, y) == inside.mean(1)).all()


def test_too_few_examples_give_infinite_intervals() -> None:
    rule = fit_conformal("absolute", ONE, TARGETS)
    low, high = rule.intervals(ONE)
    assert (low == -math.inf).all()
    assert (high == math.inf).all()
    assert covered((low, high), TARGETS).all()
    assert "regions are unbounded: 3 calibration examples, and coverage 0.9 needs 9" in rule.about


@pytest.mark.parametrize("method", CONFORMAL_METHODS["regression"])
@pytest.mark.parametrize("inputs", [5, 50])
def test_json_round_trip(method: str, inputs: int) -> None:
    rule = fit_conformal(method, *regression(inputs, targets=2))
    assert read(json.loads(json.dumps(to_json(rule), allow_nan=False))) == rule


def test_damaged_rules_are_refused() -> None:
    record = to_json(fit_conformal("absolute", *regression()))
    for change, message in [
        ({"thresholds": [1.0, "x"]}, r"damaged conformal rule: thresholds\[1\] is 'x', expected float"),
        ({"thresholds": 1.0}, r"damaged conformal rule: thresholds is 1.0, expected tuple\[float, ...\]"),
        ({"scale": "total"}, "scale 'total' for method 'absolute': normalised has a scale, the others none"),
    ]:
        with pytest.raises(Failure, match=message):
            read({**record, **change})


def test_misuse_is_named() -> None:
    pred, y = regression(20)
    with pytest.raises(Misuse, match=r"unknown regression method 'lac'.*Known: absolute, normalised, quantile"):
        fit_conformal("lac", pred, y)
    with pytest.raises(Misuse, match="scale='total' belongs to 'normalised', not to 'absolute'"):
        fit_conformal("absolute", pred, y, scale="total")
    with pytest.raises(Misuse, match="unknown scale 'aleatoric'"):
        fit_conformal("normalised", pred, y, scale="aleatoric")
    with pytest.raises(Misuse, match=r"target nan at \[0, 0\]: expected a finite number"):
        fit_conformal("absolute", pred, np.full(20, math.nan))
    rule = fit_conformal("absolute", pred, y)
    with pytest.raises(Misuse, match="predictions of 2 targets: this rule was fitted for 1"):
        rule.intervals(regression(targets=2)[0])
    with pytest.raises(Misuse, match="intervals belong to regression, and this is a classification"):
        rule.intervals(Predictive.from_probs([[0.5, 0.5]]))
    with pytest.raises(Misuse, match=r"targets of shape \(3, 1\) for intervals of shape \(20, 1\)"):
        covered(rule.intervals(pred), [1.0, 2.0, 3.0])


def test_a_rule_for_each_group_covers_each_group() -> None:
    """Two groups, one with five times the noise: together the noisy one is covered too rarely, apart it is not."""
    rng = np.random.default_rng(3)
    noise = np.where(np.arange(4000) % 2, 5.0, 1.0)
    names = np.where(noise > 1, "noisy", "quiet")
    y = noise * rng.normal(size=4000)
    pred = Predictive.from_moments(np.zeros((1, 2000, 1)), 1.0)
    together = fit_conformal("absolute", pred, y[:2000])
    apart = fit_conformal_by_group("absolute", pred, y[:2000], names[:2000])
    noisy = names[2000:] == "noisy"
    # 1,000 examples and as many new inputs: the share scatters by sqrt(2 * 0.9 * 0.1 / 1000) = 0.013
    assert covered(together.intervals(pred), y[2000:])[noisy].mean() < 0.9 - 4 * 0.013
    inside = covered(apart.regions(pred, names[2000:]), y[2000:])
    assert abs(inside[noisy].mean() - 0.9) < 4 * 0.013
    assert abs(inside[~noisy].mean() - 0.9) < 4 * 0.013


def test_grouped_rules_equal_the_rules_of_their_groups() -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(4), size=90)
    labels, names = rng.integers(4, size=90), np.arange(90) % 3
    pred = Predictive.from_probs(probs)
    rule = fit_conformal_by_group("lac", pred, labels, names, coverage=0.6)
    found = rule.regions(pred, np.where(names == 2, 7, names))  # group 7 was never seen
    for name in (0, 1):
        alone = fit_conformal("lac", Predictive.from_probs(probs[names == name]), labels[names == name], coverage=0.6)
        assert (found[names == name] == alone.sets(pred)[names == name]).all()
    assert (found[names == 2] == rule.rest.sets(pred)[names == 2]).all()
    assert from_json(json.loads(json.dumps(to_json(rule))), GroupedRule, "rule", (SetRule,)) == rule
    with pytest.raises(Misuse, match=r"groups of shape \(2,\) for 90 inputs: expected \(90,\)"):
        rule.regions(pred, ["a", "b"])
    with pytest.raises(Failure, match="damaged rule: field 'rules' of GroupedRule is missing"):
        from_json({"type": "GroupedRule"}, GroupedRule, "rule", (SetRule,))


def test_coverage_of_several_targets_is_said_to_be_of_each_alone():
    several, one = (IntervalRule("absolute", 0.9, (1.0,) * count, 50) for count in (2, 1))
    assert several.about.endswith("; coverage is of each target alone, not of all at once")
    assert "alone" not in one.about
