"""Verdicts by intervals: the three words, and intervals over runs and examples."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy.stats import t

from murmuration.studies.verdicts import (
    Estimate,
    Verdict,
    crossed_interval,
    estimate,
    jackknife_estimate,
    mean_interval,
)
from murmuration.system.records import plain_json


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


def test_a_jackknife_over_runs_and_examples_covers_the_mean_of_pairs():
    """A mean over pairs of runs, with effects of examples: about 95 % of the intervals hold the truth."""
    rng, inside, repeats = np.random.default_rng(0), 0, 300
    for _ in range(repeats):
        runs, examples = rng.normal(0, 0.3, 6), rng.normal(0, 1, 80)

        def pairs(rows, runs=runs, examples=examples):
            return 0.3 + np.mean([runs[i] + runs[j] for i, j in itertools.combinations(rows, 2)]) + examples

        found = jackknife_estimate("", pairs, {"runs": 6}, 0, 1)
        inside += found.low < 0.3 < found.high
    assert abs(inside / repeats - 0.95) < 3 * math.sqrt(0.95 * 0.05 / repeats)


def test_the_jackknife_of_a_mean_is_students_interval():
    values = np.array([1.0, 2.0, 4.0, 4.5])
    found = jackknife_estimate("", lambda rows: values[rows].mean(), {"runs": 4}, 0, 9)
    assert (found.value, found.low, found.high) == pytest.approx(mean_interval(values.tolist()))
    assert found.over == "4 runs"


def test_two_groups_and_examples_add_their_variances():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 40)), rng.normal(size=(4, 40))
    found = jackknife_estimate("", lambda x, y: a[x].mean(0) - b[y].mean(0), {"runs": 5, "chains": 4}, 0, 9)
    parts = [a.mean(1).var(ddof=1) / 5, b.mean(1).var(ddof=1) / 4, (a.mean(0) - b.mean(0)).var(ddof=1) / 40]
    degrees = sum(parts) ** 2 / sum(part**2 / count for part, count in zip(parts, (4, 3, 39), strict=True))
    assert found.high - found.value == pytest.approx(t.ppf(0.975, degrees) * math.sqrt(sum(parts)))
    assert found.over == "5 runs and 4 chains and 40 examples"


def test_groups_of_two_are_not_resampled():
    values = np.arange(8.0).reshape(2, 4)
    found = jackknife_estimate("", lambda rows: values[rows].mean(0), {"runs": 2}, 0, 9)
    assert found.over == "4 examples of 2 runs"
    assert found.high - found.value == pytest.approx(t.ppf(0.975, 3) * values.mean(0).std(ddof=1) / 2)
    assert jackknife_estimate("", lambda rows: 1.0, {"runs": 2}, 0, 9).word == "cannot tell"


def test_no_variation_at_the_edge_of_the_region_decides_nothing():
    assert jackknife_estimate("", lambda: np.zeros(50), {}, 0, math.inf).word == "cannot tell"
    assert jackknife_estimate("", lambda: np.ones(50), {}, 0, math.inf).word == "holds"


def test_verdicts_are_read_from_their_json():
    estimates = (
        Estimate("a", 1.0, 0.5, 1.5, 0.0, math.inf, "3 runs"),
        Estimate("b", 1.0, math.nan, math.nan, -math.inf, 2),
    )
    verdict = Verdict("name", "claim", estimates, "note", published="p", source="figure 1")
    again = Verdict.from_json(json.loads(json.dumps(plain_json(verdict), allow_nan=False)))
    assert str(again) == str(verdict)
    assert again.word == verdict.word == "cannot tell"
    assert again.estimates[0] == estimates[0]
    assert (again.published, again.source, again.note) == ("p", "figure 1", "note")


def test_an_estimate_without_variation_at_an_edge_decides_nothing():
    assert Estimate("a", 0.0, 0.0, 0.0, -math.inf, 0.0).word == "cannot tell"
    assert Estimate("a", -1.0, -1.0, -1.0, -math.inf, 0.0).word == "holds"
    assert Estimate("a", 0.0, 0.0, 0.0, 0.0, 0.0).word == "holds"
