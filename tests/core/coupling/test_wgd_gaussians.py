"""Wasserstein gradient descent on Gaussians: particles whose equilibria are known in closed form."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from murmuration.core.coupling.estimators import ESTIMATORS, gradient_mixing

Score = Callable[[Tensor], Tensor]


def particles(members: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(members, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def velocity(x: Tensor, score: Score, force: str, bandwidth: str) -> Tensor:
    """Ascent directions (M, R) of particles x (M, R)."""
    drive = gradient_mixing(x.unsqueeze(1), bandwidth) @ score(x) if force == "svgd" else score(x)
    return drive - ESTIMATORS[force](x.unsqueeze(1), bandwidth).cotangents[:, 0]


def flow(x: Tensor, score: Score, force: str, bandwidth: str, *, step: float, steps: int) -> Tensor:
    for _ in range(steps):
        x = x + step * velocity(x, score, force, bandwidth)
    return x


def standard(x: Tensor) -> Tensor:
    """The score of N(0, I)."""
    return -x


@pytest.mark.parametrize("force", ESTIMATORS)
def test_one_particle_climbs_alone(force: str):
    x = particles(1, 3)
    for bandwidth in ("rde", "off", "code", "fixed:0.5"):
        assert torch.equal(velocity(x, standard, force, bandwidth), -x)


@pytest.mark.parametrize(
    ("bandwidth", "sigma", "place"),
    [
        (f"fixed:{math.sqrt(0.5)}", 1.0, 0.5240735370),
        ("rde", 1.0, 0.4687456216),
        ("all", 1.0, 0.5265537695),
        ("rde", 2.0, 2 * math.sqrt(math.log(3) / 5)),
        (f"fixed:{math.sqrt(2.0)}", 2.0, math.sqrt(math.log(3))),  # (l²/2) ln((2 sigma² - l²) / l²)
    ],
)
def test_two_particles_in_one_dimension(bandwidth: str, sigma: float, place: float):
    x = torch.tensor([[-0.2], [0.3]], dtype=torch.float64)
    x = flow(x, lambda x: -x / sigma**2, "kde", bandwidth, step=0.3 * sigma**2, steps=200)
    torch.testing.assert_close(x.flatten(), place * torch.tensor([-1.0, 1.0], dtype=torch.float64), rtol=0, atol=6e-11)


def test_two_particles_collapse_under_a_kernel_wider_than_the_target():
    x = torch.tensor([[-0.2], [0.3]], dtype=torch.float64)
    x = flow(x, standard, "kde", "fixed:1.1", step=0.3, steps=400)
    assert x.abs().max() < 1e-6


@pytest.mark.parametrize(
    ("members", "width", "steps"), [(3, 2, 150), (5, 4, 150), (5, 10, 150), (10, 50, 200), (50, 100, 300)]
)
def test_few_particles_in_many_dimensions_form_a_simplex(members: int, width: int, steps: int):
    sigma = 1.5
    x = flow(particles(members, width), lambda x: -x / sigma**2, "kde", "rde", step=0.8 * sigma**2, steps=steps)
    squared = (x[:, None] - x[None]).square().sum(-1)[~torch.eye(members, dtype=torch.bool)] / sigma**2
    radii = x.square().sum(1) / sigma**2
    torch.testing.assert_close(squared, torch.full_like(squared, math.log(members + 1)), rtol=0, atol=5e-14)
    torch.testing.assert_close(
        radii, torch.full_like(radii, (1 - 1 / members) * math.log(members + 1) / 2), rtol=0, atol=5e-14
    )
    if members == 50:  # the spread in weight space is a fiftieth of the posterior's
        assert radii[0].item() / width == pytest.approx(0.019266, abs=1e-6)


@pytest.mark.parametrize(("square", "seen"), [(0.05, 0.923), (0.1, 0.884), (0.3, 0.696)])
def test_many_particles_lack_the_kernel_width_in_variance(square: float, seen: float):
    x = flow(particles(200, 1), standard, "kde", f"fixed:{math.sqrt(square)}", step=0.1, steps=300)
    variance = x.var(correction=0).item()
    assert variance == pytest.approx(1 - square, abs=0.15)  # the limit of infinitely many
    assert variance == pytest.approx(seen, abs=0.004)  # of 200, elsewhere integrated with a step of 0.02


def test_many_particles_lack_the_kernel_width_in_covariance():
    target = torch.tensor([[2.0, 0.6], [0.6, 1.0]], dtype=torch.float64)
    precision = torch.linalg.inv(target)
    x = flow(particles(200, 2), lambda x: -x @ precision, "kde", f"fixed:{math.sqrt(0.2)}", step=0.1, steps=400)
    covariance = torch.cov(x.mT, correction=0)
    limit = target - 0.2 * torch.eye(2, dtype=torch.float64)
    torch.testing.assert_close(covariance, limit, rtol=0, atol=0.15)
    seen = torch.tensor([[1.677, 0.557], [0.557, 0.747]], dtype=torch.float64)
    torch.testing.assert_close(covariance, seen, rtol=0, atol=0.003)
    assert x.mean(0).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("force", "variance", "step", "steps"),
    [("kde", 0.878, 0.1, 150), ("svgd", 0.963, 1.0, 120), ("sge", 0.962, 0.02, 300), ("ssge", 0.960, 0.02, 200)],
)
def test_variances_under_the_median_bandwidth(force: str, variance: float, step: float, steps: int):
    x = flow(particles(100, 1), standard, force, "rde", step=step, steps=steps)
    assert x.var(correction=0).item() == pytest.approx(variance, abs=0.05)
    assert velocity(x, standard, force, "rde").abs().max() < 0.05  # and there they rest


@pytest.mark.slow
@pytest.mark.parametrize(("force", "variance"), [("sge", 1.287), ("ssge", 1.248)])
def test_steps_too_long_for_the_inverse_kernel_spread_particles_too_far(force: str, variance: float):
    # Along what the kernel hardly sees, (K + eta I)^-1 is as stiff as 1/eta: with a step of 0.05 the particles never
    # rest, and their variance looks like 1.3 where the equilibrium of the same flow is 0.96. It is a mean over time.
    x, variances = particles(100, 1), []
    for _ in range(400):
        x = x + 0.05 * velocity(x, standard, force, "rde")
        variances.append(x.var(correction=0).item())
    assert sum(variances[150:]) / 250 == pytest.approx(variance, abs=0.05)
    assert velocity(x, standard, force, "rde").abs().max() > 1


def test_net_repulsion():
    t = particles(6, 3).unsqueeze(1)
    for bandwidth in ("rde", "all", "off", "fixed:0.9"):
        assert ESTIMATORS["svgd"](t, bandwidth).cotangents.sum(0).abs().max() < 1e-14
        assert (
            ESTIMATORS["blob"](t, bandwidth).cotangents.sum(0).abs().max() < 1e-14
        )  # its pair weights are symmetric too
        assert ESTIMATORS["kde"](t, bandwidth).cotangents.sum(0).abs().max() > 1e-3


def test_forces_push_apart():
    t = torch.tensor([[[0.0]], [[1.0]]], dtype=torch.float64)
    for name, force in ESTIMATORS.items():
        low, high = force(t, "rde").cotangents.flatten().tolist()
        assert low > 0 > high, name  # descended: the lower one goes down


@pytest.mark.parametrize("force", ["kde", "sge", "ssge", "blob"])
def test_kernels_that_see_nobody_or_everybody_leave_the_members_alone(force: str):
    x = particles(5, 2)
    torch.testing.assert_close(velocity(x, standard, force, "fixed:0.001"), -x, rtol=0, atol=1e-12)
    if force in ("kde", "blob"):
        torch.testing.assert_close(velocity(x, standard, force, "fixed:1e6"), -x, rtol=0, atol=1e-10)


def test_svgd_between_its_limits():
    x = particles(5, 2)
    torch.testing.assert_close(velocity(x, standard, "svgd", "fixed:0.001"), -x / 5, rtol=0, atol=1e-12)
    together = -x.mean(0, keepdim=True).expand_as(x)
    torch.testing.assert_close(velocity(x, standard, "svgd", "fixed:1e6"), together, rtol=0, atol=1e-10)
