"""Point estimates whose inputs are dropped: anew in every pass, or under one fixed mask per member.

`Dropout` stays on when predicting (MC dropout, Gal and Ghahramani 2016). Dropout of the network is active in every
pass: dropout layers, dropout of attention and between recurrent layers, and layers that draw random numbers in training
mode, such as stochastic depth. A network without any gets dropout of `rate` before every trained kernel but the first;
before a convolution whole channels are dropped.

With `Masks` each member uses a random subset of channels, drawn once before training. A mask scales the input channels
of every kernel but the first, in training and prediction; dropout layers of the network are inactive. A single member
has no masks, nor has a fixed kernel.
"""

from dataclasses import dataclass, field, replace

import torch

from murmuration.core.population import Population
from murmuration.core.weights.distributions import Distribution, InvertedDropout
from murmuration.core.weights.family import INTO, OUT, NetworkWeights, Streams, WeightFamily
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


@dataclass(frozen=True)
class Masks(WeightFamily):
    """Point estimates under one fixed mask per member.

    Attributes:
        distribution: Distribution of the entries of a mask, not negative.
    """

    separates_members = True
    distribution: Distribution = field(default=InvertedDropout(0.5))

    def __post_init__(self) -> None:
        if self.distribution.negative > 0:
            raise Misuse(
                f"distribution={self.distribution}: masks must not be negative; write bernoulli_0.5 or inverted_0.5"
            )

    def check_trace(self, trace: KernelTrace) -> None:
        trace.require_supported().require_scalable("a mask").require_once(trace.trained, "masks")
        require_pure_dropout(trace, "weights masks, which switch dropout off,")

    @property
    def mask_distribution(self) -> Distribution:
        return self.distribution

    def init(
        self, population: Population, trace: KernelTrace, streams: Streams, initial_std: float | None = None
    ) -> Population:
        """Add a mask (M, C_in) per kernel to the buffers, which are not trained.

        Not to be called for a single member, which has no masks.
        """
        if any(name.endswith((INTO, OUT)) for name in population.own):
            raise Misuse("weights masks with rank-one factors: both would scale the inputs of kernels; choose one")
        masks, tensors = {}, {**population.own, **population.shared}
        generators = [streams(member) for member in range(population.members)]
        for kernel in (k for k in trace.kernels[1:] if k.name not in population.fixed):
            dtype = tensors[kernel.name].dtype
            rows = [self.distribution.sample((kernel.inputs,), generator, dtype=dtype) for generator in generators]
            masks[kernel.name + INTO] = torch.stack(rows)
        return replace(population, buffers={**population.buffers, **masks})

    def in_network(self, trace: KernelTrace, *, bias_inside: bool = False) -> NetworkWeights:
        base = super().in_network(trace, bias_inside=bias_inside)
        return replace(base, spec=replace(base.spec, dropout="never"))


def require_pure_dropout(trace: KernelTrace, what: str) -> None:
    """Raise Misuse if dropout cannot be switched without switching something else of the network."""
    if trace.training_effect:
        raise Misuse(
            f"{what} with a net that draws random numbers in training mode: {trace.training_effect}; move the random"
            " part into a module of its own, such as torch.nn.Dropout"
        )
