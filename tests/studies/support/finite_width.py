"""A network of finite width with all its parameters in the open: what the limits are limits of.

The plainest form of an embedded ensemble, to compare other code with. Layers are those of `limits.py`; everything is
float64 unless drawn otherwise. Members run one after the other, so that equal members stay equal to the last bit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from kernel_matrices import Descent
from torch import Tensor

from murmuration.core.tangent_kernels import pairwise_products
from murmuration.studies.infinite_width import Architecture
from murmuration.studies.tangent_kernels import MemberKernels
from murmuration.system.errors import Misuse


@dataclass(frozen=True)
class EmbeddedMLP:
    """M members in one network of widths d, N_1..N_L, 1; calling it with x (n, d) gives outputs (M, n).

    weights  L + 1 of (N before, N after), shared
    biases   L + 1 of (1, N) if shared, (M, N) if a member's own, zero and never trained if there are none
    u, v     L of (M, N)
    """

    architecture: Architecture
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    u: tuple[Tensor, ...]
    v: tuple[Tensor, ...]

    def __call__(self, x: Tensor) -> Tensor:
        return run(self, x).outputs

    @property
    def members(self) -> int:
        return len(self.u[0])

    @property
    def shared(self) -> tuple[Tensor, ...]:
        """The trained parameters all members share."""
        return self.weights + biases_of(self, "shared")

    @property
    def own(self) -> tuple[Tensor, ...]:
        """The trained parameters of members, each with a leading axis M."""
        design = self.architecture
        return (self.u if design.train_u else ()) + (self.v if design.train_v else ()) + biases_of(self, "member")


@dataclass(frozen=True)
class Pass:
    """One forward pass: what enters each of L + 1 layers (M, n, N), pre-activations (M, n, N), outputs (M, n)."""

    inputs: tuple[Tensor, ...]
    sums: tuple[Tensor, ...]
    outputs: Tensor


def draw_network(
    architecture: Architecture,
    widths: Sequence[int],
    members: int,
    generator: torch.Generator,
    *,
    dtype: torch.dtype = torch.float64,
) -> EmbeddedMLP:
    """A network of widths (d, N_1, .., N_L) drawn from the architecture's laws."""
    if len(widths) != architecture.depth + 1:
        raise Misuse(f"{len(widths)} widths for {architecture.depth} hidden layers: give the input's and one a layer")
    sizes = [*widths, 1]

    def normal(rows: int, columns: int, deviation: float) -> Tensor:
        return deviation * torch.randn(rows, columns, generator=generator, dtype=dtype)

    rows = {"shared": (1, architecture.scales.bias_deviation), "member": (members, architecture.scales.bias_deviation)}
    weights = tuple(normal(*pair, architecture.scales.weight_deviation) for pair in pairwise(sizes))
    biases = []
    for layer, size in enumerate(sizes[1:]):
        count, deviation = rows.get(architecture.bias_of(layer), (1, 0.0))
        biases.append(normal(count, size, deviation))
    u, v = (
        tuple(law.sample((members, size), generator, dtype=dtype) for law, size in zip(laws, widths[1:], strict=True))
        for laws in (architecture.u, architecture.v)
    )
    return EmbeddedMLP(architecture, weights, tuple(biases), u, v)


def run(network: EmbeddedMLP, x: Tensor) -> Pass:
    """The forward pass of x (n, d) through all members, with everything in between."""
    inputs, sums = [x.expand(network.members, *x.shape)], []
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        gain = network.architecture.scales.weight_gain / math.sqrt(len(weight))
        product = torch.stack([each @ weight for each in inputs[layer]])  # (M, n, N)
        sums.append(gain * product + bias_gain(network, layer) * bias[:, None, :])
        if layer < network.architecture.depth:
            u, v = network.u[layer][:, None, :], network.v[layer][:, None, :]
            inputs.append(u * activate(network, v * sums[layer]))
    return Pass(tuple(inputs), tuple(sums), sums[-1].squeeze(2))


def empirical_kernels(network: EmbeddedMLP, x1: Tensor, x2: Tensor) -> MemberKernels:
    """The network's own tangent kernels of x1 (n1, d) and x2 (n2, d), without any Jacobian.

    With delta = df/dz of a layer: <df/dW, df'/dW> = g_w² <x, x'> / N <delta, delta'> and <df/db, df'/db> = g_b² <delta,
    delta'>. Memory grows as members times inputs times width, not times parameters.
    """
    one, two = run(network, x1), run(network, x2)
    slopes_one, slopes_two = gradients(network, one), gradients(network, two)
    common = torch.zeros((), dtype=x1.dtype)
    individual = torch.zeros(network.members, len(x1), len(x2), dtype=x1.dtype)
    for layer, weight in enumerate(network.weights):
        entering = (
            pairwise_products(one.inputs[layer], two.inputs[layer])
            * network.architecture.scales.weight_gain**2
            / len(weight)
        )
        moving = pairwise_products(slopes_one.sums[layer], slopes_two.sums[layer])
        squared = bias_gain(network, layer) ** 2
        if network.architecture.bias_of(layer) == "member":
            individual = individual + squared * torch.einsum("aiaj->aij", moving)
            squared = 0.0
        common = common + (entering + squared) * moving
    for first, second in zip(slopes_one.own, slopes_two.own, strict=True):
        individual = individual + first @ second.mT
    return MemberKernels(common, individual)


@dataclass(frozen=True)
class Slopes:
    """Derivatives of outputs: by pre-activations of L + 1 layers, and by the trained u and v, each (M, n, N)."""

    sums: tuple[Tensor, ...]
    own: tuple[Tensor, ...]


def gradients(network: EmbeddedMLP, done: Pass) -> Slopes:
    """The derivatives of the outputs of one pass, from the last layer to the first."""
    sums, own = [torch.ones_like(done.sums[-1])], []
    for layer in reversed(range(network.architecture.depth)):
        weight = network.weights[layer + 1]
        by_input = network.architecture.scales.weight_gain / math.sqrt(len(weight)) * sums[0] @ weight.mT
        u, v, z = network.u[layer][:, None, :], network.v[layer][:, None, :], done.sums[layer]
        through = by_input * u * slope(network, v * z)
        own += [by_input * activate(network, v * z)] if network.architecture.train_u else []
        own += [through * z] if network.architecture.train_v else []
        sums.insert(0, through * v)
    return Slopes(tuple(sums), tuple(own))


def train_network(network: EmbeddedMLP, x: Tensor, targets: Tensor, descent: Descent) -> EmbeddedMLP:
    """The network after gradient descent on the mean of (f - y)² / 2 over x (n, d), targets (n,), the same for all.

    `descent.time` steps at rate mu_w gamma / M of the sum of members' gradients for shared parameters, and mu_u for
    members' own.
    """
    if not descent.discrete:
        raise Misuse("a network of finite width is trained in steps: write discrete=True")
    for _ in range(int(descent.time)):
        network = one_step(network, x, targets, descent)
    return network


def one_step(network: EmbeddedMLP, x: Tensor, targets: Tensor, descent: Descent) -> EmbeddedMLP:
    """The network after one step of gradient descent."""
    ready = with_parameters(network, [each.detach().requires_grad_() for each in network.shared + network.own])
    parameters = ready.shared + ready.own
    # The sum of losses: a member's own parameters meet the gradient of its own loss alone.
    loss = 0.5 * (ready(x) - targets).square().mean(1).sum()
    rates = [descent.shared_rate * descent.gamma / network.members] * len(network.shared)
    rates += [descent.own_rate] * len(network.own)
    steps = torch.autograd.grad(loss, parameters)
    moved = [each - rate * step for each, rate, step in zip(parameters, rates, steps, strict=True)]
    return with_parameters(network, [each.detach() for each in moved])


def with_parameters(network: EmbeddedMLP, parameters: Sequence[Tensor]) -> EmbeddedMLP:
    """The network with its trained parameters replaced, in the order of `shared` and `own`."""
    new = dict(zip(map(id, network.shared + network.own), parameters, strict=True))

    def swap(group: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(new.get(id(each), each) for each in group)

    return replace(
        network, weights=swap(network.weights), biases=swap(network.biases), u=swap(network.u), v=swap(network.v)
    )


def biases_of(network: EmbeddedMLP, owner: str) -> tuple[Tensor, ...]:
    """The biases of this owner, "shared" or "member", in the order of layers."""
    return tuple(bias for layer, bias in enumerate(network.biases) if network.architecture.bias_of(layer) == owner)


def bias_gain(network: EmbeddedMLP, layer: int) -> float:
    return 0.0 if network.architecture.bias_of(layer) == "none" else network.architecture.scales.bias_gain


def activate(network: EmbeddedMLP, z: Tensor) -> Tensor:
    return z.relu() if network.architecture.activation == "relu" else z.erf()


def slope(network: EmbeddedMLP, z: Tensor) -> Tensor:
    """The derivative of the activation, 0 for ReLU at 0."""
    return (z > 0).to(z.dtype) if network.architecture.activation == "relu" else 2 / math.sqrt(math.pi) * (-z * z).exp()
