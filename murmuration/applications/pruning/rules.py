"""Which weights go: how much a weight is worth, and where the line is drawn.

| rule | a weight goes if | threshold |
|---|---|---|
| `magnitude` | abs(mean) is at or below the threshold (Shridhar et al. 2019) | 0: exact zeros alone |
| `snr` | abs(mean) / std is (Graves 2011, Blundell et al. 2015) | |
| `log-alpha` | log(std^2 / mean^2) is at or above it (Molchanov et al. 2017) | 3, which is an snr of e^-1.5 = 0.223 |

A sparsity draws the line so that this share of a kernel's weights goes (`scope=layer`), or of all kernels' together
(`scope=global`, which takes most from layers whose weights are small, and may take a layer whole). Each member has a
line of its own for its own kernels; what members share is pruned once, for all. `structured` takes whole output
channels instead, by the mean magnitude of their weights (their L1 norm over their number), with their biases, in each
layer by itself unless told otherwise; the last layer keeps its outputs, every layer its best channel. Masks grow with
the sparsity and never shrink: pruning a pruned population takes more of it.
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
    """How much a weight is worth, by its mean and its standard deviation; more is better."""

    about: str
    worth: Callable[[Tensor, Tensor], Tensor]
    noisy: bool = True  # whether it looks at standard deviations
    sign: int = 1  # of a threshold, as it is written, against the least worth that is kept
    usual: float | None = None  # the threshold that is usual


RULES = {
    "magnitude": Rule("abs(mean)", lambda mean, std: mean.abs(), noisy=False),
    "snr": Rule("abs(mean) / std", lambda mean, std: mean.abs() / std),
    "log-alpha": Rule("log(std^2 / mean^2)", lambda mean, std: 2 * (mean.abs().log() - std.log()), sign=-1, usual=3.0),
}


@dataclass(frozen=True)
class Pruning:
    """What goes: by a rule, down to a sparsity or by a threshold."""

    rule: str = "magnitude"
    sparsity: float | None = None  # the share of weights, or of channels, that goes
    threshold: float | None = None
    scope: str | None = None  # None: global, of channels layer
    structured: bool = False

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise unknown("rule", self.rule, RULES)
        if self.scope is not None and self.scope not in SCOPES:
            raise unknown("scope", self.scope, SCOPES)
        if self.sparsity is not None and not 0 <= self.sparsity < 1:
            raise Misuse(f"sparsity={self.sparsity}: need a share of at least 0 and below 1, such as 0.8")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise Misuse(f"threshold={self.threshold}: need a finite number")
        if self.sparsity is not None and self.threshold is not None:
            raise Misuse(f"sparsity={self.sparsity} and threshold={self.threshold}: each draws the line; give one")
        if self.structured and self.rule != "magnitude":
            raise Misuse(f"rule={self.rule} with structured: channels go by the magnitude of their means; leave it out")

    @property
    def within(self) -> str:
        """Where one line is drawn: a layer's channels all have weights of one scale, those of another do not."""
        return self.scope or ("layer" if self.structured else "global")

    @property
    def cut(self) -> float:
        """The worth at or below which a weight goes, where a threshold draws the line."""
        assert self.threshold is not None
        return RULES[self.rule].sign * self.threshold

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "scope": self.within}
