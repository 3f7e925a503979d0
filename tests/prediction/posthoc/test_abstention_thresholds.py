"""Thresholds for abstention: by hand, and in simulations whose true risk is known in closed form.

In the simulations the confidence c is uniform on (1/2, 1) and the error probability 1.5 (1 - c): the model is
overconfident. Answering down to t then errs on 1.5 (1 - t)^2 of all inputs, and on 0.75 (1 - t) of the answered.
"""

import math

import numpy as np
import pytest
from scipy.stats import beta, binom

from murmuration.prediction.posthoc.abstention import certified_threshold, controlled_threshold, on_grid, selection_path

SIMULATIONS = 500


def simulated(seed: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.5, 1, examples)
    return confidence, (rng.random(examples) < 1.5 * (1 - confidence)).astype(float)


def test_steps_take_equals_together() -> None:
    steps = selection_path(np.array([0.7, 0.9, 0.7, 0.5]), np.array([1.0, 0.0, 0.0, 1.0]))
    assert steps.certainty.tolist() == [0.9, 0.7, 0.5]
    assert steps.answered.tolist() == [1, 3, 4]
    assert steps.loss.tolist() == [0, 1, 2]
    assert steps.threshold(3) == -math.inf
    assert 0.5 < steps.threshold(2) < 0.5 + 1e-15  # just above the most certain input that is not answered


def test_risk_control_by_hand() -> None:
    # Nine examples, risk 0.2: (errors + 1) / 10 <= 0.2 leaves one error; the second is at 0.4.
    confidence = np.array([0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])
    wrong = np.array([0, 0, 1, 0, 0, 0, 1, 0, 0.0])
    threshold = controlled_threshold(confidence, wrong, 0.2)
    assert (confidence >= threshold).sum() == 6
    assert controlled_threshold(confidence, wrong, 0.3) == -math.inf
    assert (confidence >= controlled_threshold(confidence, wrong, 0.1)).sum() == 2  # no error at all
    assert controlled_threshold(confidence, wrong, 0.09) == math.inf  # needs ten examples


def test_controlled_risk_is_within_the_target_and_near_it() -> None:
    """E[risk] <= 0.05, and for continuous losses at least 0.05 - 2 / (n + 1) (theorems 1 and 2 of the paper)."""
    examples, risk = 300, 0.05
    thresholds = np.array([controlled_threshold(*simulated(i, examples), risk) for i in range(SIMULATIONS)])
    true = 1.5 * (1 - np.clip(thresholds, 0.5, 1)) ** 2
    error = true.std() / math.sqrt(SIMULATIONS)
    assert true.mean() < risk + 4 * error
    assert true.mean() > risk - 2 / (examples + 1) - 4 * error


def test_the_certified_error_rate_holds_and_most_inputs_are_answered() -> None:
    examples, risk, level = 20_000, 0.05, 0.9
    largest = np.array(
        [certified_threshold(1 - c, wrong, risk, level) for c, wrong in (simulated(i, examples) for i in range(300))]
    )
    broken = (0.75 * largest > risk).sum()  # risk among the answered, where 1 - confidence is at most this
    assert broken <= binom.isf(1e-4, 300, 1 - level)
    # of the 2,667 that could be answered, a test at the last passes if errors are sqrt(2667 * 0.05 * 0.95) * 1.96 below
    # the mean: a sixth too few. So about that much is lost, and twice that is allowed.
    assert np.median(largest) > (1 - 2 / 6) * risk / 0.75


def test_the_certified_error_rate_holds_where_every_threshold_is_just_too_risky() -> None:
    """The hardest case: the error rate is a hair above the target whatever the confidence."""
    rng, broken = np.random.default_rng(0), 0
    for _ in range(SIMULATIONS):
        wrong = (rng.random(1500) < 0.0501).astype(float)
        broken += certified_threshold(rng.random(1500), wrong, 0.05, 0.95) > -math.inf
    assert broken <= binom.isf(1e-4, SIMULATIONS, 0.05)


def test_certified_threshold_follows_clopper_and_pearson() -> None:
    """All alike: answered if and only if the exact upper bound of the error rate, at half of 0.05, is below."""
    for errors in range(12):
        wrong = (np.arange(300) < errors).astype(float)
        bound = beta.ppf(1 - 0.05 / 2, errors + 1, 300 - errors)
        found = certified_threshold(np.full(300, 0.25), wrong, 0.05, 0.95)
        assert found == (0.25 if bound <= 0.05 else -math.inf)


def test_one_error_among_the_most_certain_does_not_end_the_search() -> None:
    uncertainty, wrong = np.linspace(0.001, 0.5, 1000), np.zeros(1000)
    wrong[0] = 1
    assert certified_threshold(uncertainty, wrong, 0.05, 0.95) == 0.5


def test_too_few_examples_certify_nothing() -> None:
    # (1 - 0.05)^n <= 0.05 / 2 needs n = 72
    assert certified_threshold(np.full(71, 0.1), np.zeros(71), 0.05, 0.95) == -math.inf
    assert certified_threshold(np.full(72, 0.125), np.zeros(72), 0.05, 0.95) == 0.125


@pytest.mark.parametrize("sign", [1, -1])
def test_the_grid_rounds_up_by_less_than_two_percent_and_keeps_order(sign: int) -> None:
    values = sign * np.sort(np.random.default_rng(0).lognormal(0, 8, 500))
    grid = on_grid(values)
    assert (grid >= values).all()
    assert (np.abs(grid - values) <= np.abs(values) / 64).all()
    assert (np.diff(grid) * sign >= 0).all()
    assert (on_grid(grid) == grid).all()


@pytest.mark.parametrize("rate", [1e-300, 5e-324])
def test_an_error_rate_that_no_number_of_examples_can_show_answers_nothing(rate):
    assert certified_threshold(np.linspace(0, 1, 50), np.zeros(50), rate, 0.9) == -math.inf
