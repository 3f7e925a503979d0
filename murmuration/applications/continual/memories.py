"""Memories of examples for replay, of a fixed capacity, filled from a stream in one pass."""

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor

from murmuration.applications.continual.learner import size_of
from murmuration.system.errors import require_integer


@dataclass
class Reservoir:
    """A uniform sample of all examples seen (algorithm R, Vitter 1985)."""

    capacity: int
    x: Tensor = field(default_factory=lambda: torch.zeros(0))  # (n, ...)
    y: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))  # (n,)
    seen: dict[int, int] = field(default_factory=dict)  # label -> examples

    def __post_init__(self) -> None:
        require_integer("capacity", self.capacity, 1)

    def __len__(self) -> int:
        return len(self.y)

    def add(self, x: Tensor, y: Tensor, generator: torch.Generator) -> None:
        """Offer examples x (N, ...) with labels y (N,) to the memory, which stores or drops each."""
        uniform = torch.rand(len(y), 2, generator=generator, dtype=torch.float64).tolist()
        row_of_slot: dict[int, int] = {}  # the last row that a slot is given to
        labels = self.y.tolist()
        for row, label in enumerate(y.tolist()):
            self.seen[label] = self.seen.get(label, 0) + 1
            slot = len(labels) if len(labels) < self.capacity else self.slot(label, labels, *uniform[row])
            if slot is not None:
                labels[slot : slot + 1] = [label]
                row_of_slot[slot] = row
        if not len(self) and row_of_slot:
            self.x = x.new_zeros(0, *x.shape[1:])
        added = len(labels) - len(self)
        self.x = torch.cat([self.x, x.new_zeros(added, *x.shape[1:])]) if added else self.x
        self.x[list(row_of_slot)] = x[list(row_of_slot.values())]
        self.y = torch.tensor(labels, dtype=torch.int64)

    def slot(self, label: int, labels: list[int], first: float, second: float) -> int | None:
        """Return the slot of an example in a full memory, from two uniform numbers; None to drop it."""
        index = int(first * sum(self.seen.values()))
        return index if index < self.capacity else None

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return examples x (count, ...) and y (count,) of the memory, with replacement."""
        rows = torch.randint(len(self), (count,), generator=generator)
        return self.x[rows], self.y[rows]

    def memory(self) -> int:
        """Return bytes of the examples."""
        return size_of([self.x, self.y])


class BalancedReservoir(Reservoir):
    """Equally many examples of every class, as far as there are, each class a uniform sample (Chrysakis, Moens 2020).

    An example of a class that is not among the largest takes the place of one of a largest class. One of a largest
    class takes the place of another of its class, as in a reservoir of its own.
    """

    def slot(self, label: int, labels: list[int], first: float, second: float) -> int | None:
        counts = Counter(labels)
        most = max(counts.values())
        if counts[label] < most:
            largest = [stored for stored in sorted(counts) if counts[stored] == most]
            out = largest[int(first * len(largest))]
        elif first * self.seen[label] < counts[label]:
            out = label
        else:
            return None
        rows = [row for row, stored in enumerate(labels) if stored == out]
        return rows[int(second * len(rows))]
