"""The Jensen-Shannon divergence of networks: golden values, limits and invariances."""

import itertools
import math

import numpy as np
import pytest
import torch

from murmuration.prediction.predictive import Predictive
from murmuration.studies.divergence import jensen_shannon, mean_divergence, subsets_of

GOLDEN = [
    ([[0.5, 0.5], [1.0, 0.0]], 0.215761554),
    ([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]], 0.253101615),
    ([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.1, 0.1, 0.8]], 0.209896093),
]


def drawn(members=4, inputs=30, classes=5, seed=0):
    return torch.randn(members, inputs, classes, generator=torch.Generator().manual_seed(seed)).double().softmax(-1)


@pytest.mark.parametrize(("rows", "expected"), GOLDEN)
def test_golden_values(rows, expected):
    probs = torch.tensor(rows, dtype=torch.float64)[:, None]
    assert jensen_shannon(probs).item() == pytest.approx(expected, abs=1e-9)
    if len(rows) == 3:
        assert jensen_shannon(probs, eps=1e-5).item() == pytest.approx(expected, abs=1.5e-9)


def test_equal_networks_do_not_diverge_and_disjoint_ones_diverge_by_the_logarithm_of_their_number():
    one = drawn(1)
    np.testing.assert_allclose(jensen_shannon(one.expand(5, 30, 5)), 0, atol=1e-12)
    for members in (2, 3, 7):
        assert jensen_shannon(torch.eye(members)[:, None]).item() == pytest.approx(math.log(members), rel=1e-12)
    pair = torch.eye(2)[:, None]
    assert jensen_shannon(pair, eps=1e-5).item() == pytest.approx(0.693137, abs=1e-6)  # as the released notebook


def test_bounds_invariances_and_the_form_of_two():
    probs = drawn()
    found = jensen_shannon(probs)
    assert ((found >= 0) & (found <= min(math.log(4), math.log(5)))).all()
    torch.testing.assert_close(jensen_shannon(probs[[2, 0, 3, 1]][..., [4, 2, 0, 1, 3]]), found)
    torch.testing.assert_close(found, Predictive.from_probs(probs).mutual_information)
    a, b = probs[:2]
    middle = (a + b) / 2
    by_divergences = ((a * (a / middle).log()).sum(-1) + (b * (b / middle).log()).sum(-1)) / 2
    torch.testing.assert_close(jensen_shannon(probs[:2]), by_divergences)


def test_means_over_subsets_compare_equal_numbers_of_networks():
    probs = drawn(6)
    pairs = [jensen_shannon(probs[list(pair)]) for pair in itertools.combinations(range(6), 2)]
    torch.testing.assert_close(mean_divergence(probs, 2), torch.stack(pairs).mean(0))
    torch.testing.assert_close(mean_divergence(probs, 6), jensen_shannon(probs))
    sizes = [mean_divergence(probs, size).mean().item() for size in (2, 3, 4, 5, 6)]
    assert sizes == sorted(sizes)  # grows with the number of networks


def test_subsets_are_all_or_a_stated_number_of_random_ones():
    for size in range(1, 6):
        found, exact = subsets_of(5, size)
        assert exact
        assert len(set(found)) == len(found) == math.comb(5, size)
    found, exact = subsets_of(30, 5, most=40, seed=3)
    assert not exact
    assert len(set(found)) == 40
    assert all(len(set(each)) == 5 for each in found)
    assert subsets_of(30, 5, most=40, seed=3)[0] == found
    assert subsets_of(30, 5, most=40, seed=4)[0] != found
