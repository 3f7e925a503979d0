"""Pruning criteria: the score of a weight, and the threshold below which it is removed.

| rule | a weight is removed if | default threshold |
|---|---|---|
| `magnitude` | abs(mean) is at or below the threshold (Shridhar et al. 2019) | 0: exact zeros alone |
| `snr` | abs(mean) / std is (Graves 2011, Blundell et al. 2015) | |
| `log-alpha` | log(std^2 / mean^2) is at or above it (Molchanov et al. 2017) | 3, which is an snr of e^-1.5 = 0.223 |

A sparsity sets the threshold so that this fraction of a kernel's weights is removed (`scope=layer`), or of all kernels
together (`scope=global`, which removes most from layers with small weights, and may remove a whole layer). Each member
has a threshold of its own for its own kernels; shared kernels are pruned once, for all members. `structured` removes
whole output channels with their biases, by the mean magnitude of their weights (L1 norm over their number), in each
layer separately unless a scope is given; the last layer keeps its outputs, every layer its best channel. Masks are
nested: a higher sparsity, or pruning a pruned population, removes more.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from murmuration.errors import Misuse, unknown

SCOPES = ("global", "layer")


@dataclass(frozen=True)
class Rule:
    """A criterion: the score of a weight from its mean and its standard deviation; low scores are removed first."""

    about: str
    score: Callable[[Tensor, Tensor], Tensor]
    noisy: bool = True  # whether it uses standard deviations
    sign: int = 1  # by which a threshold given by the user is multiplied to compare with scores
    usual: float | None = None  # default threshold


RULES = {
    "magnitude": Rule("abs(mean)", lambda mean, std: mean.abs(), noisy=False),
    "snr": Rule("abs(mean) / std", lambda mean, std: mean.abs() / std),
    "log-alpha": Rule("log(std^2 / mean^2)", lambda mean, std: 2 * (mean.abs().log() - std.log()), sign=-1, usual=3.0),
}


@dataclass(frozen=True)
class Pruning:
    """Settings of pruning: a rule, and a sparsity or a threshold."""

    rule: str = "magnitude"
    sparsity: float | None = None  # fraction of weights, or of channels, to remove
    threshold: float | None = None
    scope: str | None = None  # None: global, of channels layer
    structured: bool = False

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise unknown("rule", self.rule, RULES)
        if self.scope is not None and self.scope not in SCOPES:
            raise unknown("scope", self.scope, SCOPES)
        if self.sparsity is not None and not 0 <= self.sparsity < 1:
            raise Misuse(f"sparsity={self.sparsity}: need a fraction of at least 0 and below 1, such as 0.8")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise Misuse(f"threshold={self.threshold}: need a finite number")
        if self.sparsity is not None and self.threshold is not None:
            raise Misuse(f"sparsity={self.sparsity} and threshold={self.threshold}: give one of them")
        if self.structured and self.rule != "magnitude":
            raise Misuse(
                f"rule={self.rule} with structured: channels go by the magnitude of their means; leave rule out"
            )

    @property
    def within(self) -> str:
        """The scope; by layer for channels, since layers differ in the scale of their weights, else global."""
        return self.scope or ("layer" if self.structured else "global")

    @property
    def cut(self) -> float:
        """The score at or below which a weight is removed, if a threshold is given."""
        assert self.threshold is not None
        return RULES[self.rule].sign * self.threshold

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "scope": self.within}
