"""Precision bf16: what is rounded and what is not, engines, threads, an autocast of the caller's, files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pretend_device import pretended
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.engines import assemble, engine, member_outputs
from murmuration.core.population import Population, populate
from murmuration.core.weights import POINT, WEIGHTS, NetworkWeights, Structure, run_members, trace_kernels
from murmuration.core.weights.dropout_masks import apply_dropout
from murmuration.system import devices, streams
from murmuration.system.devices import at_least_float32, computing_in
from murmuration.system.errors import Misuse
from murmuration.system.streams import Noise

U = 2.0**-8  # unit roundoff of bfloat16
CPU = torch.device("cpu")
ENGINES = {
    "loop": engine("loop"),
    "stacked": engine("stacked"),
    "direct": engine("stacked", direct=True),
    "threads": engine("threads"),
}
EVERY = pytest.mark.parametrize("how", ENGINES.values(), ids=ENGINES)


def dense() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


class Images(nn.Module):
    """Convolutions, norms of every kind, attention and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.GroupNorm(2, 4))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(self.body(x).flatten(2))
        return self.head(F.scaled_dot_product_attention(tokens, tokens, tokens).mean(1))


def table(rows: int = 48) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=rows)
    return rng.normal(size=(rows, 5)) + y[:, None], y


def pictures(rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=rows)
    return rng.normal(size=(rows, 1, 4, 4)) + y[:, None, None, None], y


def members(build, count: int = 3) -> Population:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return populate(lambda _: build(), count)


def outputs(how, build, x: Tensor, precision: str, weights: NetworkWeights = POINT) -> Tensor:
    population = members(build)
    with assemble(how, build()) as team:
        return member_outputs(team, weights.in_precision(precision), population, x)


def rounding_bound(net: nn.Sequential, x: Tensor) -> Tensor:
    """The largest error (N, K) of a dense network of rectifiers whose inputs, weights and outputs are rounded once.

    A product has relative error (1 + u)^2 - 1, its sum is exact beside it, the sum is rounded, and so is the bias.
    Errors of inputs pass on through the absolute weights; a rectifier does not enlarge them.
    """
    error = torch.zeros_like(x)
    for layer in net:
        if isinstance(layer, nn.Linear):
            weight, bias = layer.weight.detach().double().abs(), layer.bias.detach().double().abs()
            size = x.abs() + error
            grown = (1 + U) ** 4  # input, weight, sum and a second sum with the bias
            error = error @ weight.T * grown + (size @ weight.T + bias) * (grown - 1)
            x = F.linear(x, layer.weight.detach().double(), layer.bias.detach().double())
        else:
            x = x.relu()
    return error


def small(net=dense, data=None, **settings) -> mm.Ensemble:
    given = {"members": 2, "epochs": 1, "batch_size": 16, "posthoc": None, **settings}
    return mm.fit(net, table() if data is None else data, **given)


def tensors(ensemble: mm.Ensemble) -> dict[str, Tensor]:
    return ensemble.groups[0].population.to_tensors()


# passes


@EVERY
def test_outputs_are_those_of_single_precision_within_the_rounding_bound(how):
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    half, single = (outputs(how, dense, x, precision) for precision in ("bf16", "float32"))
    assert half.dtype == torch.float32
    for index, (a, b) in enumerate(zip(half, single, strict=True)):
        net = dense()
        net.load_state_dict({name: tensor[index] for name, tensor in members(dense).own.items()})
        bound = rounding_bound(net, x.double())
        assert ((a - b).abs() <= bound).all()
        assert (a - b).abs().max() > 1e-4  # it did compute in bfloat16


@pytest.mark.parametrize("build", [dense, Images])
def test_one_member_is_the_network_under_torchs_autocast(build):
    x = torch.randn(6, 5) if build is dense else torch.randn(6, 1, 4, 4)
    net = build().eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = net(x).float()
    found = mm.Ensemble.from_models([net])
    found = replace(found, manifest=replace(found.manifest, plan={"precision": "bf16"}))
    bound = 0 if build is dense else 4 * U * expected.abs().max()  # norms are computed in float32 here
    assert (found.predict(x).outputs[0] - expected).abs().max() <= bound


@pytest.mark.parametrize("build", [dense, Images])
def test_engines_agree_to_the_rounding_of_their_sums(build):
    x = torch.randn(9, 5) if build is dense else torch.randn(9, 1, 4, 4)
    names = ["loop", "stacked", "threads", *(["direct"] if build is dense else [])]
    half = {name: outputs(ENGINES[name], build, x, "bf16") for name in names}
    single = outputs(ENGINES["loop"], build, x, "float32")
    assert torch.equal(half["loop"], half["threads"])
    for name in names:
        assert 0 < (half[name] - single).abs().max() < 16 * U * single.abs().max()  # 16 roundings in a row, at most


@pytest.mark.parametrize("name", ["loop", "stacked", "threads"])
def test_convolutions_alone_compute_in_it(name):
    x = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0))

    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 3, 4), nn.Flatten())

    half, single = (outputs(ENGINES[name], build, x, precision) for precision in ("bf16", "float32"))
    largest = 16 * 0.25 * x.abs().max() + 0.25  # 16 weights and a bias of at most 1/4
    assert 1e-3 < (half - single).abs().max() < ((1 + U) ** 4 - 1) * largest


def test_losses_and_gradients_are_those_of_a_plain_loop_under_autocast():
    data = mm.open_data(table(), val=0.15, test=0.0)
    settings = {
        "members": 1,
        "batch_size": len(data.train),
        "optimizer": "sgd",
        "momentum": 0.0,
        "schedule": "constant",
    }
    before = tensors(small(data=data, lr=1e-30, **settings))
    after = small(data=data, lr=0.5, precision="bf16", **settings)
    net = dense().train()
    net.load_state_dict({name.removeprefix("own/"): tensor[0] for name, tensor in before.items()})
    rows = torch.randperm(len(data.train), generator=streams.generator(0, "batches", 0, 0))
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        found = net(data.train.prepared[rows])
    loss = F.cross_entropy(found.float(), data.train.y[rows])
    loss.backward()
    assert after.history[0]["train_loss"][0] == pytest.approx(float(loss), rel=1e-6)
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        expected = parameter.detach() - 0.5 * parameter.grad
        torch.testing.assert_close(tensors(after)[f"own/{name}"][0], expected, rtol=1e-6, atol=1e-7)


def test_an_autocast_inside_forward_gives_likelihoods_single_precision():
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.layer(x)

    population = members(Own)
    for how in (ENGINES["loop"], ENGINES["stacked"], ENGINES["threads"]):
        with assemble(how, Own()) as team:
            assert member_outputs(team, POINT, population, torch.randn(4, 5)).dtype == torch.float32


# an autocast of the caller's


def test_an_autocast_around_training_is_refused():
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(Misuse, match="leave it out and write precision='bf16'") as refused:
            small()
        assert "\n" not in str(refused.value)


@EVERY
def test_an_autocast_around_prediction_changes_nothing_on_any_engine(how):
    x = torch.randn(20, 5)
    expected = outputs(how, dense, x, "float32")
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(outputs(how, dense, x, "float32"), expected)


# training


RECIPES = {
    "deep-ensemble": ["loop", "stacked", "threads"],
    "function-rde": ["stacked"],
    "batch-ensemble": ["stacked", "threads"],
    "mc-dropout": ["loop"],
    "bayes": ["loop"],
    "bayes-flipout": ["loop"],
    "rank1-bnn": ["stacked"],
    "ivon": ["loop"],
    "swa": ["loop"],
}
PAIRS = [(recipe, name) for recipe, names in RECIPES.items() for name in names]


@pytest.mark.parametrize(("recipe", "name"), PAIRS)
def test_weights_and_optimizer_stay_in_single_precision_and_losses_are_close(recipe, name):
    count = mm.make_recipe(recipe).members or 2
    settings = {"recipe": recipe, "engine": name, "members": count, "batch_size": 4, "lr": 1e-3}
    half, single = (small(precision=precision, **settings) for precision in ("bf16", "float32"))
    assert half.manifest.engine["name"] == name
    assert {tensor.dtype for tensor in tensors(half).values()} == {torch.float32}
    assert half.predict(table()[0]).outputs.dtype == torch.float32
    losses = [np.array(each.history[0]["train_loss"]) for each in (half, single)]
    assert 0 < np.abs(losses[0] - losses[1]).max() < 0.05 * losses[1].max()


@pytest.mark.parametrize("name", ["loop", "stacked", "threads"])
def test_images_with_norms_train_on_every_engine(name):
    made = small(Images, pictures(), engine=name, precision="bf16")
    assert made.manifest.engine["name"] == name
    assert {t.dtype for n, t in tensors(made).items() if "num_batches" not in n} == {torch.float32}


def test_input_gradients_are_refused():
    for recipe in ("forde", mm.make_recipe("deep-ensemble", coupling="input-gradients:batch_fraction=0.5")):
        with pytest.raises(Misuse, match=r"precision=bf16 with coupling input-gradients.*write precision=float32"):
            small(recipe=recipe, precision="bf16")


def test_another_precision_is_refused_with_those_that_exist():
    with pytest.raises(Misuse, match=r"float32.*bf16"):
        mm.Plan(precision="float16")


def test_a_frozen_backbone_computes_its_features_in_the_precision():
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Linear(5, 8), nn.ReLU()), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x))

    recipe = mm.make_recipe("last-layer-ensemble", sharing="backbone:frozen=yes")
    trained = Parts()
    half, single = (small(trained, recipe=recipe, precision=precision) for precision in ("bf16", "float32"))
    difference = (tensors(half)["own/head.weight"] - tensors(single)["own/head.weight"]).abs().max()
    assert 0 < difference < 0.05


# noise


def test_local_reparameterisation_has_the_variance_and_the_noise_of_single_precision():
    net, x = nn.Sequential(nn.Linear(5, 4)), 3 * torch.randn(7, 5)
    trace = trace_kernels(net, x[:2])
    weights = WEIGHTS["gaussian"].value.in_network(trace)
    population = WEIGHTS["gaussian"].value.init(populate(lambda _: net, 1), trace, lambda m: torch.Generator())

    def passed(precision: str, mean: bool) -> Tensor:
        family = weights.in_precision(precision)
        family = family.deterministic() if mean else family
        realised = family.realise(population.own, {}, [Noise(0, 0)], training=True)
        return run_members(Structure(net), realised, x[None], [Noise(0, 0)], False)

    noise = [passed(precision, False) - passed(precision, True) for precision in ("bf16", "float32")]
    torch.testing.assert_close(*noise, rtol=1e-5, atol=1e-5)  # sqrt(variance) times the same normal numbers


def test_normal_numbers_in_half_precision_are_those_of_single_precision_rounded():
    like = torch.empty(2, 3, 4, 5)
    for rough in (False, True):
        expected = Noise(0, 1).normal(like, rough).bfloat16()
        assert torch.equal(Noise(0, 1).normal(like.bfloat16(), rough), expected)


def test_dropout_in_half_precision_is_that_of_single_precision_rounded_once():
    x = torch.randn(1, 2000, generator=torch.Generator().manual_seed(0)).bfloat16()
    half, single = (
        apply_dropout(F.dropout, [Noise(0, 0)], {"input": each, "p": 0.3, "training": True}) for each in (x, x.float())
    )
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, single.bfloat16())


# files and devices


def test_the_precision_is_recorded_and_loaded_ensembles_predict_the_same(tmp_path):
    made = small(precision="bf16", out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["plan"]["precision"] == "bf16"
    loaded = mm.load(tmp_path / "run", net=dense)
    assert torch.equal(loaded.predict(table()[0]).outputs, made.predict(table()[0]).outputs)
    single = mm.Ensemble.from_models([made.member(index) for index in range(2)])
    x = made.prepare(table()[0])
    assert (single.predict(x).outputs - loaded.predict(x, prepared=True).outputs).abs().max() > 1e-4


def test_autocast_is_entered_for_the_device_of_the_inputs(monkeypatch):
    seen = []
    plain = devices.torch.autocast
    monkeypatch.setattr(
        devices.torch, "autocast", lambda kind, *rest, **k: seen.append(kind) or plain(kind, *rest, **k)
    )
    with pretended() as device:
        made = small(precision="bf16", device=device)
        made.predict(table()[0])
    assert set(seen) == {"pretend"}


def test_a_block_of_single_precision_costs_nothing_without_autocast():
    with computing_in("float32", CPU):
        assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", torch.bfloat16), computing_in("float32", CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert at_least_float32(torch.ones(1, dtype=torch.float64)).dtype == torch.float64
