"""Members over processes: the rows of the population that a process trains, and the exchange between processes.

The processes ("ranks") of a `torch.distributed` group divide the members in blocks of neighbours, nearly equal ones.
A rank trains its members independently, on its own engine; ranks synchronise to gather tensors with a member axis and
to sum tensors without. Flattened weights of all members are exchanged by columns: a rank receives the same part of
every member's vector, so that none holds all of them. A single process has all members, and for it a gathered or summed
tensor is the tensor itself.

With several ranks per member (`parts`) the ranks of one block train the same members, each on a part of the batch.
"""

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from murmuration.system.errors import Misuse


@dataclass(frozen=True)
class Ranks:
    """One process among those that divide the members; by default the only one.

    Attributes:
        rank: Index of the block of members of this process.
        size: Number of blocks.
        part: Index of the part of the batch that this process computes.
        parts: Number of parts of a batch: ranks per member.
        members: Process group of the ranks with other members and the same part.
        block: Process group of the ranks with the same members and other parts.
        devices: Types of devices whose tensors can be exchanged.
        cores: Cores of this process, if several share the machine; None for all.
        moved: Bytes received so far, by collective.
    """

    rank: int = 0
    size: int = 1
    part: int = 0
    parts: int = 1
    members: Any = None
    block: Any = None
    devices: tuple[str, ...] = ("cpu",)
    cores: int | None = None
    moved: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0 and self.part == 0

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.size == 1 and self.parts == 1

    def rows(self, members: int, rank: int | None = None) -> range:
        """Return the members of a block.

        Args:
            members: Number of all members.
            rank: Index of the block; None for that of this process.

        Returns:
            Their indices.


        >>> [Ranks(rank, size=3).rows(8) for rank in range(3)]
        [range(0, 3), range(3, 6), range(6, 8)]
        """
        first = self.rank if rank is None else rank
        return range(*(-(-members * edge // self.size) for edge in (first, first + 1)))

    def gather(self, tensor: Tensor, members: int) -> Tensor:
        """Gather the rows of all members.

        Args:
            tensor: Rows (m, ...) of the members of this rank.
            members: Number M of all members.

        Returns:
            Rows (M, ...) of all members, on every rank.
        """
        if self.size == 1:
            return tensor
        most = -(-members // self.size)
        sent = self._sent(tensor)
        sent = sent.to(torch.uint8) if sent.dtype == torch.bool else sent
        if len(sent) < most:
            sent = torch.cat([sent, sent.new_zeros(most - len(sent), *sent.shape[1:])])
        gathered = [torch.empty_like(sent, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(gathered, sent.contiguous(), self.members)
        self._count("gather", (self.size - 1) * sent.numel() * sent.element_size())
        parts = zip(gathered, self.counts(members), strict=True)
        return torch.cat([part[:count] for part, count in parts]).to(tensor.device, tensor.dtype)

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Sum tensors over the ranks with other members, in one exchange per dtype; shapes stay the same."""
        return list(tensors) if self.size == 1 else self._reduce(tensors, self.members, "sum")

    def sum_parts(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Sum tensors over the ranks with the same members and other parts of the batch; shapes stay the same."""
        return list(tensors) if self.parts == 1 else self._reduce(tensors, self.block, "parts")

    def total(self, tensor: Tensor) -> Tensor:
        """Sum one tensor over the ranks with other members."""
        return self.sum([tensor])[0]

    def _reduce(self, tensors: Sequence[Tensor], group: Any, name: str) -> list[Tensor]:
        sums = list(tensors)
        for dtype in dict.fromkeys(t.dtype for t in tensors):
            alike = {index: t for index, t in enumerate(tensors) if t.dtype == dtype}
            flat = self._sent(torch.cat([t.flatten() for t in alike.values()]))
            dist.all_reduce(flat, group=group)
            self._count(name, flat.numel() * flat.element_size())
            for (index, t), part in zip(alike.items(), flat.split([t.numel() for t in alike.values()]), strict=True):
                sums[index] = part.view(t.shape).to(t.device)
        return sums

    def counts(self, total: int) -> list[int]:
        """Return how many of all rows or columns each rank has, if they are divided among all ranks."""
        return [len(self.rows(total, rank)) for rank in range(self.size)]

    def to_columns(self, rows: Tensor, members: int) -> Tensor:
        """Exchange rows for columns.

        Args:
            rows: Rows (m, P) of the members of this rank.
            members: Number M of all members.

        Returns:
            The columns (M, p) of this rank.
        """
        if self.size == 1:
            return rows
        widths = self.counts(rows.shape[1])
        sent = self._sent(torch.cat([part.flatten() for part in rows.split(widths, 1)]))
        width = widths[self.rank]
        received = self._exchange(sent, [len(rows) * w for w in widths], [n * width for n in self.counts(members)])
        return received.view(members, width).to(rows.device)

    def to_rows(self, columns: Tensor, width: int) -> Tensor:
        """Exchange columns for rows: the inverse of `to_columns`.

        Args:
            columns: Columns (M, p) of this rank.
            width: Number P of all columns.

        Returns:
            Rows (m, P) of the members of this rank.
        """
        if self.size == 1:
            return columns
        counts = self.counts(len(columns))
        into = [counts[self.rank] * w for w in self.counts(width)]
        sent = self._sent(columns.contiguous().flatten())
        parts = self._exchange(sent, [count * columns.shape[1] for count in counts], into).split(into)
        return torch.cat([part.view(counts[self.rank], -1) for part in parts], 1).to(columns.device)

    def _exchange(self, sent: Tensor, out: list[int], into: list[int]) -> Tensor:
        received = sent.new_empty(sum(into))
        dist.all_to_all_single(received, sent, into, out, group=self.members)
        self._count("exchange", (sum(into) - into[self.rank]) * sent.element_size())
        return received

    def from_rank(self, tensor: Tensor, rank: int) -> Tensor:
        """Return the tensor of one rank, on all ranks with other members; shapes must agree."""
        if self.size == 1:
            return tensor
        received = self._sent(tensor).clone(memory_format=torch.contiguous_format)
        dist.broadcast(received, group=self.members, group_src=rank)
        return received.to(tensor.device)

    def largest(self, *numbers: float) -> list[float]:
        """Return the largest of each number over all processes."""
        if self.alone:
            return list(numbers)
        maxima = self._sent(torch.tensor(numbers, dtype=torch.float64))
        dist.all_reduce(maxima, dist.ReduceOp.MAX)
        return [float(number) for number in maxima]

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set on any process."""
        return self.largest(float(flag))[0] > 0

    def texts(self, text: str) -> list[str]:
        """Return the texts of all processes, by their rank among all of them."""
        return [text] if self.alone else exchange_texts(text)

    def records(self, record: Any) -> list[Any]:
        """Return the records of the ranks with other members, in the order of members; a record must fit into JSON."""
        if self.alone:
            return [record]
        entries = [json.loads(text) for text in self.texts(json.dumps([self.rank, self.part, record]))]
        return [value for rank, part, value in sorted(entries, key=lambda entry: entry[:2]) if part == self.part]

    def wait(self) -> None:
        """Wait until all processes have reached this call."""
        self.texts("")

    def _sent(self, tensor: Tensor) -> Tensor:
        """Return the tensor, detached, on a device whose tensors can be exchanged."""
        return tensor.detach() if tensor.device.type in self.devices else tensor.detach().to(self.devices[0])

    def _count(self, name: str, size: int) -> None:
        self.moved[name] = self.moved.get(name, 0) + size


ALONE = Ranks()


def in_process_group() -> bool:
    """Return whether this process is one of several in an initialised process group."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def exchange_devices() -> tuple[str, ...]:
    """Return the types of devices whose tensors the process group can exchange, the CPU first."""
    types = [part.partition(":")[0] for part in str(dist.get_backend_config()).split(",")]
    return tuple(sorted(types, key=lambda name: name != "cpu"))


def exchange_texts(text: str) -> list[str]:
    """Return the texts of all processes of the group, by rank."""
    device = exchange_devices()[0]
    raw = torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)
    size, world = torch.tensor([len(raw)], device=device), dist.get_world_size()
    sizes = [torch.zeros_like(size) for _ in range(world)]
    dist.all_gather(sizes, size)
    most = max(1, *(int(t) for t in sizes))
    buffers = [raw.new_empty(most) for _ in range(world)]
    dist.all_gather(buffers, torch.cat([raw, raw.new_zeros(most - len(raw))]))
    return [bytes(t[: int(count)].tolist()).decode() for t, count in zip(buffers, sizes, strict=True)]


def find_ranks(members: int, parts: int = 1) -> Ranks:
    """Return the place of this process in the initialised process group.

    Ranks of one block of members are neighbours.

    Args:
        members: Number of members.
        parts: Ranks per member.

    Returns:
        Its ranks; `ALONE` without a process group.

    Raises:
        Misuse: If the members cannot be divided among the processes.
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
    (block, part), block_group, column_group = divmod(rank, parts), None, dist.group.WORLD
    if parts > 1:  # all processes make all groups, in one order
        blocks = [dist.new_group(list(range(first, first + parts))) for first in range(0, world, parts)]
        columns = [dist.new_group(list(range(first, world, parts))) for first in range(parts)]
        block_group, column_group = blocks[block], columns[part]
    return Ranks(block, size, part, parts, column_group, block_group, exchange_devices(), own_cores())


def available_cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def own_cores() -> int:
    """Return the cores that this process may use, divided by the number of processes that may use the same ones."""
    cores = available_cores()
    text = json.dumps([socket.gethostname(), cores])
    return max(1, len(cores) // exchange_texts(text).count(text))
