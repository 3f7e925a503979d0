"""IVON against one step by hand, its published update on random gradients, and posteriors that are known."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.dynamics import DYNAMICS, Ivon, StepTime, TrainTime, learning_rate_factor
from murmuration.core.population import Population
from murmuration.core.recipe import Recipe, make_recipe
from murmuration.data import Data, open_data
from murmuration.system.errors import Misuse
from murmuration.system.option_text import parse
from murmuration.training.batches import epoch_batches
from murmuration.training.plan import Plan

WEIGHTS = "gaussian:estimator=draw,std_param=std,beta=0"


def chosen(text: str, examples: int) -> Ivon:
    found = parse(text, "dynamics", DYNAMICS).prepare(examples)
    assert isinstance(found, Ivon)
    return found


def at(lr: float, updates: int) -> StepTime:
    return StepTime(lr, updates, TrainTime(updates, 1, 1), lambda likes: [])


def curvature(std: Tensor, ivon: Ivon) -> Tensor:
    """h of weights with these standard deviations."""
    return 1 / (ivon.ess * std.square()) - ivon.decay


def test_one_step_by_hand():
    ivon = chosen("ivon:decay=0.1,hess_lr=0.01,hess_init=1,clip=inf", 100)
    mean, std = torch.ones(1, dtype=torch.float64), torch.full((1,), ivon.initial_std(), dtype=torch.float64)
    assert std.item() == pytest.approx(0.0953463, abs=5e-8)
    slope, eps = torch.tensor([0.5], dtype=torch.float64), 1.0
    assert (slope * eps / std).item() == pytest.approx(5.2440442, abs=5e-8)
    ivon.update([mean, std], [slope, slope * eps], [[torch.zeros_like(mean)]], at(0.1, 0))
    assert curvature(std, ivon).item() == pytest.approx(1.0432592, abs=5e-8)
    assert mean.item() == pytest.approx(0.9422703, abs=5e-8)


def published(ivon: Ivon, state: list[Tensor], slope: Tensor, eps: Tensor, lr: float, taken: int) -> list[Tensor]:
    """The update as it is printed, on mean, m and h."""
    mean, m, h = state
    total, b1, b2 = h + ivon.decay, ivon.momentum, 1 - ivon.hess_lr
    f = ivon.ess * (eps / (ivon.ess * total).sqrt()) * slope * total
    h = b2 * h + (1 - b2) * f + (1 - b2) ** 2 * (h - f) ** 2 / (2 * total)
    m = b1 * m + (1 - b1) * slope
    along = (m / (1 - b1 ** (taken + 1)) + ivon.decay * mean) / (h + ivon.decay)
    first = 1 / (ivon.ess * ivon.initial_std() ** 2)  # h0 + d
    return [mean - lr * first * along.clamp(-ivon.clip / first, ivon.clip / first), m, h]


@pytest.mark.parametrize(
    "text", ["ivon:clip=inf", "ivon:hess_lr=0.1,decay=0.02,hess_init=1", "ivon:clip=0.3,std=0.2,ess=7"]
)
def test_steps_are_the_published_ones(text: str):
    ivon, generator = chosen(text, 50), torch.Generator().manual_seed(0)
    mean = torch.randn(3, 4, 5, generator=generator, dtype=torch.float64)
    std, momentum = torch.full_like(mean, ivon.initial_std()), torch.zeros_like(mean)
    state = [mean.clone(), momentum.clone(), curvature(std, ivon)]
    for taken in range(20):
        slope, eps = (torch.randn(mean.shape, generator=generator, dtype=torch.float64) for _ in range(2))
        state = published(ivon, state, slope, eps, 0.1, taken)
        ivon.update([mean, std], [slope, slope * eps], [[momentum]], at(0.1, taken))
    for found, expected in zip((mean, momentum, curvature(std, ivon)), state, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("hess_lr", [1e-5, 0.01, 0.9])
def test_curvature_at_most_halves_and_stays_positive(hess_lr: float):
    """In float32, for gradients over thirty orders of magnitude; 1e-6 is a dozen roundings."""
    ivon, generator = replace(Ivon(), hess_lr=hess_lr, ess=1000.0), torch.Generator().manual_seed(0)
    std, mean = torch.full((4000,), ivon.initial_std()), torch.zeros(4000)
    for taken in range(30):
        before = std.clone()
        wild = torch.randn(4000, generator=generator) * 10 ** (30 * torch.rand(4000, generator=generator) - 20)
        ivon.update([mean, std], [torch.zeros(4000), wild], [[torch.zeros(4000)]], at(0.1, taken))
        assert std.isfinite().all()
        assert (std > 0).all()
        assert (std <= before * math.sqrt(2) * (1 + 1e-6)).all()


def test_many_small_steps_in_float32_do_not_drift():
    """With f half of the first h, h goes to it by (1 - b2) of the way at each step; within 1 % after many steps."""
    ivon = replace(Ivon(), ess=1000.0, hess_lr=1e-4, hess_init=1.0)
    std = torch.full((10,), ivon.initial_std())
    for taken in range(5000):
        ivon.update([torch.zeros(10), std], [torch.zeros(10), 0.5 * std], [[torch.zeros(10)]], at(0.1, taken))
    expected = 0.5 + 0.5 * (1 - ivon.hess_lr) ** 5000  # the correction adds less than (1 - b2) / 2 of it
    torch.testing.assert_close(curvature(std, ivon), torch.full((10,), expected), rtol=1e-2, atol=0)


def test_it_finds_the_best_factorised_posterior_of_a_linear_model():
    """Noise 1, prior N(0, 1 / (N d)): the mean is the posterior's, variances are 1 / its precisions' diagonal.

    400 chains give standard errors; what is left is of the order of `hess_lr`, by which the correction of h biases it.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 3, generator=generator, dtype=torch.float64) @ torch.tensor(
        [[1.0, 0.6, 0.0], [0.0, 0.8, 0.3], [0.0, 0.0, 1.5]], dtype=torch.float64
    )
    y = x @ torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64)
    y = y + torch.randn(30, generator=generator, dtype=torch.float64)
    ivon = chosen("ivon:decay=0.05,hess_lr=0.002,hess_init=1,clip=inf", 30)
    precision = x.T @ x + 30 * 0.05 * torch.eye(3, dtype=torch.float64)
    mean = torch.zeros(400, 3, dtype=torch.float64)
    std, momentum = torch.full_like(mean, ivon.initial_std()), torch.zeros_like(mean)
    for taken in range(2500):
        eps = torch.randn(mean.shape, generator=generator, dtype=torch.float64)
        slope = ((mean + std * eps) @ x.T - y) @ x / 30  # of the mean loss
        ivon.update([mean, std], [slope, slope * eps], [[momentum]], at(0.1 * (1 - taken / 2500), taken))
    variance = std.square()
    for found, expected in ((mean, torch.linalg.solve(precision, x.T @ y)), (variance, 1 / precision.diagonal())):
        error = found.std(0) / 20
        assert ((found.mean(0) - expected).abs() < 4 * error + 3e-3 * expected.abs()).all()


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["draw", "local"])
def test_training_finds_the_posterior_that_is_known(estimator: str):
    """One weight under N(0, 1) = N(0, 1 / (3 d)), noise 0.5: N(1.024, 0.2^2), at falling learning rates."""
    x, y = torch.tensor([[1.0], [2.0], [-1.0]]), torch.tensor([[0.9], [2.2], [-1.1]])
    answers = make_recipe(
        Recipe("known"),
        weights=WEIGHTS.replace("draw", estimator),
        dynamics=f"ivon:decay={1 / 3},hess_lr=0.01,hess_init=1,clip=inf",
    )
    settings = {"members": 24, "epochs": 300, "batch_size": 3, "engine": "stacked"}
    method = mm.Method(nn.Linear(1, 1, bias=False), mm.Gaussian(0.5, (0.0,), (1.0,)), answers, inputs=x, **settings)
    state = method.init()
    for step in range(300):
        method.step(state, x, y, lr=0.005 * learning_rate_factor("cosine", TrainTime(step, 1, 300)))
    own = method.ensemble(state).groups[0].population.own
    for values, expected in ((own["weight"], 1.024), (own["weight:std_param"], 0.2)):
        error = values.std().item() / 24**0.5
        assert error < 8e-3
        assert abs(values.mean().item() - expected) < 4 * error + 4e-3


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:160], digits.train.y[:160]))


def stepped(data: Data, recipe: Recipe, engine: str, lr: float = 1e-3, **settings) -> tuple[Any, Population]:
    """The state after one step on batches of the members' own, and the members before."""
    settings |= {"engine": engine, "epochs": 1}
    method = mm.Method(Normalised, mm.Categorical(10), recipe, inputs=data.train.prepared, **settings)
    state, plan = method.init(), Plan(**settings)
    first, (x, y) = state.population.clone(), epoch_batches(data.train, plan, 0)(0).fetch(slice(plan.members))
    method.step(state, list(x), list(y), lr=lr)
    assert method.engine is not None
    assert method.engine.name == engine
    return state, first


def test_numbers_among_distributions_move_by_the_plan_s_optimizer(little: Data):
    """Adam's first step is the learning rate along the sign of the gradient; IVON's is h0 g / h times lr_multiplier."""
    recipe = make_recipe(Recipe("it"), weights=WEIGHTS, dynamics="ivon")
    state, first = stepped(little, recipe, "stacked", members=2, batch_size=32)
    assert set(state.opt_state["momentum"]) == {"body.1.weight", "body.1.bias", "head.weight", "head.bias"}
    assert set(state.opt_state["mean"]) == set(state.opt_state["square"]) == {"body.2.weight", "body.2.bias"}
    assert all((t - 0.01).abs().max() < 1e-8 for name, t in first.own.items() if name.endswith(":std_param"))
    moved = {name: tensor - first.own[name] for name, tensor in state.population.own.items()}
    for name in ("body.2.weight", "body.2.bias"):
        torch.testing.assert_close(moved[name].abs(), torch.full_like(moved[name], 1e-3), rtol=1e-3, atol=1e-6)
    assert all(moved[name].abs().max() > 0 for name in moved)
    slope = state.opt_state["momentum"]["head.weight"] / 0.1
    along = slope + 1e-4 * first.own["head.weight"]
    torch.testing.assert_close(moved["head.weight"], -20e-3 * along.clamp(-0.03, 0.03), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("how", ["loop", "stacked", "threads", "threads-stacked"])
def test_shared_distributions_move_by_the_mean_of_what_members_saw(how: str, little: Data):
    """One step of kernels that all share: f and g are means over the members' own batches and draws."""
    answers = make_recipe(Recipe("it"), sharing="rank-one", weights=WEIGHTS, dynamics="ivon:hess_lr=0.1")

    def tensors(engine: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        settings = {"members": 3, "batch_size": 16, "optimizer": "sgd"}
        state, first = stepped(little, answers, engine, lr=0.01, **settings)
        population = state.population
        return {**population.shared, **state.shared_opt_state["momentum"], **population.own}, first.shared

    (found, first), (loop, _) = tensors(how), tensors("loop")
    assert {"head.weight", "head.weight:std_param"} <= set(first)
    assert not torch.equal(found["head.weight:std_param"], first["head.weight:std_param"])
    for name, tensor in loop.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


def test_a_last_layer_alone_can_move_so(little: Data):
    answers = make_recipe("ivon", weights=f"{WEIGHTS},where=last")
    ensemble = mm.fit("mlp", little, recipe=answers, plan=Plan(epochs=8, engine="loop"), posthoc=None)
    spreads = [name for name in ensemble.groups[0].population.own if name.endswith(":std_param")]
    assert spreads == ["head.weight:std_param", "head.bias:std_param"]
    assert ensemble.history[-1]["train_loss"][0] < 0.7 * ensemble.history[0]["train_loss"][0]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"dynamics": "ivonn"}, "unknown answer to --dynamics 'ivonn': did you mean 'ivon'"),
        ({"dynamics": "optimizer:decay=1"}, "optimizer has no settings; write optimizer"),
        ({"dynamics": "ivon:decay=0"}, "decay=0.0: need a positive number such as 0.0001"),
        ({"dynamics": "ivon:lr_multiplier=inf"}, "lr_multiplier=inf: need a positive number such as 20"),
        ({"dynamics": "ivon:momentum=1"}, "momentum=1.0, hess_lr=1e-05: need numbers below 1"),
        ({"dynamics": "ivon:ess=-5"}, "ess=-5.0, hess_init=0.0: need numbers that are not negative; 0 for the usual"),
        ({"weights": "point"}, "weights point with a dynamics that moves standard deviations: they have none"),
        (
            {"weights": "gaussian"},
            "whose decay is the prior, around 0: write weights gaussian:estimator=draw,std_param=std,beta=0",
        ),
        ({"weights": "gaussian:std_param=std"}, "write weights gaussian:estimator=draw,std_param=std,beta=0"),
        ({"weights": f"{WEIGHTS},where=factors"}, "whose decay is the prior, around 0"),
        (
            {"weights": f"{WEIGHTS},init_std_ratio=0.3"},
            "a dynamics that sets the first standard deviations, around fresh weights",
        ),
        ({"weights": f"{WEIGHTS},init_from=yes"}, "leave init_std_ratio and init_from out"),
        ({"dynamics": "optimizer"}, "std_param=std with a dynamics that may make it negative: write std_param=rho"),
    ],
)
def test_every_wrong_request_is_one_line(answers: dict[str, str], message: str):
    with pytest.raises(Misuse) as caught:
        make_recipe("ivon", **answers)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_factors_that_would_be_pulled_to_zero_are_refused(little: Data):
    answers = make_recipe(Recipe("it"), sharing="rank-one", weights=f"{WEIGHTS},where=*", dynamics="ivon")
    with pytest.raises(Misuse, match=r"where=\* makes factors distributions, and ivon would pull them to 0: write all"):
        mm.fit("mlp", little, recipe=answers, members=2, epochs=1, posthoc=None)
