"""Heads on a body that is trained already."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.recipe import make_recipe
from murmuration.data import Data, open_data
from murmuration.likelihoods import Categorical
from murmuration.models.nets import build_net
from murmuration.training import TrainSpec
from murmuration.training.batches import epoch_batches
from murmuration.training.plan import Plan

PLAN = Plan(members=3, epochs=2, batch_size=32, engine="loop", lr=1e-2)
FROZEN = make_recipe("last-layer-ensemble", sharing="backbone:frozen=yes")


class Normalised(nn.Module):
    """A body with statistics, dropout that must rest, and a head with statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.AvgPool2d(3), nn.Flatten()
        )
        self.head = nn.Sequential(nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:200], digits.train.y[:200]))


@pytest.fixture
def net(little: Data) -> nn.Module:
    """A network that has seen some examples."""
    torch.manual_seed(5)
    made = Normalised()
    with torch.no_grad():
        made.train()(3 * little.train.prepared[:50] + 1)
    return made


def tensors(ensemble: mm.Ensemble) -> dict[str, Tensor]:
    return ensemble.groups[0].population.to_tensors()


def assert_same_bits(a: mm.Ensemble, b: mm.Ensemble) -> None:
    assert tensors(a).keys() == tensors(b).keys()
    assert all(torch.equal(tensors(b)[name], tensor) for name, tensor in tensors(a).items())


@pytest.mark.parametrize("how", ["loop", "stacked", "threads"])
def test_the_body_stays_and_heads_differ(how: str, net: nn.Module, little: Data):
    given = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    ensemble = mm.fit(net, little, recipe=FROZEN, plan=replace(PLAN, engine=how), posthoc=None)
    population = ensemble.groups[0].population
    assert all(torch.equal(given[name], tensor) for name, tensor in net.state_dict().items())
    for name, tensor in given.items():
        if name.startswith("body."):
            stored = {**population.fixed, **population.buffers}[name]
            assert torch.equal(stored[0], tensor), name
    head = population.own["head.0.weight"]
    assert all((head[i] - head[j]).abs().max() > 0.05 for i in range(3) for j in range(i))
    assert sum(ensemble.history[-1]["train_loss"]) < sum(ensemble.history[0]["train_loss"])


def test_predictions_are_those_of_whole_networks(net: nn.Module, little: Data):
    """And the validation scores that heads got on cached features are those of whole networks on inputs."""
    ensemble = mm.fit(net, little, recipe=FROZEN, plan=PLAN, posthoc=None)
    population, x = ensemble.groups[0].population, little.test.prepared
    outputs = ensemble.predict(x, prepared=True).outputs
    for i in range(3):
        plain = Normalised()
        own = {name: tensor[i] for name, tensor in {**population.own, **population.buffers}.items()}
        plain.load_state_dict({**own, **{name: t[0] for name, t in population.fixed.items()}})
        with torch.no_grad():
            torch.testing.assert_close(plain.eval()(x), outputs[i], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(ensemble.member(i)(x), outputs[i], rtol=1e-5, atol=1e-5)
    found = -ensemble.predict(little.val.x).member_log_prob(little.val.y).mean(1)
    assert found.tolist() == pytest.approx(ensemble.history[-1]["val_nll"], rel=1e-4)


def test_heads_learn_as_networks_whose_body_does_not_move(net: nn.Module, little: Data):
    """A run of one step of plain SGD, by hand on whole networks: the body rests, the head trains on the same batch."""
    data = replace(little, train=little.train[:32])
    plan = Plan(members=2, epochs=1, batch_size=32, engine="loop", lr=0.1, optimizer="sgd", momentum=0.0)
    population = mm.fit(net, data, recipe=FROZEN, plan=plan, posthoc=None).groups[0].population
    spec = TrainSpec(Normalised, data, Categorical(10), FROZEN, plan, backbone=net)
    x, y = epoch_batches(data.train, plan, 0)(0).fetch(slice(0, 2))
    for i in range(2):
        whole = spec.member(i)
        body, head = whole.get_submodule("body"), whole.get_submodule("head")
        body.load_state_dict(net.get_submodule("body").state_dict())
        body.eval().requires_grad_(False)
        head.train()
        loss = nn.functional.cross_entropy(whole(x[i]), y[i])
        slopes = torch.autograd.grad(loss, list(head.parameters()))
        for (name, parameter), slope in zip(head.named_parameters(), slopes, strict=True):
            expected = parameter.detach() - plan.lr * slope
            torch.testing.assert_close(population.own[f"head.{name}"][i], expected, rtol=1e-5, atol=1e-6)
        for name, buffer in head.named_buffers():
            torch.testing.assert_close(population.buffers[f"head.{name}"][i], buffer, rtol=1e-5, atol=1e-6)


def test_the_body_of_a_run_and_that_of_a_net_are_the_same(little: Data, tmp_path: Path):
    mm.fit("small-cnn", little, recipe="single", plan=replace(PLAN, members=1), out=tmp_path / "base", posthoc=None)
    base = mm.load(tmp_path / "base").member(0)
    of_run = mm.fit(
        "small-cnn",
        little,
        recipe=make_recipe("last-layer-ensemble", sharing=f"backbone:frozen={tmp_path / 'base'}"),
        plan=PLAN,
        out=tmp_path / "heads",
        posthoc=None,
    )
    of_net = mm.fit(base, little, recipe=FROZEN, plan=PLAN, posthoc=None)
    for name, tensor in of_run.groups[0].population.fixed.items():
        assert torch.equal(tensor[0], base.state_dict()[name])
        assert torch.equal(tensor, of_net.groups[0].population.fixed[name])
    again = mm.load(tmp_path / "heads")
    assert_same_bits(of_run, again)
    assert torch.equal(again.predict(little.test.x).outputs, of_run.predict(little.test.x).outputs)


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_a_killed_run_ends_as_if_nothing_had_happened(steps: int, net: nn.Module, little: Data, tmp_path: Path):
    def stop(text, done, total, record):
        if done >= steps:
            raise InterruptedError

    data = (little.train.prepared, little.train.y)
    undisturbed = mm.fit(net, data, recipe=FROZEN, plan=PLAN, posthoc=None)
    with pytest.raises(InterruptedError):
        mm.fit(
            net, data, recipe=FROZEN, plan=PLAN, out=tmp_path / "run", progress=stop, checkpoint_seconds=0, posthoc=None
        )
    resumed = mm.resume(tmp_path / "run", net=Normalised, data=data)  # the body is in the run
    assert_same_bits(undisturbed, resumed)
    assert resumed.history == undisturbed.history
    assert_same_bits(undisturbed, mm.load(tmp_path / "run", net=Normalised))


@pytest.mark.parametrize("coupling", ["outputs", "weights", "input-gradients"])
def test_repulsive_heads_are_two_answers(coupling: str, net: nn.Module, little: Data):
    ensemble = mm.fit(net, little, recipe=make_recipe(FROZEN, coupling=coupling), plan=PLAN, posthoc=None)
    alone = mm.fit(net, little, recipe=FROZEN, plan=replace(PLAN, batch_order="same"), posthoc=None)
    for record in ensemble.history:
        assert 0 < record["coupling"]["mean_kernel"] < 1
        assert record["coupling"]["push_to_loss"] > 0
    assert not torch.equal(
        ensemble.groups[0].population.own["head.0.weight"], alone.groups[0].population.own["head.0.weight"]
    )
    assert all(torch.equal(net.state_dict()[k], t[0]) for k, t in ensemble.groups[0].population.fixed.items())


class Between(nn.Module):
    """Does something between its body and its head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.body(x)))


class Flattening(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(1, 2, 5), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1))


@pytest.mark.parametrize(
    ("given", "changed", "message"),
    [
        ("mlp", {}, "frozen=yes needs a trained net: give an nn.Module, pretrained=True, or a run's directory"),
        (Between(), {}, r"Between does more than head\(body\(x\)\), so heads cannot be trained on the features"),
        (Flattening(), {}, r"Flattening does more than head\(body\(x\)\)"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), {}, "Sequential has no parts body and head"),
        (Normalised(), {"coupling": "features"}, "coupling features with a frozen backbone: all members have the same"),
        (
            Normalised(),
            {"weights": "dropout"},
            "weights dropout with a frozen backbone: heads can only have weights point",
        ),
        (
            Normalised(),
            {"coupling": "input-gradients:lengthscales=tuned"},
            "coupling input-gradients:lengthscales=tuned with a frozen backbone: it is chosen on corrupted inputs",
        ),
        (Normalised(), {"sharing": "backbone:frozen=runs/nowhere"}, "no run at runs/nowhere"),
    ],
)
def test_every_wrong_request_is_one_line(given, changed: dict[str, str], message: str, little: Data):
    with pytest.raises(mm.Misuse, match=message) as caught:
        mm.fit(given, little, recipe=make_recipe(FROZEN, **changed), plan=PLAN, posthoc=None)
    assert "\n" not in str(caught.value)


def test_pictures_that_change_have_no_features_to_keep(little: Data):
    with pytest.raises(mm.Misuse, match="augment with a frozen backbone: its features are computed once"):
        mm.fit(Normalised(), little, recipe=FROZEN, plan=replace(PLAN, augment=("flip",)), posthoc=None)


def test_a_body_of_another_architecture_is_refused(little: Data, tmp_path: Path):
    mm.fit("mlp", little, recipe="single", plan=replace(PLAN, members=1), out=tmp_path / "base", posthoc=None)
    chosen = make_recipe("last-layer-ensemble", sharing=f"backbone:frozen={tmp_path / 'base'}")
    with pytest.raises(mm.Misuse, match="base is of another architecture: "):
        mm.fit("small-cnn", little, recipe=chosen, plan=PLAN, posthoc=None)


def test_the_run_of_a_net_of_one_s_own_can_be_a_backbone(little: Data, tmp_path: Path):
    mm.fit(Normalised, little, recipe="single", plan=replace(PLAN, members=1), out=tmp_path / "base", posthoc=None)
    chosen = make_recipe("last-layer-ensemble", sharing=f"backbone:frozen={tmp_path / 'base'}")
    assert mm.fit(Normalised, little, recipe=chosen, plan=PLAN, posthoc=None).members == 3


def test_built_in_nets_consist_of_body_and_head(little: Data):
    """So all of them can be a backbone."""
    for name in ("mlp", "small-cnn", "lenet5", "resnet20", "three-conv-three-fc"):
        net = build_net(name, (1, 32, 32), 10).eval()
        x = torch.randn(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            assert torch.equal(net.get_submodule("head")(net.get_submodule("body")(x)), net(x))
