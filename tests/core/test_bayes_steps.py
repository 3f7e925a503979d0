"""Steps of Gaussian weights against plain torch on the same noise, finite differences, and a known posterior."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.func import functional_call

import murmuration as mm
from murmuration.core.dynamics.optimizer import make_optimizer
from murmuration.core.engines import assemble, engine
from murmuration.core.population import Named, populate
from murmuration.core.recipe import make_recipe
from murmuration.core.sharing import SHARING
from murmuration.core.state import Batch, NoiseStreams, State, StepConfig
from murmuration.core.step import step
from murmuration.core.update import Updater
from murmuration.core.weights import WEIGHTS, Structure, run_members, trace_kernels
from murmuration.core.weights.elbo import ELBO
from murmuration.core.weights.gaussian import STD_PARAM, Gaussian
from murmuration.data import Split
from murmuration.likelihoods import Categorical
from murmuration.system.option_text import parse
from murmuration.system.streams import Noise, many_normals
from murmuration.training.batches import epoch_batches

MEMBERS, INPUTS, CLASSES, EXAMPLES = 3, 5, 3, 8
ENGINES = [engine("stacked"), engine("stacked", direct=True), engine("threads"), engine("threads-stacked", direct=True)]
BOUND = ELBO(40, 5, 1, beta=0.7, kl_warmup=0.0)  # a weight of 0.7 / 40 at every step
SCALE = 0.4  # of the prior in references


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 4), nn.Tanh(), nn.Linear(4, CLASSES)).double()


def start(text: str, sharing: str = "own", momentum: float = 0.0) -> tuple[State, StepConfig]:
    torch.manual_seed(0)
    answer, weights = parse(sharing, "sharing", SHARING), parse(text, "weights", WEIGHTS)
    assert isinstance(weights, Gaussian)
    trace = trace_kernels(build(), torch.zeros(1, INPUTS, dtype=torch.float64))
    population = populate(lambda _: build(), MEMBERS, answer.predicate(build(), trace))
    population = answer.add_factors(population, trace, lambda i: torch.Generator().manual_seed(i))
    population = weights.init(population, trace, lambda _: torch.Generator())
    optimizer, active = make_optimizer("sgd", momentum=momentum), torch.ones(MEMBERS, dtype=torch.bool)
    state = State(
        population,
        optimizer.init(population.own),
        optimizer.init(population.shared),
        active,
        step=3,
        noise=NoiseStreams(5),
    )
    family = weights.in_network(trace, bias_inside=answer.bias_inside)
    bound = replace(BOUND, samples=weights.samples, reduction=weights.reduction, weighting=weights.weighting)
    return state, StepConfig(Categorical(CLASSES), family, None, Updater(optimizer), objective=bound)


def batch(lr: float = 1.0, size: int = EXAMPLES) -> Batch:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(MEMBERS, size, INPUTS, generator=generator, dtype=torch.float64)
    y = torch.randint(CLASSES, (MEMBERS, size), generator=generator)
    return Batch(lambda group: (x[group], y[group]), lr)


def moved(state: State, method: StepConfig, given: Batch, how=ENGINES[1]) -> tuple[Named, Tensor]:
    """How far one step carries every tensor, with its sign turned and by the learning rate; and the losses."""
    before = state.population.clone()
    with assemble(how, build()) as team:
        losses = step(team, method, state, given)
    after, first = state.population, {**before.own, **before.shared}
    return {n: (first[n] - t) / given.lr for n, t in {**after.own, **after.shared}.items()}, losses


def cost_by_torch(mine: Named) -> Tensor:
    """KL(q || N(centre, SCALE^2)) of one member's tensors."""
    total = torch.zeros((), dtype=torch.float64)
    for key in mine:
        if key.endswith(STD_PARAM):
            name = key.removesuffix(STD_PARAM)
            centre = torch.tensor(1.0 if name.endswith((":in", ":out")) else 0.0, dtype=torch.float64)
            q = Normal(mine[name], nn.functional.softplus(mine[key]))
            total = total + kl_divergence(q, Normal(centre, torch.tensor(SCALE, dtype=torch.float64))).sum()
    return total


def objective(method: StepConfig, own: Named, shared: Named, given: Batch) -> Tensor:
    """Mean NLL + weight KL of every member (M,): one pass with the noise of the step, complexity by torch."""
    noise = [Noise(5, i, 3) for i in range(MEMBERS)]
    x, y = given.fetch(slice(MEMBERS))
    realised = method.weights.realise(own, shared, noise, training=True)
    outputs = run_members(Structure(build()), realised, x, noise, direct=False)
    data = nn.functional.cross_entropy(outputs.movedim(-1, 1), y, reduction="none").mean(1)
    costs = [cost_by_torch({**{name: t[i] for name, t in own.items()}, **shared}) for i in range(MEMBERS)]
    return data + 0.7 / 40 * torch.stack(costs)


@pytest.mark.parametrize("sharing", ["own", "rank-one"])
@pytest.mark.parametrize("estimator", ["local", "draw", "flipout"])
@pytest.mark.parametrize("where", ["all", pytest.param("*", marks=pytest.mark.slow)])
def test_a_step_goes_down_mean_loss_plus_weighted_complexity(where: str, estimator: str, sharing: str):
    """Central differences along two random directions a tensor; shared tensors move by the mean over members."""
    state, method = start(f"gaussian:estimator={estimator},prior=gaussian_{SCALE},where={where}", sharing)
    own, shared, given = dict(state.population.clone().own), dict(state.population.clone().shared), batch()
    slopes, losses = moved(state, method, given)
    torch.testing.assert_close(losses.double(), objective(method, own, shared, given), rtol=1e-6, atol=0)
    generator = torch.Generator().manual_seed(2)
    for name in slopes:
        for _ in range(2):
            direction = torch.randn(slopes[name].shape, generator=generator, dtype=torch.float64)
            ends = []
            for sign in (1, -1):
                place = own if name in own else shared
                changed = {**place, name: place[name] + sign * 1e-5 * direction}
                ends.append(objective(method, *((changed, shared) if name in own else (own, changed)), given))
            difference = (ends[0] - ends[1]) / 2e-5  # (M,)
            expected = difference.sum() if name in own else difference.mean()
            assert (slopes[name] * direction).sum().item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-8), name


@pytest.mark.parametrize("reduction", ["elbo", "log-mean-exp"])
@pytest.mark.parametrize("samples", [1, 3])
def test_several_passes_a_step(samples: int, reduction: str):
    """Draws of weights, one after the other from a member's stream, in networks of plain torch."""
    text = f"gaussian:estimator=draw,prior=gaussian_{SCALE},samples={samples},reduction={reduction}"
    state, method = start(text)
    before, given = state.population.clone(), batch()
    slopes, losses = moved(state, method, given)
    x, y = given.fetch(slice(MEMBERS))
    for i in range(MEMBERS):
        mine = {name: tensor[i].requires_grad_() for name, tensor in before.clone().own.items()}
        noise, rows = Noise(5, i, 3), []
        for _ in range(samples):
            names, weights = sorted(name for name in mine if not name.endswith(STD_PARAM)), {}
            drawn = many_normals([noise], [mine[name].detach().unsqueeze(0) for name in names])
            for name, eps in zip(names, drawn, strict=True):
                weights[name] = mine[name] + nn.functional.softplus(mine[name + STD_PARAM]) * eps[0]
            rows.append(nn.functional.cross_entropy(functional_call(build(), weights, x[i]), y[i], reduction="none"))
        likelihoods = torch.stack(rows)  # (S, B)
        reduced = likelihoods.mean(0) if reduction == "elbo" else -(-likelihoods).exp().mean(0).log()
        loss = reduced.mean() + 0.7 / 40 * cost_by_torch(mine)
        assert losses[i].item() == pytest.approx(loss.item(), rel=1e-6)
        for name, slope in zip(mine, torch.autograd.grad(loss, list(mine.values())), strict=True):
            torch.testing.assert_close(slopes[name][i], slope, rtol=1e-9, atol=1e-12)


class Silent(Noise):
    """Normal numbers that are all zero."""

    def normal(self, like: Tensor, rough: bool = False) -> Tensor:
        return torch.zeros(like.shape, dtype=like.dtype)


@pytest.mark.parametrize("weighting", ["uniform", "blundell"])
def test_steps_of_an_epoch_add_up_to_the_whole_bound(weighting: str, monkeypatch):
    """The batches' size times their slopes is the slope of sum NLL + beta KL: the sum convention from the mean one."""
    monkeypatch.setattr("murmuration.core.state.Noise", Silent)
    total: dict[str, Any] = {}
    whole = batch(size=40)
    x, y = whole.fetch(slice(MEMBERS))
    for index in range(5):
        state, method = start(f"gaussian:prior=gaussian_{SCALE},weighting={weighting}")
        state.step, rows = index, slice(8 * index, 8 * index + 8)
        part = Batch(lambda group, rows=rows: (x[group, rows], y[group, rows]), 1.0)
        for name, slope in moved(state, method, part)[0].items():
            total[name] = total.get(name, 0) + 8 * slope
    population = start("gaussian")[0].population
    for i in range(MEMBERS):
        mine = {name: tensor[i].clone().requires_grad_() for name, tensor in population.own.items()}
        means = {name: tensor for name, tensor in mine.items() if not name.endswith(STD_PARAM)}
        loss = nn.functional.cross_entropy(functional_call(build(), means, x[i]), y[i], reduction="sum")
        slopes = torch.autograd.grad(loss + 0.7 * cost_by_torch(mine), list(mine.values()))
        for name, slope in zip(mine, slopes, strict=True):
            torch.testing.assert_close(total[name][i], slope, rtol=1e-9, atol=1e-9)


def test_every_convention_goes_down_the_same_slope(monkeypatch):
    """Mean NLL + beta / N KL by N is N mean NLL + beta KL, and by the batch's size sum NLL + beta / M KL."""
    monkeypatch.setattr("murmuration.core.state.Noise", Silent)
    state, method = start(f"gaussian:prior=gaussian_{SCALE}")
    population, given = state.population.clone(), batch()
    slopes, _ = moved(state, method, given)
    x, y = given.fetch(slice(MEMBERS))
    for i in range(MEMBERS):
        mine = {name: tensor[i].clone().requires_grad_() for name, tensor in population.own.items()}
        means = {name: tensor for name, tensor in mine.items() if not name.endswith(STD_PARAM)}
        each = nn.functional.cross_entropy(functional_call(build(), means, x[i]), y[i], reduction="none")
        cost = 0.7 * cost_by_torch(mine)
        for times, loss in ((40, 40 * each.mean() + cost), (EXAMPLES, each.sum() + cost / 5)):
            expected = torch.autograd.grad(loss, list(mine.values()), retain_graph=True)
            for name, slope in zip(mine, expected, strict=True):
                torch.testing.assert_close(times * slopes[name][i], slope, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("text", ["gaussian", "gaussian:estimator=flipout", "gaussian:estimator=draw,samples=2"])
@pytest.mark.parametrize("sharing", ["own", "rank-one", "rank-one-uv"])
def test_every_engine_makes_the_loop_s_step(sharing: str, text: str):
    """With a prior that is met by draws, too; 1e-10 is for float64."""
    text += (":" if ":" not in text else ",") + "prior=mixture_0.5_1_0.1,where=*"
    state, method = start(text, sharing)
    expected, losses = moved(state, method, batch(), engine("loop"))
    for how in ENGINES:
        found, others = moved(*start(text, sharing), batch(), how)
        torch.testing.assert_close(others, losses)
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-10, atol=1e-10, msg=f"{how.name}: {name}")


@pytest.mark.parametrize("decay", ["coupled", "decoupled"])
def test_weight_decay_leaves_spreads_alone(decay: str):
    text = "gaussian:where=*"
    plain, _ = moved(*start(text, "rank-one"), batch(0.1))
    state, method = start(text, "rank-one")
    before = {**state.population.clone().own, **state.population.clone().shared}
    optimizer = make_optimizer("sgd", momentum=0.0, weight_decay=0.3, decay=decay)
    decayed, _ = moved(state, replace(method, updater=Updater(optimizer)), batch(0.1))
    assert sum(name.endswith(STD_PARAM) for name in before) == 8
    for name, tensor in before.items():
        stays = name.endswith((STD_PARAM, ":in", ":out"))
        expected = plain[name] if stays else plain[name] + 0.3 * tensor
        torch.testing.assert_close(decayed[name], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("std_param", ["rho", "alpha", "alpha-channel", "alpha-layer"])
@pytest.mark.parametrize("prior", ["he", "learned", "ard", "log-uniform"])
def test_every_std_param_trains_under_every_prior(prior: str, std_param: str):
    """Biases begin at zero: there the cost of an alpha under a Gaussian prior is steep, and must stay finite."""
    state, method = start(f"gaussian:std_param={std_param},prior={prior}")
    for tensor in (state.population.own["0.bias"], state.population.own["2.bias"]):
        tensor.zero_()
    for _ in range(5):
        slopes, losses = moved(state, method, batch(0.01))
        assert losses.isfinite().all()
        assert all(slope.isfinite().all() for slope in slopes.values())
        assert all(slopes[name].abs().max() > 0 for name in slopes if name.endswith("weight" + STD_PARAM))
    assert not state.diverged


@pytest.mark.parametrize(
    ("way", "weighting", "size"),
    [
        ("local", "uniform", 3),
        pytest.param("draw,samples=3", "uniform", 3, marks=pytest.mark.slow),
        pytest.param("local", "blundell", 1, marks=pytest.mark.slow),
    ],
)
def test_training_finds_the_posterior_that_is_known(way: str, weighting: str, size: int):
    """One weight under N(0, 1), noise 0.5: N(1.024, 0.2^2). Members are independent runs, so their spread gives the
    standard error of their mean; 2e-3 is for the end of a schedule that is not infinitely long."""
    x, y = torch.tensor([[1.0], [2.0], [-1.0]]), torch.tensor([[0.9], [2.2], [-1.1]])
    weights = f"gaussian:estimator={way},prior=gaussian_1,beta=1,weighting={weighting},kl_warmup=0,init_std_ratio=3"
    lr = 0.1 if size == 3 else 0.03
    settings = {"members": 12, "epochs": 250, "batch_size": size, "optimizer": "sgd", "momentum": 0.0}
    recipe = make_recipe("deep-ensemble", weights=weights)
    net = nn.Linear(1, 1, bias=False)
    method = mm.Method(net, mm.Gaussian(0.5, (0.0,), (1.0,)), recipe, inputs=x, engine="stacked", **settings)
    state, plan = method.init(), mm.Plan(lr=lr, **settings)
    for epoch in range(250):
        batches = epoch_batches(Split(x, y), plan, epoch, "cosine")  # of the members' own
        for index in range(3 // size):
            inputs, targets = batches(index).fetch(slice(12))
            method.step(state, list(inputs), list(targets), lr=batches(index).lr)
    own = method.ensemble(state).groups[0].population.own
    mean, std = own["weight"].flatten(), nn.functional.softplus(own["weight:std_param"]).flatten()
    for values, expected in ((mean, 1.024), (std, 0.2)):
        error = values.std().item() / 12**0.5
        assert error < 8e-3  # the reversed divergence would end at a std of 0.507
        assert abs(values.mean().item() - expected) < 4 * error + 2e-3
