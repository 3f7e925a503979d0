"""The members of an ensemble as named tensors.

A parameter is *own* (each member has a copy, on a leading axis of length M) or *shared* (one copy for all members).
Buffers, such as batch-norm statistics, are own. A member is a view into these tensors, never a copy.

A name with a colon is an auxiliary tensor of the parameter before the colon: `K:in`, `K:std_param`, `K:kept`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from murmuration.errors import Failure, Misuse

Named = dict[str, Tensor]
KINDS = ("own", "shared", "buffers")
KEPT = ":kept"  # auxiliary buffer, bool (M, ...): False where the parameter is pruned, and stays zero


@dataclass(frozen=True)
class Population:
    """M members: `own` and `buffers` have a leading member axis, `shared` has none."""

    members: int
    own: Named  # (M, ...) each
    shared: Named  # (...) each
    buffers: Named  # (M, ...) each

    def group(self, members: slice) -> "Population":
        """Some members as views: in-place changes of the group change the population."""
        own, buffers = rows_of(self.own, members), rows_of(self.buffers, members)
        return Population(len(range(*members.indices(self.members))), own, self.shared, buffers)

    def take(self, members: Tensor) -> "Population":
        """The members at these indices; own tensors and buffers are copied, shared tensors are not."""
        own = {name: tensor[members] for name, tensor in self.own.items()}
        buffers = {name: tensor[members] for name, tensor in self.buffers.items()}
        return Population(len(members), own, self.shared, buffers)

    def clone(self) -> "Population":
        return self.map(Tensor.clone)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Population":
        """The population with every tensor replaced by `change(tensor)`, which must keep the member axis."""
        own, shared, buffers = (
            {name: change(tensor) for name, tensor in named.items()} for named in (self.own, self.shared, self.buffers)
        )
        return Population(self.members, own, shared, buffers)

    def with_own_copies(self) -> "Population":
        """The same members with a copy of every shared tensor each; itself if nothing is shared."""
        if not self.shared:
            return self
        copies = {name: t.expand(self.members, *t.shape).clone() for name, t in self.shared.items()}
        return Population(self.members, {**self.own, **copies}, {}, self.buffers)

    @staticmethod
    def concatenate(populations: "list[Population]") -> "Population":
        """All members of several populations in one; they must not share tensors."""
        if any(population.shared for population in populations):
            raise Misuse("populations with shared tensors cannot be joined: give members copies of their own first")
        first = populations[0]
        own = {name: torch.cat([p.own[name] for p in populations]) for name in first.own}
        buffers = {name: torch.cat([p.buffers[name] for p in populations]) for name in first.buffers}
        return Population(sum(p.members for p in populations), own, {}, buffers)

    def copy_members(self, source: "Population", members: Tensor) -> None:
        """Overwrite the own tensors and buffers of the members at these indices by the source's."""
        for mine, theirs in ((self.own, source.own), (self.buffers, source.buffers)):
            for name, tensor in mine.items():
                tensor[members] = theirs[name][members]

    def copy_shared(self, source: "Population") -> None:
        """Overwrite the shared tensors by the source's."""
        for name, tensor in self.shared.items():
            tensor.copy_(source.shared[name])

    def parameters_per_member(self) -> int:
        """The number of parameter entries that one member uses, shared ones included."""
        own = sum(tensor.numel() for tensor in self.own.values()) // max(self.members, 1)
        return own + sum(tensor.numel() for tensor in self.shared.values())

    def parameters_stored(self) -> int:
        """The number of parameter entries of all members together, without pruned ones."""
        total = 0
        for named, own in ((self.own, True), (self.shared, False)):
            for name, tensor in named.items():
                mask = kept_mask(name.partition(":")[0], self.buffers, own)
                alike = mask is not None and mask.shape == tensor.shape  # several weights may have one std
                total += int(mask.sum()) if mask is not None and alike else tensor.numel()
        return total

    def to_tensors(self) -> Named:
        """One flat dict with keys `own/NAME`, `shared/NAME`, `buffers/NAME`, as stored in a safetensors file."""
        return {f"{kind}/{name}": tensor for kind in KINDS for name, tensor in getattr(self, kind).items()}


def rows_of(named: Named, members: slice | int) -> Named:
    """Views of some members' tensors (M, ...); the dict itself if these are all members."""
    if named and members == slice(0, next(iter(named.values())).shape[0]):
        return named
    return {name: tensor[members] for name, tensor in named.items()}


def is_auxiliary(name: str) -> bool:
    """Whether a tensor is an auxiliary one, such as a factor or a standard deviation, and not the network's own.

    >>> is_auxiliary("head.weight:in"), is_auxiliary("head.weight")
    (True, False)
    """
    return ":" in name


def kept_mask(name: str, buffers: Named, own: bool) -> Tensor | None:
    """The mask of entries that are not pruned, (m, ...) or for a shared parameter (...); None if all are kept."""
    mask = buffers.get(name + KEPT)
    return mask if mask is None or own else mask[0]  # a shared parameter is pruned for all members


def zero_pruned(parameters: Named, buffers: Named, members: slice | int) -> None:
    """Set pruned entries of these members' parameters to zero, in place; `members` is 0 for shared parameters."""
    for name, mask in buffers.items():
        if name.endswith(KEPT) and name.removesuffix(KEPT) in parameters:
            parameters[name.removesuffix(KEPT)].masked_fill_(~mask[members], 0)


def population_from_tensors(tensors: Mapping[str, Tensor], members: int | None = None) -> Population:
    """The inverse of `Population.to_tensors`; `members` is needed where all tensors are shared and M is not 1."""
    found: dict[str, Named] = {kind: {} for kind in KINDS}
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        if kind in found:
            found[kind][name] = tensor
    counts = {len(tensor) for kind in ("own", "buffers") for tensor in found[kind].values()}
    if not counts:
        counts = {members or 1}  # nothing but shared tensors
    if len(counts) != 1:
        raise Failure(f"stored tensors have different numbers of members: {sorted(counts)}; the file is damaged")
    return Population(counts.pop(), **found)


def populate(
    build: Callable[[int], nn.Module], members: int, shared: Callable[[str], bool] | None = None
) -> Population:
    """M members, the i-th with the initial values of `build(i)`; shared parameters are those of `build(0)`."""
    if members < 1:
        raise Misuse(f"members={members}: an ensemble needs at least 1")
    is_shared = shared or (lambda name: False)
    population = None
    for index in range(members):
        module = build(index)
        if population is None:
            population = _allocate(module, members, is_shared)
        _copy_member(module, population, index)
    assert population is not None
    return population


def _allocate(module: nn.Module, members: int, is_shared: Callable[[str], bool]) -> Population:
    def empty(tensor: Tensor) -> Tensor:
        return tensor.detach().new_empty((members, *tensor.shape))

    parameters = dict(module.named_parameters())
    return Population(
        members,
        own={name: empty(tensor) for name, tensor in parameters.items() if not is_shared(name)},
        shared={name: tensor.detach().clone() for name, tensor in parameters.items() if is_shared(name)},
        buffers={name: empty(tensor) for name, tensor in module.named_buffers()},
    )


def _copy_member(module: nn.Module, population: Population, index: int) -> None:
    for mine, theirs in (
        (population.own, module.named_parameters()),
        (population.buffers, module.named_buffers()),
    ):
        for name, tensor in theirs:
            if name not in mine:
                continue
            if mine[name].shape[1:] != tensor.shape:
                raise Misuse(
                    f"member {index} has '{name}' of shape {tuple(tensor.shape)}, member 0 has "
                    f"{tuple(mine[name].shape[1:])}: all members need one architecture"
                )
            mine[name][index] = tensor.detach()
