"""Answers to the fourth question: how do weights move, and which points of the path are kept?

| written | what it means |
|---|---|
| `optimiser` | along their gradients by the plan's optimiser; the end of the path is kept |
| `ivon:decay=0.0001,pace=20` | Gaussian weights by natural gradients (IVON, Shen et al. 2024), others as above |
"""

from collections.abc import Callable

from murmuration.dynamics.ivon import Ivon
from murmuration.written import read

DYNAMICS: dict[str, Ivon | None] = {"optimiser": None, "ivon": Ivon()}
# A rule sees (epoch just finished, epochs in all) and says whether the population is kept as it stands now.
KEEP: dict[str, Callable[[int, int], bool]] = {
    "optimiser": lambda epoch, epochs: False,  # the end of the path is always there; nothing on the way is kept
    "ivon": lambda epoch, epochs: False,
}


def dynamics_named(text: str) -> Ivon | None:
    """How Gaussian weights move by the answer that a text stands for; None: as all others do.

    >>> dynamics_named("ivon:decay=0.01").decay
    0.01
    """
    return read(text, "dynamics", DYNAMICS)


def keeps(dynamics: str, epoch: int, epochs: int) -> bool:
    """Whether the population after `epoch` (counted from 1) of `epochs` joins the ensemble beside the end point."""
    return KEEP[dynamics.partition(":")[0]](epoch, epochs)
