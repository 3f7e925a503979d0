"""Dropout that stays on when predicting (MC dropout, Gal and Ghahramani 2016).

Dropout of the network is active in every pass: dropout layers, dropout of attention and between recurrent layers, and
layers that draw random numbers in training mode, such as stochastic depth. A network without any gets dropout of `rate`
before every trained kernel but the first; before a convolution whole channels are dropped.
"""

from dataclasses import dataclass, replace

from murmuration.core.weights.family import NetworkWeights, WeightFamily
from murmuration.core.weights.kernel_trace import KernelTrace
from murmuration.system.errors import Misuse


@dataclass(frozen=True)
class Dropout(WeightFamily):
    """Point estimates whose inputs are dropped at random, in training and prediction.

    Attributes:
        rate: Rate of the dropout before kernels, for a network without dropout layers.
        draws: Predictions per member.
    """

    stochastic = True
    rate: float = 0.1
    draws: int = 30

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise Misuse(f"rate={self.rate}: need a probability of at least 0 and below 1, such as 0.1")
        self.resolve_draws(self.draws)

    def check_trace(self, trace: KernelTrace) -> None:
        """Refuse a network whose passes would not differ, or not only by dropout."""
        if trace.has_dropout:
            require_pure_dropout(trace, "weights dropout")
            return
        trace.require_supported("add torch.nn.Dropout layers, which then drop activations instead")
        trace.require_once(trace.trained, "dropout of its inputs")
        if self.rate == 0 or not any(kernel.trained for kernel in trace.kernels[1:]):
            got = "rate=0" if self.rate == 0 else "no trained kernel but the first, whose inputs are never dropped"
            raise Misuse(f"weights dropout in a net without dropout, and {got}: add torch.nn.Dropout layers")

    def in_network(self, trace: KernelTrace, *, bias_inside: bool = False) -> NetworkWeights:
        base = super().in_network(trace, bias_inside=bias_inside)
        rates = {} if trace.has_dropout else {kernel.name: self.rate for kernel in trace.kernels[1:] if kernel.trained}
        return replace(base, spec=replace(base.spec, rates=rates, dropout="always"))


def require_pure_dropout(trace: KernelTrace, what: str) -> None:
    """Raise Misuse if dropout cannot be switched without switching something else of the network."""
    if trace.training_effect:
        raise Misuse(
            f"{what} with a net that draws random numbers in training mode: {trace.training_effect}; move the random"
            " part into a module of its own, such as torch.nn.Dropout"
        )
