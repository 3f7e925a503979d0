"""Rectifiers and max-pools that are differentiated twice give what torch's own give, and nothing where that is zero."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from murmuration.streams import Noise
from murmuration.weights import ForwardSpec, Realised, Structure, run_members
from murmuration.weights.piecewise import Pick, Spread, pool, rectify

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
    ours = derivatives(lambda value: pool(value, **POOLS[case]), x)
    theirs = derivatives(lambda value: F.max_pool2d(value, **POOLS[case]), x)
    for mine, torchs in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-12, atol=1e-12)


def test_rectifiers_are_those_of_torch() -> None:
    for mine, torchs in zip(*(derivatives(each, images(0, 2, 3, 4, 5)) for each in (rectify, F.relu)), strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("operator", [rectify, lambda x: pool(x, 3, 2, 1)], ids=["rectifier", "pool"])
def test_finite_differences_agree(operator) -> None:
    """A permutation of whole numbers: no two are near enough to change places under a small step."""
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0)).double() - 29.5
    x = order.view(1, 2, 5, 6).requires_grad_()
    assert torch.autograd.gradcheck(operator, (x,))
    assert torch.autograd.gradgradcheck(operator, (x,))


def test_spreading_and_picking_are_each_other_s_transposes() -> None:
    x, window = images(0, 2, 3, 7, 7), ([3, 3], [2, 2], [1, 1], [1, 1], False)
    out, places = torch.ops.aten.max_pool2d_with_indices(x, *window)
    slope, along = images(1, *out.shape), images(2, *x.shape)
    spread, picked = Spread.apply(slope, x, places, window), Pick.apply(along, x, places, window)
    torch.testing.assert_close((spread * along).sum(), (slope * picked).sum(), rtol=1e-12, atol=0)
    picked = Pick.apply(along.requires_grad_(), x, places, window)
    torch.testing.assert_close(torch.autograd.grad(picked, along, slope)[0], spread, rtol=0, atol=0)


def test_images_keep_their_channels_last() -> None:
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    for operator in (rectify, lambda value: pool(value, 2)):
        out = operator(x)
        seed = torch.randn_like(out).requires_grad_()
        slope = torch.autograd.grad(out, x, seed, create_graph=True)[0]
        onward = torch.autograd.grad(slope, seed, torch.randn_like(x))[0]
        for each in (out, slope, onward):
            assert each.is_contiguous(memory_format=torch.channels_last)


def test_no_second_derivative_is_none_and_not_zeros() -> None:
    for operator in (rectify, lambda value: pool(value, 2)):
        x = images(0, 1, 2, 4, 4).requires_grad_()
        before = x * 1.0
        seed = torch.ones_like(operator(before)).requires_grad_()
        slope = torch.autograd.grad(operator(before), before, seed, create_graph=True)[0]
        assert torch.autograd.grad(slope.sum(), x, allow_unused=True) == (None,)


def test_what_is_not_replaced_stays_torch_s() -> None:
    x = images(0, 2, 4, 4)
    out, places = pool(x.unsqueeze(0), 2, return_indices=True)
    assert torch.equal(out, F.max_pool2d(x.unsqueeze(0), 2))
    assert torch.equal(x.flatten(1).gather(1, places[0].flatten(1)), out[0].flatten(1))
    assert torch.equal(pool(x, 2), out[0])  # one image without a batch
    assert rectify(x, inplace=True) is x
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
    """One member's way, which replaces operators where inputs have a graph, beside `vmap`, which replaces none."""
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
