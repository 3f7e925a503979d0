"""The five severities of corruptions, and the check of arguments that all corruptions take."""

from collections.abc import Sequence
from numbers import Integral

from murmuration.errors import Misuse

SEVERITIES = (1, 2, 3, 4, 5)


def check_arguments(severity: int, seed: int, first: int) -> None:
    """Refuse a severity outside 1 .. 5, and a seed or a first index below 0."""
    if isinstance(severity, bool) or not isinstance(severity, Integral) or severity not in SEVERITIES:
        raise Misuse(f"severity {severity!r}: expected an integer from 1 to 5")
    if seed < 0 or first < 0:
        raise Misuse(f"seed {seed} and first {first}: expected integers from 0")


def select_severities(severities: Sequence[int] | None = None) -> list[int]:
    """The requested severities, sorted and without repetition; all five if None.

    >>> select_severities([5, 1, 5])
    [1, 5]
    """
    wanted = SEVERITIES if severities is None else severities
    for severity in wanted:
        check_arguments(severity, seed=0, first=0)
    if not wanted:
        raise Misuse("no severity given: expected some of 1, 2, 3, 4, 5")
    return sorted(set(wanted))
