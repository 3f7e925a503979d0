"""The members of an ensemble as named tensors.

A parameter is *own* (each member has a copy, on a leading axis of length M), *shared* (one copy for all members) or
*fixed* (`requires_grad=False` in the network: nothing moves, scales or masks it, and it is no distribution). Buffers,
such as batch-norm statistics, are own. A member is a view into these tensors, never a copy.

A name with a colon is an auxiliary tensor of the parameter before the colon: `K:in`, `K:std_param`, `K:kept`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from murmuration.system.errors import Failure, Misuse

Named = dict[str, Tensor]
KINDS = ("own", "shared", "buffers", "fixed")
KEPT = ":kept"  # auxiliary buffer, bool (M, ...): False where the parameter is pruned, and stays zero


@dataclass(frozen=True)
class Population:
    """M members: `own` and `buffers` have a leading member axis, `shared` has none.

    The leading axis of a `fixed` tensor has length M, or 1 where all members have the same values, stored once.
    """

    members: int
    own: Named  # (M, ...) each
    shared: Named  # (...) each
    buffers: Named  # (M, ...) each
    fixed: Named = field(default_factory=dict)  # (1, ...) or (M, ...) each

    @property
    def device(self) -> torch.device:
        """Where the tensors are; the CPU, if there are none."""
        return next((tensor.device for tensor in self.to_tensors().values()), torch.device("cpu"))

    def to(self, device: torch.device | str) -> "Population":
        """The population with every tensor on a device; tensors that are there already are not copied."""
        return self.map(lambda tensor: tensor.to(device))

    def group(self, members: slice) -> "Population":
        """Some members as views: in-place changes of the group change the population."""
        own, buffers = rows_of(self.own, members), rows_of(self.buffers, members)
        fixed = {name: t if len(t) == 1 else t[members] for name, t in self.fixed.items()}
        return Population(len(range(*members.indices(self.members))), own, self.shared, buffers, fixed)

    def take(self, members: Tensor) -> "Population":
        """The members at these indices; own tensors and buffers are copied, shared tensors are not."""
        fixed = {name: t if len(t) == 1 else t[members] for name, t in self.fixed.items()}
        own = {name: tensor[members] for name, tensor in self.own.items()}
        buffers = {name: tensor[members] for name, tensor in self.buffers.items()}
        return Population(len(members), own, self.shared, buffers, fixed)

    def clone(self) -> "Population":
        """A copy of everything that training changes; fixed tensors are not copied."""
        return replace(self.map(Tensor.clone), fixed=self.fixed)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Population":
        """The population with every tensor replaced by `change(tensor)`, which must keep the member axis."""
        kinds = (getattr(self, kind) for kind in KINDS)
        return Population(self.members, *({name: change(t) for name, t in named.items()} for named in kinds))

    def with_own_copies(self) -> "Population":
        """The same members with a copy of every shared tensor each; itself if nothing is shared."""
        if not self.shared:
            return self
        copies = {name: t.expand(self.members, *t.shape).clone() for name, t in self.shared.items()}
        return replace(self, own={**self.own, **copies}, shared={})

    @staticmethod
    def concatenate(populations: "list[Population]") -> "Population":
        """All members of several populations in one; they must not share tensors."""
        if any(population.shared for population in populations):
            raise Misuse("populations with shared tensors cannot be joined: give members copies of their own first")
        first = populations[0]
        own = {name: torch.cat([p.own[name] for p in populations]) for name in first.own}
        buffers = {name: torch.cat([p.buffers[name] for p in populations]) for name in first.buffers}
        fixed = {name: _joined([(p.fixed[name], p.members) for p in populations]) for name in first.fixed}
        return Population(sum(p.members for p in populations), own, {}, buffers, fixed)

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
        """The number of parameter entries that one member uses, shared and fixed ones included."""
        own = sum(tensor.numel() for tensor in self.own.values()) // max(self.members, 1)
        fixed = sum(tensor[0].numel() for tensor in self.fixed.values())
        return own + fixed + sum(tensor.numel() for tensor in self.shared.values())

    def parameters_fixed(self) -> int:
        """The number of stored parameter entries that are not trained."""
        return sum(tensor.numel() for tensor in self.fixed.values())

    def parameters_stored(self) -> int:
        """The number of parameter entries of all members together, fixed ones included, without pruned ones."""
        total = self.parameters_fixed()
        for named, own in ((self.own, True), (self.shared, False)):
            for name, tensor in named.items():
                mask = kept_mask(name.partition(":")[0], self.buffers, own)
                alike = mask is not None and mask.shape == tensor.shape  # several weights may have one std
                total += int(mask.sum()) if mask is not None and alike else tensor.numel()
        return total

    def to_tensors(self) -> Named:
        """One flat dict with keys `own/NAME`, `shared/NAME`, ..., as stored in a safetensors file."""
        return {f"{kind}/{name}": tensor for kind in KINDS for name, tensor in getattr(self, kind).items()}


def _joined(parts: list[tuple[Tensor, int]]) -> Tensor:
    """One fixed tensor of several populations, each (1, ...) or (M, ...) and given with its number M of members."""
    first = parts[0][0]
    if all(len(tensor) == 1 and torch.equal(tensor, first) for tensor, _ in parts):
        return first
    return torch.cat([tensor.expand(members, *tensor.shape[1:]) for tensor, members in parts])


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
        counts = {members or 1}  # nothing but shared and fixed tensors
    if len(counts) != 1:
        raise Failure(f"stored tensors have different numbers of members: {sorted(counts)}; the file is damaged")
    return Population(counts.pop(), **found)


def below(tensors: Named, prefix: str) -> Named:
    """Return the tensors whose names start with `prefix/`, without it."""
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}/")}


def no_name(name: str) -> bool:
    """A predicate on names of parameters that holds for none."""
    return False


def populate(
    build: Callable[[int], nn.Module],
    members: int,
    shared: Callable[[str], bool] | None = None,
    fixed: Callable[[str], bool] | None = None,
) -> Population:
    """M members, the i-th with the initial values of `build(i)`; shared parameters are those of `build(0)`.

    A parameter that is both shared and fixed is fixed, and each member has its own value of it.
    """
    if members < 1:
        raise Misuse(f"members={members}: an ensemble needs at least 1")
    population = None
    for index in range(members):
        module = build(index)
        if population is None:
            population = _allocate(module, members, shared or no_name, fixed or no_name)
        _copy_member(module, population, index)
    assert population is not None
    return replace(population, fixed={name: _stored_once(tensor) for name, tensor in population.fixed.items()})


def _stored_once(tensor: Tensor) -> Tensor:
    """A fixed tensor (M, ...) as (1, ...) if all members have the same values."""
    return tensor[:1].clone() if torch.equal(tensor, tensor[:1].expand_as(tensor)) else tensor


def _allocate(
    module: nn.Module, members: int, shared: Callable[[str], bool], fixed: Callable[[str], bool]
) -> Population:
    def empty(tensor: Tensor) -> Tensor:
        return tensor.detach().new_empty((members, *tensor.shape))

    trained = {name: tensor for name, tensor in module.named_parameters() if not fixed(name)}
    return Population(
        members,
        own={name: empty(tensor) for name, tensor in trained.items() if not shared(name)},
        shared={name: tensor.detach().clone() for name, tensor in trained.items() if shared(name)},
        buffers={name: empty(tensor) for name, tensor in module.named_buffers()},
        fixed={name: empty(tensor) for name, tensor in module.named_parameters() if fixed(name)},
    )


def _copy_member(module: nn.Module, population: Population, index: int) -> None:
    for mine, theirs in (
        ({**population.own, **population.fixed}, module.named_parameters()),
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
