"""Randomness: one seed, and from it a stream for every purpose, member and time (a step or an epoch).

A stream is addressed, not advanced: the batch order of epoch 7 of member 3 depends only on (seed, "batches", 3, 7).
So changing one stream does not affect the others, members may run in any order on any worker, and a killed run resumes
with the numbers it would have drawn.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Literal, get_args

import numpy as np
import torch

from murmuration.system.devices import HALF

# A part of every seed is the position of its stream: append to the last list only.
TrainingStream = Literal["initialisation", "batches", "augmentation", "noise", "bits", "factors", "langevin", "draws"]
PredictionStream = Literal["prediction", "prediction-masks"]
ToolStream = Literal["subspace", "tunnel", "examples", "sampler", "transfer", "views", "models", "folds"]
Stream = Literal[TrainingStream, PredictionStream, ToolStream]
ORDER: dict[Stream, int] = {name: number for number, name in enumerate(get_args(Stream))}
ALL_MEMBERS = -1  # as the member of a stream that all members use
Device = torch.device | str
EDGE = 1 - 2.0**-24  # the largest single-precision number below one
_global_generators = threading.RLock()  # held by the thread that uses torch's global generators


def stream_seed(seed: int, stream: Stream, member: int, time: int = 0) -> int:
    """Compute the 63-bit seed of the stream of one purpose, member and time.

    >>> stream_seed(0, "batches", 0) == stream_seed(0, "noise", 0)
    False
    """
    words = np.random.SeedSequence((seed, ORDER[stream], member + 1, time)).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


def generator(seed: int, stream: Stream, member: int, time: int = 0, device: Device = "cpu") -> torch.Generator:
    """Create a torch generator at the start of one stream."""
    return torch.Generator(device).manual_seed(stream_seed(seed, stream, member, time))


def global_generators(device: Device) -> list[torch.Generator]:
    """Return torch's global generators that a network on this device may draw from: those of the CPU and the device."""
    device = torch.device(device)
    if device.type == "cpu":
        return [torch.default_generator]
    if device.type == "mps":
        return [torch.default_generator, torch.mps._get_default_mps_generator()]
    module = torch.get_device_module(device)
    index = module.current_device() if device.index is None else device.index
    return [torch.default_generator, module.default_generators[index]]


@contextmanager
def kept_generators(device: Device = "cpu") -> Iterator[list[torch.Generator]]:
    """Use torch's global generators in one thread at a time, and restore them at the end of the block.

    They belong to the whole process: a thread of the host that draws from them meanwhile sees our numbers.
    """
    with _global_generators:
        generators = global_generators(device)
        before = [source.get_state() for source in generators]
        try:
            yield generators
        finally:
            for source, state in zip(generators, before, strict=True):
                source.set_state(state)


@contextmanager
def global_stream(
    seed: int, stream: Stream, member: int, time: int = 0, redirect: bool = True, device: Device = "cpu"
) -> Iterator[Callable[[], bool]]:
    """Make torch's global generators, those of the CPU and of `device`, draw from one stream inside this block.

    Module constructors and layers with noise use them. Yields a function that tells whether any number was drawn.
    Without `redirect` nothing changes.
    """
    if not redirect:
        yield lambda: False
        return
    with kept_generators(device) as generators:
        # Not torch.manual_seed: it also queues a seed, with a stack trace, for every accelerator that is not there.
        for source in generators:
            source.manual_seed(stream_seed(seed, stream, member, time))
        start = [source.get_state() for source in generators]
        yield lambda: not all(map(torch.equal, start, (source.get_state() for source in generators)))


class Noise:
    """The noise of a member at one time of training, or of one draw of it in prediction.

    Generators are created at the first draw. In training every example has a separate dropout mask; without
    `per_example` one mask serves all, so that the pass is one function of its inputs.
    """

    def __init__(
        self, seed: int, member: int, time: int = 0, stream: Stream | None = None, *, per_example: bool = True
    ) -> None:
        self.per_example = per_example
        self._address = (seed, member, time)
        self._stream = stream  # None: "noise", and "bits" for random bits on a CPU
        self._words: np.random.BitGenerator | None = None
        self._generators: dict[torch.device, torch.Generator] = {}

    def generator(self, device: torch.device) -> torch.Generator:
        """Return the stream as a torch generator."""
        if device not in self._generators:
            seed, member, time = self._address
            self._generators[device] = generator(seed, self._stream or "noise", member, time, device)
        return self._generators[device]

    def bits(self, count: int, device: torch.device) -> torch.Tensor:
        """Draw random 16-bit integers (count,) of the full range.

        On a CPU they come from numpy's SFC64, four to a 64-bit word, several times faster than torch's Mersenne
        Twister. Elsewhere each is drawn separately, in a range that single-precision generators cover exactly.
        """
        words = -(-count // 4)
        if device.type != "cpu":
            integers = torch.randint(
                -(2**15), 2**15, (count,), generator=self.generator(device), device=device, dtype=torch.int32
            )
            return integers.to(torch.int16)
        if self._words is None:
            seed, member, time = self._address
            self._words = np.random.SFC64(stream_seed(seed, self._stream or "bits", member, time))
        raw: np.ndarray = self._words.random_raw(words)
        return torch.from_numpy(raw.view(np.int16))[:count]

    def normal(self, like: torch.Tensor, rough: bool = False) -> torch.Tensor:
        """Draw standard normal numbers like a tensor, in the order of its axes whatever its memory format.

        Images (B, C, H, W) are filled in channels-last order, the memory format of convolutions. In single precision
        on a CPU the numbers are sqrt(2) erfinv(u) of random bits, twice as fast as torch's; the largest possible one is
        5.4, which a normal number exceeds once in fifteen million. With `rough` they are one of 65,536 quantiles each,
        at most 4.3, which is faster still. In half precision they are those of single precision, rounded.
        """
        if like.dtype in HALF:
            return self.normal(torch.empty_like(like, dtype=torch.float32), rough).to(like.dtype)
        if like.dim() != 4:
            return self._drawn(like.numel(), like, rough).view(like.shape)
        batch, channels, height, width = like.shape
        return self._drawn(like.numel(), like, rough).view(batch, height, width, channels).permute(0, 3, 1, 2)

    def _drawn(self, count: int, like: torch.Tensor, rough: bool) -> torch.Tensor:
        """Draw standard normal numbers (count,) of the dtype and device of `like`."""
        if like.device.type != "cpu" or like.dtype != torch.float32:
            values = torch.empty(count, dtype=like.dtype, device=like.device)
            return values.normal_(generator=self.generator(like.device))
        if rough:
            return quantiles().index_select(0, self.bits(count, like.device).view(torch.uint16).int())
        uniform = self.bits(2 * count, like.device).view(torch.int32).float().mul_(EDGE * 2.0**-31)
        return uniform.erfinv_().mul_(math.sqrt(2))


class RepeatableNoise(Noise):
    """Noise that records its random bits, so that a computation can be repeated with the same bits."""

    def __init__(self, seed: int, member: int, time: int = 0) -> None:
        super().__init__(seed, member, time)
        self.drawn: list[torch.Tensor] = []  # (count,) each
        self._replay: Iterator[torch.Tensor] | None = None

    def bits(self, count: int, device: torch.device) -> torch.Tensor:
        if self._replay is None:
            self.drawn.append(super().bits(count, device))
            return self.drawn[-1]
        return next(self._replay)

    def rewind(self) -> None:
        """Replay the recorded bits from now on."""
        self._replay = iter(self.drawn)


@cache
def quantiles() -> torch.Tensor:
    """Return the medians of 65,536 equally likely parts of the standard normal distribution, rescaled to variance 1."""
    parts = torch.special.ndtri((torch.arange(2**16, dtype=torch.float64) + 0.5) / 2**16)
    return (parts / parts.square().mean().sqrt()).float()


def normals(noise: Sequence[Noise], like: torch.Tensor, rough: bool = False) -> torch.Tensor:
    """Draw standard normal numbers like a tensor (m, ...), each row from its stream."""
    rows = [stream.normal(row, rough) for stream, row in zip(noise, like.detach(), strict=True)]
    return torch.stack(rows) if len(rows) > 1 else rows[0].unsqueeze(0)


def many_normals(noise: Sequence[Noise], likes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Draw standard normal numbers like each of the tensors (m, ...), from one draw per stream, faster than many."""
    if not likes:
        return []
    flat = normals(noise, likes[0].new_empty(len(noise), sum(like[0].numel() for like in likes)))
    parts = flat.split([like[0].numel() for like in likes], dim=1)
    return [part.view(like.shape) for part, like in zip(parts, likes, strict=True)]
