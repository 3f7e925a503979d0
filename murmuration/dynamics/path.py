"""Which points of the path an ensemble is made of."""

from collections.abc import Callable

# A rule sees (epoch just finished, epochs in all) and says whether the population is kept as it stands now.
KEEP: dict[str, Callable[[int, int], bool]] = {
    "optimiser": lambda epoch, epochs: False,  # the end of the path is always there; nothing on the way is kept
}


def keeps(dynamics: str, epoch: int, epochs: int) -> bool:
    """Whether the population after `epoch` (counted from 1) of `epochs` joins the ensemble beside the end point."""
    return KEEP[dynamics](epoch, epochs)
