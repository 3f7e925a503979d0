"""Tangent kernels between the members of any population, on two sets of inputs and for any outputs.

With w the parameters that members share and u_a those of member a,

    common_ab(x, x')    = <df_a(x)/dw, df_b(x')/dw>
    individual_a(x, x') = <df_a(x)/du_a, df_a(x')/du_a>

`murmuration/core/tangent_kernels.py` computes the derivatives and their inner products.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from murmuration.core.population import Population
from murmuration.core.tangent_kernels import MemberPasses, inner_products
from murmuration.core.weights import NetworkWeights
from murmuration.system.errors import Misuse, unknown

MEAN, EACH = "mean", "each"


@dataclass(frozen=True)
class MemberKernels:
    """Tangent kernels between members.

    Attributes:
        common: Kernels of shared parameters (M, n1, M, n2).
        individual: Kernels of own parameters (M, n1, n2).
    """

    common: Tensor
    individual: Tensor


def member_kernels(
    module: nn.Module,
    population: Population,
    family: NetworkWeights,
    x1: Tensor,
    x2: Tensor | None = None,
    *,
    outputs: str | Sequence[int] = MEAN,
    trained: Callable[[str], bool] | None = None,
) -> MemberKernels:
    """Compute the tangent kernels of all members on two sets of inputs.

    Each member runs once, with one backward pass per output. Memory grows as members times inputs times activations,
    not times parameters, except for parameters that are used in unknown ways (embeddings, torch's attention) or pruned:
    their Jacobians are computed by `torch.func`, in bundles of bounded size.

    Args:
        module: The network.
        population: Its M members.
        family: The weight family bound to the network.
        x1: First inputs (n1, ...).
        x2: Second inputs (n2, ...); None for the first.
        outputs: "mean" averages <df_k, df_k'> over the K outputs: the trace of the (K, K) block divided by K; at
            infinite width the block is that number times the identity. "each" keeps the block: rows and columns are
            then n K, the outputs of an example next to each other. A list of outputs keeps only these.
        trained: Predicate on names of the parameters that are trained; None for all. A frozen backbone is in no kernel.

    Returns:
        The kernels: common (M, n1, M, n2) and individual (M, n1, n2).

    Raises:
        Misuse: If inputs or outputs do not fit.


    >>> from murmuration.core.population import populate
    >>> from murmuration.core.weights import POINT
    >>> net, x = nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    >>> member_kernels(net, populate(lambda _: net, 1), POINT, x).individual
    tensor([[[5., 3.],
             [3., 9.]]])
    """
    if x2 is not None and x1.shape[1:] != x2.shape[1:]:
        raise Misuse(f"inputs of shapes {tuple(x1.shape)} and {tuple(x2.shape)}: examples of both sets need one shape")
    if not len(x1) or (x2 is not None and not len(x2)):
        raise Misuse("no inputs: give at least one in each set")
    passes = MemberPasses(module, population, family, x1 if x2 is None else torch.cat([x1, x2]), trained)
    groups = output_groups(outputs, passes.outputs.shape[1])
    start, members = len(x1) * len(groups[0]), population.members
    rows = (slice(None), slice(None)) if x2 is None else (slice(0, start), slice(start, None))
    second = (len(x1) if x2 is None else len(x2)) * len(groups[0])
    common = passes.outputs.new_zeros(members, start, members, second)
    individual = passes.outputs.new_zeros(members, start, second)
    for units in groups:
        for derivatives_of_members in passes.derivatives(units):
            for product in inner_products(derivatives_of_members, population.shared, rows):
                common += product
            for member, single in enumerate(derivatives_of_members):
                for product in inner_products([single], population.own, rows):
                    individual[member] += product[0, :, 0]
    return MemberKernels(common.div_(len(groups)), individual.div_(len(groups)))


def output_groups(outputs: str | Sequence[int], units: int) -> list[list[int]]:
    """Return groups of outputs whose rows are adjacent; kernels are averaged over groups."""
    if isinstance(outputs, str):
        if outputs not in (MEAN, EACH):
            raise unknown("outputs", outputs, (MEAN, EACH))
        return [[unit] for unit in range(units)] if outputs == MEAN else [list(range(units))]
    selected = list(outputs)
    if not selected or not all(0 <= unit < units for unit in selected):
        hint = f"write 'mean', 'each' or a list of 0 to {units - 1}"
        raise Misuse(f"outputs={selected}: the network has {units} outputs; {hint}")
    return [selected]
