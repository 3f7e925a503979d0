"""Tangent kernels of `core` against the reference network of finite width."""

import math
from itertools import pairwise

import pytest
import torch
from embedded_ensembles import made
from finite_width import draw_network, empirical_kernels
from kernel_matrices import gaussian
from torch import Tensor, nn

from murmuration.core.engines import assemble, engine, member_outputs
from murmuration.core.population import Population
from murmuration.core.weights import WEIGHTS, trace_kernels
from murmuration.studies.infinite_width import Scales
from murmuration.studies.tangent_kernels import member_kernels
from murmuration.system.option_text import parse


class Erf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.erf(x)


class Gain(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


@pytest.mark.parametrize("bias", ["shared", "none"])
@pytest.mark.parametrize("activation", ["relu", "erf"])
def test_the_reference_network_has_the_same_kernels(bias, activation):
    """The embedded MLP in the parameterisation with 1 / sqrt(N), its factors given the names that members have here."""
    architecture = made(
        "normal_1_0.5", "sign_0.75", 2, scales=Scales(1.3, 1.0, 1.1, 0.4), bias=bias, activation=activation
    )
    network = draw_network(architecture, (3, 7, 5), 3, torch.Generator().manual_seed(0))
    sizes, layers = (3, 7, 5, 1), []
    for before, after in pairwise(sizes):
        layers += [Gain(1.3 / math.sqrt(before)), nn.Linear(before, after, bias=bias == "shared")]
        layers += [Erf() if activation == "erf" else nn.ReLU()]
    module = nn.Sequential(*layers[:-1]).double()
    names = ("1", "4", "7")
    shared = {f"{n}.weight": w.mT.contiguous() for n, w in zip(names, network.weights, strict=True)}
    if bias == "shared":
        shared |= {f"{n}.bias": b[0] for n, b in zip(names, network.biases, strict=True)}
    own = {f"{n}.weight:in": u for n, u in zip(names[1:], network.u, strict=True)}
    own |= {f"{n}.weight:out": v for n, v in zip(names[:-1], network.v, strict=True)}
    x1, x2 = gaussian(4, 3, seed=1), gaussian(2, 3, seed=2)
    family = parse("point", "weights", WEIGHTS).in_network(trace_kernels(module, x1), bias_inside=True)
    population = Population(3, own, shared, {})
    with assemble(engine("loop"), module) as team:
        outputs = member_outputs(team, family, population, x1)
    assert torch.allclose(outputs.squeeze(-1), network(x1), rtol=1e-12)
    kernels, expected = member_kernels(module, population, family, x1, x2), empirical_kernels(network, x1, x2)
    for name in ("common", "individual"):
        a, b = getattr(kernels, name), getattr(expected, name)
        assert a.shape == b.shape
        assert (a - b).abs().max() <= 1e-12 * b.abs().max(), name
