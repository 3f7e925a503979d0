"""Alignment of one network to another by permutations of its hidden units, which do not change its function.

Two networks that were trained alone number their units differently; on the straight line between them unlike units are
averaged. Weight matching chooses the permutations that bring the weights together (Ainsworth et al. 2022), activation
matching those that bring units with correlated activations together (Li et al. 2015).

Which axes of which tensors are permuted together is read off the network's graph: channels of a layer, of the
batch-norm after it and of the layers that take them; the two sides of a residual sum share their channels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn

from murmuration.core.population import Named
from murmuration.studies.landscape import Result
from murmuration.studies.weight_space import Networks, Points, points_of
from murmuration.system.errors import Misuse, unknown

Method = Literal["weights", "activations"]
Permutation = NDArray[np.int64]
SWEEPS = 100  # of coordinate descent, at most
CHUNK = 256  # inputs of a forward pass
KERNELS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.modules.batchnorm._BatchNorm,)
PASSING = (  # modules that keep channels as they are, without parameters
    *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardtanh, nn.Mish, nn.SELU),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.Identity, nn.Upsample, nn.ZeroPad2d, nn.Flatten),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
)
SUMS = ("add", "iadd", "add_")
FUNCTIONS = (  # functions and methods that do the same, by name
    *("relu", "relu_", "leaky_relu", "elu", "gelu", "silu", "tanh", "sigmoid", "softplus", "dropout", "flatten"),
    *("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "contiguous"),
)


@dataclass(frozen=True)
class Axis:
    """An axis of a tensor along which units of a group lie, each as a block of `block` entries."""

    tensor: str
    axis: int
    block: int = 1


@dataclass(frozen=True)
class Group:
    """Units that can only be permuted together: the layers whose outputs they are, and all their axes."""

    units: int
    layers: tuple[str, ...]
    axes: tuple[Axis, ...]

    @property
    def name(self) -> str:
        return self.layers[0]


@dataclass(eq=False)
class _Channels:
    """Channels of activations while the graph is read; those that were merged into others refer to them."""

    units: int | None = None  # None: inputs and outputs of the network, which keep their order
    layers: list[str] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    merged: "_Channels | None" = None

    def root(self) -> "_Channels":
        return self if self.merged is None else self.merged.root()


def permutation_groups(module: nn.Module) -> list[Group]:
    """Return the groups of hidden units of a network, in the order of its layers; refuses layers it cannot follow.

    >>> [(group.name, group.units) for group in permutation_groups(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)))]
    [('0', 8)]
    """
    reader = _Reader(module)
    try:
        graph = fx.Tracer().trace(module)
    except Exception as error:  # whatever a forward method does that cannot be traced
        raise Misuse(f"the graph of {type(module).__name__} cannot be read for its permutations: {error}") from None
    for node in graph.nodes:
        reader.read(node)
    roots = [channels for channels in reader.made if channels.merged is None and channels.units is not None]
    return [Group(channels.units or 0, tuple(channels.layers), tuple(channels.axes)) for channels in roots]


class _Reader:
    """Follows channels through a graph."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.made: list[_Channels] = []  # in the order of the layers
        self.channels: dict[fx.Node, _Channels] = {}
        self.maps: set[fx.Node] = set()  # nodes whose channels are feature maps, not yet flattened
        self.used: set[str] = set()  # layers with parameters

    def read(self, node: fx.Node) -> None:
        before = [self.channels[channels].root() for channels in node.all_input_nodes]
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        flat = False
        if node.op == "placeholder":
            self.channels[node] = _Channels()
        elif node.op == "output":
            for channels in before:
                channels.units = None
        elif node.op == "call_module":
            layer = self.module.get_submodule(name)
            flat = isinstance(layer, nn.Flatten | nn.Linear)
            self.channels[node] = self.through(name, layer, before[0], bool(self.maps & set(node.all_input_nodes)))
            self.maps |= {node} if isinstance(layer, KERNELS) and not flat else set()
        elif name in SUMS and len(before) == 2:
            self.channels[node] = merge(*before)
        elif name in FUNCTIONS:
            flat = name == "flatten"
            self.channels[node] = before[0]
        else:
            raise Misuse(f"'{node.name}' ({name}): units cannot be followed through it")
        self.maps |= {node} if self.maps & set(node.all_input_nodes) and not flat else set()

    def through(self, name: str, layer: nn.Module, before: _Channels, mapped: bool) -> _Channels:
        """Return the channels after a layer, whose tensors are noted at the channels they belong to."""
        if isinstance(layer, KERNELS + NORMS):
            if name in self.used:
                raise Misuse(f"layer '{name}' is used twice: its units cannot be permuted freely")
            self.used.add(name)
        if isinstance(layer, NORMS):
            for key, tensor in (*layer.named_parameters(), *layer.named_buffers()):
                before.axes += [self.axis(f"{name}.{key}", 0, len(tensor), before)] if tensor.dim() else []
            return before
        if isinstance(layer, KERNELS):
            if getattr(layer, "groups", 1) != 1:
                raise Misuse(f"layer '{name}' is a convolution in groups: its units cannot be permuted freely")
            if mapped and isinstance(layer, nn.Linear):
                raise Misuse(f"layer '{name}' takes feature maps that were not flattened: units cannot be followed")
            before.axes.append(self.axis(f"{name}.weight", 1, layer.weight.shape[1], before))
            after = _Channels(len(layer.weight), [name], [Axis(f"{name}.weight", 0)])
            after.axes += [] if layer.bias is None else [Axis(f"{name}.bias", 0)]
            self.made.append(after)
            return after
        if not isinstance(layer, PASSING):
            raise Misuse(f"layer '{name}' is {type(layer).__name__}: units cannot be followed through it")
        return before

    def axis(self, tensor: str, axis: int, size: int, channels: _Channels) -> Axis:
        """Return the axis of a tensor that takes channels, each as a block of entries."""
        if size % (channels.units or 1):
            raise Misuse(f"'{tensor}' takes {size} inputs from {channels.units} units: expected a multiple of them")
        return Axis(tensor, axis, size // (channels.units or 1))


def merge(one: _Channels, two: _Channels) -> _Channels:
    """Return the channels of a sum, both sides of which are permuted together."""
    if one is not two:
        one.units = None if None in (one.units, two.units) else one.units
        one.layers += two.layers
        one.axes += two.axes
        two.merged = one
    return one


def permuted(tensors: Mapping[str, Tensor], groups: list[Group], orders: Mapping[str, Permutation]) -> Named:
    """Return tensors of a network with the units of each group in a new order.

    Unit i is the old unit orders[group][i].
    """
    reordered = dict(tensors)
    for group in groups:
        for axis in group.axes:
            reordered[axis.tensor] = _reordered(reordered[axis.tensor], axis, orders[group.name])
    return reordered


def _reordered(tensor: Tensor, axis: Axis, order: Permutation) -> Tensor:
    places = torch.as_tensor(order).unsqueeze(1) * axis.block + torch.arange(axis.block)
    return tensor.index_select(axis.axis, places.flatten())


def _matrix(tensor: Tensor, axis: Axis) -> Tensor:
    """Return the tensor as one row per unit of an axis, in double precision."""
    rows = tensor.movedim(axis.axis, 0)
    return rows.reshape(len(rows) // axis.block, -1).double()


def _assign(gain: Tensor) -> Permutation:
    """Return the order of the columns that makes the diagonal sum of a square matrix largest."""
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(gain.numpy(), maximize=True)[1]


def match_weights(reference: Named, tensors: Named, groups: list[Group]) -> dict[str, Permutation]:
    """Return orders of the units of a network that bring its weights nearest to the reference's, by coordinate descent.

    One group after another is assigned with the others as they are, which never lowers <reference, permuted>, until
    nothing changes. Descents from the first group to the last and backwards are both made, and the better kept.
    """
    names = {axis.tensor for group in groups for axis in group.axes}

    def run(sequence: list[Group]) -> tuple[float, dict[str, Permutation]]:
        orders = {group.name: np.arange(group.units) for group in groups}
        current = {name: tensors[name] for name in names}
        for _ in range(SWEEPS):
            changed = False
            for group in sequence:
                pairs = ((_matrix(reference[a.tensor], a), _matrix(current[a.tensor], a)) for a in group.axes)
                gain = sum(one @ two.T for one, two in pairs)
                order = _assign(gain)  # type: ignore[arg-type]
                gained = float(gain[range(group.units), order].sum() - gain.trace())  # type: ignore[index,union-attr]
                if gained > 1e-9 * float(gain.abs().max()):  # type: ignore[union-attr]
                    changed = True
                    orders[group.name] = orders[group.name][order]
                    for axis in group.axes:
                        current[axis.tensor] = _reordered(current[axis.tensor], axis, order)
            if not changed:
                break
        return sum(float((reference[name].double() * current[name].double()).sum()) for name in names), orders

    return max((run(groups), run(groups[::-1])), key=lambda outcome: outcome[0])[1]


def match_activations(one: nn.Module, two: nn.Module, x: Tensor, groups: list[Group]) -> dict[str, Permutation]:
    """Match units of the second network to those of the first whose activations on inputs x correlate most.

    Activations are the outputs of the layers of a group, at every place of a feature map.
    """
    moments = {group.name: _Moments() for group in groups}
    for part in x.split(CHUNK):
        first, second = (_activations(net, part, groups) for net in (one, two))
        for group in groups:
            for layer in group.layers:
                moments[group.name].add(first[layer], second[layer])
    return {name: _assign(sums.correlation()) for name, sums in moments.items()}


class _Moments:
    """Sums over examples, from which correlations of units of two networks follow."""

    def __init__(self) -> None:
        self.count, self.sums = 0, [torch.zeros(())] * 5

    def add(self, a: Tensor, b: Tensor) -> None:
        """Add activations (n, units) of both networks."""
        self.count += len(a)
        new = (a.sum(0), b.sum(0), a.square().sum(0), b.square().sum(0), a.T @ b)
        self.sums = [before + more for before, more in zip(self.sums, new, strict=True)]

    def correlation(self) -> Tensor:
        """Return correlations (units, units); 0 of a unit that is constant."""
        a, b, aa, bb, ab = (total / self.count for total in self.sums)
        variance = torch.outer(aa - a.square(), bb - b.square()).clamp(min=0)
        covariance = ab - torch.outer(a, b)
        return torch.where(variance > 1e-24, covariance / variance.sqrt().clamp(min=1e-12), 0.0)


@torch.no_grad()
def _activations(net: nn.Module, x: Tensor, groups: list[Group]) -> dict[str, Tensor]:
    """Return outputs (n, units) of the layers of all groups by name, places of a feature map as examples."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        outputs[name] = output.movedim(1, -1).flatten(0, -2).double()

    layers = [name for group in groups for name in group.layers]
    handles = [net.get_submodule(name).register_forward_hook(partial(keep, name)) for name in layers]
    try:
        net(x)
    finally:
        for handle in handles:
            handle.remove()
    return outputs


@dataclass(frozen=True, eq=False)
class Alignment(Result):
    """A network whose hidden units were permuted to match another's; it computes the same function as before."""

    method: Method
    points: Points  # the permuted network
    orders: dict[str, Permutation]  # name of a group's first layer -> old unit at every new place
    cosine_before: float  # of the weight vectors of both networks
    cosine_after: float
    DERIVED: ClassVar[tuple[str, ...]] = ("moved",)

    @property
    def moved(self) -> float:
        """The fraction of units that changed places."""
        return float(np.mean(np.concatenate([order != np.arange(len(order)) for order in self.orders.values()])))


def align(
    networks: Networks, *, reference: int = 0, member: int = 1, method: Method = "weights", x: Tensor | None = None
) -> Alignment:
    """Permute the hidden units of one network to match those of a reference; its function does not change.

    Args:
        networks: An ensemble, `Points`, or modules of one architecture.
            Dense, convolutional, batch-norm, pointwise and pooling layers are supported, in sequence or with residual
            sums.
        reference: Index of the network to match.
        member: Index of the network to permute.
        method: "weights" compares weights, "activations" the activations on `x`.
        x: Prepared inputs (N, ...), for method="activations".

    Returns:
        The permuted network with the permutations, and the cosines of the weights before and after.

    Raises:
        Misuse: For an index out of range, a layer whose units cannot be followed, or activations without `x`.
    """
    points = points_of(networks)
    for number in (reference, member):
        if not 0 <= number < len(points):
            raise Misuse(f"network {number} of {len(points)}: expected a number from 0 to {len(points) - 1}")
    groups = permutation_groups(points.space.module)
    both = [points.tensors(number) for number in (reference, member)]
    if method == "weights":
        weights = {name for name, _ in points.space.module.named_parameters()}
        trained = [replace(g, axes=tuple(a for a in g.axes if a.tensor in weights)) for g in groups]
        orders = match_weights(both[0], both[1], trained)
    elif method == "activations":
        if x is None:
            raise Misuse("activations are matched on inputs: give x=, prepared inputs such as data.train.prepared")
        orders = match_activations(points.module(reference), points.module(member), x, groups)
    else:
        raise unknown("method", method, ("weights", "activations"))
    moved = permuted(both[1], groups, orders)
    vector = points.space.flatten({name: moved[name].unsqueeze(0) for name in points.space.shapes})
    buffers = {name: moved[name].unsqueeze(0) for name in points.buffers}
    target, before = points.vectors[reference], points.vectors[member]
    aligned = replace(points, vectors=vector, buffers=buffers)
    return Alignment(method, aligned, orders, _cosine(target, before), _cosine(target, vector[0]))


def _cosine(a: Tensor, b: Tensor) -> float:
    one, two = a.double(), b.double()
    return float(one @ two / (one.norm() * two.norm()))
