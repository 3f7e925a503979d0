"""Randomness: one seed, and from it a stream for every purpose, member and moment.

A stream is addressed, not advanced: the batch order of epoch 7 of member 3 follows from (seed, "batches", 3, 7) alone.
So changing one stream leaves the others as they were, members may run in any order on any worker, and a killed run
goes on with the numbers it would have drawn.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch

Stream = Literal["initialisation", "batches", "augmentation", "noise", "prediction"]
ORDER: dict[Stream, int] = {
    "initialisation": 0,
    "batches": 1,
    "augmentation": 2,
    "noise": 3,
    "prediction": 4,
}
EVERYONE = -1  # in place of a member: all members draw the same


def stream_seed(seed: int, stream: Stream, member: int, moment: int = 0) -> int:
    """The 63-bit seed of one stream at one moment.

    >>> stream_seed(0, "batches", 0) == stream_seed(0, "noise", 0)
    False
    """
    words = np.random.SeedSequence((seed, ORDER[stream], member + 1, moment)).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


def generator(
    seed: int, stream: Stream, member: int, moment: int = 0, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A fresh generator at the start of one stream."""
    return torch.Generator(device).manual_seed(stream_seed(seed, stream, member, moment))


@contextmanager
def global_stream(seed: int, stream: Stream, member: int, moment: int = 0, redirect: bool = True) -> Iterator[None]:
    """Code that knows only torch's global generator (module constructors) draws from one stream inside this block.

    The global generator belongs to the whole process: with several threads at work nothing may be redirected.
    """
    if not redirect:
        yield
        return
    # Not torch.manual_seed: it also queues a seed, with a stack trace, for every accelerator that is not there.
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(stream_seed(seed, stream, member, moment))
    try:
        yield
    finally:
        torch.set_rng_state(before)
