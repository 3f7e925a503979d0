"""Small networks for tests of weights: rank-one members, effective parameters, Gaussian weights with given noise."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from murmuration.core.population import Named, Population, populate
from murmuration.core.sharing import SHARING
from murmuration.core.weights import (
    WEIGHTS,
    Gaussian,
    KernelTrace,
    NetworkWeights,
    Point,
    Structure,
    run_members,
    trace_kernels,
)
from murmuration.core.weights.gaussian import STD_PARAM, softplus_inverse
from murmuration.system.option_text import parse
from murmuration.system.streams import Noise

MEMBERS, BATCH = 3, 2
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 4), (6,)),
    "linear, no bias": (lambda: nn.Linear(6, 4, bias=False), (6,)),
    "linear on two batch axes": (lambda: nn.Linear(6, 4), (3, 6)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2), (4, 9)),
    "conv1d, groups": (lambda: nn.Conv1d(4, 6, 3, groups=2, padding="same"), (4, 7)),
    "conv2d": (lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False), (2, 6, 6)),
    "conv2d, groups": (lambda: nn.Conv2d(4, 6, (3, 2), groups=2, dilation=(1, 2)), (4, 5, 5)),
    "conv2d, depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding=1, padding_mode="circular"), (4, 4, 4)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2, groups=2, stride=(1, 2, 1)), (2, 3, 4, 3)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1), (4, 4)),
    "transposed 2d, groups": (lambda: nn.ConvTranspose2d(4, 6, 2, groups=2, stride=2, dilation=2), (4, 3, 3)),
    "transposed 3d": (lambda: nn.ConvTranspose3d(2, 3, 2, bias=False), (2, 2, 2, 2)),
}


@dataclass(frozen=True)
class RankOneMembers:
    """Members of one network that share its kernels."""

    net: nn.Module
    population: Population
    trace: KernelTrace
    family: NetworkWeights
    x: Tensor  # (M, B, ...)


def network(name: str) -> nn.Module:
    """The layer, an activation and a dense head, in double precision."""
    make, shape = LAYERS[name]
    layer = make().double()
    with torch.no_grad():
        features = layer(torch.zeros(1, *shape, dtype=torch.float64)).numel()
    return nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(features, 3).double())


def rank_one_members(name: str, text: str) -> RankOneMembers:
    """Members with Gaussian factors, and inputs of their own."""
    torch.manual_seed(0)
    nets, shape = [network(name) for _ in range(MEMBERS)], LAYERS[name][1]
    x = torch.randn(MEMBERS, BATCH, *shape, dtype=torch.float64)
    return rank_one_members_of(nets, text, x)


def rank_one_members_of(nets: list[nn.Module], text: str, x: Tensor) -> RankOneMembers:
    sharing, trace = parse(text, "sharing", SHARING), trace_kernels(nets[0], x[0])
    shared = sharing.predicate(nets[0], trace)
    population = sharing.add_factors(
        populate(nets.__getitem__, len(nets), shared), trace, lambda m: torch.Generator().manual_seed(m)
    )
    family = Point().in_network(trace, bias_inside=sharing.bias_inside)
    return RankOneMembers(nets[0], population, trace, family, x)


def leaves(population: Population) -> tuple[Named, Named]:
    own, shared = (
        {k: v.clone().requires_grad_() for k, v in named.items()} for named in (population.own, population.shared)
    )
    return own, shared


def run(made: RankOneMembers, own: Named, shared: Named, mode: str) -> Tensor:
    """Outputs (M, B, K) by one of the ways members can run."""
    structure, noise = Structure(made.net), [Noise(0, i) for i in range(len(made.x))]
    buffers = {name: tensor.clone() for name, tensor in made.population.buffers.items()}
    realised = made.family.realise(own, shared, noise).with_buffers(buffers)
    if mode != "alone":
        return run_members(structure, realised, made.x, noise, mode == "direct")
    rows = []
    for i in range(len(made.x)):
        mine = {name: tensor[i : i + 1] for name, tensor in own.items()}
        theirs = {name: tensor[i : i + 1] for name, tensor in buffers.items()}
        one = made.family.realise(mine, shared, noise[i : i + 1]).with_buffers(theirs)
        rows.append(run_members(structure, one, made.x[i : i + 1], noise[i : i + 1], False))
    return torch.cat(rows)


def effective_parameters(made: RankOneMembers, own: Named, shared: Named, member: int, inside: bool) -> Named:
    """The parameters of a plain network that is this member: every kernel entry times its two factors."""
    tensors = {**{name: tensor[member] for name, tensor in own.items()}, **shared}
    found = {name: tensor for name, tensor in tensors.items() if ":" not in name}
    for kernel in made.trace.kernels:
        ones = torch.ones(max(kernel.inputs, kernel.outputs), dtype=torch.float64)
        into, out = (tensors.get(kernel.name + companion, ones) for companion in (":in", ":out"))
        rows, columns = found[kernel.name].shape[:2]
        scale = torch.stack(
            [torch.stack([factor(kernel, into, out, a, b) for b in range(columns)]) for a in range(rows)]
        )
        weight = found[kernel.name]
        found[kernel.name] = weight * scale.reshape(*scale.shape, *(1,) * (weight.dim() - 2))
        for bias in kernel.biases if inside else ():
            found[bias] = found[bias] * out[: kernel.outputs]
    return found


def factor(kernel, into: Tensor, out: Tensor, a: int, b: int) -> Tensor:
    """What scales entry (a, b) of a kernel: its rows are divided among groups, its columns count within one."""
    if kernel.transposed:
        group = a // (kernel.inputs // kernel.groups)
        return into[a] * out[group * (kernel.outputs // kernel.groups) + b]
    group = a // (kernel.outputs // kernel.groups)
    ones_too_many = min(kernel.inputs, len(into))  # a factor that is not there is a long row of ones
    channel = (group * (kernel.inputs // kernel.groups) + b) * ones_too_many // kernel.inputs
    return out[a] * into[channel]  # a flattened picture has one factor a channel


ESTIMATORS = ["local", "draw", "flipout"]


def numbers(values) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class ConstantNoise(Noise):
    """A stream in which every normal number is the same."""

    def __init__(self, value: float) -> None:
        super().__init__(0, 0)
        self.value = value

    def normal(self, like: Tensor, rough: bool = False) -> Tensor:
        return torch.full(like.shape, self.value, dtype=like.dtype)


@contextmanager
def noisy_network(net: nn.Module, stds: dict[str, Tensor | float], text: str, x: Tensor, copies: int = 1) -> Iterator:
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
        noise: list[Noise], *, training: bool = True, mode: str = "mapped", family: NetworkWeights = family
    ) -> Tensor:
        realised = family.realise(population.own, {}, noise, training=training)
        inputs = x.expand(copies, *x.shape)
        return run_members(Structure(net), realised, inputs, noise, mode == "direct")

    yield run
