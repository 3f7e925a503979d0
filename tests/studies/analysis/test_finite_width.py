import math

import pytest
import torch
from embedded_ensembles import BIASED, made, network
from finite_width import EmbeddedMLP, draw_network, empirical_kernels, train_network, with_parameters
from kernel_matrices import Descent, block_matrix, gaussian, least_eigenvalue
from linearised import predict_blocks, predict_mse, stable_step
from torch import Tensor

from murmuration.studies.infinite_width import Architecture, limit_kernels, scales_of
from murmuration.system.errors import Misuse

X, Y = gaussian(4, 3), gaussian(4, seed=1)
VARIANTS: dict[str, Architecture] = {
    "relu shared": made("normal_1_0.5", "normal_1_0.5", 2, scales=BIASED, bias="shared"),
    "relu seed": made("normal_1_0.5", "sign_0.8", 2, scales=scales_of("seed", 1.3, 0.4), bias="shared"),
    "relu no output bias": made("normal_1_0.5", "sign_0.8", 2, scales=BIASED, bias="shared", output_bias=False),
    "erf member": made("normal_1_0.5", "normal_1_0.5", 3, activation="erf", scales=BIASED, bias="member"),
    "erf none": made("rademacher", "normal_0_1", 1, activation="erf", scales=BIASED),
    "masks": made("bernoulli_0.5", "ones", 2, scales=BIASED, bias="shared", train_u=False, train_v=False),
    "only u": made("normal_1_0.5", "sign_0.8", 2, scales=BIASED, train_v=False),
    "only v": made("normal_1_0.5", "bernoulli_0.5", 2, scales=BIASED, bias="member", output_bias=False, train_u=False),
}


def jacobians(net: EmbeddedMLP, x: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of outputs (M, n) by all shared parameters (M, n, P) and by a member's own (M, n, Q), by autograd."""
    ready = with_parameters(net, [each.clone().requires_grad_() for each in net.shared + net.own])
    outputs = ready(x)
    shared, own = [], []
    for member, row in enumerate(outputs):
        slopes = [torch.autograd.grad(each, ready.shared + ready.own, retain_graph=True) for each in row]
        count = len(ready.shared)
        shared.append(torch.stack([torch.cat([each.flatten() for each in one[:count]]) for one in slopes]))
        mine = [[each[member].flatten() for each in one[count:]] for one in slopes]
        own.append(torch.stack([torch.cat([*one, outputs.new_zeros(1)]) for one in mine]))
        for one in slopes:  # nothing of a member depends on what another one owns
            assert all(each[other].abs().max() == 0 for each in one[count:] for other in range(3) if other != member)
    return torch.stack(shared), torch.stack(own)


# The network


def test_outputs_by_hand():
    net = network(VARIANTS["relu seed"], 5)
    for member in range(3):
        h = X
        for layer in range(2):
            z = h @ net.weights[layer] / math.sqrt(h.shape[1]) + net.biases[layer]
            h = net.u[layer][member] * torch.relu(net.v[layer][member] * z)
        expected = (h @ net.weights[2] / math.sqrt(5) + net.biases[2])[:, 0]
        torch.testing.assert_close(net(X)[member], expected, rtol=1e-13, atol=1e-14)


def test_parameters_are_split_between_all_and_each():
    def counts(name: str) -> tuple[int, int]:
        net = network(VARIANTS[name], 5)
        return sum(each.numel() for each in net.shared), sum(each[0].numel() for each in net.own)

    kernels = 15 + 25 + 5
    assert counts("relu shared") == (kernels + 11, 20)
    assert counts("relu no output bias") == (kernels + 10, 20)
    assert counts("erf member") == (kernels + 25, 30 + 16)
    assert counts("masks") == (kernels + 11, 0)
    assert counts("only u") == (kernels, 10)
    assert counts("only v") == (kernels, 10 + 10)


def test_the_same_generator_draws_the_same_network():
    one, two, other = (network(VARIANTS["erf member"], 6, seed=seed)(X) for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert (one - other).abs().min() > 1e-3


# Its tangent kernels


@pytest.mark.parametrize("name", VARIANTS)
def test_kernels_are_products_of_jacobians(name: str):
    net, x2 = network(VARIANTS[name], 6), gaussian(2, 3, seed=2)
    (shared, own), (shared2, own2) = jacobians(net, X), jacobians(net, x2)
    got = empirical_kernels(net, X, x2)
    torch.testing.assert_close(got.common, torch.einsum("aip,bjp->aibj", shared, shared2), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got.individual, torch.einsum("aip,ajp->aij", own, own2), rtol=1e-12, atol=1e-12)


def test_jacobians_are_those_of_finite_differences():
    net, step = network(VARIANTS["erf member"], 4), 1e-5
    parameters = net.shared + net.own
    shared, own = jacobians(net, X)

    def moved(place: int, index: int, by: float) -> Tensor:
        new = [each.clone() for each in parameters]
        new[place].view(-1)[index] += by
        return with_parameters(net, new)(X)

    start = 0
    for place, each in enumerate(net.shared):
        for index in (0, each.numel() - 1):
            slope = (moved(place, index, step) - moved(place, index, -step)) / (2 * step)
            torch.testing.assert_close(shared[:, :, start + index], slope, rtol=0, atol=1e-8)
        start += each.numel()
    slope = (moved(len(net.shared), 1, step) - moved(len(net.shared), 1, -step)) / (2 * step)
    torch.testing.assert_close(own[0, :, 1], slope[0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["relu shared", "erf member", "masks"])
def test_kernels_are_symmetric_and_positive_semidefinite(name: str):
    blocks = empirical_kernels(network(VARIANTS[name], 8), X, X)
    torch.testing.assert_close(blocks.common, blocks.common.permute(2, 3, 0, 1), rtol=1e-13, atol=1e-14)
    assert least_eigenvalue(blocks.common.reshape(12, 12)) >= -1e-10
    assert all(least_eigenvalue(each) >= -1e-10 for each in blocks.individual)
    assert least_eigenvalue(block_matrix(blocks, Descent(1.0, 3.0))) >= -1e-10


# Training


@pytest.mark.parametrize("gamma", [1.0, 3.0])
@pytest.mark.parametrize("name", ["relu shared", "erf member", "masks"])
def test_one_small_step_moves_outputs_by_the_kernel(name: str, gamma: float):
    net, x = network(VARIANTS[name], 20), torch.cat([X, gaussian(2, 3, seed=2)])
    cross, residual = empirical_kernels(net, x, X), (net(X) - Y).flatten()
    errors = []
    for rate in (1e-3, 1e-4):
        descent = Descent(1, gamma, 0.7 * rate, 1.9 * rate, discrete=True)
        expected = -(block_matrix(cross, descent) @ residual / 4).view(3, 6)
        change = train_network(net, X, Y, descent)(x) - net(x)
        errors.append(((change - expected).norm() / expected.norm()).item())
    assert errors[0] < 0.05
    assert errors[1] < 0.2 * errors[0]  # first order in the rate


@pytest.mark.parametrize("activation", ["relu", "erf"])
@pytest.mark.parametrize("gamma", [1.0, 3.0])
def test_members_without_randomness_are_one_for_ever(activation: str, gamma: float):
    net = network(made("ones", "ones", 2, activation=activation, scales=BIASED, bias="shared"), 33)
    trained = train_network(net, X, Y, Descent(20, gamma, 0.05, 0.05, discrete=True))
    for each in (net(X), trained(X), *trained.own):
        assert torch.equal(each, each[:1].expand_as(each))
    assert (trained(X) - Y).norm() < 0.5 * (net(X) - Y).norm()


def test_what_is_not_trained_stays():
    net = network(VARIANTS["only u"], 6)
    trained = train_network(net, X, Y, Descent(3, 1.0, 0.1, 0.1, discrete=True))
    assert all(torch.equal(*each) for each in zip(net.v + net.biases, trained.v + trained.biases, strict=True))
    assert not any(torch.equal(*each) for each in zip(net.u + net.weights, trained.u + trained.weights, strict=True))


REAL = {"activation": "erf", "scales": scales_of("ntk", 1.5, 0.1), "bias": "shared", "output_bias": False}


@pytest.mark.parametrize("width", [1024, pytest.param(2048, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("law", "gamma"), [("rademacher", 3.0), ("normal_1_0.5", 1.0)])
def test_real_training_is_what_was_predicted(law: str, gamma: float, width: int):
    """Five training and two test inputs, three members; errors against the initial root mean square residual."""
    architecture = made(law, law, 2, **REAL)
    x, y, other = gaussian(5, 3, seed=8), gaussian(5, seed=9), gaussian(2, 3, seed=10)
    train, cross = limit_kernels(architecture, x, x), limit_kernels(architecture, other, x)
    rate = 0.1 / 2 * stable_step(train, 3, Descent(1, gamma))  # a tenth of the inverse of the largest eigenvalue
    descent = Descent(20, gamma, rate, rate, discrete=True)
    net = network(architecture, width)
    trained = train_network(net, x, y, descent)
    scale = (net(x) - y).square().mean().sqrt()

    def error(inputs: Tensor, predicted: Tensor) -> float:
        return ((trained(inputs) - predicted).square().mean().sqrt() / scale).item()

    assert error(x, predict_mse(train, train, net(x), net(x), y, descent)) < 0.05
    assert error(other, predict_mse(train, cross, net(x), net(other), y, descent)) < 0.07
    own_train, own_cross = empirical_kernels(net, x, x), empirical_kernels(net, other, x)
    assert error(x, predict_blocks(own_train, own_train, net(x), net(x), y, descent)) < 0.02
    assert error(other, predict_blocks(own_train, own_cross, net(x), net(other), y, descent)) < 0.02
    assert error(x, net(x)) > 0.2  # training did go somewhere


def test_wrong_requests_say_what_to_give():
    with pytest.raises(Misuse, match="2 widths for 2 hidden layers: give the input's and one a layer"):
        draw_network(VARIANTS["relu shared"], [3, 8], 2, torch.Generator())
    with pytest.raises(Misuse, match="a network of finite width is trained in steps: write discrete=True"):
        train_network(network(VARIANTS["relu shared"], 8), X, Y, Descent(1.0, 1.0))
