"""Captured steps: losses and gradients of a group of members, as operators that are recorded once and then replayed.

A step of small networks is mostly Python, vmap and automatic differentiation around a few products. Its operators are
the same at every step, so the third step on batches of one shape records them (`capture.py`), and the steps after the
fourth replay them on the members' current weights. A replay is bit-identical to the step itself: this is checked on the
recorded batch and on the next one, and if they differ nothing is captured. Random bits of members' noise, from which
dropout masks are computed, are inputs: a replay draws those of its own step.

Only steps whose operators do not change can be captured: networks whose modules are all from torch or this library,
without hooks or a replaced `forward`. The task checks its other conditions (`GroupStep.inputs`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.core.engines.capture import Captured, Compute, address_of, capture, equal_bits, fixed_replay
from murmuration.system.streams import RepeatableNoise

SHAPES = 8  # of batches and groups that are captured
FIRST = 2  # steps before a capture: short runs have none
PLAIN = ("torch.nn.", "murmuration.")  # packages whose modules compute the same at every step


@dataclass(frozen=True)
class StepInputs:
    """What the losses and gradients of a group of members at one step depend on.

    Attributes:
        key: Identifies the group.
        settings: Objects that the operators depend on; if they change, the capture starts again.
        held: Tensors that are the same objects at every step, with new values: the weights.
        given: Tensors that are new at every step: the batch.
        make_noise: Makes the noise of each member.
    """

    key: tuple
    settings: tuple
    held: list[Tensor]
    given: list[Tensor]
    make_noise: Callable[[], list[RepeatableNoise]]

    @cached_property
    def noise(self) -> list[RepeatableNoise]:
        """The noise of each member, made where a step draws from it."""
        return self.make_noise()


@dataclass
class Entry:
    """What is known of the steps of one group on batches of one shape."""

    settings: tuple
    held: list[Tensor]
    draws: list[tuple[int, int]] = field(default_factory=list)  # member and number of random bits of each draw
    steps: int = 0
    captured: Captured | None = None
    trusted: bool = False

    def fits(self, step: StepInputs) -> bool:
        """Return whether a step has these settings and the same weight tensors."""
        same_tensors = all(map(is_, self.held, step.held)) and len(self.held) == len(step.held)
        return same_tensors and all(a is b or a == b for a, b in zip(self.settings, step.settings, strict=True))


class Captures:
    """The captured steps of one training run."""

    def __init__(self, module: nn.Module) -> None:
        hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        self.built_in = all(  # modules run the same operators at every step: none user-defined, and no hooks
            type(part).__module__.startswith(PLAIN)
            and "forward" not in vars(part)
            and not any(getattr(part, hook) for hook in hooks)
            for part in module.modules()
        )
        self.possible = self.built_in
        self._entries: dict[Any, Entry] = {}

    def replay(self, step: StepInputs) -> list[Tensor] | None:
        """Return the results of a captured step, which the next one overwrites; None if it is not captured."""
        entry = self._entries.get((step.key, *map(kind_of, step.given)))
        if entry is None or not entry.trusted or not entry.fits(step):
            return None
        assert entry.captured is not None
        device = step.given[0].device
        bits = [step.noise[member].bits(count, device) for member, count in entry.draws]
        with torch.no_grad():
            return entry.captured.run(*step.given, *bits)

    def learn(self, step: StepInputs, compute: Compute, results: Sequence[Tensor], packed: slice) -> None:
        """Record `compute`, which reads the step's inputs and nothing else that changes, or compare its replay.

        It returns `results`, and perhaps more. A replay puts the results `packed` into one buffer.
        """
        key = (step.key, *map(kind_of, step.given))
        entry = self._entries.get(key)
        if not self.possible or (entry is None and len(self._entries) >= SHAPES):
            return
        if entry is None or not entry.fits(step):
            entry = self._entries[key] = Entry(step.settings, step.held)
        entry.steps += 1
        if entry.steps <= FIRST:
            return
        draws = [(member, len(bits)) for member, noise in enumerate(step.noise) for bits in noise.drawn]
        inputs = [*step.given, *(bits for noise in step.noise for bits in noise.drawn)]
        if entry.captured is not None:
            entry.trusted = self.possible = draws == entry.draws and equal(entry.captured, inputs, results)
            return
        self.possible, entry.draws = False, draws
        with suppress(Exception):  # NotCapturable, or what an operator makes of being recorded
            addresses = {address_of(tensor) for tensor in step.held}
            fixed = partial(fixed_replay, held=step.held, joined=packed)
            entry.captured = capture(compute, [*step.held, *inputs], addresses, draws=False, replay=fixed)
            self.possible = equal(entry.captured, inputs, results)


def kind_of(tensor: Tensor) -> tuple:
    """Return everything about a tensor that operators may depend on, except its values."""
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device


def equal(captured: Captured, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> bool:
    """Return whether a replay gives these results first, bit by bit and in the same memory layout; NaN equals NaN."""
    with torch.no_grad():
        replayed = captured.run(*inputs)
    return all(a.stride() == b.stride() and equal_bits(a, b) for a, b in zip(results, replayed, strict=False))
