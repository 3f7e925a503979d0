"""The members of an ensemble as named tensors.

A parameter is *own* (each member has a copy, on a leading axis of length M), *shared* (one copy for all members) or
*fixed* (`requires_grad=False` in the network: it is not trained, scaled, masked or a distribution). Buffers, such as
batch-norm statistics, are own. A member is a view into these tensors, never a copy.

A name with a colon is an auxiliary tensor of the parameter before the colon: `K:in`, `K:std_param`, `K:kept`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from murmuration.system.errors import Failure, Misuse

Named = dict[str, Tensor]
Predicate = Callable[[str], bool]  # of names of parameters
KINDS = ("own", "shared", "buffers", "fixed")
KEPT = ":kept"  # auxiliary buffer, bool (M, ...): False where the parameter is pruned, and stays zero


@dataclass(frozen=True)
class Population:
    """M members as named tensors.

    Attributes:
        members: Number M of members.
        own: Parameters of which each member has a copy, (M, ...).
        shared: Parameters of which there is one copy, (...).
        buffers: Buffers of the members, (M, ...).
        fixed: Parameters that are not trained: (M, ...), or (1, ...) if all members have the same values.
    """

    members: int
    own: Named
    shared: Named
    buffers: Named
    fixed: Named = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """The device of the tensors; the CPU if there are none."""
        return next((tensor.device for tensor in self.to_tensors().values()), torch.device("cpu"))

    def to(self, device: torch.device | str) -> "Population":
        """Move every tensor to a device; tensors that are there already are not copied.

        Args:
            device: The device.

        Returns:
            The population on that device.
        """
        return self.map(lambda tensor: tensor.to(device))

    def group(self, members: slice) -> "Population":
        """Return some members as views.

        Args:
            members: Their indices.

        Returns:
            A population of views: in-place changes of it change this one.
        """
        own, buffers = rows_of(self.own, members), rows_of(self.buffers, members)
        fixed = {name: t if len(t) == 1 else t[members] for name, t in self.fixed.items()}
        return Population(len(range(*members.indices(self.members))), own, self.shared, buffers, fixed)

    def take(self, members: Tensor) -> "Population":
        """Return some members as copies.

        Args:
            members: Their indices (m,).

        Returns:
            A population of m members; own tensors and buffers are copied, shared tensors are not.
        """
        fixed = {name: t if len(t) == 1 else t[members] for name, t in self.fixed.items()}
        own = {name: tensor[members] for name, tensor in self.own.items()}
        buffers = {name: tensor[members] for name, tensor in self.buffers.items()}
        return Population(len(members), own, self.shared, buffers, fixed)

    def clone(self) -> "Population":
        """Return a copy; fixed tensors, which training does not change, are not copied."""
        return replace(self.map(Tensor.clone), fixed=self.fixed)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Population":
        """Replace every tensor.

        Args:
            change: Maps a tensor to its replacement; it must keep the member axis.

        Returns:
            The population of the replacements.
        """
        kinds = (getattr(self, kind) for kind in KINDS)
        return Population(self.members, *({name: change(t) for name, t in named.items()} for named in kinds))

    def with_own_copies(self) -> "Population":
        """Return the same members, each with an own copy of every shared tensor; itself if nothing is shared."""
        if not self.shared:
            return self
        copies = {name: t.expand(self.members, *t.shape).clone() for name, t in self.shared.items()}
        return replace(self, own={**self.own, **copies}, shared={})

    @staticmethod
    def concatenate(populations: "list[Population]") -> "Population":
        """Concatenate populations.

        Args:
            populations: Populations of one network without shared tensors, at least one.

        Returns:
            A population of all their members, in order.

        Raises:
            Misuse: If one of them has shared tensors.
        """
        if any(population.shared for population in populations):
            raise Misuse("populations with shared tensors cannot be joined: give members copies of their own first")
        first = populations[0]
        own = {name: torch.cat([p.own[name] for p in populations]) for name in first.own}
        buffers = {name: torch.cat([p.buffers[name] for p in populations]) for name in first.buffers}
        fixed = {name: _joined([(p.fixed[name], p.members) for p in populations]) for name in first.fixed}
        return Population(sum(p.members for p in populations), own, {}, buffers, fixed)

    def copy_members(self, source: "Population", members: Tensor) -> None:
        """Overwrite the own tensors and buffers of some members.

        Args:
            source: A population of the same shape.
            members: Indices (m,) of the members to copy from it.
        """
        for targets, sources in ((self.own, source.own), (self.buffers, source.buffers)):
            for name, tensor in targets.items():
                tensor[members] = sources[name][members]

    def copy_shared(self, source: "Population") -> None:
        """Overwrite the shared tensors by the source's."""
        for name, tensor in self.shared.items():
            tensor.copy_(source.shared[name])

    def parameters_per_member(self) -> int:
        """Return the number of parameter entries that one member uses, shared and fixed ones included."""
        own = sum(tensor.numel() for tensor in self.own.values()) // max(self.members, 1)
        fixed = sum(tensor[0].numel() for tensor in self.fixed.values())
        return own + fixed + sum(tensor.numel() for tensor in self.shared.values())

    def parameters_fixed(self) -> int:
        """Return the number of stored parameter entries that are fixed."""
        return sum(tensor.numel() for tensor in self.fixed.values())

    def parameters_stored(self) -> int:
        """Return the number of stored parameter entries of all members, including fixed and without pruned ones."""
        total = self.parameters_fixed()
        for named, own in ((self.own, True), (self.shared, False)):
            for name, tensor in named.items():
                mask = kept_mask(name.partition(":")[0], self.buffers, own)
                own_mask = mask is not None and mask.shape == tensor.shape  # several weights may have one std
                total += int(mask.sum()) if mask is not None and own_mask else tensor.numel()
        return total

    def to_tensors(self) -> Named:
        """Return a flat dict with keys `own/NAME`, `shared/NAME`, ..., as stored in a safetensors file."""
        return {f"{kind}/{name}": tensor for kind in KINDS for name, tensor in getattr(self, kind).items()}


def _joined(parts: list[tuple[Tensor, int]]) -> Tensor:
    """Concatenate a fixed tensor of several populations, each (1, ...) or (M, ...), with its number M of members."""
    first = parts[0][0]
    if all(len(tensor) == 1 and torch.equal(tensor, first) for tensor, _ in parts):
        return first
    return torch.cat([tensor.expand(members, *tensor.shape[1:]) for tensor, members in parts])


def rows_of(named: Named, members: slice | int) -> Named:
    """Return views of some members' tensors (M, ...); the dict itself for all members."""
    if named and members == slice(0, next(iter(named.values())).shape[0]):
        return named
    return {name: tensor[members] for name, tensor in named.items()}


def is_auxiliary(name: str) -> bool:
    """Return whether a tensor is auxiliary, such as a factor or a standard deviation, not one of the network.

    >>> is_auxiliary("head.weight:in"), is_auxiliary("head.weight")
    (True, False)
    """
    return ":" in name


def kept_mask(name: str, buffers: Named, own: bool) -> Tensor | None:
    """Return the mask of entries that are not pruned, (m, ...), or (...) if shared; None if no entry is pruned."""
    mask = buffers.get(name + KEPT)
    return mask if mask is None or own else mask[0]  # a shared parameter is pruned for all members


def zero_pruned(parameters: Named, buffers: Named, members: slice | int) -> None:
    """Set pruned entries of these members' parameters to zero, in place; `members` is 0 for shared parameters."""
    for name, mask in buffers.items():
        if name.endswith(KEPT) and name.removesuffix(KEPT) in parameters:
            parameters[name.removesuffix(KEPT)].masked_fill_(~mask[members], 0)


def population_from_tensors(tensors: Mapping[str, Tensor], members: int | None = None) -> Population:
    """Return the population of stored tensors: the inverse of `Population.to_tensors`.

    Args:
        tensors: Tensors by keys such as `own/NAME`.
        members: Number of members; needed if all tensors are shared or fixed and it is not 1.

    Returns:
        The population.

    Raises:
        Failure: If tensors have different numbers of members.
    """
    groups = {kind: below(tensors, kind) for kind in KINDS}
    counts = {len(tensor) for kind in ("own", "buffers") for tensor in groups[kind].values()}
    counts = counts or {members or 1}  # nothing but shared and fixed tensors
    if len(counts) != 1:
        raise Failure(f"stored tensors have different numbers of members: {sorted(counts)}; the file is damaged")
    return Population(counts.pop(), **groups)


def below(tensors: Mapping[str, Tensor], prefix: str) -> Named:
    """Return the tensors whose names start with `prefix/`, without it."""
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}/")}


def grouped(tensors: Named) -> dict[str, Named]:
    """Group tensors by the part of their names before the first slash."""
    groups: dict[str, Named] = {}
    for key, tensor in tensors.items():
        first, _, name = key.partition("/")
        groups.setdefault(first, {})[name] = tensor
    return groups


def populate(
    build: Callable[[int], nn.Module], members: int, shared: Predicate | None = None, fixed: Predicate | None = None
) -> Population:
    """Make a population from networks.

    Args:
        build: Returns the network of the i-th member; shared parameters are those of `build(0)`.
        members: Number of members.
        shared: Predicate on names of parameters that are shared; None for none.
        fixed: Predicate on names of parameters that are fixed, even if shared; None for none.

    Returns:
        The population.

    Raises:
        Misuse: If there are no members, or their networks differ in shapes.
    """
    if members < 1:
        raise Misuse(f"members={members}: an ensemble needs at least 1")
    first, nothing = build(0), lambda name: False
    is_shared, is_fixed = shared or nothing, fixed or nothing
    parameters = dict(first.named_parameters())
    trained = {name: tensor for name, tensor in parameters.items() if not is_fixed(name)}

    def empty(named: Mapping[str, Tensor]) -> Named:
        return {name: tensor.detach().new_empty((members, *tensor.shape)) for name, tensor in named.items()}

    population = Population(
        members,
        own=empty({name: tensor for name, tensor in trained.items() if not is_shared(name)}),
        shared={name: tensor.detach().clone() for name, tensor in trained.items() if is_shared(name)},
        buffers=empty(dict(first.named_buffers())),
        fixed=empty({name: tensor for name, tensor in parameters.items() if name not in trained}),
    )
    targets = {**population.own, **population.fixed, **population.buffers}
    for index in range(members):
        module = build(index) if index else first
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if name in targets and targets[name].shape[1:] != tensor.shape:
                shapes = f"of shape {tuple(tensor.shape)}, member 0 has {tuple(targets[name].shape[1:])}"
                raise Misuse(f"member {index} has '{name}' {shapes}: all members need one architecture")
            if name in targets:
                targets[name][index] = tensor.detach()
    for name, tensor in population.fixed.items():
        if torch.equal(tensor, tensor[:1].expand_as(tensor)):  # equal values are stored once
            population.fixed[name] = tensor[:1].clone()
    return population
