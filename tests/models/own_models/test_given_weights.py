"""Weights that members begin with: an instance is never re-initialised in silence, `init_from=` takes given weights."""

import copy
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

import murmuration as mm
from murmuration.cli import main
from murmuration.core.presets import PRESETS
from murmuration.core.recipe import make_recipe
from murmuration.models.nets.source import freshly_initialised
from murmuration.models.nets.validation import check_initialisation
from murmuration.system.streams import global_stream

X = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0.3).long()
PLAN = mm.Plan(members=2, epochs=1, batch_size=16, posthoc=None, engine="loop")
STILL = replace(PLAN, lr=1e-30)  # members stay where they begin


class Net(nn.Module):
    def __init__(self, classes: int = 3, normalised: bool = False) -> None:
        super().__init__()
        norm = nn.BatchNorm1d(16) if normalised else nn.Identity()
        self.body, self.head = nn.Sequential(nn.Linear(6, 16), norm, nn.Tanh()), nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def trained(steps: int = 9, net: nn.Module | None = None) -> nn.Module:
    """A network after some steps of Adam."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        net = net or Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(X), Y).backward()
        optimizer.step()
    return net


def kaiming() -> nn.Module:
    net = Net()
    nn.init.kaiming_normal_(net.body[0].weight)
    return net


def zero_head() -> nn.Module:
    net = Net()
    nn.init.zeros_(net.head.weight)
    return net


def zero_bias() -> nn.Module:
    net = Net(classes=1)
    nn.init.zeros_(net.head.bias)
    return net


def fan_out() -> nn.Module:
    """The scheme of many image libraries: normal kernels by fan out, zero biases, unit norms."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    nn.init.kaiming_normal_(net[0].weight, mode="fan_out")
    return net


def moved_statistics() -> nn.Module:
    net = Net(normalised=True)
    net(X)
    return net


ORDINARY = {
    "mlp": Net,
    "batch norm": lambda: Net(normalised=True),
    "convolutions": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ConvTranspose2d(8, 4, 3)),
    "recurrent": lambda: nn.Sequential(nn.LSTM(5, 7), nn.GRUCell(3, 4), nn.RNN(2, 2)),
    "embedding": lambda: nn.Sequential(nn.Embedding(50, 8), nn.LayerNorm(8), nn.Bilinear(4, 4, 2), nn.PReLU()),
    "one output": lambda: nn.Linear(1, 1),
}
OTHERWISE = {
    "kaiming": (kaiming, "'body.0.weight' of the Net given has"),
    "zero head": (zero_head, "'head.weight' of the Net given is 0 throughout"),
    "zero bias": (zero_bias, "'head.bias' of the Net given is 0 throughout"),
    "library": (fan_out, "'0.weight' of the Sequential given has"),
    "trained": (trained, "of the Net given has a value of"),
    "trained with batch norm": (lambda: trained(1, Net(normalised=True)), "of the Net given "),
    "statistics": (moved_statistics, "'body.1.running_mean' of the Net given differs by up to"),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_an_instance_with_its_layers_own_initialisation_is_an_architecture(name):
    for seed in range(20):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            check_initialisation(ORDINARY[name]())


@pytest.mark.parametrize("name", OTHERWISE)
def test_an_instance_with_other_values_is_refused_by_name(name):
    build, message = OTHERWISE[name]
    with pytest.raises(mm.Misuse, match=message) as found:
        check_initialisation(build())
    assert "lambda: " in str(found.value)
    assert "init_from=net" in str(found.value)
    assert "\n" not in str(found.value)


def test_fit_refuses_a_trained_instance_and_takes_it_as_init_from():
    net = trained()
    with pytest.raises(mm.Misuse, match="init_from=net to begin with these"):
        mm.fit(net, (X, Y), plan=PLAN)
    before = copy.deepcopy(net.state_dict())
    with pytest.warns(UserWarning, match="0 of 4 tensors differ"):
        ensemble = mm.fit(net, (X, Y), plan=STILL, init_from=net)
    for member in range(2):
        assert all(torch.equal(t, before[name]) for name, t in ensemble.member(member).state_dict().items())
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())


def test_frozen_parts_of_an_instance_keep_their_values():
    net = trained()
    net.body.requires_grad_(False)
    net.head.reset_parameters()
    ensemble = mm.fit(net, (X, Y), plan=PLAN)
    assert torch.equal(ensemble.groups[0].population.fixed["body.0.weight"][0], net.body[0].weight)
    heads = ensemble.groups[0].population.own["head.weight"]
    assert not torch.equal(heads[0], heads[1])
    partly = trained(3, Net(normalised=True))
    partly.body[1].bias.requires_grad_(False)
    fresh = freshly_initialised(partly)
    assert torch.equal(fresh.body[1].bias, partly.body[1].bias)
    assert torch.equal(fresh.body[1].weight, torch.ones(16))


SHARED = {name for name, preset in PRESETS.items() if preset.value.sharing.what not in ("own", "head")}


@pytest.mark.parametrize("recipe", sorted(set(PRESETS) - {"forde-tuned"}))
def test_every_recipe_begins_with_the_given_weights(recipe):
    net = trained()
    longer = {"csgmcmc": 6, "snapshot": 5, "swa": 2, "swag": 2, "multi-swag": 2}
    plan = replace(STILL, members=PRESETS[recipe].value.members or 2, epochs=longer.get(recipe, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ensemble = mm.fit(Net, (X, Y), recipe=recipe, plan=plan, init_from=net)
    population = ensemble.groups[0].population
    for name, tensor in net.named_parameters():
        stored = population.shared[name][None] if name in population.shared else population.own[name]
        assert (stored - tensor).abs().max() <= 1e-6, name


def test_one_network_for_each_member_and_parts_that_are_random_all_the_same(tmp_path: Path):
    nets = [trained(steps) for steps in (3, 6)]
    ensemble = mm.fit(Net, (X, Y), plan=STILL, init_from=nets, out=tmp_path / "run")
    for member, net in enumerate(nets):
        assert torch.equal(ensemble.member(member).body[0].weight, net.body[0].weight)
    assert ensemble.manifest.net["init_from"] == {"source": "list of 2", "reset": []}
    loaded = mm.load(tmp_path / "run", net=Net)
    assert torch.equal(loaded.predict(X).outputs, ensemble.predict(X).outputs)
    for reset in ("head", ["head.weight", "head.b*"]):
        ensemble = mm.fit(Net, (X, Y), plan=STILL, init_from=nets[0], reset=reset)
        for member in range(2):
            with global_stream(0, "initialisation", member):
                fresh = Net()
            assert torch.equal(ensemble.member(member).body[0].weight, nets[0].body[0].weight)
            assert torch.equal(ensemble.member(member).head.weight, fresh.head.weight)
    ensemble = mm.fit(nets[0], (X, Y), plan=STILL, init_from=nets[0], reset="head")  # heads as layers draw them
    heads = ensemble.groups[0].population.own["head.weight"]
    assert not torch.equal(heads[0], heads[1])


def test_an_instance_whose_layers_cannot_be_reset_is_taken_with_its_weights(tmp_path: Path):
    class Query(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.head = nn.Parameter(torch.randn(6)), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x * self.query)

    net = Query()
    ensemble = mm.fit(net, (X, Y), plan=STILL, init_from=net, reset="head", out=tmp_path / "run")
    assert torch.equal(ensemble.member(1).query, net.query)
    again = mm.load(tmp_path / "run", net=net)
    assert torch.equal(again.predict(X).outputs, ensemble.predict(X).outputs)
    with pytest.raises(mm.Misuse, match="no reset_parameters"):
        mm.fit(net, (X, Y), plan=STILL, init_from=net, reset="query")


@pytest.mark.filterwarnings("ignore:all members begin with the same weights")
def test_runs_ensembles_state_dicts_and_files(tmp_path: Path):
    before = mm.fit("mlp", (X, Y), plan=PLAN, out=tmp_path / "before")
    save_file(before.member(1).state_dict(), str(tmp_path / "net.safetensors"))
    cases = {
        "run": (tmp_path / "before", [0, 1]),
        "ensemble": (before, [0, 1]),
        "state dict": (before.member(1).state_dict(), [1, 1]),
        "file": (str(tmp_path / "net.safetensors"), [1, 1]),
    }
    for given, origins in cases.values():
        ensemble = mm.fit("mlp", (X, Y), plan=STILL, init_from=given)
        for member, origin in enumerate(origins):
            expected = before.member(origin).state_dict()
            assert all(torch.equal(t, expected[n]) for n, t in ensemble.member(member).state_dict().items())
    assert mm.fit(None, (X, Y), plan=STILL, init_from=tmp_path / "before").manifest.net["name"] == "mlp"
    assert mm.fit(None, (X, Y), plan=replace(STILL, members=1), init_from=trained()).members == 1


def test_a_killed_run_goes_on_without_the_given_weights(tmp_path: Path):
    plan = replace(PLAN, epochs=2)
    undisturbed = mm.fit(Net, (X, Y), plan=plan, init_from=trained(), reset="head")

    def stop(text, done, total, record):
        if done == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        mm.fit(Net, (X, Y), plan=plan, init_from=trained(), reset="head", out=tmp_path / "run", progress=stop)
    resumed = mm.resume(tmp_path / "run", net=Net, data=(X, Y))
    assert torch.equal(resumed.predict(X).outputs, undisturbed.predict(X).outputs)


def test_moped_takes_the_given_weights_as_its_centres():
    net, moped = trained(), make_recipe("bayes", weights="moped")
    ensemble = mm.fit(Net, (X, Y), recipe=moped, plan=replace(STILL, members=1), init_from=net)
    centre = ensemble.groups[0].population.buffers["head.weight:centre"]
    assert torch.equal(centre[0], net.head.weight)
    plain = mm.fit(Net, (X, Y), recipe="bayes", plan=replace(STILL, members=1), init_from=net)
    assert "head.weight:centre" not in plain.groups[0].population.buffers  # the prior stays where the recipe has it


def refusals() -> dict[str, tuple[dict, str]]:
    state = trained().state_dict()
    less = {name: tensor for name, tensor in state.items() if name != "head.bias"}
    more = {**state, "tail.weight": torch.zeros(2)}
    lost = {**state, "head.bias": torch.tensor([0.0, torch.nan, torch.inf])}
    return {
        "not finite": ({"init_from": lost}, "init_from: 2 of 3 values of 'head.bias' are NaN or infinite"),
        "shape": ({"init_from": Net(5)}, r"'head.weight' is \(5, 16\), expected \(3, 16\); write reset='head'"),
        "missing": ({"init_from": less}, r"'head.bias' is missing, expected \(3,\); write reset='head'"),
        "unknown": ({"init_from": more}, r"'tail.weight' is \(2,\), expected missing$"),
        "number": ({"init_from": [Net(), Net(), Net()]}, "init_from has 3 networks for 2 members"),
        "empty": ({"init_from": []}, "init_from is an empty list"),
        "kind": ({"init_from": 3}, "init_from is a int: expected an nn.Module"),
        "pickle": ({"init_from": __file__}, "is not a safetensors file, and nothing else is read"),
        "nowhere": ({"init_from": "nowhere.safetensors"}, "'nowhere.safetensors' does not exist"),
        "pattern": ({"init_from": Net(), "reset": "haed"}, "unknown part to reset 'haed': did you mean 'head'"),
        "alone": ({"reset": "head"}, "reset='head' without init_from"),
        "shared": ({"init_from": [Net(), Net()], "recipe": "batch-ensemble"}, "2 networks that differ in 'body.0"),
        "frozen": (
            {"init_from": Net(), "recipe": make_recipe("last-layer-ensemble", sharing="backbone:frozen=yes")},
            "init_from with a frozen backbone",
        ),
    }


@pytest.mark.parametrize("name", refusals())
def test_weights_that_do_not_fit_are_refused_in_one_line(name):
    settings, message = refusals()[name]
    with pytest.raises(mm.Misuse, match=message) as found:
        mm.fit(Net, (X, Y), plan=PLAN, **settings)
    assert "\n" not in str(found.value)


def test_masks_of_infinity_are_weights_like_others_and_parts_that_are_reset_may_be_lost():
    class Masked(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    state = Masked().state_dict()
    state["head.bias"] = torch.full((3,), torch.nan)
    ensemble = mm.fit(Masked, (X, Y), plan=STILL, init_from=state, reset="head")
    assert torch.equal(ensemble.member(0).state_dict()["mask"], state["mask"])


def test_the_weights_of_a_compiled_network_are_those_of_the_plain_one():
    net = trained()
    for settings in ({"init_from": torch.compile(net, backend="eager")}, {"init_from": [torch.compile(net)] * 2}):
        ensemble = mm.fit(Net, (X, Y), plan=STILL, **settings)
        assert torch.equal(ensemble.member(1).state_dict()["head.weight"], net.head.weight)


def test_members_that_begin_equal_are_warned_of_and_others_are_not():
    net = trained()
    with pytest.warns(UserWarning, match="0 of 4 tensors differ"):
        mm.fit(lambda: copy.deepcopy(net), (X, Y), plan=PLAN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mm.fit(Net, (X, Y), plan=PLAN)
        mm.fit(Net, (X, Y), plan=PLAN, init_from=net, reset="head")
        mm.fit(Net, (X, Y), plan=PLAN, init_from=net, recipe="batch-ensemble")
        mm.fit(Net, (X, Y), plan=PLAN, init_from=net, recipe="mask-ensemble")
        mm.fit(Net, (X, Y), plan=replace(PLAN, same=("initialisation",)), init_from=net)


def test_the_command_line_takes_given_weights(tmp_path: Path, monkeypatch):
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("murmuration.fit", lambda *args, **settings: asked.append(settings))
    monkeypatch.setattr("murmuration.cli.results.finish_run", lambda *args, **kwargs: None)
    out = ["--out", str(tmp_path / "none"), "--json"]
    assert main(["train", "two-moons", *out, "--init-from", "first", "--reset", "head,body.0"]) == 0
    assert (asked[0]["init_from"], asked[0]["reset"]) == ("first", ("head", "body.0"))
    monkeypatch.undo()
    before = mm.fit("mlp", (X, Y), plan=PLAN, out=tmp_path / "first")
    data = mm.open_data((X, Y))
    first, second = str(tmp_path / "first"), tmp_path / "second"
    after = mm.fit("mlp", data, plan=STILL, init_from=first, reset=("head",), out=second)
    record = json.loads((tmp_path / "second" / "run.json").read_text())
    assert record["net"]["init_from"] == {"source": str(tmp_path / "first"), "reset": ["head"]}
    for name, tensor in before.member(1).state_dict().items():
        assert torch.equal(after.member(1).state_dict()[name], tensor) != name.startswith("head.")
