"""Standard deviations, priors and what they cost, against closed forms, torch's distributions and sampling."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from murmuration.core.weights.gaussian import STD_PARAMS, softplus_inverse, std_from, std_to_param, stored_shape
from murmuration.core.weights.kernel_trace import Kernel, fan_in, trace_kernels
from murmuration.core.weights.priors import Prior, WeightTensor, gaussian_kl, log_normal, mixture_log_density
from murmuration.system.errors import Misuse

DRAWS = 200_000


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def normal(like: Tensor) -> Tensor:
    return drawn(*like.shape, seed=7)


def test_softplus_of_rho():
    rho = numbers(-10, -7, -5, -3, 0, 1000)
    expected = numbers(4.539890e-5, 9.114665e-4, 6.715348e-3, 4.858735e-2, 0.693147, 1000)
    torch.testing.assert_close(std_from("rho", rho, rho), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(std_from("rho", softplus_inverse(expected), rho), expected, rtol=1e-12, atol=0)


def test_the_direction_of_the_divergence():
    """The swapped call gives another number: 1.443147."""
    found = gaussian_kl(numbers(0.3), numbers(0.2), 0.0, 0.1)
    assert found.item() == pytest.approx(5.306853, abs=5e-7)
    assert gaussian_kl(numbers(0.0), numbers(0.1), 0.3, 0.2).item() == pytest.approx(1.443147, abs=5e-7)
    mean, std = drawn(50), drawn(50, seed=1).exp()
    theirs = kl_divergence(
        Normal(mean, std), Normal(torch.zeros((), dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64))
    )
    torch.testing.assert_close(gaussian_kl(mean, std, 0.0, 0.7), theirs, rtol=1e-12, atol=1e-12)
    assert gaussian_kl(mean, std, mean, std).abs().max() < 1e-15
    assert (gaussian_kl(mean, std, drawn(50, seed=2), drawn(50, seed=3).exp()) >= 0).all()


def test_without_data_the_std_becomes_the_prior_s():
    """The reverse divergence would end at sqrt(0.1^2 + 0.5^2) = 0.5099."""
    rho = softplus_inverse(numbers(0.3)).requires_grad_()
    optimiser = torch.optim.LBFGS([rho], max_iter=100, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        cost = Prior.parse("gaussian_0.1").cost(WeightTensor(numbers(0.5)), std_from("rho", rho, rho), normal).sum()
        cost.backward()
        return cost

    optimiser.step(loss)
    assert std_from("rho", rho, rho).item() == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize(("mean", "std"), [(0.3, 0.2), (-1.0, 0.05), (0.0, 1.5)])
def test_draws_agree_with_the_closed_form(mean, std):
    """One Gaussian as a mixture of two equal ones: by draws, within three standard errors of the closed form."""
    means, stds = torch.full((DRAWS,), mean, dtype=torch.float64), torch.full((DRAWS,), std, dtype=torch.float64)
    each = Prior.parse("mixture_0.5_0.7_0.7").cost(WeightTensor(means), stds, normal)
    exact = gaussian_kl(numbers(mean), numbers(std), 0.0, 0.7).item()
    assert abs(each.mean().item() - exact) < 3 * each.std().item() / math.sqrt(DRAWS)
    eps = normal(means)
    plain = log_normal(eps, 1.0) - stds.log() - log_normal(means + stds * eps, 0.7)
    torch.testing.assert_close(each, plain, rtol=1e-12, atol=1e-12)


def test_mixture_density():
    found = mixture_log_density(numbers(0, 0.01, 0.1, 1), 0.5, 1.0, math.exp(-6))
    torch.testing.assert_close(found, numbers(4.390390, -1.500660, -1.617086, -2.112086), rtol=0, atol=5e-7)
    assert mixture_log_density(numbers(50.0), 0.5, 1.0, math.exp(-6)).isfinite()
    grid = torch.linspace(-8, 8, 400_001, dtype=torch.float64)
    mass = torch.trapezoid(mixture_log_density(grid, 0.25, 1.0, 0.05).exp(), grid)
    assert mass.item() == pytest.approx(1, abs=1e-9)


def ard_kl(mean: Tensor, std: Tensor) -> Tensor:
    return Prior.parse("ard").cost(WeightTensor(mean), std, normal)


def log_uniform_kl(log_alpha: Tensor) -> Tensor:
    return Prior.parse("log-uniform").cost(WeightTensor(torch.ones_like(log_alpha)), (0.5 * log_alpha).exp(), normal)


def test_ard_and_log_uniform():
    alpha = numbers(0.01, 1, 100)
    torch.testing.assert_close(
        ard_kl(numbers(1, 1, 1), alpha.sqrt()), numbers(2.307560, 0.346574, 0.004975), atol=5e-7, rtol=0
    )
    torch.testing.assert_close(
        log_uniform_kl(numbers(-2, 0, 2)), numbers(1.540533, 0.431239, 0.068417), atol=5e-7, rtol=0
    )
    mean, std = drawn(20), drawn(20, seed=1).exp()
    best = gaussian_kl(mean, std, 0.0, (mean.square() + std.square()).sqrt())
    torch.testing.assert_close(ard_kl(mean, std), best, rtol=1e-12, atol=1e-12)
    assert (ard_kl(mean, std) <= gaussian_kl(mean, std, 0.0, 0.7) + 1e-12).all()


def test_the_learned_prior_is_the_cheapest_of_its_kind():
    mean, std = drawn(2, 3, 4), drawn(2, 3, 4, seed=1).exp()
    cost = Prior.parse("learned").cost(WeightTensor(mean, axes=1), std, normal).flatten(1).sum(1)
    for member in range(2):
        others = [
            gaussian_kl(mean[member], std[member], 0.0, scale).sum() for scale in torch.linspace(0.3, 12, 600).tolist()
        ]
        assert cost[member] <= min(others) + 1e-12
        assert cost[member].item() == pytest.approx(min(others).item(), rel=1e-3)


def test_the_he_prior_follows_the_fan_in():
    mean = drawn(5, 16, 8, 3, 3)
    assert Prior.parse("he").std(WeightTensor(mean, axes=1), mean) == pytest.approx(math.sqrt(2 / 72))
    assert Prior.parse("he").std(WeightTensor(mean[0, 0, 0, 0]), mean) == pytest.approx(math.sqrt(2))


TRANSPOSED = [(nn.ConvTranspose2d, 1), (nn.ConvTranspose2d, 2), (nn.ConvTranspose2d, 4), (nn.ConvTranspose1d, 2)]


@pytest.mark.parametrize(("layer", "groups"), TRANSPOSED)
def test_a_transposed_kernel_has_its_inputs_first(layer, groups: int):
    """Fan-in: how many inputs an output far from every border depends on. Channels: those that an alpha moves."""
    net = layer(4, 8, 3, groups=groups, bias=False).double()
    axes = net.weight.dim() - 2
    x = drawn(1, 4, *[9] * axes).requires_grad_()
    (kernel,) = trace_kernels(net, x.detach()).kernels
    middle = (0, 0, *[5] * axes)
    (slope,) = torch.autograd.grad(net(x)[middle], x)
    count = int((slope != 0).sum())
    assert fan_in(tuple(net.weight.shape), kernel) == count == 4 // groups * 3**axes
    scale = Prior.parse("he").std(WeightTensor(net.weight[None], kernel=kernel, axes=1), net.weight[None])
    assert scale == pytest.approx(math.sqrt(2 / count))

    stored = torch.zeros(stored_shape("alpha-channel", tuple(net.weight.shape), kernel), dtype=torch.float64)
    assert stored.numel() == 8
    before = net(x)
    for index in range(8):
        wide = stored.clone()
        wide.view(-1)[index] = 2.0
        with torch.no_grad():
            ratio = std_from("alpha-channel", wide, net.weight) / net.weight.abs()
        made = torch.func.functional_call(net, {"weight": net.weight * ratio}, (x,))
        touched = [bool((made[0, c] != before[0, c]).any()) for c in range(8)]
        assert touched == [c == index for c in range(8)]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_what_is_stored_beside_a_transposed_kernel_gives_the_std_back(groups: int):
    mean, kernel = drawn(4, 6 // groups, 3, 3) if groups != 4 else drawn(4, 3, 3, 3), Kernel("k", 4, 6, groups, True)
    std = 0.2 * mean.abs()
    stored = std_to_param("alpha-channel", std, mean, kernel)
    torch.testing.assert_close(std_from("alpha-channel", stored, mean), std, rtol=1e-9, atol=1e-12)
    members = std_from("alpha-channel", torch.stack([stored, stored]), torch.stack([mean, mean]))
    torch.testing.assert_close(members, torch.stack([std, std]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("std_param", STD_PARAMS)
@pytest.mark.parametrize("prior", ["gaussian_0.1", "he", "learned", "ard", "mixture_0.5_1_0.0025", "log-uniform"])
def test_costs_have_the_gradients_that_differences_find(prior, std_param):
    mean = drawn(4, 3).requires_grad_()
    stored = std_to_param(std_param, 0.3 * mean.detach().abs() + 0.05, mean.detach()).requires_grad_()

    def cost(mean: Tensor, stored: Tensor) -> Tensor:
        return Prior.parse(prior).cost(WeightTensor(mean), std_from(std_param, stored, mean), normal).sum()

    assert torch.autograd.gradcheck(cost, (mean, stored), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("std_param", STD_PARAMS)
def test_what_is_stored_gives_the_std_back(std_param):
    mean = drawn(6, 2, 3, 3)
    std = 0.2 * mean.abs()  # one signal-to-noise ratio: every way of storing can say that
    stored = std_to_param(std_param, std, mean)
    assert stored.shape == stored_shape(std_param, mean.shape)
    torch.testing.assert_close(std_from(std_param, stored, mean), std, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gausian_0.1", "unknown prior 'gausian'"),
        ("gaussian", "gaussian takes a positive standard deviation; write for example gaussian_0.1"),
        ("gaussian_-1", "prior 'gaussian_-1' is not understood: gaussian takes a positive"),
        ("he_2", "prior 'he_2' is not understood: he takes no numbers; write for example he"),
        ("mixture_1_1_0.1", "takes the weight of the wide part, between 0 and 1, and two positive standard deviations"),
        ("mixture_a_1_0.1", "write for example mixture_0.5_1_0.0025"),
    ],
)
def test_a_wrong_prior_is_refused_in_one_line(text, message):
    with pytest.raises(Misuse, match=message) as caught:
        Prior.parse(text)
    assert "\n" not in str(caught.value)
