"""`requires_grad=False` in a network: the parameter is respected by every recipe, engine and file."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from frozen_networks import PLAN, BodyAndHead, X, Y, same_body
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.population import Population, populate, population_from_tensors
from murmuration.core.presets import PRESETS
from murmuration.core.recipe import make_recipe
from murmuration.system.streams import global_stream

BOUND = 2.4e-6  # of five full-batch steps against the plain loop: sums of float32 products in another order


class Convolutional(nn.Module):
    """A frozen convolution with a frozen scale and shift behind it; its statistics move all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.Linear(16, 3)
        for part in (self.conv, self.norm):
            part.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.conv(x.unsqueeze(1)))).flatten(1))


def biases_only() -> nn.Module:
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return net


def fixed_head() -> nn.Module:
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    net[2].requires_grad_(False)
    return net


NETS: dict[str, Callable[[], nn.Module]] = {
    "own bodies": BodyAndHead,
    "one body": same_body,
    "convolutional": Convolutional,
    "biases only": biases_only,
    "head": fixed_head,
}


def plain_loop(net: nn.Module, x: Tensor, y: Tensor, steps: int) -> dict[str, Tensor]:
    """Full-batch SGD with momentum, written by hand."""
    net.train()
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net.state_dict()


@pytest.mark.parametrize("engine", ["loop", "stacked", "threads", "threads-stacked"])
@pytest.mark.parametrize("name", NETS)
def test_members_are_those_of_the_plain_loop(name, engine):
    build, data = NETS[name], mm.open_data((X, Y))
    ensemble = mm.fit(
        build, data, members=2, epochs=5, batch_size=96, optimizer="sgd", momentum=0.9, schedule="constant", lr=0.1,
        engine=engine, posthoc=None,
    )  # fmt: skip
    assert ensemble.engine.name == engine, ensemble.manifest.engine["reason"]
    for member in range(2):
        with global_stream(0, "initialisation", member):
            net = build()
        expected = plain_loop(net, data.train.prepared, data.train.y, 5)
        found = ensemble.member(member)
        for key, tensor in found.state_dict().items():
            assert (tensor - expected[key]).abs().max() <= BOUND, key
        assert [p.requires_grad for p in found.parameters()] == [p.requires_grad for p in net.parameters()]


def fixed_values(build: Callable[[], nn.Module], member: int) -> dict[str, Tensor]:
    with global_stream(0, "initialisation", member):
        net = build()
    return {name: p.detach() for name, p in net.named_parameters() if not p.requires_grad}


@pytest.mark.slow
@pytest.mark.parametrize("build", [same_body, BodyAndHead], ids=["one body", "own bodies"])
@pytest.mark.parametrize("recipe", sorted(set(PRESETS) - {"forde-tuned"}))
def test_no_recipe_moves_draws_or_scales_a_fixed_parameter(recipe, build):
    epochs = 6 if recipe == "csgmcmc" else 2
    decay = {} if recipe == "ivon" else {"weight_decay": 0.1, "decay": "coupled"}
    plan = replace(PLAN, epochs=epochs, members=PRESETS[recipe].value.members or 2, **decay)
    ensemble = mm.fit(build, (X, Y), recipe=recipe, plan=plan)
    population = ensemble.groups[0].population
    names = {"body.0.weight", "body.0.bias"}
    assert set(population.fixed) == names
    beside = {*population.own, *population.shared, *population.buffers}
    assert not any(name.partition(":")[0] in names for name in beside)
    origins = ensemble.manifest.origins
    for member, origin in enumerate(origins):
        expected = fixed_values(build, origin)
        found = dict(ensemble.member(member).named_parameters())
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert ensemble.predict(X[:5]).outputs.isfinite().all()


def test_values_that_members_have_in_common_are_stored_once():
    trained = populate(lambda _: same_body(), 3, fixed=lambda name: name.startswith("body.0"))
    assert trained.fixed["body.0.weight"].shape == (1, 8, 6)
    other = populate(lambda _: BodyAndHead(), 3, fixed=lambda name: name.startswith("body.0"))
    assert other.fixed["body.0.weight"].shape == (3, 8, 6)
    assert trained.parameters_fixed() == 56
    assert other.parameters_fixed() == 168
    assert trained.parameters_per_member() == other.parameters_per_member() == 56 + 72 + 27
    assert trained.parameters_stored() == 56 + 3 * 99
    for population in (trained, other):
        again = population_from_tensors(population.to_tensors())
        assert {name: tuple(t.shape) for name, t in again.fixed.items()} == {
            name: tuple(t.shape) for name, t in population.fixed.items()
        }
        some = population.take(torch.tensor([2, 2, 0]))
        assert torch.equal(
            some.group(slice(1, 2)).fixed["body.0.bias"], population.group(slice(2, 3)).fixed["body.0.bias"]
        )
    joined = Population.concatenate([trained, trained.clone()])
    assert joined.fixed["body.0.bias"].shape == (1, 8)
    assert Population.concatenate([trained, other]).fixed["body.0.bias"].shape == (6, 8)


@pytest.mark.parametrize("recipe", ["deep-ensemble", "bayes", "swag", "batch-ensemble"])
def test_stored_loaded_and_resumed_with_the_same_bits(recipe, tmp_path: Path):
    many = PRESETS[recipe].value.members is None
    plan = replace(PLAN, members=2 if many else 1)
    build = BodyAndHead if many else same_body
    whole = mm.fit(build, (X, Y), recipe=recipe, plan=plan, out=tmp_path / "whole")

    def stop(text, done, total, record):
        if done == 8:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        mm.fit(build, (X, Y), recipe=recipe, plan=plan, out=tmp_path / "run", progress=stop, checkpoint_seconds=0)
    resumed = mm.resume(tmp_path / "run", net=build, data=(X, Y))
    expected = whole.groups[0].population.to_tensors()
    for ensemble in (resumed, mm.load(tmp_path / "whole", net=build), mm.load(tmp_path / "run", net=build)):
        found = ensemble.groups[0].population.to_tensors()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_network_without_trained_parameters_is_refused():
    frozen = nn.Linear(6, 3).requires_grad_(False)
    with pytest.raises(mm.Misuse, match="nothing to train: every parameter of Linear has requires_grad=False"):
        mm.fit(lambda: copy.deepcopy(frozen), (X, Y), plan=PLAN)


def test_repulsion_of_features_that_do_not_move_is_refused():
    def build() -> nn.Module:
        net = BodyAndHead()
        net.body.requires_grad_(False)
        return net

    with pytest.raises(mm.Misuse, match="coupling features with a body that is not trained"):
        mm.fit(build, (X, Y), recipe=make_recipe("feature-rde", sharing="own"), plan=PLAN)


def test_operators_on_fixed_parameters_do_not_refuse_a_recipe():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 3)
            self.rnn.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x.unsqueeze(-1))[0][:, -1])

    ensemble = mm.fit(Recurrent, (X, Y), recipe="bayes", epochs=1, plan=PLAN, members=1)
    assert [n for n in ensemble.groups[0].population.own if n.endswith(":std_param")] == [
        "head.weight:std_param",
        "head.bias:std_param",
    ]
