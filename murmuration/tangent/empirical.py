"""Tangent kernels between the members of any ensemble here, from the networks as they are.

With w what members share and u_a what belongs to member a,

    common_ab(x, x')    = <df_a(x)/dw, df_b(x')/dw>
    individual_a(x, x') = <df_a(x)/du_a, df_a(x')/du_a>

and a step that moves w by mu_w gamma / M times the sum of members' gradients and u_a by mu_u times its own moves
outputs by `linearised.block_matrix` of the two. Networks run in evaluation mode: batch-norm by its statistics, nothing
dropped; fixed masks act and are no parameters. Examples must not act on each other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.func import grad, vmap

from murmuration.errors import Misuse, unknown
from murmuration.population import Named, Population
from murmuration.tangent.finite import pairs
from murmuration.tangent.linearised import Blocks
from murmuration.tangent.products import BUDGET, Slope, kernel_products
from murmuration.tangent.recording import Trace, flat_outputs, trace, understood
from murmuration.weights import Family, How, Structure
from murmuration.weights.acting import acting_on
from murmuration.weights.operators import Intercept

MEAN, EACH = "mean", "each"


@dataclass(frozen=True)
class Asked:
    """What is asked: which members' outputs, by which parameters, on which inputs."""

    structure: Structure
    how: How
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
    family: Family,
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
    known = understood(asked.structure, asked.members[0], asked.how, asked.x, asked.parameters)
    traces = [trace(asked.structure, tensors, asked.how, asked.x, known) for tensors in asked.members]
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
    family: Family,
    x: Tensor,
    split: int | None,
    trained: Callable[[str], bool] | None,
) -> Asked:
    """The question, with nothing of chance left in the network."""
    calm = replace(family.how, rates={}, dropout="never")
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
    """Derivatives (n k, P) of a member's outputs by some parameters, however they are used."""

    def one(some: Named, example: Tensor, unit: int) -> Tensor:
        whole = {**tensors, **some}
        with Intercept(acting_on(whole, asked.how), noise=()):
            return flat_outputs(asked.structure(whole, example.unsqueeze(0)))[0, unit]

    by = {name: tensors[name] for name in names}
    # One unit after the other: vmap inside vmap, which jacrev would be, has no rule for some operators.
    rows = [vmap(grad(one), in_dims=(None, 0, None))(by, asked.x, unit) for unit in units]
    return {name: torch.stack([each[name].flatten(1) for each in rows], 1).flatten(0, 1) for name in names}


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
