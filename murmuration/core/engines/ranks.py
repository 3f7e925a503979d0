"""Members over processes: the rows of the population that a process trains, and the exchange between processes.

The processes ("ranks") of a `torch.distributed` group divide the members in blocks of neighbours, nearly equal ones.
A rank trains its members as if they were alone, on an engine of its own; it meets the others to gather what has a
member axis and to sum what has none. Flattened weights of all members are exchanged by columns: a rank gets the same
part of every member's vector, so that none holds all of them. A single process has all members, and for it a gathered
or summed tensor is the tensor itself.

With several ranks per member (`parts`) the ranks of one block train the same members, each on a part of the batch.
"""

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from murmuration.system.errors import Misuse


@dataclass(frozen=True)
class Ranks:
    """One process among those that divide the members; by default the only one."""

    rank: int = 0  # of this process's block of members
    size: int = 1  # number of blocks
    part: int = 0  # of the batch that this process computes
    parts: int = 1  # number of parts of a batch: ranks per member
    members: Any = None  # process group of the ranks with other members and the same part
    block: Any = None  # process group of the ranks with the same members and other parts
    devices: tuple[str, ...] = ("cpu",)  # types of devices whose tensors can be exchanged
    cores: int | None = None  # of this process's own, if several share the machine; None: all
    moved: dict[str, int] = field(default_factory=dict, compare=False)  # bytes received so far, by collective

    @property
    def first(self) -> bool:
        """Whether this process writes, shows and prints."""
        return self.rank == 0 and self.part == 0

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.size == 1 and self.parts == 1

    def rows(self, members: int, rank: int | None = None) -> range:
        """The members of a block: of this process's, or of another.

        >>> [Ranks(rank, size=3).rows(8) for rank in range(3)]
        [range(0, 3), range(3, 6), range(6, 8)]
        """
        rank = self.rank if rank is None else rank
        return range(*(-(-members * edge // self.size) for edge in (rank, rank + 1)))

    def gather(self, tensor: Tensor, members: int) -> Tensor:
        """The rows (M, ...) of all members, from each rank's own (m, ...)."""
        if self.size == 1:
            return tensor
        most = -(-members // self.size)
        sent = self._sent(tensor)
        sent = sent.to(torch.uint8) if sent.dtype == torch.bool else sent
        if len(sent) < most:
            sent = torch.cat([sent, sent.new_zeros(most - len(sent), *sent.shape[1:])])
        found = [torch.empty_like(sent, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(found, sent.contiguous(), self.members)
        self._count("gather", (self.size - 1) * sent.numel() * sent.element_size())
        parts = [each[: len(self.rows(members, rank))] for rank, each in enumerate(found)]
        return torch.cat(parts).to(tensor.device, tensor.dtype)

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums of tensors over the ranks that have other members, exchanged in one piece."""
        return list(tensors) if self.size == 1 else self._reduce(tensors, self.members, "sum")

    def sum_parts(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums of tensors over the ranks that have the same members."""
        return list(tensors) if self.parts == 1 else self._reduce(tensors, self.block, "parts")

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of one tensor over the ranks that have other members."""
        return self.sum([tensor])[0]

    def _reduce(self, tensors: Sequence[Tensor], group: Any, name: str) -> list[Tensor]:
        found = list(tensors)
        for dtype in dict.fromkeys(each.dtype for each in tensors):
            places = [place for place, each in enumerate(tensors) if each.dtype == dtype]
            flat = self._sent(torch.cat([tensors[place].flatten() for place in places]))
            dist.all_reduce(flat, group=group)
            self._count(name, flat.numel() * flat.element_size())
            sizes = [tensors[place].numel() for place in places]
            for place, part in zip(places, flat.split(sizes), strict=True):
                found[place] = part.view(tensors[place].shape).to(tensors[place].device)
        return found

    def columns(self, width: int) -> list[int]:
        """The widths of the parts of a row of so many numbers, one for each rank."""
        return [len(range(*pair)) for pair in pairwise(-(-width * edge // self.size) for edge in range(self.size + 1))]

    def to_columns(self, rows: Tensor, members: int) -> Tensor:
        """The columns (M, p) of this rank, from each rank's rows (m, P)."""
        if self.size == 1:
            return rows
        widths = self.columns(rows.shape[1])
        sent = self._sent(torch.cat([part.flatten() for part in rows.split(widths, 1)]))
        counts = [len(self.rows(members, rank)) for rank in range(self.size)]
        found = self._exchange(
            sent, [len(rows) * width for width in widths], [count * widths[self.rank] for count in counts]
        )
        return found.view(members, widths[self.rank]).to(rows.device)

    def to_rows(self, columns: Tensor, width: int) -> Tensor:
        """The inverse of `to_columns`: this rank's rows (m, P), from each rank's columns (M, p)."""
        if self.size == 1:
            return columns
        members, widths = len(columns), self.columns(width)
        counts = [len(self.rows(members, rank)) for rank in range(self.size)]
        found = self._exchange(
            self._sent(columns.contiguous().flatten()),
            [count * columns.shape[1] for count in counts],
            [counts[self.rank] * each for each in widths],
        )
        parts = found.split([counts[self.rank] * each for each in widths])
        rows = [part.view(counts[self.rank], each) for part, each in zip(parts, widths, strict=True)]
        return torch.cat(rows, 1).to(columns.device)

    def _exchange(self, sent: Tensor, out: list[int], into: list[int]) -> Tensor:
        found = sent.new_empty(sum(into))
        dist.all_to_all_single(found, sent, into, out, group=self.members)
        self._count("exchange", (sum(into) - into[self.rank]) * sent.element_size())
        return found

    def from_rank(self, tensor: Tensor, rank: int) -> Tensor:
        """The tensor of one of the ranks that have other members."""
        if self.size == 1:
            return tensor
        found = self._sent(tensor).clone(memory_format=torch.contiguous_format)
        dist.broadcast(found, group=self.members, group_src=rank)
        return found.to(tensor.device)

    def largest(self, *numbers: float) -> list[float]:
        """The largest of each number over all processes."""
        if self.alone:
            return list(numbers)
        found = self._sent(torch.tensor(numbers, dtype=torch.float64))
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return [float(number) for number in found]

    def any(self, flag: bool) -> bool:
        """Whether a flag is set on some process."""
        return self.largest(float(flag))[0] > 0

    def texts(self, text: str) -> list[str]:
        """The texts of all processes, by their rank in the whole group."""
        return [text] if self.alone else exchange_texts(text)

    def records(self, record: Any) -> list[Any]:
        """Records of the ranks that have other members, each as JSON holds it, in the order of the members."""
        if self.alone:
            return [record]
        found = [json.loads(text) for text in self.texts(json.dumps([self.rank, self.part, record]))]
        return [each for rank, part, each in sorted(found, key=lambda entry: entry[:2]) if part == self.part]

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.texts("")

    def _sent(self, tensor: Tensor) -> Tensor:
        """The tensor, detached, where it can be exchanged."""
        return tensor.detach() if tensor.device.type in self.devices else tensor.detach().to(self.devices[0])

    def _count(self, name: str, size: int) -> None:
        self.moved[name] = self.moved.get(name, 0) + size


ALONE = Ranks()


def in_process_group() -> bool:
    """Whether this process is one of several in an initialised process group."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def exchange_devices() -> tuple[str, ...]:
    """The types of devices whose tensors the process group can exchange, the CPU first."""
    found = [part.partition(":")[0] for part in str(dist.get_backend_config()).split(",")]
    return tuple(sorted(found, key=lambda name: name != "cpu"))


def exchange_texts(text: str) -> list[str]:
    """The texts of all processes of the group, by rank."""
    device = exchange_devices()[0]
    raw = torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)
    size, world = torch.tensor([len(raw)], device=device), dist.get_world_size()
    sizes = [torch.zeros_like(size) for _ in range(world)]
    dist.all_gather(sizes, size)
    most = max(1, *(int(each) for each in sizes))
    found = [raw.new_empty(most) for _ in range(world)]
    dist.all_gather(found, torch.cat([raw, raw.new_zeros(most - len(raw))]))
    return [bytes(each[: int(count)].tolist()).decode() for each, count in zip(found, sizes, strict=True)]


def find_ranks(members: int, parts: int = 1) -> Ranks:
    """This process among those of the group that is initialised, if there is one, for so many members.

    Ranks of one block of members are neighbours. Refuses a number of processes that members cannot be divided among.
    """
    if not in_process_group():
        if parts > 1:
            raise Misuse(f"ranks_per_member={parts} in one process: start {parts} with torchrun, or leave it out")
        return ALONE
    world, rank = dist.get_world_size(), dist.get_rank()
    if world % parts:
        raise Misuse(f"ranks_per_member={parts} with {world} processes: need a multiple of {parts} processes")
    size = world // parts
    if size > members:
        fitting = next(count for count in range(1, world + 1) if world % count == 0 and world // count <= members)
        raise Misuse(
            f"{world} processes for {members} members: start {members * parts} with torchrun, or write"
            f" ranks_per_member={fitting}, which splits every batch"
        )
    every, own = list(range(world)), (rank // parts, rank % parts)
    blocks = [every[first : first + parts] for first in range(0, world, parts)] if parts > 1 else []
    columns = [every[part::parts] for part in range(parts)] if parts > 1 else []
    groups = {tuple(ranks): dist.new_group(ranks) for ranks in [*blocks, *columns]}  # made by all, in one order
    block = groups[tuple(blocks[own[0]])] if blocks else None
    column = groups[tuple(columns[own[1]])] if columns else dist.group.WORLD
    return Ranks(own[0], size, own[1], parts, column, block, exchange_devices(), own_cores())


def own_cores() -> int:
    """The cores that this process may use, divided by the number of processes that may use the same ones."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    mine = json.dumps([socket.gethostname(), cores])
    return max(1, len(cores) // exchange_texts(mine).count(mine))
