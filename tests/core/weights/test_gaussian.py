"""Which weights are distributions, how wide they begin, and what they cost, by torch's own distributions."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from murmuration.core.population import Population, populate
from murmuration.core.recipe import make_recipe
from murmuration.core.sharing import SHARING
from murmuration.core.weights import WEIGHTS, KernelTrace, Structure, run_members, trace_kernels
from murmuration.core.weights.gaussian import CENTRE, ESTIMATORS, STD_PARAM, STD_PARAMS, Gaussian, distribution_names
from murmuration.models.nets.source import net_source
from murmuration.system.errors import Misuse
from murmuration.system.option_text import parse
from murmuration.system.streams import Noise
from murmuration.training.plan import Plan
from murmuration.training.resolve import make_spec


def gaussian(text: str) -> Gaussian:
    found = parse(text, "weights", WEIGHTS)
    assert isinstance(found, Gaussian)
    return found


def build() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).double()


def population(text: str, sharing: str = "own", members: int = 2) -> tuple[Population, KernelTrace]:
    net, answer = build(), parse(sharing, "sharing", SHARING)
    trace = trace_kernels(net, torch.zeros(1, 2, 6, dtype=torch.float64))
    made = populate(lambda _: net, members, answer.predicate(net, trace))
    made = answer.add_factors(made, trace, lambda i: torch.Generator().manual_seed(i))
    return gaussian(text).init(made, trace, lambda _: torch.Generator()), trace


def std_names(made: Population) -> set[str]:
    return {name.removesuffix(STD_PARAM) for name in {**made.own, **made.shared} if name.endswith(STD_PARAM)}


FACTORS = {"0.weight:in", "0.weight:out", "4.weight:in", "4.weight:out"}


@pytest.mark.parametrize(
    ("text", "sharing", "expected"),
    [
        ("gaussian", "own", {"0.weight", "0.bias", "4.weight", "4.bias"}),
        ("gaussian", "rank-one", {"0.weight", "0.bias", "4.weight", "4.bias"}),
        ("gaussian:bias=point", "own", {"0.weight", "4.weight"}),
        ("gaussian:where=last", "own", {"4.weight", "4.bias"}),
        ("gaussian:where=last,bias=point", "rank-one", {"4.weight"}),
        ("gaussian:where=factors", "rank-one", FACTORS),
        ("gaussian:where=0.*", "own", {"0.weight", "0.bias"}),
        ("gaussian:where=0.weight; 1.*", "own", {"0.weight", "1.weight", "1.bias"}),
        ("gaussian:where=*", "rank-one", {"0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias"} | FACTORS),
    ],
)
def test_where_says_what_is_a_distribution(text: str, sharing: str, expected: set[str]):
    made, _ = population(text, sharing)
    assert std_names(made) == expected
    assert all((name in made.own) == (name + STD_PARAM in made.own) for name in expected)


def test_where_must_match_something():
    with pytest.raises(Misuse, match=r"where=head\.\* matches no tensor of the net: write all, last, factors or"):
        population("gaussian:where=head.*")
    with pytest.raises(Misuse, match=r"where=head\.\* matches no tensor of the net: write all, last, factors or"):
        population("gaussian:where=0.weight; head.*")  # though another pattern matches
    with pytest.raises(Misuse, match=r"where=0\.bias matches no tensor"):
        population("gaussian:where=0.bias,bias=point")


def test_one_member_has_no_factors_and_none_of_their_stds(digits):
    recipe = make_recipe("rank1-bnn")
    for members, expected in ((1, False), (2, True)):
        spec, _ = make_spec("mlp", digits, recipe, Plan(members=members, posthoc=None))
        assert bool(std_names(spec.method.initial_members())) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gaussian:estimator=locale", "unknown estimator 'locale'"),
        ("gaussian:std_param=sigma", "unknown std_param 'sigma'"),
        ("gaussian:bias=none", "unknown bias 'none'"),
        ("gaussian:weighting=blundel", "did you mean 'blundell'?"),
        ("gaussian:reduction=mean", "unknown reduction 'mean'"),
        ("gaussian:prior=hee", "unknown prior 'hee'"),
        ("gaussian:init_std_ratio=0", "init_std_ratio=0.0, beta=0.01, kl_warmup=0.25: need init_std_ratio above 0"),
        ("gaussian:init_std_ratio=inf", "init_std_ratio=inf"),
        ("gaussian:beta=-1", "beta=-1.0"),
        ("gaussian:beta=inf", "beta=inf"),
        ("gaussian:kl_warmup=1.5", "kl_warmup=1.5"),
        ("gaussian:samples=0", "samples=0, draws=30: need at least 1 each"),
        ("gaussian:draws=0", "samples=1, draws=0: need at least 1 each"),
    ],
)
def test_every_mistake_is_one_line_that_names_it(text: str, message: str):
    with pytest.raises(Misuse) as caught:
        parse(text, "weights", WEIGHTS)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_initial_stds_are_relative_to_the_std_of_the_tensor():
    made, _ = population("gaussian:init_std_ratio=0.2")
    for name in ("0.weight", "0.bias", "4.weight", "4.bias"):
        for member in range(2):
            expected = 0.2 * made.own[name][member].std()
            found = nn.functional.softplus(made.own[name + STD_PARAM][member])
            torch.testing.assert_close(found, expected.expand_as(found), rtol=1e-9, atol=0)


@pytest.mark.parametrize("std_param", STD_PARAMS)
def test_weights_of_zero_have_a_cost_and_gradients_that_are_finite(std_param: str):
    """A bias that begins at zero, for every prior; and one zero among others does not widen them all."""
    net = build()
    for layer in (net[0], net[4]):
        nn.init.zeros_(layer.bias)
    net[4].weight.data[0, 0] = 0.0
    trace = trace_kernels(net, torch.zeros(1, 2, 6, dtype=torch.float64))
    for prior in ("he", "gaussian_0.1", "learned", "ard", "mixture_0.5_1_0.0025", "log-uniform"):
        answer = gaussian(f"gaussian:std_param={std_param},prior={prior}")
        made = answer.init(populate(lambda _: net, 1), trace, lambda _: torch.Generator())
        own = {name: tensor.requires_grad_() for name, tensor in made.own.items()}
        cost = answer.in_network(trace).complexity(own, {}, {}, [Noise(0, 0)])
        assert cost is not None
        assert cost.isfinite().all()
        gradients = torch.autograd.grad(cost.sum(), list(own.values()), materialize_grads=True)
        assert all(gradient.isfinite().all() for gradient in gradients)
        widest = answer.std("4.weight", own).max()
        assert widest < 3 * 0.1 * own["4.weight"].std()


def by_torch(named: dict[str, Tensor], name: str, centre: float, scale: float) -> Tensor:
    """KL(q || p) of a tensor from torch's distributions, in nats."""
    std = nn.functional.softplus(named[name + STD_PARAM])
    prior = Normal(torch.tensor(centre, dtype=std.dtype), torch.tensor(scale, dtype=std.dtype))
    return kl_divergence(Normal(named[name], std), prior)


@pytest.mark.parametrize("sharing", ["own", "rank-one"])
def test_complexity_needs_no_pass_and_has_the_right_direction(sharing: str):
    text = "gaussian:where=*,prior=gaussian_0.3"
    made, trace = population(text, sharing)
    cost = gaussian(text).in_network(trace).complexity(made.own, made.shared, {}, [Noise(0, i) for i in range(2)])
    assert cost is not None
    names = std_names(made)
    shared = sum((by_torch(made.shared, n, 0.0, 0.3).sum() for n in names if n in made.shared), torch.tensor(0.0))
    for member in range(2):
        mine = {name: tensor[member] for name, tensor in made.own.items()}
        own = sum(
            by_torch(mine, n, 1.0 if n in FACTORS else 0.0, 0.3).sum() for n in names if n in made.own
        )  # factors are believed to be 1
        assert cost[member].item() == pytest.approx((own + shared).item(), rel=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_weight_with_a_cost_has_an_effect(estimator: str):
    """The tensors that outputs depend on are those that the complexity pulls at, by its closed form."""
    text = f"gaussian:estimator={estimator},prior=gaussian_0.3"
    made, trace = population(text)
    own = {name: tensor.requires_grad_() for name, tensor in made.own.items()}
    family, noise = gaussian(text).in_network(trace), [Noise(0, i) for i in range(2)]
    x = torch.randn(2, 5, 2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    realised = family.realise(own, {}, noise, training=True)
    outputs = run_members(Structure(build().eval()), realised.with_buffers(made.buffers), x, noise, False)
    cost = family.complexity(own, {}, {}, noise)
    assert cost is not None
    for name in distribution_names(own):
        both = (own[name], own[name + STD_PARAM])
        gradients = torch.autograd.grad(outputs.square().sum(), both, retain_graph=True)
        assert all((slope.flatten(1).abs().amax(1) > 0).all() for slope in gradients), name
        std = nn.functional.softplus(both[1])
        expected = (both[0] / 0.09, (std / 0.09 - 1 / std) * torch.sigmoid(both[1]))
        torch.testing.assert_close(torch.autograd.grad(cost.sum(), both, retain_graph=True), expected)


def test_a_prior_may_have_a_centre_for_every_weight():
    text = "gaussian:where=0.weight,prior=gaussian_0.3"
    made, trace = population(text)
    centres = {"0.weight" + CENTRE: made.own["0.weight"].clone()}
    cost = gaussian(text).in_network(trace).complexity(made.own, {}, centres, [Noise(0, i) for i in range(2)])
    assert cost is not None
    std = nn.functional.softplus(made.own["0.weight:std_param"])
    expected = (math.log(0.3) - std.log() + std.square() / (2 * 0.09) - 0.5).flatten(1).sum(1)  # the means cost nothing
    torch.testing.assert_close(cost, expected, rtol=1e-12, atol=0)


def test_a_cost_found_by_draws_does_not_depend_on_who_is_in_the_group():
    text = "gaussian:prior=mixture_0.5_1_0.05"
    made, trace = population(text, "rank-one", members=3)
    family, noise = gaussian(text).in_network(trace), [Noise(0, i) for i in range(3)]
    together = family.complexity(made.own, made.shared, {}, noise)
    assert together is not None
    for i in range(3):
        mine = {name: tensor[i : i + 1] for name, tensor in made.own.items()}
        alone = family.complexity(mine, made.shared, {}, [Noise(0, i)])
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-12, atol=0)
    assert len({round(value, 6) for value in together.tolist()}) == 3


@pytest.mark.parametrize(
    ("std_param", "expected"),
    [("rho", 24 + 4 + 48 + 3), ("alpha", 24 + 4 + 48 + 3), ("alpha-channel", 4 + 4 + 3 + 3), ("alpha-layer", 4)],
)
def test_the_number_of_stored_standard_deviations(std_param: str, expected: int):
    made, _ = population(f"gaussian:std_param={std_param}")
    assert sum(t[0].numel() for name, t in made.own.items() if name.endswith(STD_PARAM)) == expected
    point = populate(lambda _: build(), 2)
    assert made.parameters_per_member() == point.parameters_per_member() + expected


@pytest.mark.parametrize(
    ("net", "counts"),
    [
        ("lenet5", (123_412, 124_012, 139_312)),
        ("alexnet", (4_320_916, 4_351_892, 4_375_112)),
        ("alexnet-half", (1_085_268, 1_100_756, 1_112_456)),
        ("three-conv-three-fc", (3_562_068, 3_565_268, 3_745_448)),
    ],
)
def test_bayesian_networks_have_twice_the_numbers(net: str, counts: tuple[int, ...]):
    """On MNIST, CIFAR-10 and CIFAR-100."""
    for shape, classes, count in zip(((1, 28, 28), (3, 32, 32), (3, 32, 32)), (10, 10, 100), counts, strict=True):
        module = net_source(net, shape, classes).build()
        made = populate(lambda _, module=module: module, 1)
        wide = gaussian("gaussian").init(
            made, trace_kernels(module, torch.zeros(1, *shape)), lambda _: torch.Generator()
        )
        assert wide.parameters_per_member() == 2 * made.parameters_per_member() == count


def test_a_draw_of_weights_does_not_depend_on_the_order_of_names():
    """Stored tensors come back in another order."""
    made, trace = population("gaussian")
    family, noise = gaussian("gaussian").in_network(trace), [Noise(0, i) for i in range(2)]
    first = family.realise(made.own, {}, noise).own
    turned = family.realise(dict(reversed(made.own.items())), {}, [Noise(0, i) for i in range(2)]).own
    assert all(torch.equal(first[name], turned[name]) for name in first)
