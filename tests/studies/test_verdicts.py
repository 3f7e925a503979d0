"""Verdicts by intervals: the three words, and intervals over runs and examples."""

import math

import numpy as np
import pytest
from scipy.stats import t

from murmuration.studies.verdicts import Estimate, Verdict, crossed_interval, estimate, mean_interval


def test_intervals_are_students():
    mean, low, high = mean_interval([1.0, 3.0])
    assert mean == 2.0
    assert high - mean == pytest.approx(12.7062, rel=1e-5)  # t of one degree of freedom, times sd / sqrt(2) = 1
    assert mean - low == pytest.approx(high - mean)
    assert math.isnan(mean_interval([1.0])[1])


def test_the_worst_estimate_decides():
    inside, across, outside = (Estimate("a", 0, low, high, -1, 1) for low, high in ((-0.5, 0.5), (0, 2), (2, 3)))
    assert [each.word for each in (inside, across, outside)] == ["holds", "cannot tell", "does not hold"]
    assert Verdict("P", "", (inside, across)).word == "cannot tell"
    assert Verdict("P", "", (inside, across, outside)).word == "does not hold"
    assert Verdict("P", "", ()).word == "cannot tell"


def test_two_seeds_have_no_interval():
    assert estimate("a", [0.5, 0.5], 0, 1).word == "cannot tell"
    assert estimate("a", [0.5, 0.5, 0.5], 0, 1).word == "holds"
    assert estimate("a", [0.5, 0.5, 0.5], 0, 1).over == "3 seeds"


def test_an_interval_over_runs_and_examples_covers_the_mean():
    """Effects of runs and of examples, and a residual: about 95 % of the intervals hold the true mean."""
    rng, inside, repeats = np.random.default_rng(0), 0, 400
    for _ in range(repeats):
        values = 0.3 + rng.normal(0, 0.2, (5, 1)) + rng.normal(0, 1.0, (1, 100)) + rng.normal(0, 0.5, (5, 100))
        _, low, high = crossed_interval(values)
        inside += low < 0.3 < high
    error = math.sqrt(0.95 * 0.05 / repeats)
    assert inside / repeats > 0.95 - 3 * error
    assert inside / repeats < 0.999


def test_an_interval_of_one_run_is_over_examples_alone():
    values = np.arange(10.0)
    mean, low, high = crossed_interval(values[None])
    half = t.ppf(0.975, 9) * values.std(ddof=1) / math.sqrt(10)
    assert (mean, low, high) == pytest.approx((4.5, 4.5 - half, 4.5 + half))


def test_an_interval_of_equal_examples_is_over_runs_alone():
    runs = [1.0, 2.0, 4.0]
    assert crossed_interval(np.repeat(np.array(runs)[:, None], 50, 1)) == pytest.approx(mean_interval(runs))


def test_no_variation_at_the_edge_of_a_region_decides_nothing():
    assert Estimate("a", 0.0, 0.0, 0.0, -math.inf, 0.0).word == "cannot tell"
    assert Estimate("a", -1.0, -1.0, -1.0, -math.inf, 0.0).word == "holds"
