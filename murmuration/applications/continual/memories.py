"""Memories of examples for replay, of a fixed capacity, filled from a stream in one pass."""

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
        """Show examples x (N, ...) with labels y (N,) to the memory."""
        chance = torch.rand(len(y), 2, generator=generator, dtype=torch.float64).tolist()
        places: dict[int, int] = {}  # place in the memory -> row, the last one that takes it
        labels = self.y.tolist()
        for row, label in enumerate(y.tolist()):
            self.seen[label] = self.seen.get(label, 0) + 1
            place = len(labels) if len(labels) < self.capacity else self.place(label, labels, *chance[row])
            if place is None:
                continue
            labels[place : place + 1] = [label]
            places[place] = row
        if not len(self) and places:
            self.x = x.new_zeros(0, *x.shape[1:])
        fresh = len(labels) - len(self)
        self.x = torch.cat([self.x, x.new_zeros(fresh, *x.shape[1:])]) if fresh else self.x
        self.x[list(places)] = x[list(places.values())]
        self.y = torch.tensor(labels, dtype=torch.int64)

    def place(self, label: int, labels: list[int], first: float, second: float) -> int | None:
        """Where an example goes in a full memory, by two uniform numbers; None: nowhere."""
        place = int(first * sum(self.seen.values()))
        return place if place < self.capacity else None

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Examples x (count, ...) and y (count,) of the memory, with replacement."""
        rows = torch.randint(len(self), (count,), generator=generator)
        return self.x[rows], self.y[rows]

    def memory(self) -> int:
        """Bytes of the examples."""
        return size_of([self.x, self.y])


class BalancedReservoir(Reservoir):
    """Equally many examples of every class, as far as there are, each class a uniform sample (Chrysakis, Moens 2020).

    An example of a class that is not among the largest takes the place of one of a largest class. One of a largest
    class takes the place of another of its class, as in a reservoir of its own.
    """

    def place(self, label: int, labels: list[int], first: float, second: float) -> int | None:
        counts: dict[int, int] = {}
        for each in labels:
            counts[each] = counts.get(each, 0) + 1
        most = max(counts.values())
        if counts.get(label, 0) < most:
            largest = [each for each in sorted(counts) if counts[each] == most]
            out = largest[int(first * len(largest))]
        elif first * self.seen[label] < counts[label]:
            out = label
        else:
            return None
        rows = [row for row, each in enumerate(labels) if each == out]
        return rows[int(second * len(rows))]
