"""Dropout that stays on when predicting (MC dropout, Gal and Ghahramani 2016).

Dropout layers of the network are active in every pass. A network without dropout layers gets dropout of `rate` before
every trained kernel but the network's first; before a convolution whole channels are dropped.
"""

from dataclasses import dataclass, replace

from murmuration.errors import Misuse
from murmuration.weights.family import NetworkWeights, WeightFamily
from murmuration.weights.kernel_trace import KernelTrace


@dataclass(frozen=True)
class Dropout(WeightFamily):
    """Point estimates whose inputs are dropped at random, in training and prediction."""

    stochastic = True
    rate: float = 0.1  # of the dropout before kernels, for a network without dropout layers
    draws: int = 30  # predictions per member

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise Misuse(f"rate={self.rate}: need a probability of at least 0 and below 1, such as 0.1")
        self.resolve_draws(self.draws)

    def in_network(self, trace: KernelTrace, *, bias_inside: bool = False) -> NetworkWeights:
        base = super().in_network(trace, bias_inside=bias_inside)
        rates = {} if trace.has_dropout else {kernel.name: self.rate for kernel in trace.kernels[1:] if kernel.trained}
        return replace(base, spec=replace(base.spec, rates=rates, dropout="always"))
