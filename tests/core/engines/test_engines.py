from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.core.engines import Engine, assemble, choice, choose, engine, member_outputs
from murmuration.core.population import Population, populate
from murmuration.core.recipe import make_recipe
from murmuration.core.weights import POINT, UnsupportedOp
from murmuration.data import Data
from murmuration.likelihoods import Categorical
from murmuration.models.nets import build_net
from murmuration.training import TrainSpec, begin, choose_engine, engine_choice
from murmuration.training.batches import epoch_batches
from murmuration.training.engine_choice import draws_globally
from murmuration.training.plan import Plan

STEPS = 20


def steps_on(name: str, build, data: Data) -> tuple[Population, Population]:
    """The members before and after twenty steps on one engine."""
    plan = Plan(members=3, batch_size=32, optimizer="sgd", lr=0.02)
    settings = {"members": 3, "batch_size": 32, "optimizer": "sgd", "engine": name}
    method = mm.Method(build, Categorical(10), inputs=data.train.prepared, **settings)
    state, batches = method.init(), epoch_batches(data.train, plan, 0)
    start = state.population.clone()
    for index in range(STEPS):
        batch = batches(index % 10)
        x, y = batch.fetch(slice(3))
        method.step(state, list(x), list(y), lr=batch.lr)
    assert method.engine is not None
    assert method.engine.name == name
    return start, state.population


NETS = {"mlp": lambda: build_net("mlp", (1, 8, 8), 10), "cnn": lambda: build_net("small-cnn", (1, 8, 8), 10)}


@pytest.mark.parametrize("name", ["mlp", "cnn", "norm"])
@pytest.mark.parametrize("other", ["stacked", "threads", pytest.param("threads-stacked", marks=pytest.mark.slow)])
def test_every_engine_equals_the_loop(digits: Data, normalised_net, name, other):
    """Twenty steps of SGD. Engines sum in different orders: float32 rounding, about 1e-7 of the terms, grows with the
    steps but stays four orders below the distance members travel (about 1e-1), hence 2e-5."""
    build = NETS.get(name, normalised_net)
    (start, reference), (_, found) = steps_on("loop", build, digits), steps_on(other, build, digits)
    travelled = max((reference.own[k] - t).abs().max().item() for k, t in start.own.items())
    assert travelled > 0.02
    tensors = {**found.own, **found.buffers}
    for key, tensor in {**reference.own, **reference.buffers}.items():
        torch.testing.assert_close(tensors[key], tensor, rtol=1e-4, atol=2e-5, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("how", [engine("loop"), engine("threads"), engine("stacked"), engine("threads-stacked")])
def test_outputs_are_each_member_s_in_evaluation_mode(normalised_net, how: Engine):
    torch.manual_seed(0)
    nets = [normalised_net().eval() for _ in range(3)]
    for net in nets:
        nn.init.normal_(net.norm.running_mean)
    population = populate(lambda i: nets[i], 3)
    x = torch.randn(7, 1, 8, 8)
    with assemble(how, normalised_net()) as team:
        outputs = member_outputs(team, POINT, population, x)
    expected = torch.stack([net(x) for net in nets]).detach()
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)


def test_a_net_that_vmap_refuses_falls_back_and_says_so(digits: Data):
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = x.flatten(1)
            return self.head(h if h.sum().item() > 0 else -h)  # .item() has no meaning under vmap

    plan = Plan(members=3, batch_size=16, engine="stacked")
    spec = TrainSpec(Branching, digits, Categorical(10), make_recipe("deep-ensemble"), plan)
    choice = choose_engine(spec, begin(spec))
    assert choice.engine.name == "loop"
    assert "stacked cannot run this net" in choice.reason
    assert "members take turns" in choice.reason


def test_a_net_with_noise_of_its_own_runs_member_by_member(digits: Data):
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x.flatten(1)[:, torch.randperm(64)])  # torch.randn would be the member's own

    spec = TrainSpec(Noisy, digits, Categorical(10), make_recipe("deep-ensemble"), Plan(members=2, batch_size=16))
    choice = choose_engine(spec, begin(spec))
    assert choice.engine.name == "loop"
    assert "outside dropout" in choice.reason
    assert not draws_globally(build_net("small-cnn", (1, 8, 8), 10), digits.train.prepared[:2])


def test_the_choice_moves_nothing(digits: Data):
    spec = TrainSpec(
        NETS["mlp"], digits, Categorical(10), make_recipe("deep-ensemble"), Plan(members=2, engine="fastest")
    )
    progress = begin(spec)
    before = progress.state.population.clone()
    choice = choose_engine(spec, progress)
    assert "fastest of" in choice.reason
    assert all(torch.equal(before.own[name], t) for name, t in progress.state.population.own.items())


@pytest.mark.parametrize(("net", "name"), [("mlp", "stacked"), ("cnn", "threads")])
def test_auto_is_a_rule_that_no_clock_enters(digits: Data, monkeypatch, net: str, name: str):
    def read_clock() -> float:
        raise AssertionError("auto looked at the clock")

    for module in (choice, engine_choice):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=read_clock))
    made = lambda name, direct=False, cores=None: Engine(name, 2, name == "stacked", direct)  # noqa: E731
    monkeypatch.setattr(choice, "engine", made)
    for recipe in ("deep-ensemble", "batch-ensemble", "bayes"):
        spec = TrainSpec(NETS[net], digits, Categorical(10), make_recipe(recipe), Plan(members=3))
        found = choose_engine(spec, begin(spec))
        assert (found.engine.name, found.engine.direct) == (name, net == "mlp")
        assert found.reason in ("all operators take a member axis", "one core per member")


def test_auto_on_one_core_is_the_loop(monkeypatch):
    monkeypatch.setattr(choice, "engine", lambda name, direct=False, cores=None: Engine(name, int(name == "threads")))

    @contextmanager
    def trial(candidate: Engine):
        raise UnsupportedOp("conv2d")
        yield

    assert choose("auto", trial, members=4).engine.name == "loop"


def test_fastest_is_the_fastest_and_skips_what_fails(monkeypatch):
    """On a clock that only steps advance, each by the seconds of its engine."""
    now = 0.0
    seconds = {"threads": 0.004, "loop": 0.008, "threads-stacked": 0.001}

    @contextmanager
    def trial(candidate: Engine):
        if candidate.name == "stacked":
            raise RuntimeError("no batching rule")

        def step() -> None:
            nonlocal now
            now += seconds[candidate.name]

        yield step

    monkeypatch.setattr(choice, "time", SimpleNamespace(perf_counter=lambda: now))
    chosen = choose("fastest", trial, members=4)
    assert chosen.engine.name == "threads-stacked"
    assert "fastest of (ms a step) threads-stacked 1.0, threads 4.0, loop 8.0" in chosen.reason
    assert "stacked cannot run this net (no batching rule)" in chosen.reason
