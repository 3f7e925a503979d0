"""The trace of networks as users write them: every kernel is found, and what is not one is named or refused."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from networks import NETWORKS, Attention, Encoder, Experts, Product, TrainingOnly, data_for
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrizations

import murmuration as mm
from murmuration.core.population import populate
from murmuration.core.recipe import make_recipe
from murmuration.core.sharing import SHARING
from murmuration.core.weights import Gaussian, KernelTrace, Structure, run_members, trace_kernels
from murmuration.system.errors import Misuse
from murmuration.system.streams import Noise
from murmuration.training.plan import Plan

PLAN = Plan(epochs=1, batch_size=16, posthoc=None, engine="loop")


def traced(name: str, rows: int = 16) -> KernelTrace:
    net = NETWORKS[name]
    return trace_kernels(net.build(), data_for(net.inputs).train.prepared[:rows])


def fit(name: str, recipe: str, **answers: str) -> mm.Ensemble:
    net = NETWORKS[name]
    return mm.fit(net.build, data_for(net.inputs), recipe=make_recipe(recipe, **answers), plan=PLAN, progress=False)


def distributions(ensemble: mm.Ensemble) -> set[str]:
    population = ensemble.groups[0].population
    return {name.removesuffix(":std_param") for name in (*population.own, *population.shared) if ":std_param" in name}


def test_a_kernel_times_a_buffer_and_a_normalised_one_are_kernels():
    forms = {kernel.name: kernel.form for kernel in traced("masked-linear").kernels}
    assert forms == {"stem.weight": "masked", "head.weight": "plain"}
    forms = {kernel.name: kernel.form for kernel in traced("spectral-norm").kernels}
    originals = [f"{i}.parametrizations.weight.original" for i in (0, 2)]
    assert forms == {**dict.fromkeys(originals, "function"), "4.weight": "plain"}
    assert [kernel.biases for kernel in traced("spectral-norm").kernels] == [("0.bias",), ("2.bias",), ("4.bias",)]


@pytest.mark.parametrize("estimator", ["local", "flipout"])
@pytest.mark.parametrize("name", ["masked-linear", "spectral-norm"])
def test_a_gaussian_behind_a_function_is_drawn_as_a_whole(name: str, estimator: str):
    """The pass is that of the plain network with one draw of the underlying parameter."""
    torch.manual_seed(0)
    net, x = NETWORKS[name].build().eval(), data_for("table").train.prepared[:16]
    trace, family = trace_kernels(net, x), Gaussian(estimator=estimator, bias="point")
    population = family.init(populate(lambda _: net, 1), trace, lambda _: torch.Generator())
    weights = family.in_network(trace)
    hidden = [kernel.name for kernel in trace.kernels[:-1]]
    noise = [Noise(0, 0)]
    realised = weights.realise(population.own, {}, noise, buffers=population.buffers, training=True)
    assert not any(f"{name}:{part}" in realised.own for name in hidden for part in ("variance", "delta"))
    assert all(not torch.equal(realised.own[name], population.own[name]) for name in hidden)
    drawn = {key: value for key, value in realised.own.items() if ":" not in key}
    last = trace.kernels[-1].name
    plain = {**drawn, last + ":variance": torch.zeros_like(drawn[last])} if estimator == "local" else drawn
    structure = Structure(net).train(False)
    quiet = {**realised.own, **plain, **({last + ":delta": 0 * drawn[last]} if estimator == "flipout" else {})}
    got = run_members(
        structure, type(realised)(quiet, {}, realised.spec).with_buffers(population.buffers), x[None], noise, False
    )
    expected = functional_call(net, {key: value[0] for key, value in drawn.items()}, (x,))
    torch.testing.assert_close(got[0], expected)


def test_factors_of_a_masked_kernel_are_those_of_the_operator():
    """(K * out in^T) * mask = (K * mask) * out in^T, so that a member as a module of its own predicts the same."""
    ensemble = fit("masked-linear", "batch-ensemble")
    x = data_for("table").test.prepared
    assert {"stem.weight:in", "stem.weight:out"} <= set(ensemble.groups[0].population.own)
    outputs = ensemble.predict(x, prepared=True).outputs
    alone = torch.stack([ensemble.member(i)(x) for i in range(ensemble.members)]).detach()
    torch.testing.assert_close(outputs, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("recipe", ["batch-ensemble", "mask-ensemble", "rank1-bnn"])
def test_factors_that_a_normalisation_would_undo_are_refused(recipe: str):
    with pytest.raises(Misuse, match=r"'0\.parametrizations\.weight\.original' is normalised or transformed") as caught:
        fit("spectral-norm", recipe)
    assert "\n" not in str(caught.value)


class Lonely(nn.Module):
    """Experts of which two examples reach one."""

    def __init__(self) -> None:
        super().__init__()
        self.experts, self.head = nn.ModuleList(nn.Conv1d(6, 6, 1, groups=2) for _ in range(3)), nn.Linear(6, 3)
        self.attention = nn.MultiheadAttention(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.experts[1](x[..., None])[..., 0])


def test_layers_that_no_example_reaches_are_kernels_all_the_same():
    assert trace_kernels(Experts(), torch.zeros(2, 6)).unsupported == ()
    names = {kernel.name for kernel in trace_kernels(Experts(), torch.zeros(2, 6)).kernels}
    assert names == {"gate.weight", "head.weight", *(f"experts.{i}.weight" for i in range(4))}
    found = trace_kernels(Lonely(), torch.zeros(2, 6))
    reached, beside = (next(k for k in found.kernels if k.name == f"experts.{i}.weight") for i in (1, 0))
    assert (beside.inputs, beside.outputs, beside.groups) == (reached.inputs, reached.outputs, reached.groups)
    assert beside.biases == ("experts.0.bias",)
    assert found.last == ("head.weight",)
    assert {"attention.in_proj_weight", "attention.out_proj.weight"} <= set(found.names)


@pytest.mark.parametrize("name", ["experts", "branch", "training-only", "masked-linear", "spectral-norm", "mha-kdim"])
def test_every_kernel_becomes_a_distribution(name: str):
    ensemble = fit(name, "bayes")
    population = ensemble.groups[0].population
    plain = {each for each in population.own if ":" not in each}
    assert distributions(ensemble) == plain


def test_training_mode_shows_layers_of_training_alone():
    assert trace_kernels(TrainingOnly(), torch.zeros(2, 6)).names == ("stem.weight", "head.weight", "extra.weight")
    assert trace_kernels(TrainingOnly(), torch.zeros(2, 6)).last == ("head.weight",)


def test_training_mode_shows_parameters_that_no_layer_holds():
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel, self.head = nn.Parameter(torch.randn(3, 6)), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x) + (F.linear(x, self.kernel) if self.training else 0)

    found = trace_kernels(Auxiliary(), torch.zeros(2, 6))
    assert found.names == ("head.weight", "kernel")
    assert found.unsupported == ()


def test_biases_of_attention_with_other_widths():
    def build() -> nn.Module:
        net = Attention(kdim=True)
        net.attention = nn.MultiheadAttention(8, 2, kdim=1, vdim=1, batch_first=True, add_bias_kv=True)
        return net

    trace = trace_kernels(build(), torch.zeros(2, 6))
    assert set(trace.biases) == {"attention.in_proj_bias", "attention.bias_k", "attention.bias_v"}
    assert trace.unsupported == ()
    ensemble = mm.fit(build, data_for("table"), recipe="bayes", plan=PLAN, progress=False)
    assert distributions(ensemble) == {each for each in ensemble.groups[0].population.own if ":" not in each}


@pytest.mark.parametrize("name", ["matmul", "elementwise", "learned-query", "vit-einsum", "lstm", "weight-norm"])
@pytest.mark.parametrize("recipe", ["bayes", "batch-ensemble", "mask-ensemble", "mc-dropout"])
def test_a_parameter_that_cannot_be_acted_on_is_refused_by_name(name: str, recipe: str):
    with pytest.raises(Misuse, match=r"^'[\w.]+' is (multiplied by|in no operator)") as caught:
        fit(name, recipe)
    assert "\n" not in str(caught.value)


def test_a_parameter_that_no_operator_shows_is_refused():
    class Hidden(Product):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.from_numpy(x.detach().numpy() @ self.kernel.detach().numpy()))

    assert trace_kernels(Hidden(False), torch.zeros(2, 6)).unsupported == (("kernel", ""),)
    with pytest.raises(Misuse, match="'kernel' is in no operator that a pass over the batch shows"):
        mm.fit(partial(Hidden, False), data_for("table"), recipe="batch-ensemble", plan=PLAN, progress=False)


def test_positions_tokens_and_tables_are_no_kernels():
    assert traced("vit").unsupported == ()
    kinds = dict(traced("vit").kinds)
    assert {kinds["token"], kinds["position"]} == {"added"}
    assert kinds["norm.weight"] == "norm"
    assert dict(traced("embedding").kinds)["0.weight"] == "embedding"


@pytest.mark.parametrize("name", ["lstm", "matmul", "elementwise", "weight-norm", "vit-einsum"])
def test_drawn_weights_do_not_depend_on_operators(name: str):
    """With estimator=draw every matrix is a distribution, whatever multiplies it."""
    ensemble = fit(name, "bayes", weights="gaussian:estimator=draw")
    matrices = {n for n, t in ensemble.groups[0].population.own.items() if ":" not in n and t.dim() > 2}
    assert matrices - {"token", "position"} <= distributions(ensemble)


def test_recipes_that_do_not_touch_a_tensor_are_not_refused_because_of_it():
    assert distributions(fit("lstm", "bayes-last-layer")) == {"head.weight", "head.bias"}
    assert distributions(fit("lstm", "bayes", weights="gaussian:where=head.*")) == {"head.weight", "head.bias"}
    assert fit("lstm-dropout", "mc-dropout").predict(data_for("series").test.x).outputs.std(0).max() > 1e-4


def test_the_last_layer_is_the_one_that_makes_the_outputs():
    assert traced("gated").last == ("head.weight",)
    assert distributions(fit("gated", "bayes-last-layer")) == {"head.weight", "head.bias"}


class Ends(nn.Module):
    """Two layers at the end: joined side by side, or multiplied."""

    def __init__(self, joined: bool) -> None:
        super().__init__()
        self.stem, self.joined = nn.Linear(6, 4), joined
        self.left, self.right = nn.Linear(4, 1 if joined else 3), nn.Linear(4, 2 if joined else 3)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.left(torch.tanh(self.stem(x))), self.right(torch.tanh(self.stem(x)))
        return torch.cat([left, right], 1) if self.joined else left * right


def test_two_last_layers_are_both_or_refused():
    data = data_for("table")
    both = mm.fit(partial(Ends, True), data, recipe="bayes-last-layer", plan=PLAN, progress=False)
    assert distributions(both) == {f"{side}.{part}" for side in ("left", "right") for part in ("weight", "bias")}
    with pytest.raises(Misuse, match=r"the outputs are made by left\.weight, right\.weight.*where=left\.\*"):
        mm.fit(partial(Ends, False), data, recipe="bayes-last-layer", plan=PLAN, progress=False)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return h + self.second(torch.relu(h))


def test_a_layer_that_another_follows_is_not_the_last():
    assert trace_kernels(Residual(), torch.zeros(2, 6)).last == ("second.weight",)


class Restless(nn.Module):
    """Edits its input, moves a buffer in both modes and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.norm(self.layer(x.mul_(2.0))) + torch.randn(3)


def test_a_trace_leaves_everything_as_it_was():
    net, x = Restless(), torch.randn(5, 3)
    before = ({k: v.clone() for k, v in net.state_dict().items()}, x.clone(), torch.get_rng_state())
    trace_kernels(net, x)
    assert all(torch.equal(before[0][name], tensor) for name, tensor in net.state_dict().items())
    assert torch.equal(before[1], x)
    assert torch.equal(before[2], torch.get_rng_state())
    assert net.training
    assert not net._forward_hooks


def test_frozen_parameters_are_nobodys_concern():
    net = Product(elementwise=False)
    net.kernel.requires_grad_(False)
    assert trace_kernels(net, torch.zeros(2, 6)).unsupported == ()


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        ("batch-ensemble", "inner.weight"),
        ("bayes", "inner.bias"),
        ("mc-dropout", "inner.weight"),
        ("forde", "inner.bias"),
    ],
)
def test_kernels_that_the_backward_pass_computes_again_are_refused(recipe: str, name: str):
    with pytest.raises(Misuse, match=f"'{name}' inside torch.utils.checkpoint") as caught:
        fit("checkpointed", recipe)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("recipe", ["deep-ensemble", "bayes-last-layer", "ivon"])
def test_activation_checkpointing_elsewhere_is_allowed(recipe: str):
    assert fit("checkpointed", recipe).members


def test_dropout_that_the_backward_pass_would_draw_again_is_refused():
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.drop = nn.Linear(6, 4), nn.Linear(4, 3), nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(
                torch.utils.checkpoint.checkpoint(lambda h: self.drop(F.relu(self.a(h))), x, use_reentrant=False)
            )

    with pytest.raises(Misuse, match=r"'dropout' inside torch.utils.checkpoint"):
        mm.fit(Dropping, data_for("table"), plan=PLAN, progress=False)


class Heads(nn.Module):
    """Attention with an axis of heads, which torch computes by an operator without a second derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels, self.head = nn.Linear(1, 24), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.kernels(x.unsqueeze(-1)).unsqueeze(1).chunk(3, -1)
        return self.head(F.scaled_dot_product_attention(q, k, v)[:, 0].mean(1))


ATTENTIVE = {"mha": NETWORKS["mha"].build, "encoder": partial(Encoder, dropout=0.0), "sdpa": Heads}


@pytest.mark.parametrize("name", ATTENTIVE)
def test_input_gradients_of_attention_are_differentiated_in_every_engine(name: str):
    data = data_for("table")
    settings = {"recipe": "forde", "members": 2, "plan": PLAN, "lr": 0.02, "optimizer": "sgd", "progress": False}
    found = [mm.fit(ATTENTIVE[name], data, engine=engine, **settings) for engine in ("loop", "threads", "stacked")]
    assert [each.engine.name for each in found] == ["loop", "threads", "stacked"]
    outputs = [each.predict(data.test.x).outputs for each in found]
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(outputs[2], outputs[0], rtol=0, atol=1e-4)


def test_tokens_have_no_input_gradients():
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(12, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.table(x.long().clamp(0, 11)).mean(1))

    with pytest.raises(Misuse, match=r"outputs have no gradient by its inputs.*write coupling outputs or weights"):
        mm.fit(Tokens, data_for("table"), recipe="forde", plan=PLAN, progress=False)


def test_a_network_without_parts_is_told_of_names():
    with pytest.raises(Misuse, match=r"no parts body and head.*names:shared="):
        fit("lstm", "last-layer-ensemble")
    shared = mm.fit(
        NETWORKS["lstm"].build,
        data_for("series"),
        recipe=make_recipe("deep-ensemble", sharing="names:shared=recurrent.*"),
        members=2,
        plan=PLAN,
        progress=False,
    )
    assert set(shared.groups[0].population.own) == {"head.weight", "head.bias"}


def test_rank_one_scales_and_shares_as_before_where_nothing_is_special():
    trace = trace_kernels(NETWORKS["plain"].build(), torch.zeros(4, 6))
    assert trace.last == ("2.weight",)
    shared = SHARING["rank-one"].value.predicate(NETWORKS["plain"].build(), trace)
    assert [name for name in ("0.weight", "0.bias", "2.weight", "2.bias") if not shared(name)] == ["2.bias"]


def test_weight_standardisation_is_a_function_of_one_parameter():
    class Standardised(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            w = (self.weight - self.weight.mean(1, keepdim=True)) / self.weight.std()
            return F.linear(x, w, self.bias)

    (kernel,) = trace_kernels(Standardised(4, 3), torch.zeros(2, 4)).kernels
    assert (kernel.name, kernel.form) == ("weight", "function")
    parametrised = parametrizations.weight_norm(nn.Linear(4, 3))
    assert trace_kernels(parametrised, torch.zeros(2, 4)).kernels == ()


class Positioned(nn.Module):
    """Positions from a table, and a shape that is unpacked: a member axis would be one too many."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions, self.head = nn.Embedding(12, 4), nn.Embedding(5, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        _, length = x.shape
        return self.head(torch.tanh(self.tokens(x) + self.positions(torch.arange(length))).mean(1))


def test_a_network_that_unpacks_the_shape_of_its_inputs_predicts():
    data = data_for("tokens")
    ensemble = mm.fit(Positioned, data, recipe="bayes", plan=PLAN, progress=False)
    assert ensemble.predict(data.test.x).outputs.shape[0] == 30
    kinds = {row.name: row.kind for row in ensemble.parameter_roles}
    assert kinds["tokens.weight"] == kinds["positions.weight"] == "embedding"
