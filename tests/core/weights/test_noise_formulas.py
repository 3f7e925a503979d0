"""Gaussian weights on every way members run, against formulas written out with the same noise (float64)."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from weights_factories import ESTIMATORS, LAYERS, MEMBERS, drawn, leaves, rank_one_members_of

from murmuration.core.population import Named, Population, populate
from murmuration.core.weights import WEIGHTS, NetworkWeights, Structure, run_members, trace_kernels
from murmuration.core.weights.gaussian import STD_PARAM, Gaussian
from murmuration.system.option_text import parse
from murmuration.system.streams import Noise, many_normals

MODES = ["alone", "mapped", "direct"]


def gaussian_members(layer: str, sharing: str, text: str) -> tuple[nn.Module, NetworkWeights, Population, Tensor]:
    """Members of one layer whose kernels, shared or own, are distributions with standard deviations of many sizes."""
    torch.manual_seed(0)
    make, shape = LAYERS[layer]
    nets, x = [make().double() for _ in range(MEMBERS)], drawn(MEMBERS, 2, *shape)
    gaussian, trace = parse(text, "weights", WEIGHTS), trace_kernels(nets[0], x[0])
    assert isinstance(gaussian, Gaussian)
    population, inside = populate(nets.__getitem__, MEMBERS), False
    if sharing != "own":
        made = rank_one_members_of(nets, sharing, x)
        population, inside = made.population, made.family.spec.bias_inside
    population = gaussian.init(population, trace, lambda _: torch.Generator())
    for seed, named in ((1, population.own), (2, population.shared)):
        for name in named:
            if name.endswith(STD_PARAM):
                named[name] = drawn(*named[name].shape, seed=seed) - 1
    return nets[0], gaussian.in_network(trace, bias_inside=inside), population, x


def outputs_of(net: nn.Module, family: NetworkWeights, own: Named, shared: Named, x: Tensor, mode: str) -> Tensor:
    noise = [Noise(0, i) for i in range(len(x))]
    if mode != "alone":
        realised = family.realise(own, shared, noise, training=True)
        return run_members(Structure(net), realised, x, noise, mode == "direct")
    rows = []
    for i in range(len(x)):
        mine = {name: tensor[i : i + 1] for name, tensor in own.items()}
        realised = family.realise(mine, shared, noise[i : i + 1], training=True)
        rows.append(run_members(Structure(net), realised, x[i : i + 1], noise[i : i + 1], False))
    return torch.cat(rows)


def formula_outputs(
    net: nn.Module, family: NetworkWeights, own: Named, shared: Named, x: Tensor, member: int
) -> Tensor:
    """One member's outputs (B, ...) of a single layer, from the formulas and its own stream of noise."""
    noise, estimator = Noise(0, member), family.family.estimator
    mine = {**{name: tensor[member] for name, tensor in own.items()}, **shared}
    stds = {key.removesuffix(STD_PARAM): mine[key].exp().log1p() for key in mine if key.endswith(STD_PARAM)}
    first = [
        name
        for name in (*sorted(own), *sorted(shared))
        if name in stds and (estimator == "draw" or (estimator == "flipout" and name == "weight"))
    ]
    eps = many_normals([noise], [stds[name].unsqueeze(0) for name in first])
    drawn_first = {name: stds[name] * each[0] for name, each in zip(first, eps, strict=True)}
    into, out = mine.get("weight:in"), mine.get("weight:out")
    behind = 0 if isinstance(net, nn.Linear) else x.dim() - 2
    tail, bias = (1,) * behind, mine.get("bias")
    x = x if into is None else x * into.view(-1, *tail)

    def act(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        empty = None if net.bias is None else torch.zeros_like(net.bias)
        return functional_call(net, {"weight": weight, "bias": empty if bias is None else bias}, (x,))

    def channels(like: Tensor) -> Tensor:
        return noise.normal(like.flatten(-behind)[..., 0] if behind else like).view(
            *like.shape[: like.dim() - behind], *tail
        )

    if estimator == "draw":
        bias = bias + drawn_first["bias"] if "bias" in drawn_first else bias
        weight = mine["weight"] + drawn_first["weight"]
        if out is None or family.spec.bias_inside:
            return act(x, weight, bias) * (1.0 if out is None else out.view(-1, *tail))
        return act(x, weight, None) * out.view(-1, *tail) + (0.0 if bias is None else bias.view(-1, *tail))
    apart = out is not None and not family.spec.bias_inside  # the bias is added after the outputs are scaled
    beside, blur = (None, None) if apart else (bias, stds.get("bias"))
    made = act(x, mine["weight"], beside)
    if estimator == "local":
        variance = act(x.square(), stds["weight"].square(), None if blur is None else blur.square())
        made = made + variance.sqrt() * noise.normal(made)
    else:
        flips, turns = channels(x).sign(), channels(made).sign()
        made = made + act(x * flips, drawn_first["weight"], None) * turns
        made = made if blur is None else made + blur.view(-1, *tail) * channels(made)
    made = made if out is None else made * out.view(-1, *tail)
    if apart and bias is not None:
        made = made + bias.view(-1, *tail)
        made = made if "bias" not in stds else made + stds["bias"].view(-1, *tail) * channels(made)
    return made


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    "sharing", ["own", "rank-one:bias=own", pytest.param("rank-one:bias=inside", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("layer", LAYERS)
def test_every_operator_on_every_way_is_its_formula(layer: str, sharing: str, estimator: str):
    """Outputs and gradients of means, standard deviations and factors; what is added to variances is 1e-12."""
    for bias in ("gaussian", "point"):
        net, family, population, x = gaussian_members(layer, sharing, f"gaussian:estimator={estimator},bias={bias}")
        own, shared = leaves(population)
        parameters = [*own.values(), *shared.values()]
        expected = torch.stack([formula_outputs(net, family, own, shared, x[i], i) for i in range(MEMBERS)])
        weights = drawn(*expected.shape, seed=3)
        theirs = torch.autograd.grad((weights * expected).sum(), parameters)
        for mode in MODES if layer in ("linear", "linear, no bias") else MODES[:2]:
            found = outputs_of(net, family, own, shared, x, mode)
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
            mine = torch.autograd.grad((weights * found).sum(), parameters)
            for name, a, b in zip([*own, *shared], mine, theirs, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8, msg=f"{mode}: {name}")


class Keywords(nn.Module):
    """A kernel and a bias given by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.shift = nn.Parameter(drawn(5, 4)), nn.Parameter(drawn(5, seed=1))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(input=x, weight=self.kernel, bias=self.shift)


class Attention(nn.Module):
    """Torch's attention, whose operator is one piece."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("sharing", ["own", "rank-one:bias=inside"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("make", [Keywords, Attention])
def test_noise_reaches_weights_however_a_network_uses_them(make, estimator: str, sharing: str):
    """Every tensor that has a std changes the outputs, with and without vmap alike."""
    torch.manual_seed(0)
    nets, x = [make().double() for _ in range(MEMBERS)], drawn(MEMBERS, 3, 2, 4)
    gaussian, trace = parse(f"gaussian:estimator={estimator}", "weights", WEIGHTS), trace_kernels(nets[0], x[0])
    assert isinstance(gaussian, Gaussian)
    population, inside = populate(nets.__getitem__, MEMBERS), False
    if sharing != "own":
        made = rank_one_members_of(nets, sharing, x)
        population, inside = made.population, made.family.spec.bias_inside
    own, shared = leaves(gaussian.init(population, trace, lambda _: torch.Generator()))
    family = gaussian.in_network(trace, bias_inside=inside)
    alone, mapped = (outputs_of(nets[0], family, own, shared, x, mode) for mode in MODES[:2])
    torch.testing.assert_close(alone, mapped, rtol=1e-9, atol=1e-9)
    stds = {name: t for name, t in {**own, **shared}.items() if name.endswith(STD_PARAM)}
    assert len(stds) == len(list(nets[0].named_parameters()))
    gradients = torch.autograd.grad((alone * drawn(*alone.shape, seed=3)).sum(), list(stds.values()))
    for name, gradient in zip(stds, gradients, strict=True):
        assert gradient.abs().max() > 1e-6, name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_bias_may_be_a_distribution_beside_a_point_kernel(estimator: str, mode: str):
    net, family, population, x = gaussian_members("linear", "own", f"gaussian:estimator={estimator},where=bias")
    assert [name for name in population.own if name.endswith(STD_PARAM)] == ["bias:std_param"]
    quiet = torch.stack(
        [nn.functional.linear(x[i], *(population.own[n][i] for n in ("weight", "bias"))) for i in range(3)]
    )
    deviation = outputs_of(net, family, population.own, {}, x, mode) - quiet  # (M, B, O)
    std = nn.functional.softplus(population.own["bias:std_param"]).unsqueeze(1)
    first = torch.stack(
        [Noise(0, i).normal(deviation[i] if estimator != "draw" else std[i, 0]) for i in range(MEMBERS)]
    )
    expected = std * (first if estimator != "draw" else first.unsqueeze(1))
    torch.testing.assert_close(deviation, expected.expand_as(deviation), rtol=1e-9, atol=1e-9)
