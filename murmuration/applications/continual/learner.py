"""The protocol of learners in a stream of tasks, their states as tensors and JSON, and the memory they need."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from murmuration.core.population import Named
from murmuration.system.errors import Misuse

CHUNK = 1000  # inputs that are classified at once
MEMORY = ("network", "snapshots", "statistics", "examples")  # kinds of memory


class State(NamedTuple):
    """All that a learner needs to continue: tensors by name, and facts as JSON holds them."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


class Learner(Protocol):
    """A classifier that learns from one batch at a time."""

    @property
    def task(self) -> int | None:
        """The task at hand, by the learner's own numbers; None if it knows of none."""

    def observe(self, x: Tensor, y: Tensor, task: int | None = None) -> dict[str, float]:
        """Learn from inputs (N, ...) with labels (N,); returns the losses, if there are some."""

    def classify(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the label (N,) and the task (N,) of each input; -1 if the learner tells no tasks apart."""

    def memory(self) -> dict[str, int]:
        """Return bytes by kind: network, snapshots, statistics, examples."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


def memory_of(*tensors: Iterable[Tensor]) -> dict[str, int]:
    """Return the bytes of the tensors of each kind of `MEMORY`."""
    return {kind: sum(t.nbytes for t in part) for kind, part in zip(MEMORY, tensors, strict=True)}


def named_by_part(parts: Mapping[Any, Named]) -> Named:
    """Return the tensors of some parts as `PART/NAME`, the inverse of `below`.

    >>> named_by_part({"a": {"b": 1}})
    {'a/b': 1}
    """
    return {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}


def nothing_seen() -> Misuse:
    """Return the refusal of a learner to classify before its first batch."""
    return Misuse("the learner has seen no batch yet: call observe(x, y) first")
