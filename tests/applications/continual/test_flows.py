"""Flows: the printed coupling, inverses, determinants against the Jacobian, identity at the start, densities."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from murmuration.applications.continual.flows import (
    ActNorm,
    Convolution1x1,
    Coupling,
    Flow,
    Logit,
    Squeeze,
    dequantised,
    image_flow,
    vector_flow,
)
from murmuration.system.errors import Misuse


def disturbed(flow: nn.Module, seed: int = 0, scale: float = 0.3) -> nn.Module:
    """The flow with parameters moved at random, so that it is not the identity."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter += scale * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return flow


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Printed(nn.Module):
    """The coupling net of the specification: s and t of the kept half."""

    def forward(self, x: Tensor) -> Tensor:
        a, b = x[:, 0], x[:, 1]
        return torch.stack([0.3 * a - 0.2 * b, 0.1 * a - 0.4 * b, a + b, -a], dim=1)


def test_the_printed_coupling() -> None:
    """Oracle 33 of the specification."""
    x = torch.tensor([[0.5, -1, 2, 0.3]], dtype=torch.float64)
    coupling = Coupling(4, lambda _, __: Printed()).double()
    scale, _ = coupling.scale_and_shift(x[:, :2])
    z, log_det = coupling(x)
    np.testing.assert_allclose(scale[0].detach(), (0.336376, 0.421899), atol=5e-7)
    np.testing.assert_allclose(z[0].detach(), (0.5, -1, 2.099797, -0.304971), atol=5e-7)
    assert log_det.item() == pytest.approx(0.758275, abs=5e-7)
    jacobian = torch.autograd.functional.jacobian(lambda given: coupling(given)[0], x)[0, :, 0]
    assert torch.linalg.slogdet(jacobian).logabsdet.item() == pytest.approx(log_det.item(), abs=1e-12)
    torch.testing.assert_close(coupling.inverse(z), x, atol=1e-12, rtol=0)


FLOWS = {
    "vectors": lambda: vector_flow(6, couplings=4, hidden=8),
    "odd": lambda: vector_flow(5, couplings=3, hidden=8),
    "images": lambda: image_flow((1, 4, 4), levels=1, steps=2, hidden=4),
    "two levels": lambda: image_flow((1, 4, 4), levels=2, steps=1, hidden=4),
}


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_inverses(name: str, precision: torch.dtype) -> None:
    """Oracle 34: 1e-5 in single and 1e-10 in double precision."""
    torch.manual_seed(0)
    flow = disturbed(FLOWS[name](), scale=0.1).to(precision)
    assert isinstance(flow, Flow)
    x = drawn(7, *flow.shape).to(precision).sigmoid()
    bound = 1e-5 if precision == torch.float32 else 1e-10
    with torch.no_grad():
        z, _ = flow(x)
        torch.testing.assert_close(flow.inverse(z), x, atol=bound, rtol=0)
        latents = 0.5 * drawn(7, flow.dimensions, seed=2).to(precision)
        torch.testing.assert_close(flow(flow.inverse(latents))[0], latents, atol=10 * bound, rtol=10 * bound)


@pytest.mark.parametrize("name", FLOWS)
def test_determinants_are_those_of_the_jacobian(name: str) -> None:
    torch.manual_seed(0)
    flow = disturbed(FLOWS[name]().double(), scale=0.2)
    assert isinstance(flow, Flow)
    x = drawn(1, *flow.shape).sigmoid()
    jacobian = torch.autograd.functional.jacobian(lambda given: flow(given)[0], x).view(flow.dimensions, -1)
    found = flow(x)[1].item()
    assert found == pytest.approx(torch.linalg.slogdet(jacobian).logabsdet.item(), abs=1e-9)


@pytest.mark.parametrize("layer", [ActNorm(3), Convolution1x1(3), Squeeze(), Logit()])
def test_layers_of_images(layer: nn.Module) -> None:
    torch.manual_seed(1)
    layer = disturbed(layer.double())
    x = drawn(2, 3, 4, 4).sigmoid()
    z, log_det = layer(x)
    torch.testing.assert_close(layer.inverse(z), x, atol=1e-12, rtol=0)
    jacobian = torch.autograd.functional.jacobian(lambda given: layer(given)[0].flatten(), x[:1])
    determinant = torch.linalg.slogdet(jacobian.view(48, 48)).logabsdet
    assert log_det[0].item() == pytest.approx(determinant.item(), abs=1e-9)


def test_pixels_from_far_latents_have_finite_latents() -> None:
    """The sigmoid of a latent of 40 is 1 in single precision, whose logit is infinite."""
    layer = Logit()
    z, log_det = layer(layer.inverse(torch.tensor([[-200.0, 0.0, 40.0]])))
    assert z.isfinite().all()
    assert log_det.isfinite().all()
    assert z[0, 0] < -10 < z[0, 1] < 10 < z[0, 2]


def test_a_flow_of_vectors_begins_as_the_identity() -> None:
    x = drawn(5, 6).float()
    z, log_det = vector_flow(6)(x)
    assert torch.equal(z, x)
    assert torch.equal(log_det, torch.zeros(5))


def test_actnorm_standardises_the_first_batch() -> None:
    torch.manual_seed(0)
    flow = image_flow((1, 8, 8), levels=1, steps=1, hidden=4)
    x = drawn(64, 1, 8, 8).float().sigmoid()
    flow.fit_actnorm(x)
    before = flow.layers[1](flow.layers[0](x)[0])[0]
    after = flow.layers[2](before)[0]
    torch.testing.assert_close(after.mean((0, 2, 3)), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(after.var((0, 2, 3), correction=0), torch.ones(4), atol=1e-4, rtol=0)


def test_the_density_integrates_to_one() -> None:
    """Oracle 35, on a grid of 2 dimensions."""
    torch.manual_seed(0)
    flow = disturbed(vector_flow(2, couplings=4, hidden=8).double(), seed=3, scale=0.2)
    places = torch.linspace(-12, 12, 601, dtype=torch.float64)
    grid = torch.cartesian_prod(places, places)
    with torch.no_grad():
        z, log_det = flow(grid)
    density = (log_det - z.square().sum(1) / 2 - math.log(2 * math.pi)).exp()
    assert float(density.sum() * (places[1] - places[0]) ** 2) == pytest.approx(1, abs=1e-2)


def test_dequantised_pixels() -> None:
    pixels, noise = torch.tensor([0.0, 255.0]), torch.tensor([0.0, 0.5])
    assert dequantised(pixels, noise).tolist() == [0, 255.5 / 256]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(Misuse, match="a coupling needs at least 2"):
        vector_flow(1)
    with pytest.raises(Misuse, match="images of 6x6 with levels=2: expected sides divisible by 4"):
        image_flow((1, 6, 6))
