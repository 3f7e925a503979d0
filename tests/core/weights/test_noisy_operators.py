"""Operators on Gaussian weights: closed forms, sampling and limits (float64)."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from weights_factories import ESTIMATORS, LAYERS, ConstantNoise, drawn, leaves, network, noisy_network, numbers

from murmuration.core.population import populate
from murmuration.core.weights import WEIGHTS, Structure, run_members, trace_kernels
from murmuration.core.weights.double_backward import channels_last
from murmuration.core.weights.gaussian import Gaussian
from murmuration.system.option_text import parse
from murmuration.system.streams import Noise

DRAWS = 20_000
UNFOLDED = {
    "stride 1": lambda: nn.Conv2d(3, 4, 3),
    "stride 2, padding 1": lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1),
    "dilation 2": lambda: nn.Conv2d(3, 4, 2, dilation=2, padding=1),
    "not square": lambda: nn.Conv2d(3, 4, (3, 2), padding=(1, 0)),
    "groups 2": lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1),
}


# oracle: a linear layer in numbers


@pytest.mark.parametrize(("mode", "copies"), [("alone", 1), ("mapped", 2), ("direct", 2)])
def test_local_reparameterisation_in_numbers(mode: str, copies: int):
    net = nn.Linear(3, 2).double()
    with torch.no_grad():
        net.weight.copy_(numbers([[0.2, 0.1, -0.3], [0, 0.4, 0.5]]))
        net.bias.copy_(numbers([0.1, -0.2]))
    stds = {"weight": numbers([[0.1, 0.2, 0.3], [0.05, 0.1, 0.2]]), "bias": numbers([0.05, 0.1])}
    with noisy_network(net, stds, "gaussian", numbers([[1.0, -2.0, 0.5]]), copies) as run:
        mean = run([ConstantNoise(0.0) for _ in range(copies)], mode=mode)
        far = run([ConstantNoise(1.0) for _ in range(copies)], mode=mode)
    for i in range(copies):
        torch.testing.assert_close(mean[i, 0], numbers([-0.05, -0.75]), rtol=0, atol=1e-12)
        torch.testing.assert_close((far - mean)[i, 0].square(), numbers([0.195, 0.0625]), rtol=0, atol=1e-9)


# oracle: a convolution is a linear layer on patches


@pytest.mark.parametrize("case", UNFOLDED)
def test_a_convolution_is_a_linear_layer_on_patches(case: str):
    torch.manual_seed(0)
    net = UNFOLDED[case]().double()
    x = drawn(2, net.in_channels, 5, 6, seed=1)
    stds = {"weight": 0.3 * drawn(*net.weight.shape, seed=2).exp(), "bias": 0.2 * drawn(len(net.bias), seed=3).exp()}
    with noisy_network(net, stds, "gaussian", x) as run:
        mean, far = run([ConstantNoise(0.0)])[0], run([ConstantNoise(1.0)])[0]
    patches = nn.functional.unfold(x, net.kernel_size, net.dilation, net.padding, net.stride)  # (B, C k, L)
    means, variances = [], []
    for group, part in enumerate(patches.chunk(net.groups, 1)):
        rows = slice(group * net.out_channels // net.groups, (group + 1) * net.out_channels // net.groups)
        weight, std = net.weight[rows].flatten(1), stds["weight"][rows].flatten(1)
        means.append(weight @ part + net.bias[rows, None])
        variances.append(std.square() @ part.square() + stds["bias"][rows, None].square())
    expected, std_param = torch.cat(means, 1).view_as(mean), torch.cat(variances, 1).view_as(mean).sqrt()
    torch.testing.assert_close(mean, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(far - mean, std_param, rtol=0, atol=1e-9)


# oracle: marginals and covariances by sampling


def sampled(net: nn.Module, stds: dict, text: str, x: Tensor, copies: int = 1000) -> Tensor:
    """Outputs (DRAWS, B, ...) of copies of a network that draw from one stream after each other."""
    stream = Noise(1, 0)
    with noisy_network(net, stds, text, x, copies) as run, torch.no_grad():
        return torch.cat([run([stream] * copies) for _ in range(DRAWS // copies)])


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_marginals_agree_with_the_closed_form(estimator: str):
    """Means of 20 outputs within 4 standard errors, variances within 5 % (5 standard errors of 1 %)."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(2, 2, 2, padding=1)).double()
    x = drawn(2, 2, 4, seed=1).abs()
    stds = {"0.weight": 0.3 * drawn(2, 2, 2, seed=2).exp(), "0.bias": numbers([0.2, 0.4])}
    outputs = sampled(net, stds, f"gaussian:estimator={estimator}", x)
    conv = nn.functional.conv1d
    variance = conv(x.square(), stds["0.weight"].square(), stds["0.bias"].square(), padding=1)
    errors = (variance / DRAWS).sqrt()
    assert ((outputs.mean(0) - net(x)).abs() < 4 * errors).all()
    assert ((outputs.var(0) / variance - 1).abs() < 0.05).all()


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_covariance_between_positions(estimator: str):
    """One kernel acts on both positions: weights that are drawn say so, outputs that are drawn do not."""
    net = nn.Conv1d(1, 1, 2, bias=False).double()
    stds = {"weight": numbers([[[0.2, 0.3]]])}
    x = numbers([[[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0]]])
    outputs = sampled(net, stds, f"gaussian:estimator={estimator}", x)[:, :, 0]  # (DRAWS, 2 examples, 2 positions)
    expected = numbers([[0.40, 0.62], [0.62, 0.97]])
    if estimator == "local":
        expected = expected.diag().diag()
    errors = ((expected.square() + torch.outer(expected.diag(), expected.diag())) / DRAWS).sqrt()
    for example in range(2):
        assert ((torch.cov(outputs[:, example].T) - expected).abs() < 4 * errors).all()
    between = torch.cov(outputs[:, :, 0].T)[0, 1]  # of two examples
    shared = 0.40 if estimator == "draw" else 0.0
    assert (between - shared).abs() < 4 * math.sqrt((shared**2 + 0.40**2) / DRAWS)


@pytest.mark.parametrize("text", ["gaussian:estimator=flipout", "gaussian:estimator=flipout,where=bias"])
def test_under_flipout_a_bias_is_one_number_an_example(text: str):
    net = nn.Conv1d(1, 1, 1).double()
    nn.init.zeros_(net.weight)
    with noisy_network(
        net, {"weight": 1e-9, "bias": 0.3} if "where" not in text else {"bias": 0.3}, text, drawn(400, 1, 5)
    ) as run:
        noise = run([Noise(0, 0)])[0, :, 0].detach() - net.bias.detach()  # (400, 5)
    assert (noise - noise[:, :1]).abs().max() < 1e-7
    assert abs(noise[:, 0].std().item() / 0.3 - 1) < 4 / math.sqrt(2 * 400)


class OnlyPositive(Noise):
    """Normal numbers that keep their size and lose their sign."""

    def normal(self, like: Tensor, rough: bool = False) -> Tensor:
        return super().normal(like, rough).abs()


@pytest.mark.parametrize("layer", ["linear, no bias", "conv2d", "transposed 3d"])
def test_flipout_without_flips_is_a_draw_of_weights(layer: str):
    make, shape = LAYERS[layer]
    torch.manual_seed(0)
    net, x = make().double(), drawn(4, *shape)
    with noisy_network(net, {"weight": 0.4}, "gaussian:estimator=flipout", x) as run:
        flipped = run([OnlyPositive(0, 0)])
    with noisy_network(net, {"weight": 0.4}, "gaussian:estimator=draw", x) as run:
        torch.testing.assert_close(flipped, run([OnlyPositive(0, 0)]), rtol=1e-12, atol=1e-12)


def test_signs_of_flipout_belong_to_examples_and_channels():
    """Over the four combinations of signs a layer of one weight deviates by +- the same number, whose mean is 0."""
    net = nn.Conv1d(1, 1, 1, bias=False).double()
    x = numbers([[[1.0, 2.0, 4.0]]]).expand(64, 1, 3)
    with noisy_network(net, {"weight": 0.4}, "gaussian:estimator=flipout", x) as run:
        deviation = (run([Noise(0, 0)])[0] - net(x)).detach()[:, 0]  # (64, 3)
    size = deviation[:, 0].abs()
    assert torch.allclose(size, size[0].expand(64), rtol=1e-12)
    torch.testing.assert_close(deviation / deviation[:, :1], numbers([[1.0, 2.0, 4.0]]).expand(64, 3))
    assert 16 < (deviation[:, 0] > 0).sum() < 48  # 4 standard deviations of 64 coins


class ScriptedNoise(Noise):
    """A stream of numbers that are noisy_network, in the order they are asked for."""

    def __init__(self, *draws: Tensor) -> None:
        super().__init__(0, 0)
        self.draws = list(draws)

    def normal(self, like: Tensor, rough: bool = False) -> Tensor:
        return self.draws.pop(0).reshape(like.shape)


@pytest.mark.parametrize("inputs", [1, 3])
def test_over_all_signs_flipout_has_the_moments_of_local_reparameterisation(inputs: int):
    """Every combination of signs once, over one draw of +-1: the mean output, and sigma^2 x^2 summed over inputs."""
    torch.manual_seed(0)
    net = nn.Linear(inputs, 1, bias=False).double()
    signs = numbers(list(product((-1.0, 1.0), repeat=inputs + 1)))  # (B, inputs + 1)
    x, stds = drawn(1, inputs).expand(len(signs), inputs), {"weight": 0.2 * drawn(1, inputs, seed=1).exp()}
    eps = drawn(inputs, seed=2).sign()
    with noisy_network(net, stds, "gaussian:estimator=flipout", x) as run:
        outputs = run([ScriptedNoise(eps, signs[:, :inputs], signs[:, inputs:])])[0].detach()
    with noisy_network(net, stds, "gaussian", x[:1]) as run:
        mean, far = (run([ConstantNoise(value)])[0, 0].detach() for value in (0.0, 1.0))
    torch.testing.assert_close(outputs.mean(0), mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(outputs.var(0, correction=0), (far - mean).square(), rtol=1e-9, atol=0)
    by_hand = (x * signs[:, :inputs]) @ (stds["weight"] * eps).T * signs[:, inputs:]
    torch.testing.assert_close(outputs - mean, by_hand, rtol=0, atol=1e-12)


# limits


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("layer", LAYERS)
def test_with_zero_std_every_estimator_is_the_plain_operator(layer: str, estimator: str):
    torch.manual_seed(0)
    net, x = network(layer), drawn(2, *LAYERS[layer][1])
    names = [name for name, _ in net.named_parameters()]
    with noisy_network(net, dict.fromkeys(names, 1e-300), f"gaussian:estimator={estimator}", x) as run:
        found = run([Noise(0, 0)])[0]
    assert torch.equal(found, net(channels_last(x)))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_deterministic_weights_are_the_means(estimator: str):
    torch.manual_seed(0)
    net, x = network("conv2d, groups"), drawn(2, *LAYERS["conv2d, groups"][1])
    family = (
        parse(f"gaussian:estimator={estimator}", "weights", WEIGHTS).in_network(trace_kernels(net, x)).deterministic()
    )
    with noisy_network(net, {"0.weight": 0.5}, f"gaussian:estimator={estimator}", x) as run:
        first, second = (run([Noise(0, i)], family=family)[0] for i in range(2))
    assert torch.equal(first, second)
    assert torch.equal(first, net(channels_last(x)))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_noise_follows_from_the_seed_alone(estimator: str, training: bool):
    torch.manual_seed(0)
    net, x = network("conv2d"), drawn(2, *LAYERS["conv2d"][1])
    with noisy_network(net, {"0.weight": 0.5}, f"gaussian:estimator={estimator}", x) as run:
        first, other = (run([Noise(seed, 0)], training=training) for seed in (0, 1))
        net.train(not net.training)
        torch.manual_seed(5)
        assert torch.equal(first, run([Noise(0, 0)], training=training))
    assert (first - other).abs().max() > 1e-3


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("shape", [(3,), (3, 4, 4)])
def test_nothing_in_gives_nothing_out_and_finite_gradients(shape: tuple[int, ...], estimator: str):
    net = nn.Linear(3, 2, bias=False) if len(shape) == 1 else nn.Conv2d(3, 2, 3, bias=False)
    trace, gaussian = (
        trace_kernels(net, torch.zeros(1, *shape)),
        parse(f"gaussian:estimator={estimator}", "weights", WEIGHTS),
    )
    assert isinstance(gaussian, Gaussian)
    population = gaussian.init(populate(lambda _: net, 1), trace, lambda _: torch.Generator())
    own, x, noise = leaves(population)[0], torch.zeros(1, 4, *shape, requires_grad=True), [Noise(0, 0)]
    realised = gaussian.in_network(trace).realise(own, {}, noise, training=True)
    outputs = run_members(Structure(net), realised, x, noise, False)
    assert not outputs.any()
    gradients = torch.autograd.grad(outputs.exp().sum(), [*own.values(), x])
    assert all(gradient.isfinite().all() for gradient in gradients)
