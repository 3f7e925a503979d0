"""The one number that split conformal prediction learns, and how many examples it needs."""

import math

import numpy as np

from murmuration.errors import Failure, Misuse


def place_of(examples: int, level: float) -> int:
    """The place, counted from one, of the threshold among the sorted scores: ceil((n + 1) level).

    The product is rounded before it is rounded up: 100 * 0.55 is 55.00000000000001 in floating point.
    """
    return math.ceil(round((examples + 1) * level, 9))


def threshold_of(scores: np.ndarray, level: float) -> np.ndarray:
    """The ceil((n + 1) level)-th smallest (...) of scores (n, ...); infinite where n is too small for the level.

    A new score is one of n + 1 that could stand in any order, so it is at most this one with probability at
    least `level` (Vovk, Gammerman and Shafer 2005). This fails where new inputs come from elsewhere.

    >>> threshold_of(np.arange(1.0, 10.0), 0.9).item(), threshold_of(np.arange(1.0, 9.0), 0.9).item()
    (9.0, inf)
    """
    place = place_of(len(scores), level)
    if place > len(scores):
        return np.full(scores.shape[1:], np.inf)
    return np.partition(scores, place - 1, axis=0)[place - 1]


def least_examples(level: float) -> int:
    """The smallest number of examples whose threshold is finite: n with ceil((n + 1) level) <= n.

    >>> least_examples(0.9), least_examples(0.95), least_examples(0.5)
    (9, 19, 1)
    """
    return math.ceil(round(level / (1 - level), 9))


def check_level(level: float) -> None:
    """Nothing, if the level is a probability strictly inside (0, 1)."""
    if not 0 < level < 1:
        raise Misuse(f"level {level} is outside (0, 1): write for example 0.9")


def check_examples(examples: int) -> None:
    """Nothing, if the number of examples is at least one."""
    if examples < 1:
        raise Misuse(f"{examples} examples: expected at least one")


def check_numbers(values: np.ndarray, what: str) -> np.ndarray:
    """The values, if none of them is NaN or infinite: a diverged member must not hide inside a threshold."""
    bad = ~np.isfinite(values)
    if bad.any():
        place = tuple(np.argwhere(bad)[0].tolist())
        raise Failure(f"{what} at {list(place)} is {values[place]}: a member diverged; leave it out with select(...)")
    return values


def shortage(examples: int, level: float) -> str:
    """What to say of a threshold that may be infinite: nothing, or how many examples are missing."""
    least = least_examples(level)
    if examples >= least:
        return ""
    return f"; everything is inside, since {examples} examples are fewer than the {least} that level {level:g} needs"
