"""Tangent kernels between the members of any population, and the gamma they suggest.

With w the parameters that members share and u_a those of member a,

    common_ab(x, x')    = <df_a(x)/dw, df_b(x')/dw>
    individual_a(x, x') = <df_a(x)/du_a, df_a(x')/du_a>

`member_kernels` measures both. Networks run in evaluation mode: batch-norm by its running statistics, no dropout; fixed
masks act and are no parameters. Outputs of one example must not depend on the other examples.

The derivative of an output by a kernel is a sum over positions of (derivative by the layer's output) times (the layer's
input), so one recorded pass per member is enough and no Jacobian of the kernel's size is kept (`Recording`). Parameters
that scale or shift channels get one copy per example, so that one backward pass finds the derivatives of all examples.
Parameters used in any other way are found beforehand (`understood`) and differentiated example by example.

Inner products are then, with `left` and `right` the two factors at position p of each group of channels,

    sum over p, q of <left_p, left'_q> <right_p, right'_q>

of a dense layer the elementwise product of two small Gram matrices. A convolution has patches on the right, a
transposed convolution has the sides exchanged. With many positions it is cheaper to make the derivatives of a few
channels at a time.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import grad, vmap
from torch.utils._pytree import tree_leaves

from murmuration.errors import Misuse, unknown
from murmuration.population import KEPT, Named, Population
from murmuration.weights import ForwardSpec, NetworkWeights, Structure
from murmuration.weights.acting import Acting, acting_on
from murmuration.weights.dropout_masks import is_dropout
from murmuration.weights.family import INTO, OUT
from murmuration.weights.kernel_trace import LINEARS, bias_of, widened
from murmuration.weights.operators import Intercept, is_getter

MEAN, EACH = "mean", "each"
BUDGET = 1 << 22  # numbers that are held for a moment
FROM_CHANNEL: set[Callable] = {F.batch_norm, F.group_norm}  # scales stand at axis 1, in the others at the last axes
NORMS: set[Callable] = FROM_CHANNEL | {F.layer_norm, F.rms_norm}
PLAIN = ("stride", "padding", "dilation", "groups")  # what follows the bias of a convolution
TRANSPOSED = ("stride", "padding", "output_padding", "groups", "dilation")


@dataclass(frozen=True)
class Blocks:
    """Tangent kernels of given members: `common` (M, n1, M, n2), shared parameters; `individual` (M, n1, n2), own."""

    common: Tensor
    individual: Tensor


@dataclass(frozen=True)
class Window:
    """ForwardSpec a convolution moves over its input, or a transposed one over its output."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]  # before and after, an axis each
    groups: int
    transposed: bool


@dataclass(frozen=True)
class Use:
    """One use of a kernel: what it met, and where the derivative by what it made passes in a backward pass."""

    met: Tensor  # (n, ..., I), of a convolution (n, I, *axes)
    edge: GradientEdge
    made: torch.Size
    window: Window | None  # of a convolution


@dataclass(frozen=True)
class Trace:
    """One member's pass over n inputs: outputs (n, K), uses of its kernels, and every example's copies of the rest."""

    outputs: Tensor
    uses: dict[str, list[Use]]
    copies: dict[str, Tensor]  # (n, ...) each


@dataclass(frozen=True)
class Slope:
    """Derivatives by what a kernel made in one use, (n k, ...): `each` = k rows for every one of n examples."""

    use: Use
    by_made: Tensor
    each: int = 1

    def sides(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Left (r, P, G, high) and right (r, P, G, wide) of some rows, r of them."""
        by_made = self.by_made[rows]
        start, stop, _ = rows.indices(len(self.by_made))
        met = self.use.met[rows] if self.each == 1 else self.use.met[torch.arange(start, stop) // self.each]
        window = self.use.window
        if window is None:
            left, right = (side.reshape(len(side), -1, 1, side.shape[-1]) for side in (by_made, met))
            return left, right
        still, moved = (met, by_made) if window.transposed else (by_made, met)
        left = still.flatten(2).unflatten(1, (window.groups, -1)).permute(0, 3, 1, 2)
        return left, patches(moved, window, tuple(still.shape[2:]))


@dataclass(frozen=True)
class Asked:
    """What is asked: which members' outputs, by which parameters, on which inputs."""

    structure: Structure
    spec: ForwardSpec
    population: Population
    members: tuple[Named, ...]  # all tensors of each
    parameters: frozenset[str]
    x: Tensor  # (n, ...), both sets of inputs
    split: int | None  # how many are of the first set; None if the second is the first

    def meeting(self, rows: int) -> tuple[slice, slice]:
        """The rows of the first and of the second set, with so many rows an input."""
        if self.split is None:
            return slice(None), slice(None)
        return slice(0, self.split * rows), slice(self.split * rows, None)


@dataclass(frozen=True)
class Derivatives:
    """One member's derivatives, rows of n examples times k outputs, by kernels and by all else."""

    kernels: dict[str, list[Slope]]
    rest: Named  # (n k, P) each


def member_kernels(
    module: nn.Module,
    population: Population,
    family: NetworkWeights,
    x1: Tensor,
    x2: Tensor | None = None,
    *,
    outputs: str | Sequence[int] = MEAN,
    trained: Callable[[str], bool] | None = None,
) -> Blocks:
    """Tangent kernels of x1 (n1, ...) and x2 (n2, ...): common (M, n1, M, n2) and individual (M, n1, n2).

    Of K outputs, `mean` takes the mean over units k of <df_k, df_k'>, the trace of the (K, K) block divided by K. In
    the limit of infinite width the block is that number times the identity, and of any network it is the kernel that
    the K units have on average, whatever basis they are written in. `each` keeps all of it: rows and columns are then
    n K, an example's outputs being neighbours, so that `block_matrix` and `predict_blocks` serve with targets (n K,).
    A list of units keeps these only: [3] is the kernel of output 3 alone.

    `trained` says by name which parameters move, all if it is left out: a frozen backbone belongs to no kernel.

    Without x2 the inputs meet themselves. Each member runs once, with one backward pass a unit. Memory grows as members
    times inputs times what layers make, not times parameters, but for parameters that are used in unknown ways
    (embeddings, torch's attention): their derivatives are made, by `torch.func`, for one unit at a time, or for all
    units that are kept.

    >>> from murmuration.population import populate
    >>> from murmuration.weights import POINT
    >>> net, x = nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    >>> member_kernels(net, populate(lambda _: net, 1), POINT, x).individual
    tensor([[[5., 3.],
             [3., 9.]]])
    """
    asked = asked_of(module, population, family, both(x1, x2), None if x2 is None else len(x1), trained)
    pruned = {name for name in asked.parameters if name + KEPT in population.buffers}  # differentiated, then masked
    known = understood(asked.structure, asked.members[0], asked.spec, asked.x, asked.parameters) - pruned
    traces = [trace(asked.structure, tensors, asked.spec, asked.x, known) for tensors in asked.members]
    batches = batches_of(outputs, traces[0].outputs.shape[1])
    first, second = (len(asked.x[rows]) for rows in asked.meeting(1))
    each, members, like = len(batches[0]), population.members, traces[0].outputs
    common = like.new_zeros(members, first * each, members, second * each)
    individual = like.new_zeros(members, first * each, second * each)
    for units in batches:
        for found in all_derivatives(asked, traces, known, units):
            add_products(asked, found, asked.meeting(each), common, individual)
    return Blocks(common.div_(len(batches)), individual.div_(len(batches)))


def both(x1: Tensor, x2: Tensor | None) -> Tensor:
    """Both sets of inputs, one behind the other."""
    if x2 is not None and x1.shape[1:] != x2.shape[1:]:
        raise Misuse(f"inputs of shapes {tuple(x1.shape)} and {tuple(x2.shape)}: examples of both sets need one shape")
    if not len(x1) or (x2 is not None and not len(x2)):
        raise Misuse("no inputs: give at least one in each set")
    return x1 if x2 is None else torch.cat([x1, x2])


def asked_of(
    module: nn.Module,
    population: Population,
    family: NetworkWeights,
    x: Tensor,
    split: int | None,
    trained: Callable[[str], bool] | None,
) -> Asked:
    """The question, with nothing of chance left in the network."""
    calm = replace(family.spec, rates={}, dropout="never")
    names = frozenset(name for name in (*population.own, *population.shared) if trained is None or trained(name))
    members = []
    for index in range(population.members):
        own = {name: tensor[index].detach() for name, tensor in {**population.own, **population.buffers}.items()}
        members.append({**own, **{name: tensor.detach() for name, tensor in population.shared.items()}})
    device = next(iter(members[0].values())).device
    return Asked(Structure(module).train(False), calm, population, tuple(members), names, x.detach().to(device), split)


def batches_of(outputs: str | Sequence[int], units: int) -> list[list[int]]:
    """Units whose rows stand side by side, for every sum that is averaged."""
    if isinstance(outputs, str):
        if outputs not in (MEAN, EACH):
            raise unknown("outputs", outputs, (MEAN, EACH))
        return [[unit] for unit in range(units)] if outputs == MEAN else [list(range(units))]
    chosen = list(outputs)
    if not chosen or not all(0 <= unit < units for unit in chosen):
        raise Misuse(
            f"outputs={chosen}: the network has {units} outputs; write 'mean', 'each' or a list of 0 to {units - 1}"
        )
    return [chosen]


def all_derivatives(
    asked: Asked, traces: Sequence[Trace], known: frozenset[str], units: list[int]
) -> Iterator[list[Derivatives]]:
    """Every member's derivatives of these outputs: by what is understood, then by some of the rest at a time."""
    yield [backward(each, units) for each in traces]
    rows = len(asked.x) * len(units) * len(asked.members)
    for names in bundles(asked.parameters - known, asked.members[0], BUDGET // rows):
        yield [Derivatives({}, jacobians(asked, tensors, names, units)) for tensors in asked.members]


def backward(traced: Trace, units: list[int]) -> Derivatives:
    """The derivatives of a member's outputs by all that its trace has noted, one backward pass a unit."""
    uses = [use for each in traced.uses.values() for use in each]
    targets = [*(use.edge for use in uses), *map(get_gradient_edge, traced.copies.values())]
    shapes = [*(use.made for use in uses), *(copy.shape for copy in traced.copies.values())]
    if not targets:
        return Derivatives({}, {})
    rows: list[tuple[Tensor, ...]] = []
    for unit in units:
        found = torch.autograd.grad(traced.outputs[:, unit].sum(), targets, retain_graph=True, allow_unused=True)
        pairs_of = zip(found, shapes, strict=True)
        rows.append(tuple(traced.outputs.new_zeros(shape) if each is None else each for each, shape in pairs_of))
    stacked = iter([torch.stack(each, 1).flatten(0, 1) for each in zip(*rows, strict=True)])
    kernels = {name: [Slope(use, next(stacked), len(units)) for use in each] for name, each in traced.uses.items()}
    return Derivatives(kernels, {name: next(stacked).flatten(1) for name in traced.copies})


def bundles(names: Iterable[str], tensors: Mapping[str, Tensor], limit: int) -> list[list[str]]:
    """Parameters in groups of at most so many numbers; one that is larger is alone."""
    made: list[list[str]] = []
    room = 0
    for name in sorted(names):
        size = tensors[name].numel()
        if not made or size > room:
            made.append([])
            room = limit
        made[-1].append(name)
        room -= size
    return made


def jacobians(asked: Asked, tensors: Named, names: list[str], units: list[int]) -> Named:
    """Derivatives (n k, P) of a member's outputs by some parameters, however they are used; 0 by pruned weights."""

    def one(some: Named, example: Tensor, unit: int) -> Tensor:
        whole = {**tensors, **some}
        with Intercept(acting_on(whole, asked.spec), noise=()):
            return flat_outputs(asked.structure(whole, example.unsqueeze(0)))[0, unit]

    by = {name: tensors[name] for name in names}
    # One unit after the other: vmap inside vmap, which jacrev would be, has no rule for some operators.
    rows = [vmap(grad(one), in_dims=(None, 0, None))(by, asked.x, unit) for unit in units]
    found = {name: torch.stack([each[name].flatten(1) for each in rows], 1).flatten(0, 1) for name in names}
    masks = {name: tensors[name + KEPT].flatten() for name in names if name + KEPT in tensors}
    return {name: found[name] * masks[name] if name in masks else found[name] for name in names}


def add_products(
    asked: Asked, found: list[Derivatives], rows: tuple[slice, slice], common: Tensor, individual: Tensor
) -> None:
    """Add the inner products of all members' derivatives to the kernels."""
    for product in inner_products(found, asked.population.shared, rows):
        common += product
    for member, alone in enumerate(found):
        for product in inner_products([alone], asked.population.own, rows):
            individual[member] += product[0, :, 0]


def inner_products(found: Sequence[Derivatives], among: Iterable[str], rows: tuple[slice, slice]) -> Iterator[Tensor]:
    """Inner products (m, n1, m, n2) of m members' derivatives by each of these parameters."""
    first, second = rows
    for name in among:
        if name in found[0].kernels:
            yield kernel_products([each.kernels[name] for each in found], first, second)
        if name in found[0].rest:
            stacked = torch.stack([each.rest[name] for each in found])  # (m, n, P)
            yield pairs(stacked[:, first], stacked[:, second])


def averaged(blocks: Blocks) -> tuple[Tensor, Tensor, Tensor]:
    """T_d, T_o and Psi, each (n1, n2), as means over members and over pairs; T_o of a single member is zero."""
    members = len(blocks.individual)
    alone = torch.einsum("aiaj->ij", blocks.common)
    pairs = blocks.common.sum((0, 2)) - alone
    return alone / members, pairs / max(members * (members - 1), 1), blocks.individual.mean(0)


def trace_ratio(same: Tensor, other: Tensor) -> float:
    """tr other / tr same of two kernels (n, n): rho, between two members against within one."""
    return (other.trace() / same.trace()).item()


def smooth_gamma(members: int, ratio: float) -> float:
    """M / (1 + (M - 1) rho): M for independent members, 1 for identical ones, and in between what fits.

    It keeps the trace of the kernel of the mean that of one member alone. Infinite at rho = -1/(M - 1), the least there
    is: members then undo each other's steps, and none moves their mean.

    >>> smooth_gamma(8, 0.0), smooth_gamma(8, 1.0)
    (8.0, 1.0)
    """
    check_members(members)
    weight = 1 + (members - 1) * ratio
    return members / weight if weight > 0 else math.inf


def measured_gamma(module: nn.Module, population: Population, family: NetworkWeights, x: Tensor) -> float:
    """`smooth_gamma` of the members' kernels on inputs x (n, ...), held between the mean (1) and the sum (M)."""
    same, other, _ = averaged(member_kernels(module, population, family, x))
    found = smooth_gamma(population.members, trace_ratio(same, other))
    return min(max(found, 1.0), float(population.members))  # few inputs and narrow nets may seem to lie outside


def check_members(members: int) -> None:
    if members < 1:
        raise Misuse(f"{members} members: give at least 1")


def trace(
    structure: Structure, tensors: Mapping[str, Tensor], spec: ForwardSpec, x: Tensor, parameters: frozenset[str]
) -> Trace:
    """The pass of a member over x (n, ...), ready to be differentiated by these parameters."""
    with torch.enable_grad(), Recording(acting_on(tensors, spec), tensors, len(x), parameters) as recording:
        outputs = structure(tensors, x)
    return Trace(flat_outputs(outputs), recording.uses, recording.copies)


def flat_outputs(outputs: Tensor) -> Tensor:
    """Outputs (n, K), whatever the shape of an example's outputs is."""
    return outputs.reshape(len(outputs), -1)


def understood(
    structure: Structure, tensors: Mapping[str, Tensor], spec: ForwardSpec, x: Tensor, parameters: frozenset[str]
) -> frozenset[str]:
    """Those of the parameters that a `trace` can differentiate by.

    All their uses must be known ones, with examples along the first axis: two passes, of two and of three examples,
    tell that axis from others that have the same length by chance.
    """
    strange: set[str] = set()
    sightings = []
    for count in (2, 3):
        few = x[:1].expand(count, *x.shape[1:])
        with torch.no_grad(), Recording(acting_on(tensors, spec), tensors, count, frozenset()) as recording:
            structure(tensors, few)
        strange |= recording.strange
        sightings.append(recording.sightings)
    if len(sightings[0]) != len(sightings[1]):  # what runs depends on how many examples there are
        return frozenset()
    for (names, two), (_, three) in zip(*sightings, strict=True):
        if (two[:1], three[:1]) != ((2,), (3,)) or two[1:] != three[1:]:
            strange |= names
    return parameters - strange


class Recording(Intercept):
    """One member, watched: notes what kernels meet, and gives every example its copy of the parameters asked for."""

    def __init__(
        self, acting: Acting, tensors: Mapping[str, Tensor], examples: int, parameters: frozenset[str]
    ) -> None:
        super().__init__(acting, noise=())
        self.names = {id(tensor): name for name, tensor in tensors.items()}
        self.examples, self.parameters = examples, parameters
        self.uses: dict[str, list[Use]] = {}
        self.copies: dict[str, Tensor] = {}
        self.strange: set[str] = set()  # names that an unknown operator met
        self.sightings: list[tuple[set[str], tuple[int, ...]]] = []  # who was used together on an input of which shape

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in NORMS:
            return self.normalise(func, signature(func).bind(*args, **kwargs).arguments)
        if not (func in LINEARS and len(args) > 1) and not is_getter(func) and not is_dropout(func):
            self.doubt(args, kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    def linear(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Tensor:
        """`op(x * in, K) * out + bias` or with the bias inside, as it always is, noting what the kernel meets."""
        x, weight, *after = args
        bias, rest = kwargs.pop("bias", after[0] if after else None), after[1:]
        into, out = self.acting.companions(weight)[:2] if id(weight) in self.acting.named else (None, None)
        behind, name = LINEARS[func][0], self.names.get(id(weight))
        self.see(x, (weight, bias, into, out), axes=behind + 2 if behind else None)
        x = x if into is None else x * self.each(into, x, behind)
        made = func(x, weight, None, *rest, **kwargs)
        if name in self.parameters:
            made = self.note(name, x, made, window_of(func, weight, rest, kwargs) if behind else None)
        inside = self.acting.spec.bias_inside and out is not None
        if bias is not None and inside:
            made = made + self.each(bias, made, behind)
        made = made if out is None else made * self.each(out, made, behind)
        return made if bias is None or inside else made + self.each(bias, made, behind)

    def normalise(self, func: Callable, given: dict[str, Any]) -> Tensor:
        """A normalising layer in two steps, so that examples can have scales and shifts of their own."""
        x, weight, bias = given["input"], given.pop("weight", None), given.pop("bias", None)
        if func is F.batch_norm and given.get("training", False):
            raise Misuse(
                "a batch-norm layer without running statistics mixes examples, so that an output has no tangent kernel"
                " of its own: build it with track_running_stats=True"
            )
        self.see(x, (weight, bias))
        behind = x.dim() - 2 if func in FROM_CHANNEL else 0
        made: Tensor = func(**given)
        made = made if weight is None else made * self.each(weight, made, behind)
        return made if bias is None else made + self.each(bias, made, behind)

    def note(self, name: str, met: Tensor, made: Tensor, window: Window | None) -> Tensor:
        """What a kernel made, its place in the graph noted: the tensor itself may be changed in place later."""
        made = made if made.requires_grad else made.requires_grad_().clone()
        use = Use(met.detach(), get_gradient_edge(made), made.shape, window)
        self.uses.setdefault(name, []).append(use)
        return made

    def each(self, values: Tensor, beside: Tensor, behind: int) -> Tensor:
        """Values as they meet a tensor with so many axes behind the channel, for each example a copy if asked for."""
        name = self.names.get(id(values))
        if name not in self.parameters:
            return self.spread(values if behind else widened(values, beside.shape[-1]), behind)
        if name not in self.copies:
            self.copies[name] = values.detach().expand(self.examples, *values.shape).requires_grad_()
        copies = self.copies[name] if behind else widened(self.copies[name], beside.shape[-1])
        between = beside.dim() - copies.dim() - behind
        return copies.reshape(self.examples, *(1,) * between, *copies.shape[1:], *(1,) * behind)

    def see(self, x: Tensor, used: Sequence[Tensor | None], axes: int | None = None) -> None:
        """Remember who was used on an input of this shape; one without an axis of examples fits no number of them."""
        names = {self.names[id(each)] for each in used if id(each) in self.names}
        missing = x.dim() < 2 or (axes is not None and x.dim() != axes)
        self.sightings.append((names, () if missing else tuple(x.shape)))

    def doubt(self, args: Any, kwargs: Any) -> None:
        """Give up on parameters among the arguments of an unknown operator, and on what is multiplied into them."""
        for value in tree_leaves((args, kwargs)):
            if id(value) in self.names:
                self.strange.add(self.names[id(value)])
            if id(value) in self.acting.named:
                kernel = self.acting.named[id(value)]
                self.strange |= {kernel, kernel + INTO, kernel + OUT, bias_of(kernel)}


def window_of(func: Callable, weight: Tensor, rest: Sequence[Any], kwargs: dict[str, Any]) -> Window:
    """The window of a convolution from the arguments that follow its bias."""
    axes, transposed = LINEARS[func]
    given = {**dict(zip(TRANSPOSED if transposed else PLAIN, rest, strict=False)), **kwargs}
    size = tuple(weight.shape[2:])
    stride, dilation = (spelled(given.get(name, 1), axes) for name in ("stride", "dilation"))
    padding = paddings(given.get("padding", 0), size, dilation)
    return Window(size, stride, dilation, padding, given.get("groups", 1), transposed)


def spelled(value: Any, axes: int) -> tuple[int, ...]:
    """One number an axis."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values


def paddings(padding: Any, size: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Zeros before and after on each axis; "same" adds the odd one after."""
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, size, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((each, each) for each in spelled(0 if padding == "valid" else padding, len(size)))


def patches(x: Tensor, window: Window, count: tuple[int, ...]) -> Tensor:
    """What a window sees at its first `count` places on each axis of x (n, C, *axes): (n, P, G, C / G * size)."""
    axes = len(count)
    seen = F.pad(x, [zeros for pair in reversed(window.padding) for zeros in pair])
    for axis, places in enumerate(count):
        reach = window.dilation[axis] * (window.size[axis] - 1) + 1
        seen = seen.unfold(2 + axis, reach, window.stride[axis]).narrow(2 + axis, 0, places)
        seen = seen[..., :: window.dilation[axis]]
    seen = seen.unflatten(1, (window.groups, -1))  # (n, G, C / G, *count, *size)
    order = (0, *range(3, 3 + axes), 1, 2, *range(3 + axes, 3 + 2 * axes))
    return seen.permute(order).flatten(1, axes).flatten(3)


def kernel_products(slopes: Sequence[Sequence[Slope]], first: slice, second: slice) -> Tensor:
    """Inner products (m, n1, m, n2) of derivatives by one kernel: a list of uses for each of m members.

    `first` and `second` are the rows that meet, of all that the slopes hold.
    """
    left, right = joined(slopes[0], slice(0, 1))
    positions, high, wide = left.shape[1], left.shape[3], right.shape[3]
    cheap = positions**2 * (high + wide) < high * wide
    return by_positions(slopes, first, second) if cheap else by_channels(slopes, first, second)


def joined(uses: Sequence[Slope], rows: slice) -> tuple[Tensor, Tensor]:
    """Left and right of some rows, with the positions of all uses side by side."""
    lefts, rights = zip(*(slope.sides(rows) for slope in uses), strict=True)
    return (lefts[0], rights[0]) if len(uses) == 1 else (torch.cat(lefts, 1), torch.cat(rights, 1))


def by_positions(slopes: Sequence[Sequence[Slope]], first: slice, second: slice) -> Tensor:
    """Inner products (m, n1, m, n2) over pairs of positions, some rows at a time."""
    sides = [torch.stack(side) for side in zip(*(joined(uses, slice(None)) for uses in slopes), strict=True)]
    ours, theirs = ([side[:, rows] for side in sides] for rows in (first, second))
    members, rows, positions, groups, _ = theirs[0].shape
    size = max(1, BUDGET // (groups * (members * positions) ** 2 * rows))
    parts = zip(*(side.split(size, 1) for side in ours), strict=True)
    return torch.cat([positions_product(part, theirs) for part in parts], 1)


def positions_product(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> Tensor:
    """Sums (m, n1, m, n2) over groups and pairs of positions, of both sides' inner products multiplied."""
    members, mine, positions = ours[0].shape[:3]
    rows, others = theirs[0].shape[1:3]
    left, right = (
        a.flatten(0, 2).movedim(1, 0) @ b.flatten(0, 2).movedim(1, 0).mT for a, b in zip(ours, theirs, strict=True)
    )
    return left.mul_(right).reshape(-1, members, mine, positions, members, rows, others).sum((0, 3, 6))


def by_channels(slopes: Sequence[Sequence[Slope]], first: slice, second: slice) -> Tensor:
    """Inner products (m, n1, m, n2) of derivatives that are made for some channels at a time."""
    left, right = joined(slopes[0], slice(0, 1))
    rows = len(slopes[0][0].by_made)
    size = max(1, BUDGET // (len(slopes) * rows * right[0, 0].numel()))
    total = left.new_zeros(())
    for start in range(0, left.shape[3], size):
        channels = slice(start, start + size)
        made = torch.stack([derivatives(uses, channels) for uses in slopes])  # (m, n, F)
        total = total + pairs(made[:, first], made[:, second])
    return total


def derivatives(uses: Sequence[Slope], channels: slice) -> Tensor:
    """Derivatives (n, F) by some left channels of a kernel, some rows at a time: patches are large."""
    rows = len(uses[0].by_made)
    left, right = joined(uses, slice(0, 1))
    size = max(1, BUDGET // (left[0].numel() + right[0].numel()))
    made = []
    for start in range(0, rows, size):
        left, right = joined(uses, slice(start, start + size))
        made.append(torch.einsum("npgl,npgr->nglr", left[..., channels], right).flatten(1))
    return torch.cat(made)


def pairs(first: Tensor, second: Tensor) -> Tensor:
    """Inner products (M, n1, M, n2) of all rows of (M, n1, N) with all rows of (M, n2, N)."""
    return torch.einsum("aif,bjf->aibj", first, second)
