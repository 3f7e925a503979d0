"""What became of Gaussian weights: against hand-computed nets, and in runs whose prior outweighs the data or not."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.core.population import KEPT
from murmuration.core.recipe import make_recipe
from murmuration.core.weights.gaussian import STD_PARAM, softplus_inverse
from murmuration.data import Data, open_data
from murmuration.evaluation.weight_diagnosis import SNR_EDGES, Diagnosis, _weights, diagnose, from_prior
from murmuration.likelihoods.mixtures import jensen_shannon_distance
from murmuration.prediction.ensemble import Ensemble

PLAN = mm.Plan(members=1, epochs=1, engine="loop")


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:200], digits.train.y[:200]))


@pytest.fixture(scope="module")
def small() -> Ensemble:
    """One layer 2 -> 3 whose weights a test can set."""
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    return fitted("gaussian:prior=gaussian_0.5,draws=4", (x, torch.arange(60) % 3))


def fitted(weights: str, data: object, net: object = None, base: str = "bayes", **settings) -> Ensemble:
    build = net or (lambda: nn.Linear(2, 3))
    return mm.fit(build, data, recipe=make_recipe(base, weights=weights), plan=replace(PLAN, **settings), posthoc=None)


def with_weights(ensemble: Ensemble, mean: list, std: list, bias: tuple[float, float]) -> Ensemble:
    """The ensemble with these weights (3, 2) and one mean and spread for all biases."""
    group = ensemble.groups[0]
    population = group.population.clone()
    values = {"weight": torch.tensor([mean]), "bias": torch.full((1, 3), bias[0])}
    stds = {"weight": torch.tensor([std]), "bias": torch.full((1, 3), bias[1])}
    for name in values:
        population.own[name].copy_(values[name])
        population.own[name + STD_PARAM].copy_(softplus_inverse(stds[name]))
    return replace(ensemble, groups=(replace(group, population=population),))


def test_six_weights_by_hand(small: Ensemble) -> None:
    mean = [[0.0, 0.05], [0.3, -1.0], [0.0, 0.1]]
    std = [[0.5, 0.5], [0.2, 0.1], [0.52, 0.5]]
    found = diagnose(with_weights(small, mean, std, (0.0, 0.5)))
    assert found is not None
    kl = [math.log(0.5 / s) + (s**2 + m**2) / 0.5 - 0.5 for m, s in zip(np.ravel(mean), np.ravel(std), strict=True)]
    bias, weight = found.layers
    assert (bias.name, weight.name) == ("bias", "weight")
    assert bias.kl == pytest.approx(0, abs=1e-6)
    assert bias.collapsed == 1
    assert weight.kl == pytest.approx(sum(kl), rel=1e-5)
    assert [round(each, 6) < 0.01 for each in kl] == [True, True, False, False, True, False]  # 0.1 / 0.5: 0.02 nats
    assert weight.collapsed == 0.5
    assert found.collapsed == pytest.approx((3 + 3) / 9)
    assert found.weights == 9
    assert found.kl == pytest.approx(sum(kl), rel=1e-5)
    assert weight.median_snr == pytest.approx(0.1, rel=1e-5)  # of 0, 0, 0.1, 0.2, 1.5, 10: torch takes the lower
    counts = np.array(weight.snr_counts)
    assert counts.sum() == 6
    assert counts[0] == 2  # the zeros, at the end
    assert counts[np.searchsorted(SNR_EDGES, 1, side="right") - 1] == 1  # 1 / 0.1
    assert (found.prior, found.beta, found.draws, found.examples) == ("gaussian_0.5", 0.01, 4, 51)


def test_the_total_is_the_cost_that_training_counts(little: Data) -> None:
    """Own and shared tensors, by the function that the loss uses."""
    for base, weights in (("deep-ensemble", "gaussian"), ("rank1-bnn", "gaussian:where=factors,prior=gaussian_0.1")):
        ensemble = fitted(weights, little, "mlp", base, members=3)
        population = ensemble.groups[0].population
        cost = ensemble.family.complexity(population.own, population.shared, population.buffers, [None] * 3)
        found = diagnose(ensemble)
        assert found is not None
        assert cost is not None
        assert found.kl == pytest.approx(cost.mean().item(), rel=1e-4)


@pytest.mark.parametrize(("kind", "limit"), [("ard", 0.02), ("log-uniform", math.nan)])
def test_priors_of_their_own_have_a_cost_for_every_weight(kind: str, limit: float, small: Ensemble) -> None:
    other = replace(small, recipe=make_recipe("bayes", weights=f"gaussian:prior={kind}"))
    found = diagnose(with_weights(other, [[0.0, 0.1], [1.0, 5.0], [0.01, 2.0]], [[1.0, 1.0]] * 3, (1e-9, 1.0)))
    assert found is not None
    assert found.layers[1].collapsed == pytest.approx(0.5)  # 0, 0.1 and 0.01 of a spread
    if kind == "ard":
        expected = sum(0.5 * math.log1p(r**2) for r in (0, 0.1, 1, 5, 0.01, 2))
        assert found.layers[1].kl == pytest.approx(expected, rel=1e-5)


def test_a_mixture_says_that_no_weight_can_collapse(small: Ensemble) -> None:
    other = replace(small, recipe=make_recipe("bayes", weights="gaussian:prior=mixture_0.5_1_0.0025"))
    found = diagnose(other, torch.zeros(4, 2))
    assert found is not None
    assert found.collapsed is None
    assert found.distance is None
    assert found.kl > 0
    assert [text.split(":")[0] for text in found.untold] == [
        "Predictions are not compared with the prior's",
        "No weight counts as collapsed",
    ]
    assert found.finding == ""
    assert json.loads(json.dumps(found.to_json()))["collapsed"] is None


def test_points_and_masks_have_nothing_to_diagnose(little: Data) -> None:
    assert diagnose(mm.fit("mlp", little, recipe="single", plan=PLAN, posthoc=None)) is None
    assert diagnose(Ensemble.from_models([nn.Linear(2, 3)])) is None


@pytest.mark.slow
def test_the_prior_is_an_ensemble_to_draw_from(small: Ensemble) -> None:
    """Outputs of one layer under N(0, 0.5^2): mean 0, variance 0.25 (|x|^2 + 1)."""
    layers = list(_weights(small))
    before = from_prior(small, layers, {each.posterior.name: each.prior_std() for each in layers})
    x = torch.tensor([[1.0, -2.0], [0.0, 0.0]])
    outputs = before.predict(x, draws=4000, prepared=True).outputs.double()
    expected = 0.25 * (x.square().sum(1) + 1)
    assert ((outputs.var(0) / expected[:, None] - 1).abs() < 5 * math.sqrt(2 / 4000)).all()
    assert (outputs.mean(0).abs() < 5 * (expected[:, None] / 4000).sqrt()).all()
    assert torch.equal(small.groups[0].population.own["weight"], layers[1].posterior.weights.mean)  # untouched


def test_a_posterior_that_is_the_prior_predicts_as_the_prior(small: Ensemble) -> None:
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    found = diagnose(with_weights(small, [[0.0, 0.0]] * 3, [[0.5, 0.5]] * 3, (0.0, 0.5)), x)
    assert found is not None
    assert found.distance is not None
    assert found.noise is not None
    assert found.distance < 1e-3 < found.noise
    assert found.collapsed == 1
    assert "100 % of the weights have collapsed to the prior: the data taught them nothing." in found.finding
    assert "learned next to nothing" in found.finding


def test_distance_of_probabilities() -> None:
    a, b = torch.tensor([[0.5, 0.5], [1.0, 0.0]]).double(), torch.tensor([[0.5, 0.5], [0.5, 0.5]]).double()
    third = 0.5 * (math.log2(1 / 0.75) + 0.5 * math.log2(0.5 / 0.75) + 0.5 * math.log2(0.5 / 0.25))
    np.testing.assert_allclose(jensen_shannon_distance(a, b), [0, math.sqrt(third)], atol=1e-8)
    torch.testing.assert_close(jensen_shannon_distance(a, b), jensen_shannon_distance(b, a))


def run(little: Data, beta: float, lr: float) -> tuple[Diagnosis, float]:
    weights = f"gaussian:beta={beta},kl_warmup=0,draws=10"
    ensemble = fitted(weights, little, "mlp", epochs=30, lr=lr)
    found = diagnose(ensemble, little.test.prepared)
    assert found is not None
    return found, float(mm.score(ensemble.predict(little.test.x), little.test.y)["accuracy"])


@pytest.mark.slow
def test_a_strong_prior_makes_weights_collapse_and_a_weak_one_does_not(little: Data) -> None:
    strong, guess = run(little, 100.0, lr=0.1)
    weak, right = run(little, 1e-4, lr=0.01)
    assert strong.collapsed is not None
    assert weak.collapsed is not None
    assert strong.collapsed > 0.95
    assert guess < 0.4
    assert strong.distance is not None
    assert strong.noise is not None
    assert strong.distance <= strong.noise
    assert "Train longer, or with a beta below 100." in strong.finding
    assert weak.collapsed < 0.25  # pixels at the border are never lit: only the prior speaks to their weights
    assert right > 0.8
    assert weak.distance is not None
    assert weak.noise is not None
    assert weak.distance > weak.noise
    assert strong.kl < weak.kl / 20


def test_pruned_weights_do_not_count(small: Ensemble) -> None:
    made = with_weights(small, [[0.0, 1.0]] * 3, [[0.5, 0.1]] * 3, (0.0, 0.5))
    group = made.groups[0]
    mask = torch.tensor([[[False, True]] * 3])
    population = replace(group.population, buffers={**group.population.buffers, "weight" + KEPT: mask})
    found = diagnose(replace(made, groups=(replace(group, population=population),)), torch.ones(3, 2))
    assert found is not None
    assert [layer.weights for layer in found.layers] == [3, 3]
    assert found.layers[1].collapsed == 0
    assert found.layers[1].kl == pytest.approx(3 * (math.log(5) + 0.02 + 2 - 0.5), rel=1e-4)
    assert found.layers[1].median_snr == pytest.approx(10, rel=1e-4)


def test_the_prior_of_ivon_is_its_decay(little: Data) -> None:
    found = diagnose(mm.fit("mlp", little, recipe="ivon", plan=PLAN, posthoc=None), little.test.prepared)
    assert found is not None
    assert found.prior == f"gaussian_{1 / math.sqrt(140 * 1e-4):.6g}"
    assert found.beta == 1
    assert found.kl > 0


def test_tiny_spreads_are_told(small: Ensemble) -> None:
    found = diagnose(with_weights(small, [[1.0, 2.0]] * 3, [[1e-3, 1e-3]] * 3, (1.0, 1e-3)))
    assert found is not None
    assert found.median_snr > 500
    assert found.finding.startswith(
        "Hardly any of the weights have collapsed to the prior. Half of the weights are more"
    )
