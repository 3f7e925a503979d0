"""Derivatives of members' outputs for tangent kernels between them, and the gamma that these suggest.

The kernel of members a and b is <df_a(x)/dw, df_b(x')/dw>, with w the parameters that they share. Networks run in
evaluation mode: batch-norm by its running statistics, no dropout; fixed masks act and are not parameters. Outputs of
one example must not depend on the other examples.

The derivative of an output by a kernel is a sum over positions of (derivative by the layer's output) times (the layer's
input), so one recorded pass per member is enough and no Jacobian of the kernel's size is stored (`KernelRecorder`).
Parameters that scale or shift channels get one copy per example, so that one backward pass computes the derivatives of
all examples. Parameters used in any other way are identified beforehand (`traceable_parameters`) and differentiated
example by example.

Inner products are then, with `lhs` and `rhs` the two factors at position p of each group of channels,

    sum over p, q of <lhs_p, lhs'_q> <rhs_p, rhs'_q>

For a dense layer this is the elementwise product of two small Gram matrices. A convolution has patches as `rhs`, a
transposed convolution has the sides exchanged. With many positions it is cheaper to compute the derivatives of a few
channels at a time.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import grad, vmap
from torch.utils._pytree import tree_leaves

from murmuration.core.population import KEPT, Named, Population
from murmuration.core.weights import ForwardSpec, NetworkWeights, Structure
from murmuration.core.weights.dropout_masks import COVERED
from murmuration.core.weights.family import INTO, OUT
from murmuration.core.weights.kernel_trace import LINEARS, bias_of, repeat_channels
from murmuration.core.weights.operators import ForwardTensors, Intercept, bind, is_getter
from murmuration.system.errors import Misuse

BUDGET = 1 << 22  # entries of temporary tensors
FROM_CHANNEL: set[Callable] = {F.batch_norm, F.group_norm}  # scale and shift along axis 1; others along the last axes
NORMS: set[Callable] = FROM_CHANNEL | {F.layer_norm, F.rms_norm}
PLAIN = ("stride", "padding", "dilation", "groups")  # arguments after the bias of a convolution
TRANSPOSED = ("stride", "padding", "output_padding", "groups", "dilation")


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution over its input, or of a transposed one over its output."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]  # (before, after) for every axis
    groups: int
    transposed: bool


@dataclass(frozen=True)
class KernelUse:
    """One use of a kernel in a forward pass."""

    inputs: Tensor  # (n, ..., I), of a convolution (n, I, *axes)
    edge: GradientEdge  # through which the gradient by the output flows
    output_shape: torch.Size
    window: Window | None  # of a convolution


@dataclass(frozen=True)
class OutputGradients:
    """Gradients (n k, ...) by the output of a kernel in one use; k rows for each of n examples."""

    use: KernelUse
    gradients: Tensor
    rows_per_example: int = 1

    def sides(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Return the factors lhs (r, P, G, high) and rhs (r, P, G, wide) of r rows; see the module docstring."""
        gradients = self.gradients[rows]
        start, stop, _ = rows.indices(len(self.gradients))
        examples = rows if self.rows_per_example == 1 else torch.arange(start, stop) // self.rows_per_example
        inputs = self.use.inputs[examples]
        window = self.use.window
        if window is None:
            lhs, rhs = (side.reshape(len(side), -1, 1, side.shape[-1]) for side in (gradients, inputs))
            return lhs, rhs
        still, moved = (inputs, gradients) if window.transposed else (gradients, inputs)
        lhs = still.flatten(2).unflatten(1, (window.groups, -1)).permute(0, 3, 1, 2)
        return lhs, patches(moved, window, tuple(still.shape[2:]))


@dataclass(frozen=True)
class Derivatives:
    """One member's derivatives of k outputs on n examples, by kernels (in factors) and by other parameters."""

    kernels: dict[str, list[OutputGradients]]
    by_copies: Named  # (n k, P) each


class MemberPasses:
    """One recorded forward pass of every member over inputs x (n, ...), to differentiate outputs by parameters."""

    def __init__(
        self,
        module: nn.Module,
        population: Population,
        family: NetworkWeights,
        x: Tensor,
        trained: Callable[[str], bool] | None = None,
    ) -> None:
        """Run the members; `trained` tells by name which parameters to differentiate by, None stands for all."""
        self.structure, self.spec = Structure(module).train(False), replace(family.spec, rates={}, dropout="never")
        fixed = {name: t.expand(population.members, *t.shape[1:]) for name, t in population.fixed.items()}
        own = {**population.own, **population.buffers, **fixed}
        shared = {name: t.detach() for name, t in population.shared.items()}
        self.members = [{name: t[i].detach() for name, t in own.items()} | shared for i in range(population.members)]
        self.x = x.detach().to(next(iter(self.members[0].values())).device)
        names = frozenset(name for name in (*population.own, *population.shared) if trained is None or trained(name))
        pruned = {name for name in names if name + KEPT in population.buffers}  # differentiated, then masked
        traceable = traceable_parameters(self.structure, self.members[0], self.spec, self.x, names) - pruned
        self.untraceable = names - traceable
        self.traces = []
        for tensors in self.members:
            bound = bind(tensors, self.spec)
            with torch.enable_grad(), KernelRecorder(bound, tensors, len(self.x), traceable) as recording:
                outputs = self.structure(tensors, self.x)
            self.traces.append((outputs.reshape(len(outputs), -1), recording))
        self.outputs = self.traces[0][0]  # (n, K) of the first member

    def derivatives(self, units: list[int]) -> Iterator[list[Derivatives]]:
        """Yield all members' derivatives of these outputs: by traceable parameters, then by bundles of the others."""
        yield [backward(*traced, units) for traced in self.traces]
        limit, sizes = BUDGET // (len(self.x) * len(units) * len(self.members)), self.members[0]
        bundles: list[list[str]] = []  # of at most `limit` entries; a larger parameter is a bundle by itself
        for name in sorted(self.untraceable):
            if not bundles or sum(sizes[n].numel() for n in (*bundles[-1], name)) > limit:
                bundles.append([])
            bundles[-1].append(name)
        by = partial(jacobians, self.structure, self.spec)
        for bundle in bundles:
            yield [Derivatives({}, by(tensors, self.x, bundle, units)) for tensors in self.members]


def backward(outputs: Tensor, recording: "KernelRecorder", units: list[int]) -> Derivatives:
    """Return the derivatives of a member's outputs by all parameters of its trace, one backward pass per output."""
    uses = [use for group in recording.uses.values() for use in group]
    targets = [*(use.edge for use in uses), *map(get_gradient_edge, recording.copies.values())]
    shapes = [*(use.output_shape for use in uses), *(copy.shape for copy in recording.copies.values())]
    if not targets:
        return Derivatives({}, {})
    rows: list[tuple[Tensor, ...]] = []
    for unit in units:
        grads = torch.autograd.grad(outputs[:, unit].sum(), targets, retain_graph=True, allow_unused=True)
        pairs = zip(grads, shapes, strict=True)
        rows.append(tuple(outputs.new_zeros(shape) if gradient is None else gradient for gradient, shape in pairs))
    stacked = iter([torch.stack(group, 1).flatten(0, 1) for group in zip(*rows, strict=True)])
    gradients = {
        name: [OutputGradients(use, next(stacked), len(units)) for use in group]
        for name, group in recording.uses.items()
    }
    return Derivatives(gradients, {name: next(stacked).flatten(1) for name in recording.copies})


def jacobians(
    structure: Structure, spec: ForwardSpec, tensors: Named, x: Tensor, names: list[str], units: list[int]
) -> Named:
    """Return Jacobians (n k, P) of a member's outputs by some parameters, however used; 0 for pruned weights."""

    def one(replaced: Named, example: Tensor, unit: int) -> Tensor:
        all_tensors = {**tensors, **replaced}
        with Intercept(bind(all_tensors, spec), noise=()):
            return structure(all_tensors, example.unsqueeze(0)).reshape(-1)[unit]

    by = {name: tensors[name] for name in names}
    # One output after the other: jacrev would be a vmap inside a vmap, for which some operators have no rule.
    rows = [vmap(grad(one), in_dims=(None, 0, None))(by, x, unit) for unit in units]
    matrices = {name: torch.stack([row[name].flatten(1) for row in rows], 1).flatten(0, 1) for name in names}
    masks = {name: tensors[name + KEPT].flatten() for name in names if name + KEPT in tensors}
    return {name: matrices[name] * masks[name] if name in masks else matrices[name] for name in names}


def inner_products(members: Sequence[Derivatives], among: Iterable[str], rows: tuple[slice, slice]) -> Iterator[Tensor]:
    """Yield inner products (m, n1, m, n2) of m members' derivatives by each of these parameters."""
    for name in among:
        if name in members[0].kernels:
            gradients = [derivatives.kernels[name] for derivatives in members]
            lhs, rhs = joined_sides(gradients[0], slice(0, 1))
            cheap = lhs.shape[1] ** 2 * (lhs.shape[3] + rhs.shape[3]) < lhs.shape[3] * rhs.shape[3]
            yield (by_positions if cheap else by_channels)(gradients, *rows)
        if name in members[0].by_copies:
            stacked = torch.stack([d.by_copies[name] for d in members])  # (m, n, P)
            yield pairwise_products(*(stacked[:, part] for part in rows))


def trace_ratio(within: Tensor, between: Tensor) -> float:
    """Return rho = tr T_o / tr T_d of two kernels (n, n), within one member and between two."""
    return (between.trace() / within.trace()).item()


def smooth_gamma(members: int, ratio: float) -> float:
    """Return gamma = M / (1 + (M - 1) rho): M for independent members, 1 for identical ones.

    With this gamma the kernel of the members' mean has the trace of a single network's. Infinite at rho = -1/(M - 1),
    the smallest possible value, where members' steps cancel in their mean.

    >>> smooth_gamma(8, 0.0), smooth_gamma(8, 1.0)
    (8.0, 1.0)
    """
    check_members(members)
    weight = 1 + (members - 1) * ratio
    return members / weight if weight > 0 else math.inf


def measured_gamma(module: nn.Module, population: Population, family: NetworkWeights, x: Tensor) -> float:
    """Return `smooth_gamma` of the members' kernels on inputs x (n, ...), clamped to the range from 1 to M."""
    passes, members, everything = MemberPasses(module, population, family, x), population.members, slice(None)
    units = range(passes.outputs.shape[1])
    common = passes.outputs.new_zeros(members, len(x), members, len(x))
    for derivatives_of_members in chain.from_iterable(passes.derivatives([unit]) for unit in units):
        for product in inner_products(derivatives_of_members, population.shared, (everything, everything)):
            common += product
    gamma = smooth_gamma(members, trace_ratio(*average_common(common.div_(len(units)))))
    return min(max(gamma, 1.0), float(members))  # estimates from few inputs and narrow nets may lie outside


def average_common(common: Tensor) -> tuple[Tensor, Tensor]:
    """Return T_d and T_o (n1, n2), the means over members and over pairs of them; T_o of a single member is zero."""
    members = len(common)
    diagonal = torch.einsum("aiaj->ij", common)
    return diagonal / members, (common.sum((0, 2)) - diagonal) / max(members * (members - 1), 1)


def check_members(members: int) -> None:
    """Raise Misuse for fewer than one member."""
    if members < 1:
        raise Misuse(f"{members} members: give at least 1")


def traceable_parameters(
    structure: Structure, tensors: Mapping[str, Tensor], spec: ForwardSpec, x: Tensor, parameters: frozenset[str]
) -> frozenset[str]:
    """Return the parameters by which a `trace` can be differentiated.

    All their uses must be in known operators with examples along the first axis. Two passes, with two and with three
    examples, distinguish that axis from others of the same length.
    """
    unsupported: set[str] = set()
    usages = []
    for count in (2, 3):
        examples = x[:1].expand(count, *x.shape[1:])
        with torch.no_grad(), KernelRecorder(bind(tensors, spec), tensors, count, frozenset()) as recording:
            structure(tensors, examples)
        unsupported |= recording.unsupported
        usages.append(recording.usages)
    if len(usages[0]) != len(usages[1]):  # the operators depend on the number of examples
        return frozenset()
    for (names, two), (_, three) in zip(*usages, strict=True):
        if (two[:1], three[:1]) != ((2,), (3,)) or two[1:] != three[1:]:
            unsupported |= names
    return parameters - unsupported


class KernelRecorder(Intercept):
    """One member: records the inputs of kernels, and gives every example its own copy of other requested parameters."""

    def __init__(
        self, bound: ForwardTensors, tensors: Mapping[str, Tensor], examples: int, parameters: frozenset[str]
    ) -> None:
        super().__init__(bound, noise=())
        self.names = {id(tensor): name for name, tensor in tensors.items()}
        self.examples, self.parameters = examples, parameters
        self.uses: dict[str, list[KernelUse]] = {}
        self.copies: dict[str, Tensor] = {}
        self.unsupported: set[str] = set()  # parameters used by an unknown operator
        self.usages: list[tuple[set[str], tuple[int, ...]]] = []  # parameters used together, and the shape of the input

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in NORMS:
            return self.normalise(func, signature(func).bind(*args, **kwargs).arguments)
        if not (func in LINEARS and len(args) > 1) and not is_getter(func) and func not in COVERED:
            for value in tree_leaves((args, kwargs)):  # parameters of an unknown operator, and their factors
                self.unsupported |= {self.names[id(value)]} if id(value) in self.names else set()
                if (kernel := self.bound.kernels.get(id(value))) is not None:
                    self.unsupported |= {kernel, kernel + INTO, kernel + OUT, bias_of(kernel)}
        return super().__torch_function__(func, types, args, kwargs)

    def linear(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Tensor:
        """Compute `op(x * in, K) * out + bias`, or with the bias inside, as `Intercept.linear`, and record the use."""
        x, weight, *after = args
        bias, options = kwargs.pop("bias", after[0] if after else None), after[1:]
        into, out = self.bound.scales(weight)[:2] if id(weight) in self.bound.kernels else (None, None)
        behind, name = LINEARS[func][0], self.names.get(id(weight))
        self.record_usage(x, (weight, bias, into, out), axes=behind + 2 if behind else None)
        x = x if into is None else x * self.per_example(into, x, behind)
        outputs = func(x, weight, None, *options, **kwargs)
        if name in self.parameters:
            outputs = outputs if outputs.requires_grad else outputs.requires_grad_().clone()  # may be changed in place
            window = window_of(func, weight, options, kwargs) if behind else None
            use = KernelUse(x.detach(), get_gradient_edge(outputs), outputs.shape, window)
            self.uses.setdefault(name, []).append(use)
        inside = self.bound.spec.bias_inside and out is not None
        if bias is not None and inside:
            outputs = outputs + self.per_example(bias, outputs, behind)
        outputs = outputs if out is None else outputs * self.per_example(out, outputs, behind)
        return outputs if bias is None or inside else outputs + self.per_example(bias, outputs, behind)

    def normalise(self, func: Callable, arguments: dict[str, Any]) -> Tensor:
        """Run a normalisation layer in two steps, so that every example has its own copy of scale and shift."""
        x, weight, bias = arguments["input"], arguments.pop("weight", None), arguments.pop("bias", None)
        if func is F.batch_norm and arguments.get("training", False):
            raise Misuse(
                "a batch-norm layer without running statistics mixes examples, so that an output has no tangent kernel"
                " of its own: build it with track_running_stats=True"
            )
        self.record_usage(x, (weight, bias))
        behind = x.dim() - 2 if func in FROM_CHANNEL else 0
        outputs: Tensor = func(**arguments)
        outputs = outputs if weight is None else outputs * self.per_example(weight, outputs, behind)
        return outputs if bias is None else outputs + self.per_example(bias, outputs, behind)

    def per_example(self, values: Tensor, beside: Tensor, behind: int) -> Tensor:
        """Broadcast values to a tensor with `behind` axes after the channel, with one copy per example if requested."""
        name = self.names.get(id(values))
        if name not in self.parameters:
            return self.broadcast(values if behind else repeat_channels(values, beside.shape[-1]), behind)
        if name not in self.copies:
            self.copies[name] = values.detach().expand(self.examples, *values.shape).requires_grad_()
        copies = self.copies[name] if behind else repeat_channels(self.copies[name], beside.shape[-1])
        between = beside.dim() - copies.dim() - behind
        return copies.reshape(self.examples, *(1,) * between, *copies.shape[1:], *(1,) * behind)

    def record_usage(self, x: Tensor, used: Sequence[Tensor | None], axes: int | None = None) -> None:
        """Record that parameters were used on an input of this shape; () if it has no axis of examples."""
        names = {self.names[id(tensor)] for tensor in used if id(tensor) in self.names}
        missing = x.dim() < 2 or (axes is not None and x.dim() != axes)
        self.usages.append((names, () if missing else tuple(x.shape)))


def window_of(func: Callable, weight: Tensor, options: Sequence[Any], kwargs: dict[str, Any]) -> Window:
    """Return the window of a convolution from the arguments that follow its bias."""
    axes, transposed = LINEARS[func]
    arguments = {**dict(zip(TRANSPOSED if transposed else PLAIN, options, strict=False)), **kwargs}
    size = tuple(weight.shape[2:])
    stride, dilation = (per_axis(arguments.get(name, 1), axes) for name in ("stride", "dilation"))
    if arguments.get("padding", 0) == "same":  # the odd zero comes after
        totals = [d * (k - 1) for d, k in zip(dilation, size, strict=True)]
        padding = tuple((total // 2, total - total // 2) for total in totals)
    else:
        zeros = 0 if arguments.get("padding", 0) == "valid" else arguments.get("padding", 0)
        padding = tuple((count, count) for count in per_axis(zeros, axes))
    return Window(size, stride, dilation, padding, arguments.get("groups", 1), transposed)


def per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """Return one value per axis."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values


def patches(x: Tensor, window: Window, count: tuple[int, ...]) -> Tensor:
    """Return patches (n, P, G, C / G * size) of x (n, C, *axes) at the first `count` window positions on each axis."""
    axes = len(count)
    windows = F.pad(x, [zeros for pair in reversed(window.padding) for zeros in pair])
    for axis, places in enumerate(count):
        reach = window.dilation[axis] * (window.size[axis] - 1) + 1
        windows = windows.unfold(2 + axis, reach, window.stride[axis]).narrow(2 + axis, 0, places)
        windows = windows[..., :: window.dilation[axis]]
    windows = windows.unflatten(1, (window.groups, -1))  # (n, G, C / G, *count, *size)
    order = (0, *range(3, 3 + axes), 1, 2, *range(3 + axes, 3 + 2 * axes))
    return windows.permute(order).flatten(1, axes).flatten(3)


def joined_sides(uses: Sequence[OutputGradients], rows: slice) -> tuple[Tensor, Tensor]:
    """Return the two factors of some rows, with the positions of all uses concatenated."""
    lefts, rights = zip(*(gradient.sides(rows) for gradient in uses), strict=True)
    return (lefts[0], rights[0]) if len(uses) == 1 else (torch.cat(lefts, 1), torch.cat(rights, 1))


def by_positions(gradients: Sequence[Sequence[OutputGradients]], first: slice, second: slice) -> Tensor:
    """Compute inner products (m, n1, m, n2) as sums over pairs of positions, some rows at a time."""
    sides = [torch.stack(side) for side in zip(*(joined_sides(uses, slice(None)) for uses in gradients), strict=True)]
    ours, theirs = ([side[:, rows] for side in sides] for rows in (first, second))
    members, rows, positions, groups, _ = theirs[0].shape
    size = max(1, BUDGET // (groups * (members * positions) ** 2 * rows))
    blocks = []
    for part in zip(*(side.split(size, 1) for side in ours), strict=True):
        pairs = zip(part, theirs, strict=True)
        lhs, rhs = (a.flatten(0, 2).movedim(1, 0) @ b.flatten(0, 2).movedim(1, 0).mT for a, b in pairs)
        products = lhs.mul_(rhs).reshape(-1, members, part[0].shape[1], positions, members, rows, positions)
        blocks.append(products.sum((0, 3, 6)))
    return torch.cat(blocks, 1)


def by_channels(gradients: Sequence[Sequence[OutputGradients]], first: slice, second: slice) -> Tensor:
    """Compute inner products (m, n1, m, n2) of explicit derivatives, some channels at a time."""
    lhs, rhs = joined_sides(gradients[0], slice(0, 1))
    rows = len(gradients[0][0].gradients)
    size = max(1, BUDGET // (len(gradients) * rows * rhs[0, 0].numel()))
    total = lhs.new_zeros(())
    for start in range(0, lhs.shape[3], size):
        channels = slice(start, start + size)
        explicit = torch.stack([derivatives(uses, channels) for uses in gradients])  # (m, n, F)
        total = total + pairwise_products(explicit[:, first], explicit[:, second])
    return total


def derivatives(uses: Sequence[OutputGradients], channels: slice) -> Tensor:
    """Compute derivatives (n, F) by some lhs channels of a kernel, some rows at a time: patches are large."""
    rows = len(uses[0].gradients)
    lhs, rhs = joined_sides(uses, slice(0, 1))
    size = max(1, BUDGET // (lhs[0].numel() + rhs[0].numel()))
    parts = (joined_sides(uses, slice(start, start + size)) for start in range(0, rows, size))
    return torch.cat([torch.einsum("npgl,npgr->nglr", lhs[..., channels], rhs).flatten(1) for lhs, rhs in parts])


def pairwise_products(first: Tensor, second: Tensor) -> Tensor:
    """Return inner products (M, n1, M, n2) of all rows of (M, n1, N) with all rows of (M, n2, N)."""
    return torch.einsum("aif,bjf->aibj", first, second)
