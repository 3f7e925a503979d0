"""Networks with spreads that are told, run on streams that are told."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from murmuration.population import populate
from murmuration.recipe_text import parse
from murmuration.streams import Noise
from murmuration.weights import WEIGHTS, NetworkWeights, Structure, run_members, trace_kernels
from murmuration.weights.gaussian import STD_PARAM, Gaussian, softplus_inverse

ESTIMATORS = ["local", "draw", "flipout"]


def numbers(values) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Fixed(Noise):
    """A stream in which every normal number is the same."""

    def __init__(self, value: float) -> None:
        super().__init__(0, 0)
        self.value = value

    def normal(self, like: Tensor, rough: bool = False) -> Tensor:
        return torch.full(like.shape, self.value, dtype=like.dtype)


@contextmanager
def told(net: nn.Module, stds: dict[str, Tensor | float], text: str, x: Tensor, copies: int = 1) -> Iterator:
    """A function from streams to outputs (copies, B, ...) of a net whose parameters have these standard deviations."""
    trace = trace_kernels(net, x[:1])
    gaussian = parse(text, "weights", WEIGHTS)
    assert isinstance(gaussian, Gaussian)
    population = gaussian.init(populate(lambda _: net, copies), trace, lambda _: torch.Generator())
    for name, std in stds.items():
        mean = population.own[name]
        wide = torch.as_tensor(std, dtype=torch.float64).expand(mean.shape[1:])
        population.own[name + STD_PARAM] = softplus_inverse(wide).expand_as(mean).clone()
    family = gaussian.in_network(trace)

    def run(
        noise: list[Noise], *, training: bool = True, way: str = "mapped", family: NetworkWeights = family
    ) -> Tensor:
        realised = family.realise(population.own, {}, noise, training=training)
        inputs = x.expand(copies, *x.shape)
        return run_members(Structure(net), realised, inputs, noise, way == "direct")

    yield run
