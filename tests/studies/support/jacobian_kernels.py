"""Small populations of every kind in double precision, and their tangent kernels by explicit Jacobians."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from kernel_matrices import gaussian
from torch import Tensor, nn
from torch.func import functional_call

from murmuration.core.population import Named, Population, populate
from murmuration.core.sharing import SHARING
from murmuration.core.weights import WEIGHTS, NetworkWeights, trace_kernels
from murmuration.core.weights.family import INTO, OUT, effective_kernel
from murmuration.core.weights.kernel_trace import bias_of
from murmuration.models.nets.dense import mlp
from murmuration.models.nets.resnets import resnet20
from murmuration.studies.tangent_kernels import MemberKernels
from murmuration.system.option_text import parse
from murmuration.system.streams import generator, global_stream


@dataclass(frozen=True)
class Crowd:
    module: nn.Module
    population: Population
    family: NetworkWeights

    def tensors(self, member: int) -> tuple[Named, Named]:
        """What belongs to a member, and its buffers."""
        return tuple({n: t[member] for n, t in d.items()} for d in (self.population.own, self.population.buffers))


def crowd(
    build: Callable[[], nn.Module], x: Tensor, sharing: str = "own", weights: str = "point", members: int = 3
) -> Crowd:
    """A population as training begins with, but shaken: biases, scales and statistics are all different."""
    shares, weighs = parse(sharing, "sharing", SHARING), parse(weights, "weights", WEIGHTS)

    def built(index: int) -> nn.Module:
        with global_stream(0, "initialisation", index):
            return build().double()

    def stream(member: int) -> torch.Generator:
        return generator(0, "factors", member)

    module = built(0)
    trace = trace_kernels(module, x[:2])
    population = populate(built, members, shares.predicate(module, trace))
    population = weighs.init(shares.add_factors(population, trace, stream), trace, stream)
    chance = torch.Generator().manual_seed(5)
    for name, tensor in {**population.own, **population.shared, **population.buffers}.items():
        if tensor.is_floating_point() and not name.endswith((INTO, OUT)):
            tensor += 0.2 * torch.rand(tensor.shape, generator=chance, dtype=torch.float64)
    doubled = population.map(lambda t: t.double() if t.is_floating_point() else t)
    return Crowd(module, doubled, weighs.in_network(trace, bias_inside=shares.bias_inside))


def plain_outputs(given: Crowd, tensors: Named, x: Tensor) -> Tensor:
    """Outputs of a member as a plain network, all that scales its kernels multiplied in."""
    spec = given.family.spec
    plain = {name: effective_kernel(kernel, tensors, tensors[name]) for name, kernel in spec.kernels.items()}
    if spec.bias_inside:
        for name in spec.kernels:
            if name + OUT in tensors and bias_of(name) in tensors:
                plain[bias_of(name)] = tensors[bias_of(name)] * tensors[name + OUT]
    named = {name: tensor for name, tensor in tensors.items() if not name.endswith((INTO, OUT))}
    return functional_call(given.module.eval(), {**named, **plain}, (x,))


def jacobian_kernels(given: Crowd, x1: Tensor, x2: Tensor) -> MemberKernels:
    """The kernels of all outputs, (M, n1 K, M, n2 K) and (M, n1 K, n2 K), by whole Jacobians,
    an example and an output at a time."""

    def rows(member: int, x: Tensor) -> tuple[Tensor, Tensor]:  # (n K, P) by own and by shared parameters
        own, buffers = given.tensors(member)
        named = {**own, **given.population.shared}
        leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in named.items()}
        found = []
        for example in x:
            for output in plain_outputs(given, {**leaves, **buffers}, example[None])[0]:
                slopes = torch.autograd.grad(output, list(leaves.values()), retain_graph=True, materialize_grads=True)
                found.append(torch.cat([each.flatten() for each in slopes]))
        mine = sum(tensor.numel() for tensor in own.values())
        return torch.stack(found)[:, :mine], torch.stack(found)[:, mine:]

    members = range(given.population.members)
    ones, twos = ([rows(member, x) for member in members] for x in (x1, x2))
    common = torch.stack([torch.stack([a[1] @ b[1].mT for b in twos], 1) for a in ones])
    return MemberKernels(common, torch.stack([a[0] @ b[0].mT for a, b in zip(ones, twos, strict=True)]))


def mean_over_outputs(blocks: MemberKernels, outputs: int) -> MemberKernels:
    """The trace over outputs, divided by their number."""
    members, rows, _, columns = blocks.common.shape
    shape = (members, rows // outputs, outputs, members, columns // outputs, outputs)
    common = torch.einsum("aikbjk->aibj", blocks.common.reshape(shape)) / outputs
    own = blocks.individual.reshape(members, rows // outputs, outputs, columns // outputs, outputs)
    return MemberKernels(common, torch.einsum("aikjk->aij", own) / outputs)


def dense() -> nn.Module:
    return mlp((4,), 3, hidden=(6, 5), activation="tanh")


def bent() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.PReLU(3), nn.Linear(3, 2))


def lenet() -> nn.Module:
    """Groups, strides, paddings and an operator in place."""
    return nn.Sequential(
        *[nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False), nn.ReLU(inplace=True)],
        *[nn.Conv2d(4, 6, (3, 2), groups=2, padding=(2, 0)), nn.Tanh(), nn.AvgPool2d(2)],
        *[nn.Flatten(), nn.LazyLinear(5), nn.ReLU(inplace=True), nn.Linear(5, 2)],
    )


def built_lenet() -> nn.Module:
    net = lenet()
    net(torch.zeros(1, 2, 9, 8))
    return net


def strange_convolutions() -> nn.Module:
    """One axis and three, a padding by name, dilation, depthwise kernels, and transposed ones that put more in."""
    return nn.Sequential(
        *[nn.Conv1d(3, 3, 4, padding="same", dilation=3, groups=3), nn.Tanh()],
        *[nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1, output_padding=1), nn.Tanh()],
        *[nn.ConvTranspose1d(4, 6, 2, groups=2, dilation=3, stride=2, output_padding=2), nn.Tanh()],
        *[
            nn.Unflatten(2, (2, -1, 1)),
            nn.Conv3d(6, 2, (2, 3, 1), stride=(1, 2, 1), padding_mode="circular", padding=1),
        ],
        *[nn.Flatten(), nn.LazyLinear(2)],
    )


def built_strange() -> nn.Module:
    net = strange_convolutions()
    net(torch.zeros(1, 3, 5))
    return net


def normed() -> nn.Module:
    return nn.Sequential(
        *[nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.GroupNorm(2, 4), nn.Flatten(2)],
        *[nn.Linear(9, 3), nn.LayerNorm((4, 3)), nn.RMSNorm(3), nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 2)],
    )


class Attending(nn.Module):
    """A transformer's layer with or without sequences first: as many positions as there are examples."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.3, batch_first=batch_first)
        self.axis = 1 if batch_first else 0
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x if self.axis else x.transpose(0, 1)).mean(self.axis))


class Odd(nn.Module):
    """A kernel used twice, one that is also used in another way, an embedding, a product, PReLU, a spare parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3)
        self.twice, self.tied, self.act = nn.Linear(3, 3), nn.Linear(3, 5, bias=False), nn.PReLU(3)
        self.table, self.spare = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(2))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.twice(torch.tanh(self.twice(self.words(x).mean(1)))))
        h = self.act(h @ self.table)
        return F.dropout(self.tied(h), 0.5, self.training)[:, :2] + self.tied.weight.square().mean() * h[:, :2]


CASES = {  # network, shape of an input, sharing, weights
    "own": (dense, (4,), "own", "point"),
    "everything": (dense, (4,), "all", "masks:distribution=inverted_0.5"),
    "masks": (dense, (4,), "own", "masks:distribution=bernoulli_0.5"),
    "backbone": (dense, (4,), "backbone", "point"),
    "head": (dense, (4,), "head", "point"),
    "rank-one": (dense, (4,), "rank-one", "point"),
    "rank-one, dropout": (dense, (4,), "rank-one", "dropout"),
    "bent, dropout": (bent, (4,), "names:shared=*.bias;1.*", "dropout"),
    "rank-one-uv": (dense, (4,), "rank-one-uv", "point"),
    "lenet": (built_lenet, (2, 9, 8), "own", "point"),
    "lenet, rank-one": (built_lenet, (2, 9, 8), "rank-one:bias=inside", "point"),
    "lenet, masks": (built_lenet, (2, 9, 8), "all", "masks"),
    "convolutions": (built_strange, (3, 5), "names:shared=0.*;4.*", "point"),
    "convolutions, rank-one": (built_strange, (3, 5), "rank-one-uv", "point"),
    "norms": (normed, (2, 5, 5), "rank-one", "point"),
    "norms shared": (normed, (2, 5, 5), "rank-one:norm=shared,bias=shared", "point"),
    "residual": (lambda: resnet20((1, 4, 4), 2), (1, 4, 4), "rank-one", "point"),
    "attention": (lambda: Attending(True), (3, 4), "backbone", "point"),
    "attention, dropout": (lambda: Attending(True), (3, 4), "rank-one", "dropout"),
    "attention, rank-one": (lambda: Attending(True), (3, 4), "rank-one-uv", "point"),
    "attention, sequences first": (lambda: Attending(False), (5, 4), "own", "point"),
    "odd": (Odd, (4,), "names:shared=t*", "point"),
}


def case(name: str, members: int = 2) -> tuple[Crowd, Tensor, Tensor]:
    build, shape, sharing, weights = CASES[name]
    x = gaussian(5, *shape, seed=3) if name != "odd" else torch.arange(20).reshape(5, 4) ** 2 % 5
    return crowd(build, x, sharing, weights, members), x[:3], x[3:]
