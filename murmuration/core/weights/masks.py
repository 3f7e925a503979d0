"""Fixed masks: each member uses a random subset of channels, drawn once before training.

A mask scales the input channels of every kernel but the first, in training and prediction; dropout layers of the
network are inactive. A single member has no masks, nor has a fixed kernel.
"""

from dataclasses import dataclass, field, replace

import torch

from murmuration.core.population import Population
from murmuration.core.weights.distributions import Distribution, InvertedDropout
from murmuration.core.weights.dropout import require_pure_dropout
from murmuration.core.weights.family import INTO, OUT, NetworkWeights, Streams, WeightFamily
from murmuration.core.weights.kernel_trace import KernelTrace
from murmuration.system.errors import Misuse


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
        for kernel in trace.kernels[1:]:
            if kernel.name in population.fixed:
                continue
            dtype = tensors[kernel.name].dtype
            rows = [self.distribution.sample((kernel.inputs,), generator, dtype=dtype) for generator in generators]
            masks[kernel.name + INTO] = torch.stack(rows)
        return replace(population, buffers={**population.buffers, **masks})

    def in_network(self, trace: KernelTrace, *, bias_inside: bool = False) -> NetworkWeights:
        base = super().in_network(trace, bias_inside=bias_inside)
        return replace(base, spec=replace(base.spec, dropout="never"))
