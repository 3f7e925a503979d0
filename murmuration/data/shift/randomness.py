"""Random numbers addressed by (seed, corruption, severity, index of the input), and the check of such an address.

Numbers are addressed, not drawn in turn: Philox (Salmon et al. 2011) encrypts a counter, and the counter holds the
index of the input in its data set. So an input gets the same noise however the data set is cut into batches.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from numbers import Integral
from zlib import crc32

import numpy as np

from murmuration.system.errors import Misuse

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Draws:
    """Random numbers of the inputs first .. first + count - 1; `purpose` separates several draws for one input."""

    key: tuple[int, int]
    first: int
    count: int

    def generators(self, purpose: int = 0) -> Iterator[np.random.Generator]:
        """Yield a generator for each input, at the start of its numbers.

        All are one object, whose state is reset: draw before advancing the iterator.
        """
        philox = np.random.Philox(key=np.array(self.key, dtype=np.uint64))
        generator, state = np.random.Generator(philox), philox.state
        for index in range(self.first, self.first + self.count):
            state["state"]["counter"][:] = (0, purpose, index, 0)
            philox.state = state
            yield generator

    def normals(self, shape: tuple[int, ...], purpose: int = 0) -> np.ndarray:
        """Draw standard normal numbers (N, *shape)."""
        return self._floats(np.random.Generator.standard_normal, shape, purpose)

    def uniforms(self, shape: tuple[int, ...], purpose: int = 0) -> np.ndarray:
        """Draw uniform numbers (N, *shape) in [0, 1)."""
        return self._floats(np.random.Generator.random, shape, purpose)

    def _floats(self, draw: Callable, shape: tuple[int, ...], purpose: int) -> np.ndarray:
        out = np.empty((self.count, prod(shape)), dtype=np.float32)
        for row, generator in zip(out, self.generators(purpose), strict=True):
            draw(generator, out=row, dtype=np.float32)
        return out.reshape(self.count, *shape)

    def words(self, shape: tuple[int, ...], purpose: int = 0) -> np.ndarray:
        """Draw uniform 32-bit integers (N, *shape)."""
        size = prod(shape)
        out = np.empty((self.count, -(-size // 2)), dtype=np.uint64)
        for row, generator in zip(out, self.generators(purpose), strict=True):
            row[:] = generator.bit_generator.random_raw(len(row))
        return out.view(np.uint32)[:, :size].reshape(self.count, *shape)


def draws_for(seed: int, corruption: str, severity: int, indices: range) -> Draws:
    """Return the random numbers of consecutive inputs under one corruption.

    >>> draws_for(0, "fog", 1, range(4)).words((2,))[3] == draws_for(0, "fog", 1, range(3, 4)).words((2,))[0]
    array([ True,  True])
    """
    words = np.random.SeedSequence((seed, crc32(corruption.encode()), severity)).generate_state(2, np.uint64)
    return Draws((int(words[0]), int(words[1])), indices.start, len(indices))


def check_arguments(severity: int, seed: int, first: int) -> None:
    """Refuse a severity outside 1 .. 5, and a seed or a first index below 0."""
    if isinstance(severity, bool) or not isinstance(severity, Integral) or severity not in SEVERITIES:
        raise Misuse(f"severity {severity!r}: expected an integer from 1 to 5")
    if seed < 0 or first < 0:
        raise Misuse(f"seed {seed} and first {first}: expected integers from 0")


def select_severities(severities: Sequence[int] | None = None) -> list[int]:
    """Check requested severities.

    Args:
        severities: Integers from 1 to 5; all five by default.

    Returns:
        The severities, sorted and without repetition.

    Raises:
        Misuse: For an empty list, or a severity outside 1 to 5.
    >>> select_severities([5, 1, 5])
    [1, 5]
    """
    selected = SEVERITIES if severities is None else severities
    for severity in selected:
        check_arguments(severity, seed=0, first=0)
    if not selected:
        raise Misuse("no severity given: expected some of 1, 2, 3, 4, 5")
    return sorted(set(selected))
