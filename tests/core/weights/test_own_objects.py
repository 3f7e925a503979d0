"""A weight family, a prior and a distribution of the caller's own, used by `fit` without edits of the package."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

import murmuration as mm
from murmuration.core.recipe import Recipe
from murmuration.core.sharing import Sharing
from murmuration.core.weights import Distribution, Gaussian, Prior, Realised, WeightFamily
from murmuration.core.weights.priors import WeightTensor
from murmuration.data import Data, open_data
from murmuration.system.errors import Misuse
from murmuration.system.streams import many_normals
from murmuration.training.plan import Plan

PLAN = Plan(members=2, epochs=2, batch_size=32, engine="loop", lr=1e-2)


@dataclass(frozen=True)
class Perturbed(WeightFamily):
    """Kernels times 1 + scale * noise, drawn anew in every pass."""

    stochastic = True
    scale: float = 0.1
    draws: int = 3

    def realise(self, spec, own, shared, noise, *, buffers, training) -> Realised:
        means = {name: own[name] for name in spec.kernels}
        eps = many_normals(noise, list(means.values()))
        drawn = {name: mean * (1 + self.scale * e) for (name, mean), e in zip(means.items(), eps, strict=True)}
        return Realised({**own, **drawn}, shared, spec)


@dataclass(frozen=True)
class LaplacePrior(Prior):
    """Density exp(-abs(w) / scale) / (2 scale); the KL is estimated at one draw."""

    monte_carlo = True
    scale: float

    def cost(self, weights: WeightTensor, std: Tensor, draw) -> Tensor:
        eps = draw(weights.mean)
        drawn = weights.mean + std * eps - weights.centre
        log_q = -0.5 * eps.square() - std.log() - 0.5 * math.log(2 * math.pi)
        return log_q + drawn.abs() / self.scale + math.log(2 * self.scale)


@dataclass(frozen=True)
class ThreeValues(Distribution):
    """0.5, 1 or 1.5, equally likely."""

    atoms = ((0.5, 1 / 3), (1.0, 1 / 3), (1.5, 1 / 3))


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:200], digits.train.y[:200]))


def test_a_family_of_the_caller_s_own_trains_and_predicts(little: Data):
    recipe = Recipe("perturbed", weights=Perturbed())
    ensemble = mm.fit("mlp", little, recipe=recipe, plan=PLAN, posthoc=None)
    outputs = ensemble.predict(little.test.x).outputs
    assert len(outputs) == 2 * 3
    assert not torch.equal(outputs[0], outputs[1])
    assert len(ensemble.predict(little.test.x, draws=1).outputs) == 2
    assert ensemble.history[-1]["train_loss"][0] < ensemble.history[0]["train_loss"][0]
    assert "weights object:" in str(recipe)
    stacked = mm.fit("mlp", little, recipe=recipe, plan=replace(PLAN, engine="stacked"), posthoc=None)
    torch.testing.assert_close(stacked.predict(little.test.x).outputs, outputs, rtol=1e-3, atol=1e-3)


def test_a_prior_of_the_caller_s_own_has_the_divergence_of_its_density(little: Data):
    prior, mean, std = LaplacePrior(0.5), 0.3, 0.2
    drawn = prior.cost(
        WeightTensor(torch.full((200_000,), mean).double()),
        torch.full((200_000,), std).double(),
        lambda like: torch.randn(like.shape, generator=torch.Generator().manual_seed(0), dtype=like.dtype),
    )
    grid = torch.linspace(mean - 10 * std, mean + 10 * std, 100_001, dtype=torch.float64)
    q = torch.distributions.Normal(torch.tensor(mean).double(), torch.tensor(std).double()).log_prob(grid)
    p = -grid.abs() / 0.5 - math.log(2 * 0.5)
    exact = torch.trapezoid(q.exp() * (q - p), grid).item()
    assert abs(drawn.mean().item() - exact) < 4 * drawn.std().item() / math.sqrt(len(drawn))
    ensemble = mm.fit(
        "mlp", little, recipe=Recipe("laplace", weights=Gaussian(prior=prior, draws=2)), plan=PLAN, posthoc=None
    )
    assert len(ensemble.predict(little.test.x).outputs) == 4


def test_factors_follow_a_distribution_of_the_caller_s_own(little: Data):
    sharing = Sharing("rank-one", init=ThreeValues())
    ensemble = mm.fit(
        "mlp", little, recipe=Recipe("three", sharing=sharing), plan=replace(PLAN, epochs=1, lr=1e-9), posthoc=None
    )
    factors = ensemble.groups[0].population.own["head.weight:in"]
    assert {round(value, 3) for value in factors.flatten().tolist()} == {0.5, 1.0, 1.5}
    assert ThreeValues().second_moment == pytest.approx((0.25 + 1 + 2.25) / 3)


def test_a_prior_without_a_cost_says_what_is_missing():
    class Empty(Prior):
        pass

    with pytest.raises(NotImplementedError, match="Empty must define cost"):
        Empty().cost(WeightTensor(torch.zeros(1)), torch.ones(1), torch.zeros_like)
    with pytest.raises(Misuse, match=r"prior=Empty: it has no cost; define Empty.cost\(weights, std, draw\)"):
        Gaussian(prior=Empty())
    with pytest.raises(Misuse, match="unknown prior 'laplace'"):
        Prior.parse("laplace_0.5")


@pytest.mark.parametrize("prior", [object(), "he", None, Prior])
def test_a_prior_that_is_none_is_refused(prior):
    with pytest.raises(Misuse, match=r"prior=.*: need a Prior, such as HePrior\(\) or GaussianPrior\(0.1\)$"):
        Gaussian(prior=prior)
