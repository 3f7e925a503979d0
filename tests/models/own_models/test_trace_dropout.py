"""Dropout of every kind that networks have: active when it should be, unbiased, and the same on every engine."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from networks import NETWORKS, Attention, DropPath, MaskedLinear, WithDropPath, data_for
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import murmuration as mm
from murmuration.core.population import populate
from murmuration.core.recipe import make_recipe
from murmuration.core.weights import Dropout, Structure, run_members, trace_kernels
from murmuration.core.weights.dropout_masks import apply_dropout, attend, draw_random, recurrent_layers
from murmuration.system.errors import Misuse
from murmuration.system.streams import Noise
from murmuration.training.plan import Plan

PLAN = Plan(epochs=1, batch_size=16, lr=0.02, optimizer="sgd", posthoc=None, engine="loop")
OWN = ["mha-dropout", "mha-two-dropouts", "encoder", "vit-dropout", "drop-path", "alpha-dropout", "functional-dropout"]
OWN += ["lstm-dropout"]


def draws_of(net: nn.Module, x: Tensor, draws: int = 1, rate: float = 0.1, *, per_example: bool = False) -> Tensor:
    """Outputs (draws, N, K) of MC dropout."""
    trace, population = trace_kernels(net, x), populate(lambda _: net, 1)
    family = Dropout(rate)
    family.check_trace(trace)
    weights, structure = family.in_network(trace), Structure(net).train(False)

    @torch.no_grad()
    def one(time: int) -> Tensor:
        noise = [Noise(0, 0, time, "prediction-masks", per_example=per_example)]
        tensors = weights.realise(population.own, {}, noise).with_buffers(population.buffers)
        return run_members(structure, tensors, x[None], noise, False)[0]

    return torch.stack([one(time) for time in range(draws)])


@pytest.mark.parametrize("name", OWN)
def test_dropout_of_the_network_is_found_and_active_in_prediction(name: str):
    net = NETWORKS[name]
    data = data_for(net.inputs)
    assert trace_kernels(net.build(), data.train.prepared[:16]).has_dropout
    ensemble = mm.fit(net.build, data, recipe="mc-dropout", plan=PLAN, progress=False)
    assert not ensemble.family.spec.rates  # none is added before kernels
    together = ensemble.predict(data.test.x).outputs
    assert together.std(0).max() > 1e-4
    assert torch.equal(together, ensemble.predict(data.test.x).outputs)
    alone = ensemble.predict(data.test.x[:1]).outputs  # a draw is one function, whatever is predicted beside
    torch.testing.assert_close(alone, together[:, :1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OWN)
def test_members_draw_the_same_in_every_engine(name: str):
    net = NETWORKS[name]
    data = data_for(net.inputs)
    fit = partial(mm.fit, net.build, data, members=2, plan=PLAN, progress=False)
    loop, threads, stacked = (fit(engine=engine) for engine in ("loop", "threads", "stacked"))
    assert threads.engine.name == "threads"
    expected = loop.predict(data.test.x).outputs
    torch.testing.assert_close(threads.predict(data.test.x).outputs, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(stacked.predict(data.test.x).outputs, expected, rtol=0, atol=1e-4)
    assert torch.equal(fit(engine="loop").predict(data.test.x).outputs, expected)
    assert stacked.engine.name == ("loop" if name in ("drop-path", "lstm-dropout") else "stacked")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
def test_attention_without_dropout_is_that_of_torch(causal: bool, mask: str):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 5, 3), torch.randn(2, 2, 5, 3), torch.randn(2, 2, 5, 3)
    given = {"none": None, "bool": torch.rand(5, 5) > 0.2, "float": torch.randn(5, 5)}[mask]
    if mask == "bool":
        given = given | torch.eye(5, dtype=torch.bool)
    if causal and mask != "none":
        return  # torch takes one of them
    settings = {"attn_mask": given, "is_causal": causal, "scale": 0.3, "enable_gqa": True}
    expected = F.scaled_dot_product_attention(q, k, v, **settings)
    got = attend({"query": q, "key": k, "value": v, **settings}, lambda w: w)
    torch.testing.assert_close(got, expected)


def test_attention_is_twice_differentiable():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def attention(*given: Tensor) -> Tensor:
        return attend(dict(zip(("query", "key", "value"), given, strict=True)), lambda w: w)

    assert torch.autograd.gradgradcheck(attention, (q, k, v))


class Attending(nn.Module):
    def __init__(self, p: float, weights: bool) -> None:
        super().__init__()
        self.attention, self.weights = nn.MultiheadAttention(4, 2, dropout=p, batch_first=True), weights

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=self.weights)[0].mean(1)


@pytest.mark.slow
def test_dropout_of_attention_is_unbiased_and_the_same_with_and_without_weights():
    """Outputs are linear in the mask, so their mean over masks is the output without dropout."""
    torch.manual_seed(0)
    net, x = Attending(0.4, False).eval(), torch.randn(1, 5, 4)
    draws = draws_of(net, x, 4000)[:, 0]  # (S, 4)
    error = draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - net(x)[0]).abs() < 4 * error).all()
    other = Attending(0.4, True).eval()
    other.load_state_dict(net.state_dict())
    torch.testing.assert_close(draws_of(other, x.expand(3, 5, 4), 20), draws_of(net, x.expand(3, 5, 4), 20))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "layer",
    [
        partial(nn.LSTM, batch_first=True),
        partial(nn.LSTM, bidirectional=True, proj_size=2),
        partial(nn.GRU, bidirectional=True, bias=False),
        partial(nn.RNN, batch_first=True),
    ],
)
def test_recurrent_layers_one_by_one_are_those_of_torch(layer, packed: bool):
    torch.manual_seed(0)
    net, x = layer(3, 4, num_layers=3), torch.randn(5, 6, 3)
    args = []
    name = {"LSTM": "lstm", "GRU": "gru"}.get(net.mode, "rnn_tanh")
    given = (
        pack_padded_sequence(x, torch.full((x.shape[0 if net.batch_first else 1],), 4), net.batch_first)
        if packed
        else x
    )

    class Recording(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, arguments=(), kwargs=None):
            if func is getattr(torch, name):
                args.append(arguments)
            return func(*arguments, **(kwargs or {}))

    with Recording():
        net(given)
    expected = getattr(torch, name)(*args[0])
    for got, want in zip(recurrent_layers(getattr(torch, name), args[0], lambda h: h), expected, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("func", [F.alpha_dropout, torch.alpha_dropout, F.feature_alpha_dropout])
def test_alpha_dropout_keeps_mean_and_variance(func):
    x = torch.randn(300, 400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    got = apply_dropout(func, [Noise(0, 0)], {"input": x, "p": 0.3})
    error = 1 / math.sqrt(300 * 400)  # of a mean of values of variance 1; pairs may fall together
    assert abs(got.mean()) < 4 * error
    assert abs(got.var() - 1) < 4 * error * 3  # their fourth moment is below 10
    below = (got < -1).double().std(2).max() if func is F.feature_alpha_dropout else None
    assert below is None or (got[..., 0] == got[..., 1]).double().mean() > 0.25
    assert torch.equal(apply_dropout(func, [Noise(0, 0)], {"input": x, "p": 1.0}), torch.zeros_like(x))


def test_random_numbers_of_the_network_are_one_draw_for_all_examples_in_prediction():
    one, many = (Noise(0, 0, per_example=False) for _ in range(2))
    calls = (
        (torch.rand, lambda n: (n, 2)),
        (torch.rand_like, lambda n: (torch.empty(n, 2),)),
        (Tensor.bernoulli_, lambda n: (torch.empty(n, 2), 0.5)),
        (Tensor.normal_, lambda n: (torch.empty(n, 20),)),
        (torch.bernoulli, lambda n: (torch.full((n, 9), 0.5),)),
    )
    for func, args in calls:
        first, rows = draw_random(func, args(1), {}, one, 1), draw_random(func, args(7), {}, many, 7)
        assert torch.equal(rows, first.expand_as(rows))
    each = draw_random(torch.rand, (7, 2), {}, Noise(0, 0), 7)
    assert len(each.unique()) == 14


class WithNorm(nn.Module):
    """Stochastic depth beside batch-norm, whose statistics must stay."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.drop, self.head = nn.Linear(6, 8), nn.BatchNorm1d(8), DropPath(0.5), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        return self.head(h + self.drop(torch.tanh(self.norm(h))))


def test_batch_norm_stays_in_evaluation_mode():
    data = data_for("table")
    ensemble = mm.fit(WithNorm, data, recipe="mc-dropout", plan=PLAN, progress=False)
    assert ensemble.family.spec.random_modules == ("drop",)
    before = {name: t.clone() for name, t in ensemble.groups[0].population.buffers.items()}
    outputs = ensemble.predict(data.test.x).outputs
    assert outputs.std(0).max() > 1e-3
    assert all(torch.equal(before[name], t) for name, t in ensemble.groups[0].population.buffers.items())
    net, x = ensemble.member(0), data.test.prepared
    with torch.no_grad():
        h = net.stem(x)
        extremes = [net.head(h + keep * torch.tanh(net.norm(h))) for keep in (0.0, 2.0)]  # p = 0.5: dropped or doubled
    near = [(outputs - each).abs().amax((1, 2)) < 1e-4 for each in extremes]
    assert (near[0] ^ near[1]).all()


class Entangled(nn.Module):
    """Random numbers in the module that also changes a buffer, or its layers, in training mode."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.stem, self.extra, self.head, self.how = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3), how
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        if self.training:
            h = h * (torch.rand_like(h) > 0.2)
            if self.how == "buffer":
                self.seen += 1
            if self.how == "layer":
                h = self.extra(h)
        return self.head(h)


@pytest.mark.parametrize(
    ("how", "what"), [("buffer", "changes the buffer 'seen'"), ("layer", r"uses other layers \(extra")]
)
@pytest.mark.parametrize("recipe", ["mc-dropout", "mask-ensemble"])
def test_training_mode_that_changes_more_than_dropout_is_refused(how: str, what: str, recipe: str):
    with pytest.raises(Misuse, match=f"training mode of the network {what}") as caught:
        mm.fit(partial(Entangled, how), data_for("table"), recipe=recipe, members=1, plan=PLAN, progress=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("build", "answers", "what"),
    [
        (partial(nn.Linear, 6, 3), {}, "no trained kernel but the first"),
        (NETWORKS["plain"].build, {"weights": "dropout:rate=0"}, "rate=0"),
    ],
)
def test_dropout_that_drops_nothing_is_refused(build, answers: dict[str, str], what: str):
    with pytest.raises(Misuse, match=f"{what}.*add torch.nn.Dropout layers"):
        mm.fit(build, data_for("table"), recipe=make_recipe("mc-dropout", **answers), plan=PLAN, progress=False)


class Beside(nn.Module):
    """Dropout of something that does not reach the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head, self.drop = nn.Linear(6, 8), nn.Linear(8, 3), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.stem(x))
        self.drop(h)
        return self.head(h)


def test_draws_that_are_all_equal_are_refused_and_a_head_of_zeros_is_not():
    with pytest.raises(Misuse, match="all draws of the net are equal on the first batch"):
        mm.fit(Beside, data_for("table"), recipe="mc-dropout", plan=PLAN, progress=False)
    zeros = NETWORKS["own-initialisation"]
    assert mm.fit(zeros.build, data_for("table"), recipe="mc-dropout", plan=PLAN, progress=False).members == 1


def test_a_rate_below_the_resolution_is_no_dropout():
    assert not trace_kernels(Attention(also=1e-9), torch.zeros(2, 6)).has_dropout
    assert trace_kernels(Attention(also=1e-4), torch.zeros(2, 6)).has_dropout


def test_inputs_of_a_masked_kernel_are_dropped_as_those_of_a_plain_one():
    """With a mask of ones the network is that of plain layers: same seed, same bits."""
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = stem
            self.register_buffer("ones", torch.ones(8, 8))

        def forward(self, x: Tensor) -> Tensor:
            h = F.relu(self.layers[0](x))
            h = F.relu(F.linear(h, self.layers[2].weight * self.ones * 1.0, self.layers[2].bias))
            return self.layers[4](h)

    x = torch.randn(7, 6)
    assert torch.equal(draws_of(Masked(), x, 3, 0.3), draws_of(stem, x, 3, 0.3))


def test_inputs_of_the_projections_of_attention_are_dropped():
    """Without other kernels a net of attention alone would not vary."""
    torch.manual_seed(0)
    net, x = Attending(0.0, False).eval(), torch.randn(3, 5, 4)
    assert draws_of(net, x, 8, 0.5).std(0).min() > 0


def test_mc_dropout_varies_on_masked_and_normalised_kernels():
    for name in ("masked-linear", "spectral-norm"):
        x = data_for("table").train.prepared[:8]
        assert draws_of(NETWORKS[name].build(), x, 20, 0.3).std(0).max() > 1e-3
    assert isinstance(NETWORKS["masked-linear"].build(), MaskedLinear)


def test_fixed_masks_switch_off_stochastic_depth_in_training():
    """Members under fixed masks have no other randomness: same seed or not, their training is deterministic."""
    data = data_for("table")
    ensemble = mm.fit(WithDropPath, data, recipe="mask-ensemble", members=2, plan=PLAN, progress=False)
    assert ensemble.family.spec.random_modules == ("drop",)
    structure, x = Structure(WithDropPath()).train(True), data.train.prepared[:4]
    group = ensemble.groups[0].population.group(slice(1))
    outputs = [
        run_members(
            structure,
            ensemble.family.realise(group.own, group.shared, noise).with_buffers(group.buffers),
            x[None],
            noise,
            False,
        )
        for noise in ([Noise(0, 0)], [Noise(1, 0)])
    ]
    assert torch.equal(*outputs)
    assert structure.module.drop.training
