"""Captured steps: losses and gradients of a group of members, as operators that are recorded once and then replayed.

A step of small networks is mostly Python, vmap and automatic differentiation around a few products. Its operators are
the same at every step, so the third step on batches of one shape records them (`capture.py`), and the steps after the
fourth replay them on the members' current weights. A replay has the bits of the step itself: this is checked on the
recorded batch and on the next one, and if they differ nothing is captured.

Steps can be captured whose operators do not change: networks whose modules are all torch's or of this library, without
hooks; what else is needed is known to the step (`can_capture` in `training/captured.py`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.engines.capture import Captured, address_of, capture

SHAPES = 8  # of batches and groups that are captured
FIRST = 2  # steps before a capture: short runs have none
PLAIN = ("torch.nn.", "murmuration.")  # packages whose modules compute the same at every step

Compute = Callable[[], Sequence[Tensor]]


@dataclass
class Entry:
    """What is known of the steps of one group on batches of one shape."""

    settings: tuple  # objects that the operators depend on
    steps: int = 0
    captured: Captured | None = None
    trusted: bool = False

    def has(self, settings: tuple) -> bool:
        """Whether these are the settings, one by one."""
        return all(a is b or a == b for a, b in zip(self.settings, settings, strict=True))


class Captures:
    """The captured steps of one training run."""

    def __init__(self, module: nn.Module) -> None:
        self.possible = is_plain(module)
        self._entries: dict[Any, Entry] = {}

    def replay(self, key: tuple, settings: tuple, inputs: Sequence[Tensor]) -> list[Tensor] | None:
        """The results of a captured step on these inputs; None if it is not captured.

        `settings` are objects that the operators depend on: others than before begin anew.
        """
        entry = self._entries.get((key, *map(kind_of, inputs)))
        if entry is None or not entry.trusted or not entry.has(settings):
            return None
        assert entry.captured is not None
        with torch.no_grad():
            return entry.captured.run(*inputs)

    def learn(
        self, key: tuple, settings: tuple, inputs: Sequence[Tensor], compute: Compute, results: Sequence[Tensor]
    ) -> None:
        """Record `compute`, which reads `inputs` and nothing else that changes, or compare its replay with results.

        It returns `results`, and perhaps more.
        """
        entry = self._entry((key, *map(kind_of, inputs)), settings)
        if entry is None:
            return
        entry.steps += 1
        if entry.steps <= FIRST:
            return
        if entry.captured is not None:
            entry.trusted = self.possible = equal(entry.captured, inputs, results)
            return
        self.possible = False
        with suppress(Exception):  # NotCapturable, or what an operator makes of being recorded
            entry.captured, _ = capture(compute, inputs, {address_of(each) for each in inputs}, draws=False)
            self.possible = equal(entry.captured, inputs, results)

    def _entry(self, key: Any, settings: tuple) -> Entry | None:
        """The entry of a key, None if its steps are not captured."""
        if not self.possible:
            return None
        found = self._entries.get(key)
        if found is not None and found.has(settings):
            return found
        if found is None and len(self._entries) >= SHAPES:
            return None
        self._entries[key] = Entry(settings)
        return self._entries[key]


def is_plain(module: nn.Module) -> bool:
    """Whether all modules are known to compute the same at every step: none of the caller's own, and no hooks."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return all(
        type(each).__module__.startswith(PLAIN) and not any(getattr(each, hook) for hook in hooks)
        for each in module.modules()
    )


def kind_of(tensor: Tensor) -> tuple:
    """Everything about a tensor that operators may depend on, but its values."""
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device


def equal(captured: Captured, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> bool:
    """Whether a replay gives these results first, bit by bit and in the same memory layout; NaN equals NaN."""
    with torch.no_grad():
        again = captured.run(*inputs)
    return all(
        a.stride() == b.stride() and torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan())
        for a, b in zip(results, again, strict=False)
    )
