"""Checkpoints of the weights along the path of training, for analysis: after which steps, and in which precision.

As text: `every-epoch`; `every:K`, every K epochs (a fraction such as 0.25 too) and at the end; `last:N`, after each of
the last N epochs. `,float16` after it stores weights in half precision.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from murmuration.core.dynamics.schedules import TrainTime
from murmuration.core.population import Population
from murmuration.system.errors import Misuse

EXAMPLES = "every-epoch, every:5, every:0.25 or last:10 (epochs), with ,float16 for half precision"


@dataclass(frozen=True)
class CheckpointTimes:
    """The times at which a trajectory is stored, and its precision.

    Attributes:
        every: Interval in epochs.
        last: Number of epochs at the end of training; None for all.
        half: Whether weights are stored in half precision.
    """

    every: float = 1.0
    last: int | None = None
    half: bool = False

    def steps(self, total: TrainTime) -> list[int]:
        """Return the steps after which weights are stored, without step 0, the initial weights.

        >>> CheckpointTimes(every=0.5).steps(TrainTime(12, 4, 3))
        [2, 4, 6, 8, 10, 12]
        >>> parse_trajectory("last:2").steps(TrainTime(12, 4, 3))
        [8, 12]
        >>> len(parse_trajectory("every:1e-300").steps(TrainTime(12, 4, 3)))
        12
        """
        every = max(self.every, 1 / total.steps_per_epoch)  # not more often than after every step
        count = math.floor(total.epochs / every)
        steps = {round(every * (i + 1) * total.steps_per_epoch) for i in range(count)} - {0}
        first = 0 if self.last is None else total.steps_per_epoch * (total.epochs - self.last)
        return sorted(step for step in steps | {total.step} if step > first)

    def tensors(self, population: Population) -> dict[str, Tensor]:
        """Return the tensors to store; a weight tensor that does not fit into half precision keeps its own."""
        tensors = population.to_tensors()
        if self.half:
            for name, tensor in tensors.items():
                if tensor.is_floating_point() and not name.startswith(("buffers/", "fixed/")):
                    rounded = tensor.to(torch.float16)
                    tensors[name] = rounded if bool(rounded.isfinite().all()) else tensor
        return tensors


def parse_trajectory(text: str) -> CheckpointTimes:
    """Parse times such as `every:5,float16`; raise Misuse for anything else.

    >>> parse_trajectory("every:5,float16")
    CheckpointTimes(every=5.0, last=None, half=True)
    """
    when, _, precision = text.partition(",")
    name, _, number = when.strip().partition(":")
    half = precision.strip() == "float16"
    try:
        if precision.strip() not in ("", "float16", "float32"):
            raise ValueError(precision)
        if when == "every-epoch":
            return CheckpointTimes(half=half)
        if name == "every" and 0 < float(number) < math.inf:
            return CheckpointTimes(float(number), half=half)
        if name == "last" and int(number) > 0:
            return CheckpointTimes(last=int(number), half=half)
        raise ValueError(when)
    except ValueError:
        raise Misuse(f"trajectory='{text}': write {EXAMPLES}") from None
