"""A pruned weight is the number zero: no spread, no cost, and no step of any kind moves it."""

from dataclasses import replace

import pytest
import torch
from pruning_factories import holds_zeros, masks, population, rows, trained, without
from torch import Tensor, nn

import murmuration as mm
from murmuration.applications.pruning import Pruning
from murmuration.core.population import KEPT, Named
from murmuration.core.recipe import make_recipe
from murmuration.core.weights.gaussian import STD_PARAM, VARIANCE, Gaussian, distribution_names, std_from
from murmuration.core.weights.priors import Prior, WeightTensor
from murmuration.data import Data, open_data
from murmuration.prediction.ensemble import Ensemble
from murmuration.system.streams import Noise
from murmuration.training.plan import Plan

ESTIMATORS = ["local", "draw", "flipout"]


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:160], digits.train.y[:160]))


@pytest.fixture(scope="module")
def bayes(little: Data) -> Ensemble:
    return trained(little, make_recipe("deep-ensemble", weights="gaussian"))


def noise() -> list[Noise]:
    return [Noise(0, member) for member in range(2)]


def test_draws_of_what_is_left_are_as_before_and_the_rest_is_zero(bayes: Ensemble, little: Data):
    left, family = without(bayes, Pruning("snr", sparsity=0.7), little), bayes.family
    before = family.realise(population(bayes).own, {}, noise()).own
    after = family.realise(population(left).own, {}, noise(), buffers=population(left).buffers).own
    for name, mask in masks(left).items():
        assert torch.equal(after[name], before[name] * mask)
        assert (after[name][~mask] == 0).all()
    assert torch.equal(after["head.bias"], before["head.bias"])


@pytest.mark.parametrize("shared", [False, True])
def test_operators_make_no_noise_of_pruned_weights(shared: bool, bayes: Ensemble, little: Data):
    left = population(without(bayes, Pruning(sparsity=0.7), little))
    own, ours = dict(left.own), {}
    if shared:
        for key in ("head.weight", "head.weight" + STD_PARAM):
            ours[key] = own.pop(key)[0]
    found = bayes.family.realise(own, ours, noise(), buffers=left.buffers, training=True)
    variance, mask = {**found.own, **found.shared}["head.weight" + VARIANCE], left.buffers["head.weight" + KEPT]
    mask = mask[0] if shared else mask
    assert (variance[~mask] == 0).all()
    assert (variance[mask] > 0).all()


def test_predictions_draw_from_what_is_left(bayes: Ensemble, little: Data):
    """With every kernel pruned, all that is left to vary are the biases of the head."""
    nothing = without(bayes, Pruning(threshold=1e6), little)
    outputs = nothing.predict(little.test.x, draws=3).outputs  # (S, N, K)
    assert torch.equal(outputs, outputs[:, :1].expand_as(outputs))
    assert outputs.std(0).max() > 0


PRIORS = ["he", "gaussian_0.1", "learned", "ard", "log-uniform", "mixture_0.5_1_0.0025"]


def costs(bayes: Ensemble, prior: str, tensors: Named, buffers: Named, shared: Named | None = None) -> Tensor:
    family = replace(bayes.family, family=replace(bayes.recipe.weights, prior=Prior.parse(prior)))
    found = family.complexity(tensors, shared or {}, buffers, noise())
    assert found is not None
    return found


@pytest.mark.parametrize("prior", PRIORS)
def test_a_layer_without_weights_costs_nothing(prior: str, bayes: Ensemble, little: Data):
    left = population(without(bayes, Pruning(threshold=1e6), little))
    layer = {key: left.own[key] for key in ("head.weight", "head.weight" + STD_PARAM)}
    assert torch.equal(costs(bayes, prior, layer, left.buffers), torch.zeros(2))
    ours = {key: tensor[0] for key, tensor in layer.items()}
    rest = {"head.bias": left.own["head.bias"]}
    assert torch.equal(costs(bayes, prior, rest, left.buffers, ours), torch.zeros(2))


@pytest.mark.parametrize("prior", [each for each in PRIORS if not each.startswith("mixture")])
def test_what_is_left_costs_what_it_would_cost_alone(prior: str, bayes: Ensemble, little: Data):
    """Entry by entry; the prior that is learned from a tensor is learned from what is left of it."""
    left = population(without(bayes, Pruning("snr", sparsity=0.6), little))
    layer = {key: left.own[key].double() for key in ("head.weight", "head.weight" + STD_PARAM)}
    found = costs(bayes, prior, layer, left.buffers)
    for member, mask in enumerate(left.buffers["head.weight" + KEPT]):
        mean = layer["head.weight"][member]
        std = std_from("rho", layer["head.weight" + STD_PARAM][member], mean)
        if prior == "he":  # knows how wide the layer is
            alone = Prior.parse(prior).cost(WeightTensor(mean), std, torch.zeros_like)[mask].sum()
        else:
            alone = Prior.parse(prior).cost(WeightTensor(mean[mask]), std[mask], torch.zeros_like).sum()
        torch.testing.assert_close(found[member], alone)


@pytest.mark.parametrize("spread", ["rho", "alpha", "alpha-channel", "alpha-layer"])
@pytest.mark.parametrize("prior", PRIORS)
def test_gradients_stay_finite(prior: str, spread: str, bayes: Ensemble, little: Data):
    family = replace(bayes.family, family=Gaussian(prior=Prior.parse(prior), std_param=spread))
    left = population(without(bayes, Pruning(sparsity=0.8), little))
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in left.own.items()}
    total = family.complexity(leaves, {}, left.buffers, noise())
    assert total is not None
    drawn = family.realise(leaves, {}, noise(), buffers=left.buffers).own
    (total.sum() + sum(drawn[name].square().sum() for name in distribution_names(left.own))).backward()
    assert all(leaf.grad is not None and leaf.grad.isfinite().all() for leaf in leaves.values())


def moved_on(ensemble: Ensemble, data: Data, *, momentum: float = 0.0, **settings) -> Ensemble:
    """The ensemble after an epoch more; members may come with momentum from before."""
    group, (x, y) = ensemble.groups[0], (data.train.prepared, data.train.y)
    settings = {"members": 2, "epochs": 1, "batch_size": 32, "engine": ensemble.engine.name, **settings}
    assert ensemble.likelihood is not None
    method = mm.Method(group.module, ensemble.likelihood, ensemble.recipe, inputs=x, **settings)
    tensors = method.init().state_dict() | {f"population/{k}": t for k, t in group.population.to_tensors().items()}
    state = method.load_state({k: t + momentum if "opt_state/" in k else t.clone() for k, t in tensors.items()})
    for batch in torch.arange(len(x)).split(32):
        method.step(state, x[batch], y[batch], lr=1e-2)
    assert method.engine is not None
    assert method.engine.name == ensemble.engine.name
    return replace(ensemble, groups=(replace(group, population=method.ensemble(state).groups[0].population),))


STEPS: list[dict] = [
    {},
    {"momentum": 0.1},
    {"optimizer": "sgd", "momentum": 0.1},
    {"optimizer": "nesterov", "weight_decay": 0.1, "decay": "coupled"},
    {"optimizer": "sgd", "weight_decay": 0.1, "decay": "decoupled"},
    {"weight_decay": 0.1, "decay": "coupled"},
    {"weight_decay": 0.1, "decay": "decoupled", "momentum": 0.1},
    {"l1": 0.1, "momentum": 0.1},
]


@pytest.mark.parametrize("settings", STEPS, ids=str)
def test_no_step_moves_a_pruned_weight(settings: dict, bayes: Ensemble, little: Data):
    left = without(bayes, Pruning(structured=True, sparsity=0.5), little)
    after = moved_on(left, little, **settings)
    assert holds_zeros(after)
    for name, mask in masks(left).items():
        assert torch.equal(masks(after)[name], mask)
        assert (rows(after, name)[mask] != rows(left, name)[mask]).float().mean() > 0.9


KINDS = ["svgd", "weight-rde", "forde-identity", "batch-ensemble", "mask-ensemble", "mc-dropout", "rank1-bnn", "ivon"]


@pytest.mark.parametrize("kind", KINDS)
def test_pruned_weights_stay_zero_under_every_recipe(kind: str, little: Data):
    """Also where members mix their gradients, and one has pruned what another keeps."""
    ensemble = trained(little, kind)
    left = without(ensemble, Pruning(sparsity=0.8), little)
    after = moved_on(left, little, members=ensemble.members)
    assert holds_zeros(after)
    assert not torch.equal(after.predict(little.test.x).outputs, left.predict(little.test.x).outputs)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stacked", "threads", "threads-stacked"])
@pytest.mark.parametrize("kind", ["deep-ensemble", "batch-ensemble", "bayes"])
def test_every_engine_trains_what_is_left_alike(kind: str, how: str, little: Data):
    """1e-3 is a thousand roundings."""
    from murmuration.core.engines import engine

    left = without(trained(little, kind), Pruning(sparsity=0.8), little)
    one = moved_on(left, little, members=left.members)
    other = moved_on(replace(left, engine=engine(how)), little, members=left.members)
    assert holds_zeros(other)
    x = little.test.prepared
    assert (
        replace(other, engine=one.engine).predict(x, prepared=True).probs - one.predict(x, prepared=True).probs
    ).abs().max() < 1e-3


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_trains_what_is_left(estimator: str, little: Data):
    made = trained(little, make_recipe("bayes", weights=f"gaussian:estimator={estimator}"), "small-cnn", members=1)
    left = without(made, Pruning("snr", sparsity=0.6), little)
    assert holds_zeros(moved_on(left, little, members=1, optimizer="sgd", weight_decay=0.1, decay="coupled"))


def test_members_taken_out_have_zeros_too(bayes: Ensemble, little: Data):
    left = without(bayes, Pruning(sparsity=0.8), little)
    for member in range(2):
        parameters = dict(left.member(member).named_parameters())
        assert all(bool((parameters[name][~mask[member]] == 0).all()) for name, mask in masks(left).items())


def test_an_l1_norm_makes_kernels_sparse_and_biases_not(little: Data):
    """The proximal step leaves exact zeros, which a threshold of zero then finds; more of them for a larger norm."""
    plain, same = trained(little, "deep-ensemble"), trained(little, "deep-ensemble", l1=0.0)
    assert all(torch.equal(t, population(same).own[name]) for name, t in population(plain).own.items())
    for kind in ("deep-ensemble", "batch-ensemble", "bayes"):
        found = [trained(little, kind, l1=l1) for l1 in (0.0, 0.3, 3.0)]
        zeros = [float((rows(each, "body.3.weight") == 0).float().mean()) for each in found]
        assert zeros[0] == 0
        assert 0.01 < zeros[1] < zeros[2]
        assert (rows(found[2], "body.3.bias") == 0).float().mean() < 0.01
        gone = ~masks(without(found[2], Pruning(threshold=0.0), little))["body.3.weight"]
        assert torch.equal(gone, rows(found[2], "body.3.weight") == 0)


def test_the_proximal_step_by_hand():
    """sign(w) max(abs(w) - lr l1, 0) for kernels where the loss is flat; biases and spreads stay where they are.

    All numbers are sums of a few powers of two, so that nothing is rounded. Weights of zero make the loss flat.
    """
    recipe, x = make_recipe("bayes", weights="gaussian:beta=0"), torch.ones(3, 2)
    settings = {"members": 1, "optimizer": "sgd", "momentum": 0.0, "l1": 0.25}
    method = mm.Method(nn.Linear(2, 1), mm.Gaussian(1.0, (0.0,), (1.0,)), recipe, inputs=x, **settings)
    state = method.init()
    own = state.population.own
    for name in ("weight", "weight" + STD_PARAM):
        own[name].copy_(torch.tensor([[[0.375, -0.0625]]]))
    for name in ("bias", "bias" + STD_PARAM):
        own[name].fill_(0.375)
    before = state.population.clone().own
    assert method.step(state, x, torch.zeros(3, 1), lr=0.5, weight=torch.zeros(3)).tolist() == [0.0]
    assert own["weight"].flatten().tolist() == [0.25, 0.0]
    assert before.pop("weight").shape == (1, 1, 2)
    assert len(before) == 3
    assert all(torch.equal(own[name], tensor) for name, tensor in before.items())


def test_a_plan_refuses_a_norm_that_pushes_away():
    with pytest.raises(ValueError, match=r"l1=-1\.0: need a number that is not negative"):
        Plan(l1=-1.0)
