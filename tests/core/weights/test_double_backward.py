"""Operators that are differentiated twice give what torch's own give, and nothing where that is zero."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from murmuration.core.weights import ForwardSpec, Realised, Structure, double_backward, run_members
from murmuration.core.weights.double_backward import MaxPool2dSelection, conv2d, max_pool2d, relu
from murmuration.system.streams import Noise

CONVOLUTIONS = {
    "plain": ((2, 4, 9, 9), (6, 4, 3, 3), 1, 1, 1, 1),
    "stride and groups": ((2, 4, 9, 8), (6, 2, 3, 3), 2, 1, 1, 2),
    "uneven": ((1, 3, 12, 12), (5, 3, 3, 2), (2, 1), (1, 0), (1, 2), 1),
    "same": ((2, 3, 7, 7), (4, 3, 3, 3), 1, "same", 1, 1),
}


def second_derivatives(convolution, case: str) -> tuple[Tensor, ...]:
    """Gradients by kernel, bias and input of a loss that uses both the output and its gradient by the input."""
    inputs, kernel, *settings = CONVOLUTIONS[case]
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in (inputs, kernel, kernel[:1])
    )
    out = convolution(x, weight, bias, *settings)
    slope = torch.autograd.grad(out.tanh().sum(), x, create_graph=True)[0]
    return torch.autograd.grad((slope**3).sum() + (out**2).sum(), [weight, bias, x])


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_both_derivatives_of_convolutions_are_those_of_torch(case: str) -> None:
    for ours, theirs in zip(second_derivatives(conv2d, case), second_derivatives(torch.conv2d, case), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("with_bias", [True, False])
def test_only_what_a_pass_asks_for_is_computed(monkeypatch, with_bias: bool) -> None:
    """Two layers: a pass for inputs needs no kernels, one for kernels no gradient by the network's inputs."""
    masks, real = [], double_backward.conv_gradients

    def noted(out, x, weight, settings, mask):
        masks.append(tuple(mask))
        return real(out, x, weight, settings, mask)

    monkeypatch.setattr(double_backward, "conv_gradients", noted)
    x = torch.randn(1, 2, 6, 6).requires_grad_()
    weights = [torch.randn(3, 2, 3, 3).requires_grad_(), torch.randn(4, 3, 3, 3).requires_grad_()]
    biases = [torch.randn(3).requires_grad_(), torch.randn(4).requires_grad_()] if with_bias else [None, None]
    hidden = conv2d(x[:, :], weights[0], biases[0])
    out = conv2d(hidden, weights[1], biases[1]).square().sum()
    torch.autograd.grad(out, x, retain_graph=True)
    assert masks == [(True, False, False)] * 2
    masks.clear()
    torch.autograd.grad(out, weights, retain_graph=True)
    assert masks == [(True, False, False), (False, True, False), (False, True, False)]
    masks.clear()
    torch.autograd.grad(out, [*weights, *(bias for bias in biases if bias is not None)])
    assert masks == [(True, False, False), (False, True, with_bias), (False, True, with_bias)]


def test_a_pass_that_fills_leaves_finds_the_same() -> None:
    """`backward` names no inputs: everything that has a graph is asked for."""
    x, weight = torch.randn(1, 2, 5, 5).requires_grad_(), torch.randn(3, 2, 3, 3).requires_grad_()
    wanted = torch.autograd.grad(torch.conv2d(x, weight).square().sum(), [x, weight])
    conv2d(x, weight).square().sum().backward()
    torch.testing.assert_close((x.grad, weight.grad), wanted)


def test_convolutions_keep_channels_last() -> None:
    """Also where what comes back from the input gradient does not have them so."""
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(4, 3, 3, 3).requires_grad_()
    seed = torch.randn(2, 4, 6, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    slope = torch.autograd.grad(conv2d(x, weight), x, seed, create_graph=True)[0]
    assert slope.is_contiguous(memory_format=torch.channels_last)
    onward = torch.autograd.grad(slope, seed, torch.randn(2, 3, 8, 8))[0]
    assert onward.is_contiguous(memory_format=torch.channels_last)


POOLS = {
    "apart": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 1},
    "padded": {"kernel_size": 3, "stride": 2, "padding": 1},
    "dilated": {"kernel_size": 2, "stride": 1, "dilation": 2},
    "rounded up": {"kernel_size": (2, 3), "stride": (2, 2), "ceil_mode": True},
}
LAYOUTS = {"channels last": torch.channels_last, "channels first": torch.contiguous_format}


def images(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def derivatives(operator, x: Tensor) -> tuple[Tensor, ...]:
    """The output, its gradient by x, and gradients of a loss of both by x and by a weight before the operator."""
    x, weight = x.clone().requires_grad_(), images(1, x.shape[1], 1, 1).requires_grad_()
    out = operator(x * weight)
    slope = torch.autograd.grad(out.tanh().sum(), x, create_graph=True)[0]
    return out, slope, *torch.autograd.grad((slope**3).sum() + (out**2).sum(), [x, weight])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", POOLS)
def test_pools_are_those_of_torch(case: str, layout: str) -> None:
    x = images(0, 2, 3, 7, 9).contiguous(memory_format=LAYOUTS[layout])
    ours = derivatives(lambda value: max_pool2d(value, **POOLS[case]), x)
    theirs = derivatives(lambda value: F.max_pool2d(value, **POOLS[case]), x)
    for mine, torchs in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-12, atol=1e-12)


def test_rectifiers_are_those_of_torch() -> None:
    for mine, torchs in zip(*(derivatives(each, images(0, 2, 3, 4, 5)) for each in (relu, F.relu)), strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("operator", [relu, lambda x: max_pool2d(x, 3, 2, 1)], ids=["rectifier", "pool"])
def test_finite_differences_agree(operator) -> None:
    """A permutation of whole numbers: no two are near enough to change places under a small step."""
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0)).double() - 29.5
    x = order.view(1, 2, 5, 6).requires_grad_()
    assert torch.autograd.gradcheck(operator, (x,))
    assert torch.autograd.gradgradcheck(operator, (x,))


def test_the_backward_of_a_pool_and_its_gather_are_each_other_s_transposes() -> None:
    x, window = images(0, 2, 3, 7, 7), ([3, 3], [2, 2], [1, 1], [1, 1], False)
    out, places = torch.ops.aten.max_pool2d_with_indices(x, *window)
    slope, along = images(1, *out.shape), images(2, *x.shape)
    scattered = MaxPool2dSelection.apply(slope, x, places, window, False)
    gathered = MaxPool2dSelection.apply(along, x, places, window, True)
    torch.testing.assert_close((scattered * along).sum(), (slope * gathered).sum(), rtol=1e-12, atol=0)
    gathered = MaxPool2dSelection.apply(along.requires_grad_(), x, places, window, True)
    torch.testing.assert_close(torch.autograd.grad(gathered, along, slope)[0], scattered, rtol=0, atol=0)


def test_rectifiers_and_pools_keep_channels_last() -> None:
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    for operator in (relu, lambda value: max_pool2d(value, 2)):
        out = operator(x)
        seed = torch.randn_like(out).requires_grad_()
        slope = torch.autograd.grad(out, x, seed, create_graph=True)[0]
        onward = torch.autograd.grad(slope, seed, torch.randn_like(x))[0]
        for each in (out, slope, onward):
            assert each.is_contiguous(memory_format=torch.channels_last)


def test_no_second_derivative_is_none_and_not_zeros() -> None:
    for operator in (relu, lambda value: max_pool2d(value, 2)):
        x = images(0, 1, 2, 4, 4).requires_grad_()
        before = x * 1.0
        seed = torch.ones_like(operator(before)).requires_grad_()
        slope = torch.autograd.grad(operator(before), before, seed, create_graph=True)[0]
        assert torch.autograd.grad(slope.sum(), x, allow_unused=True) == (None,)


def test_what_is_not_replaced_stays_torch_s() -> None:
    x = images(0, 2, 4, 4)
    out, places = max_pool2d(x.unsqueeze(0), 2, return_indices=True)
    assert torch.equal(out, F.max_pool2d(x.unsqueeze(0), 2))
    assert torch.equal(x.flatten(1).gather(1, places[0].flatten(1)), out[0].flatten(1))
    assert torch.equal(max_pool2d(x, 2), out[0])  # one image without a batch
    assert relu(x, inplace=True) is x
    assert float(x.min()) == 0


class Everything(nn.Module):
    """Convolutions, rectifiers in every spelling, overlapping pools and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1), nn.Dropout(0.3), nn.MaxPool2d(3, 2, padding=1), nn.ReLU(inplace=True)
        )
        self.last, self.head = nn.Conv2d(3, 4, 3, bias=False), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.last(self.body(x)))
        return self.head(torch.max_pool2d(hidden, 2, ceil_mode=True).relu().amax((2, 3)))


def test_a_network_s_input_gradients_have_torch_s_derivatives() -> None:
    """The one-member path, which replaces operators where inputs have a graph, beside `vmap`, which replaces none."""
    torch.manual_seed(0)
    module = Everything().double()
    names = [name for name, _ in module.named_parameters()]
    tensors = {name: torch.stack([t.detach(), 1.1 * t.detach()]) for name, t in module.named_parameters()}
    x, pushes = images(3, 2, 4, 2, 8, 8), images(4, 2, 4, 2, 8, 8)
    structure = Structure(module).train(True)

    def gradients(groups: list[slice]) -> list[Tensor]:
        found = []
        for group in groups:
            leaves = {name: tensors[name][group].clone().requires_grad_() for name in names}
            inputs = x[group].clone().requires_grad_()
            outputs = run_members(
                structure,
                Realised(leaves, {}, ForwardSpec()),
                inputs,
                [Noise(0, i) for i in range(2)[group]],
                direct=False,
            )
            slope = torch.autograd.grad(outputs.square().sum(), inputs, create_graph=True)[0]
            roots = (slope * pushes[group]).sum() + outputs.tanh().sum()
            found.append(torch.autograd.grad(roots, list(leaves.values())))
        return [torch.cat(parts) for parts in zip(*found, strict=True)]

    alone, together = gradients([slice(0, 1), slice(1, 2)]), gradients([slice(0, 2)])
    for mine, torchs in zip(alone, together, strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-10, atol=1e-12)
        assert float(mine.abs().max()) > 0
