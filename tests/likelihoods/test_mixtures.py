"""Mixtures against numerical integration, brute force and invariances; the scores of logits against closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from murmuration.likelihoods import Categorical
from murmuration.likelihoods.mixtures import (
    Normals,
    centred_logits,
    disagreement_of,
    entropy_of,
    folded_mean,
    mixture_cdf,
    mixture_quantile,
    normal_cdf,
    second_moment,
    weighted_variance,
)
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse

WEIGHTS = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_weighted_variance_counts_a_member_of_double_weight_twice() -> None:
    values = drawn(3, 5)
    expected = np.var(values.numpy()[[0, 1, 1, 2]], axis=0)
    np.testing.assert_allclose(
        weighted_variance(values, torch.tensor([0.25, 0.5, 0.25]).double()), expected, atol=1e-14
    )


def test_second_moment_is_the_weighted_sum_of_outer_products() -> None:
    vectors = drawn(3, 4, 2)
    expected = sum(w * np.einsum("ni,nj->nij", v, v) for w, v in zip(WEIGHTS.numpy(), vectors.numpy(), strict=True))
    np.testing.assert_allclose(second_moment(vectors, WEIGHTS), expected, atol=1e-14)


def test_entropy_of_equal_shares_is_the_logarithm_of_their_number() -> None:
    assert entropy_of(torch.full((7,), 1 / 7, dtype=torch.float64)).item() == pytest.approx(math.log(7), abs=1e-14)


def test_disagreement_over_pairs_by_hand() -> None:
    # Votes a, a, b: the pairs that differ weigh 0.1 * 0.7 + 0.2 * 0.7, all pairs that and 0.1 * 0.2 more.
    votes = torch.tensor([[0], [0], [1]])
    assert disagreement_of(votes, WEIGHTS, 2).item() == pytest.approx(0.21 / 0.23, abs=1e-14)
    assert disagreement_of(votes[:1], torch.ones(1).double(), 2).item() == 0


def test_normal_cdf_keeps_its_relative_precision_in_the_tail() -> None:
    z = np.array([-30.0, -5.0, 0.0, 3.0])
    np.testing.assert_allclose(normal_cdf(torch.from_numpy(z)), stats.norm.cdf(z), rtol=1e-13)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.7, 0.3), (-2.0, 1.5)])
def test_folded_mean_is_the_integral_of_the_absolute_value(mean: float, std: float) -> None:
    density = stats.norm(mean, std).pdf
    area = sum(integrate.quad(lambda v: abs(v) * density(v), *ends)[0] for ends in ((-np.inf, 0), (0, np.inf)))
    folded = folded_mean(torch.tensor(mean).double(), torch.tensor(std).double() ** 2)
    assert folded.item() == pytest.approx(area, abs=1e-7)


def test_the_cdf_of_a_mixture_undoes_its_quantile() -> None:
    parts = Normals(drawn(3, 6, 2), (0.1 + drawn(3, 6, 2, seed=1).abs()).square())
    for level in (0.003, 0.5, 0.97):
        reached = mixture_cdf(mixture_quantile(level, parts, WEIGHTS), parts, WEIGHTS)
        np.testing.assert_allclose(reached, level, atol=1e-10)


def test_a_member_without_weight_does_not_move_the_quantile() -> None:
    mean, var = drawn(2, 4, 1), (0.5 + drawn(2, 4, 1, seed=1).abs()).square()
    alone = mixture_quantile(0.9, Normals(mean[:1], var[:1]), torch.ones(1).double())
    both = mixture_quantile(0.9, Normals(mean, var), torch.tensor([1.0, 0.0]).double())
    np.testing.assert_allclose(both, alone, atol=1e-10)


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5, float("nan")])
def test_a_level_outside_the_open_unit_interval_is_refused(level: float) -> None:
    with pytest.raises(Misuse, match=r"level .* is outside \(0, 1\): write for example 0.9"):
        mixture_quantile(level, Normals(drawn(1, 1), drawn(1, 1).abs()), torch.ones(1).double())


def test_the_energy_of_zero_logits_is_minus_the_logarithm_of_their_number() -> None:
    pred = Predictive(torch.zeros(3, 2, 5), Categorical(5))
    np.testing.assert_allclose(pred.energy, [-math.log(5)] * 2, atol=1e-15)


def test_the_energy_falls_by_what_is_added_to_all_logits_and_respects_weights() -> None:
    logits = drawn(3, 4, 6)
    pred = Predictive(logits, Categorical(6), WEIGHTS)
    by_member = -np.log(np.exp(logits.numpy()).sum(-1))  # (S, N)
    np.testing.assert_allclose(pred.energy, WEIGHTS.numpy() @ by_member, atol=1e-13)
    np.testing.assert_allclose(Predictive(logits + 2, Categorical(6), WEIGHTS).energy, pred.energy - 2, atol=1e-13)


def test_probabilities_have_no_energy() -> None:
    pred = Predictive.from_probs(drawn(2, 50, 4).softmax(-1))
    np.testing.assert_allclose(pred.energy, 0, atol=1e-14)


def test_logit_variance_does_not_see_a_shift_by_member_and_input() -> None:
    logits = drawn(3, 4, 6)
    pred = Predictive(logits, Categorical(6), WEIGHTS)
    shifted = Predictive(logits + 10 * drawn(3, 4, 1, seed=2), Categorical(6), WEIGHTS)
    np.testing.assert_allclose(shifted.logit_variance, pred.logit_variance, rtol=1e-12)
    again = Predictive.from_probs(pred.probs, WEIGHTS)  # logarithms of probabilities are such a shift
    np.testing.assert_allclose(again.logit_variance, pred.logit_variance, rtol=1e-12)


def test_logit_variance_by_hand() -> None:
    # Centred logits (1, -1) and (0, 0) with weights 3/4 and 1/4: variance 3/16 in both classes.
    logits = torch.tensor([[[5.0, 3.0]], [[2.0, 2.0]]])
    pred = Predictive(logits, Categorical(2), torch.tensor([0.75, 0.25]))
    assert pred.logit_variance.item() == pytest.approx(3 / 16, abs=1e-15)
    assert pred.select([0]).logit_variance.item() == 0
    assert centred_logits(logits)[0, 0].tolist() == [1, -1]


@pytest.mark.parametrize("name", ["energy", "logit_variance", "logits"])
def test_a_regression_has_no_logits(name: str) -> None:
    with pytest.raises(Misuse, match="belong to classification, and this is a regression"):
        getattr(Predictive.from_moments([[[0.0]]], 1.0), name)
