"""Greedy selection with replacement: the best mixture of a small library, found exhaustively as well."""

import itertools
import math

import pytest
import torch

from murmuration.models.estimators.selection import greedy_weights


def mixture_nll(log_probs: torch.Tensor, weights: torch.Tensor) -> float:
    return -float((weights.log()[:, None] + log_probs).logsumexp(0).mean())


@pytest.fixture
def library() -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    return torch.rand(3, 40, generator=rng, dtype=torch.float64).clamp_min(0.02).log()


def test_the_weights_are_those_of_the_best_mixture(library):
    found = greedy_weights(library, rounds=60)
    assert found.sum() == pytest.approx(1)
    grid = [(i / 30, j / 30) for i, j in itertools.product(range(31), repeat=2) if i + j <= 30]
    best = min(mixture_nll(library, torch.tensor([a, b, 1 - a - b], dtype=torch.float64).clamp_min(0)) for a, b in grid)
    assert mixture_nll(library, found) <= best + 1e-3  # the objective is convex: the grid of 1/30 is the error


def test_it_never_loses_to_the_best_part_nor_to_a_part_that_is_repeated(library):
    found = greedy_weights(library)
    assert mixture_nll(library, found) <= float((-library.mean(1)).min())
    twice = greedy_weights(torch.cat([library, library[:1]]))
    assert mixture_nll(torch.cat([library, library[:1]]), twice) == pytest.approx(mixture_nll(library, found), abs=1e-9)


def test_a_part_that_is_best_everywhere_has_all_the_weight():
    logs = torch.tensor([[0.2, 0.3, 0.4], [0.5, 0.6, 0.7]]).log()
    assert greedy_weights(logs).tolist() == [0, 1]


def test_sample_weights_are_repetitions():
    logs = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
    heavy = greedy_weights(logs, weight=torch.tensor([3.0, 1.0]))
    assert heavy.tolist() == greedy_weights(logs[:, [0, 0, 0, 1]]).tolist()
    assert heavy[0] > heavy[1]


def test_densities_of_any_size_are_compared():
    logs = torch.tensor([[-2000.0, 300.0], [-1000.0, 200.0]])
    weights = greedy_weights(logs)
    assert math.isfinite(mixture_nll(logs.double(), weights.clamp_min(1e-12)))


def test_the_best_round_is_kept_where_a_later_one_is_worse():
    logs = torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=torch.float64).log()
    for rounds in (2, 3, 5):  # odd rounds have unequal weights
        assert greedy_weights(logs, rounds=rounds).tolist() == [0.5, 0.5]
