"""Rules of abstention: against brute force, Chow's rule, hand-computed cases, and what they refuse."""

import json
import math
from typing import Any

import numpy as np
import pytest

from murmuration.prediction.posthoc.abstention import (
    Abstention,
    by_cost,
    by_error_rate,
    by_risk_control,
    chow_threshold,
)
from murmuration.system.errors import Failure, Misuse
from murmuration.system.records import from_json, to_json


def read(record: Any) -> Any:
    return from_json(record, Abstention, "abstention rule")


def calibrated(examples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Confidences, and errors of just the probability they leave."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.5, 1, examples)
    return confidence, (rng.random(examples) > confidence).astype(float)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("uncertainty", ["confidence", "total_std"])
def test_by_cost_equals_brute_force_and_answers_most(seed: int, uncertainty: str) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 12, 40) / 10  # with ties
    losses = rng.integers(0, 4, 40) / 2  # quarters and halves: sums are exact
    rule = by_cost(values, losses, error_cost=1.0, abstain_cost=0.5, uncertainty=uncertainty)
    best, most = math.inf, 0
    for threshold in [-math.inf, *values, math.inf]:
        answered = values >= threshold if uncertainty == "confidence" else values <= threshold
        cost = np.where(answered, losses, 0.5).mean()
        if cost < best or (cost == best and answered.sum() > most):
            best, most = cost, answered.sum()
    assert rule.cost(values, losses).mean() == pytest.approx(best, abs=1e-12)
    assert rule.answers(values).sum() == most


def test_by_cost_comes_near_chow_for_calibrated_probabilities() -> None:
    """The expected cost is (t - 0.8)^2 above the least, and its noise grows as sqrt(0.32 |t - 0.8| / n).

    They are equal at |t - 0.8| = (0.32 / n)^(1/3), the scale of the minimiser's error; four times that is allowed.
    """
    examples = 100_000
    rule = by_cost(*calibrated(examples), error_cost=5.0, abstain_cost=1.0)
    assert chow_threshold(5.0, 1.0) == pytest.approx(0.8)
    assert abs(rule.threshold - 0.8) < 4 * (0.32 / examples) ** (1 / 3)
    assert rule.target == pytest.approx(0.2)
    assert rule.guarantee.startswith("no guarantee; smallest mean cost on 100,000 examples (error 5, abstain 1)")


def test_costs_at_the_ends() -> None:
    confidence, wrong = calibrated(500)
    assert by_cost(confidence, wrong, error_cost=1, abstain_cost=1.5).threshold == -math.inf  # abstaining never pays
    free = by_cost(confidence, wrong, abstain_cost=0.0)
    assert not wrong[free.answers(confidence)].any()
    assert by_cost(confidence, np.zeros(500)).answers(np.array([0.0])).all()  # never wrong: always answer
    nothing = by_cost(confidence, np.ones(500))
    assert not nothing.answers(confidence).any()


def test_answers_follow_the_direction_of_the_uncertainty() -> None:
    larger = Abstention("error-rate", "confidence", 0.5, 0.05, "", 10)
    assert larger.answers([0.4, 0.5, 0.6, math.nan]).tolist() == [False, True, True, False]
    smaller = Abstention("error-rate", "mutual_information", 0.5, 0.05, "", 10)
    assert smaller.answers([0.4, 0.5, 0.6, math.nan]).tolist() == [True, True, False, False]


def test_confidence_and_its_complement_give_the_same_answers() -> None:
    confidence, wrong = calibrated(4000)
    for choose in (by_cost, by_error_rate, by_risk_control):
        one, other = choose(confidence, wrong), choose(1 - confidence, wrong, uncertainty="one minus confidence")
        assert (one.answers(confidence) == other.answers(1 - confidence)).all()
        assert 0 < one.answers(confidence).mean() < 1


def test_by_error_rate_guarantees_only_what_the_examples_show() -> None:
    confidence, wrong = calibrated(4000)
    rule = by_error_rate(confidence, wrong, max_error_rate=0.1, confidence_level=0.9)
    assert (rule.name, rule.target, rule.examples) == ("error-rate", 0.1, 4000)
    assert rule.guarantee == "with probability 0.9, at most 0.1 of the answers are wrong"
    assert wrong[rule.answers(confidence)].mean() < 0.1
    few = by_error_rate(confidence[:50], wrong[:50])
    assert few.guarantee == (
        "no guarantee: 50 examples do not show that even the most certain answers have an error rate of at most 0.05"
    )
    assert not few.answers([0.5, 1.0]).any()
    assert not by_error_rate(1 - confidence[:50], wrong[:50], uncertainty="entropy").answers([0.0, 1.0]).any()


def test_by_risk_control_says_what_it_guarantees() -> None:
    confidence, wrong = calibrated(4000)
    rule = by_risk_control(confidence, wrong, max_risk=0.02)
    assert rule.guarantee == "on average, at most 0.02 of all inputs are answered and wrong"
    lost = (wrong * rule.answers(confidence)).sum()
    assert lost + 1 <= 0.02 * 4001 < lost + 2  # one more error would be too many
    few = by_risk_control(confidence[:18], wrong[:18])
    assert few.guarantee == "no guarantee: a risk of 0.05 needs at least 19 examples, got 18"
    assert not few.answers([1.0]).any()


def test_regression_losses() -> None:
    """Errors of the size of the predicted spread: abstaining the wide ones keeps the mean error down."""
    rng = np.random.default_rng(0)
    std = rng.uniform(0.1, 2, 5000)
    error = np.abs(std * rng.normal(size=5000))
    rule = by_cost(std, error, error_cost=1.0, abstain_cost=0.8, uncertainty="total_std")
    # abstaining pays where std sqrt(2 / pi) > 0.8, at 1.003; the noise is that of Chow's case, (0.25 / n)^(1/3) = 0.037
    assert rule.threshold == pytest.approx(1.003, abs=4 * 0.037)


@pytest.mark.parametrize("choose", [by_cost, by_error_rate, by_risk_control])
def test_json_round_trip(choose) -> None:
    for examples in (10, 4000):
        rule = choose(*calibrated(examples))
        assert read(json.loads(json.dumps(to_json(rule), allow_nan=False))) == rule


def test_damaged_records_are_refused_in_one_line() -> None:
    record = to_json(by_cost(*calibrated(100)))
    for change, message in [
        ({"threshold": "high"}, "damaged abstention rule: threshold is 'high', expected float"),
        ({"costs": [1.0]}, "damaged abstention rule: 1 costs of an abstention rule: expected two or none"),
        ({"name": 3}, "damaged abstention rule: name is 3, expected str"),
        ({"more": 3}, "damaged abstention rule: field 'more' of Abstention is unknown"),
    ]:
        with pytest.raises(Failure, match=message):
            read({**record, **change})
    with pytest.raises(Failure, match="damaged abstention rule: the record is 'rule', expected Abstention"):
        read("rule")


def test_misuse_is_named() -> None:
    confidence, wrong = calibrated(10)
    with pytest.raises(
        Misuse, match=r"values of shape \(0,\) and losses of shape \(0,\): expected \(N,\) both, N >= 1"
    ):
        by_cost([], [])
    with pytest.raises(Misuse, match=r"values of shape \(9,\) and losses of shape \(10,\)"):
        by_error_rate(confidence[1:], wrong)
    with pytest.raises(Misuse, match=r"value nan at \[0\]: expected a finite number; leave such inputs out"):
        by_cost(np.full(10, math.nan), wrong)
    with pytest.raises(Misuse, match=r"loss inf at \[0\]"):
        by_cost(confidence, np.full(10, math.inf))
    with pytest.raises(Misuse, match=r"a loss of 0.5: by_error_rate counts errors, and needs losses of 0 .* and 1"):
        by_error_rate(confidence, np.full(10, 0.5))
    with pytest.raises(Misuse, match=r"losses from 3 to 3: by_risk_control needs them within \[0, 1\]"):
        by_risk_control(confidence, np.full(10, 3.0))
    with pytest.raises(Misuse, match=r"max_error_rate 5 is outside \(0, 1\): write for example 0.05"):
        by_error_rate(confidence, wrong, max_error_rate=5)
    with pytest.raises(Misuse, match=r"an error cost of 0 and an abstain cost of 0.2: expected the first above 0"):
        by_cost(confidence, wrong, error_cost=0)
    with pytest.raises(Misuse, match="rule 'error-rate' has no costs: choose it with by_cost"):
        by_error_rate(*calibrated(10)).cost(confidence, wrong)
