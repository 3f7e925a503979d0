"""Cyclical SG-MCMC: schedule, noise, stationary distribution, collected points."""

import math

import pytest
import torch
from populations import population, states, streams, walk

from murmuration.core.dynamics import CyclicalSgmcmc, Snapshot, StepTime, TrainTime, learning_rate_factor
from murmuration.core.dynamics.base import keep_times
from murmuration.core.dynamics.cycles import Langevin
from murmuration.core.dynamics.optimizer import make_optimizer
from murmuration.system.errors import Misuse

END = TrainTime(400, 20, 20)
ALWAYS = CyclicalSgmcmc(cycles=1, sampling=1.0, lr_multiplier=1.0, examples=50)


def normal_draws(seed: int):
    generator = torch.Generator().manual_seed(seed)
    return lambda likes: [torch.randn(like.shape, generator=generator, dtype=like.dtype) for like in likes]


def run_chain(chain: CyclicalSgmcmc, curvature: float, lr: float, *, count: int, steps: int) -> torch.Tensor:
    """Points (count,) of independent chains on curvature/2 w^2 after some steps."""
    rule, weight = Langevin(chain), torch.zeros(count, dtype=torch.float64)
    velocity, draw = torch.zeros_like(weight), normal_draws(0)
    for step in range(steps):
        when = StepTime(lr, step, TrainTime(step, steps, 1), draw)
        rule.update([weight], [curvature * weight], [[velocity]], when)
    return weight


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_the_stationary_variance_of_sgld_on_a_quadratic_is_exact(temperature):
    """Oracle: 2 T / (N L (2 - lr L)) of the discrete chain; 4 standard errors of a variance."""
    from dataclasses import replace

    lr, curvature, count = 0.3, 2.0, 20000
    chain = replace(ALWAYS, temperature=temperature)
    found = run_chain(chain, curvature, lr, count=count, steps=60).var(correction=0).item()
    exact = 2 * temperature / (chain.examples * curvature * (2 - lr * curvature))
    assert found == pytest.approx(exact, rel=4 * math.sqrt(2 / count))


def test_the_stationary_variance_of_sghmc_is_near_the_posterior_s():
    """The lag-one recursion of (w, v) solved exactly, as a second derivation."""
    from dataclasses import replace

    lr, curvature, a, count = 0.05, 2.0, 0.5, 20000
    chain = replace(ALWAYS, friction=a)
    noise = 2 * a * lr / chain.examples
    step = torch.tensor([[1 - lr * curvature, 1 - a], [-lr * curvature, 1 - a]], dtype=torch.float64)  # (w, v)
    q = noise * torch.ones(2, 2, dtype=torch.float64)
    system = torch.eye(4, dtype=torch.float64) - torch.kron(step, step)
    exact = torch.linalg.solve(system, q.flatten())[0].item()
    found = run_chain(chain, curvature, lr, count=count, steps=200).var(correction=0).item()
    assert found == pytest.approx(exact, rel=4 * math.sqrt(2 / count))
    assert exact == pytest.approx(1 / (chain.examples * curvature), rel=0.1)  # the posterior's, for a small lr


def test_noise_has_the_stated_variance_and_only_in_the_sampling_part():
    chain = CyclicalSgmcmc(cycles=4, sampling=0.2, friction=0.9, temperature=0.5, lr_multiplier=2.0, examples=100)
    count, lr = 50000, 0.01
    for step in range(0, 100):
        noisy = chain.noisy(TrainTime(step, 100, 1))
        assert noisy == (step % 25 >= 20)
    weight, velocity = torch.zeros(count), torch.zeros(count)
    gradient = torch.full((count,), 3.0)
    quiet = StepTime(lr, 0, TrainTime(0, 100, 1), normal_draws(1))
    Langevin(chain).update([weight], [gradient], [[velocity]], quiet)
    assert torch.equal(weight, torch.full((count,), -2 * lr * 3.0))  # exploration: plain gradient descent
    loud = StepTime(lr, 0, TrainTime(22, 100, 1), normal_draws(1))
    before = weight.clone()
    Langevin(chain).update([weight], [torch.zeros(count)], [[torch.zeros(count)]], loud)
    variance = 2 * 0.9 * (2 * lr) * 0.5 / 100
    assert (weight - before).var().item() == pytest.approx(variance, rel=4 * math.sqrt(2 / count))


def test_without_noise_sghmc_is_torch_s_sgd_with_momentum():
    chain = CyclicalSgmcmc(friction=0.3, temperature=0.0, lr_multiplier=1.0, examples=10)
    target = torch.randn(6, generator=torch.Generator().manual_seed(0))
    weight, velocity = torch.zeros(6), torch.zeros(6)
    reference = torch.nn.Parameter(torch.zeros(6))
    optimizer = torch.optim.SGD([reference], lr=0.05, momentum=0.7, weight_decay=0.1)
    for step in range(12):
        rule = chain.rule(make_optimizer("sgd", weight_decay=0.1, decay="coupled"))
        rule.update([weight], [weight - target], [[velocity]], StepTime(0.05, step, END, normal_draws(0)))
        reference.grad = reference.detach() - target
        optimizer.step()
    torch.testing.assert_close(weight, reference.detach(), rtol=1e-5, atol=1e-6)


def test_the_schedule_is_cyclical_and_restarts():
    schedule = CyclicalSgmcmc(cycles=4).schedule()
    factor = [learning_rate_factor(schedule, END.at(step)) for step in range(400)]
    assert factor[0] == factor[100] == 1.0
    assert factor[50] == pytest.approx(0.5)
    assert min(factor) >= 0


def test_points_are_collected_in_the_sampling_part_and_at_cycle_ends():
    chain = CyclicalSgmcmc(cycles=4, samples=2, sampling=0.2)
    times = keep_times(chain, END)
    assert times == [90, 100, 190, 200, 290, 300, 390, 400]
    assert all(chain.noisy(END.at(time - 1)) for time in times)
    assert keep_times(Snapshot(cycles=4), END) == [100, 200, 300, 400]
    assert chain.copies(END) == 8


def test_points_become_members_in_their_order():
    points = states(3, members=2)
    for dynamics in (Snapshot(cycles=3), CyclicalSgmcmc(cycles=3, samples=1)):
        found, origins = dynamics.finish(walk(dynamics, points), points[-1], streams)
        assert torch.equal(found.own["w"], torch.cat([point.own["w"] for point in points]))
        assert origins.tolist() == [0, 1] * 3


def test_points_with_shared_tensors_get_copies_of_their_own():
    points = [population(torch.full((2, 1), float(i)), torch.tensor([float(i)])) for i in range(3)]
    found, _ = Snapshot(cycles=3).finish(walk(Snapshot(cycles=3), points), points[-1], streams)
    assert not found.shared
    assert found.own["s"].flatten().tolist() == [0, 0, 1, 1, 2, 2]


def test_members_that_stopped_leave_the_points_they_reached():
    points = states(3)
    rows = lambda index: torch.tensor([0, 1] if index == 0 else [1])  # noqa: E731
    _, origins = Snapshot(cycles=3).finish(walk(Snapshot(cycles=3), points, rows), points[-1], streams)
    assert origins.tolist() == [0, 1, 1, 1]
    never, origins = Snapshot(cycles=3).finish(
        walk(Snapshot(), points, lambda i: torch.tensor([1])), points[-1], streams
    )
    assert origins.tolist() == [1, 1, 1, 0]
    assert torch.equal(never.own["w"][3], points[-1].own["w"][0])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"schedule": "constant"}, "schedule constant with dynamics csgmcmc: its cycles are the schedule cyclic:4"),
        ({"own_rule": True}, "an optimizer with dynamics csgmcmc"),
        ({"stochastic": True}, "csgmcmc with random weights"),
        ({"early": True}, "stopping early with dynamics csgmcmc"),
        ({"total": TrainTime(5, 5, 1)}, "cycles=12 of dynamics csgmcmc in 5 steps"),
    ],
)
def test_settings_that_would_be_overridden_are_refused(asked, message):
    usual = {"total": END, "stochastic": False, "schedule": None, "own_rule": False, "early": False}
    CyclicalSgmcmc().check(**usual)
    with pytest.raises(Misuse, match=message):
        CyclicalSgmcmc().check(**{**usual, **asked})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cycles": 0}, "cycles=0"),
        ({"friction": 0.0}, "friction=0.0: need numbers above 0"),
        ({"sampling": 1.5}, "sampling=1.5"),
        ({"temperature": -1.0}, "temperature=-1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(Misuse, match=message):
        CyclicalSgmcmc(**settings)
