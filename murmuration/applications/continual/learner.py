"""The protocol of learners in a stream of tasks, and their states as tensors and JSON."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


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


def size_of(tensors: Iterable[Tensor]) -> int:
    """Return bytes of some tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def inside(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors below a prefix.

    >>> inside({"a/b/c": torch.zeros(1), "x": torch.zeros(1)}, "a")
    {'b/c': tensor([0.])}
    """
    return {name.partition("/")[2]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}/")}


def moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimizer as tensors by name."""
    states = optimizer.state_dict()["state"]
    return {f"moments/{place}/{name}": value for place, state in states.items() for name, value in state.items()}


def restore_moments(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load what `moments` returned into an optimizer of the same parameters."""
    states: dict[int, dict[str, Tensor]] = {}
    for name, value in inside(tensors, "moments").items():
        place, _, key = name.partition("/")
        states.setdefault(int(place), {})[key] = value
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
