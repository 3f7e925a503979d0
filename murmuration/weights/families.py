"""Answers to the second question: what is a weight?

| written | what it means |
|---|---|
| `point` | a number |
| `dropout:rate=0.1,draws=30` | a number left out at random, also when predicting (Gal and Ghahramani 2016) |
| `masks:law=inverted_0.5` | a number that some members never use: one mask a member, drawn once |
| `gaussian:prior=he,draws=30` | a distribution N(mean, spread^2) (Bayes by Backprop, Blundell et al. 2015) |
| `moped:around=runs/x` | the same, begun and believed around the weights of a trained run (Krishnan et al. 2020) |

Dropout stands where the network has dropout layers, and in a network without any before every kernel but the first;
fixed masks always stand there, instead of dropout layers. A mask before a convolution covers whole channels.

A family turns the stored tensors of some members into the weights that a forward pass uses. A kernel may then have
companions: `K:in` scales the channels that kernel K takes, `K:out` those it makes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from murmuration.errors import Misuse
from murmuration.population import Population
from murmuration.streams import Noise
from murmuration.weights.gaussian import Gaussian, Rows, complexity, realised, with_stds
from murmuration.weights.laws import law_named
from murmuration.weights.outline import Kernel, Outline
from murmuration.written import read

Named = dict[str, Tensor]
INTO, OUT = ":in", ":out"  # companions of a kernel


@dataclass(frozen=True)
class How:
    """How linear operators act on realised weights, and what becomes of dropout."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    inside: bool = False  # whether what scales a kernel's outputs scales its bias too
    rates: dict[str, float] = field(default_factory=dict)  # kernel -> share of its inputs that is dropped
    dropout: str = "training"  # when dropout layers drop: in training, always, never


@dataclass(frozen=True)
class Realised:
    """The weights of m members, as a forward pass uses them."""

    own: Named  # (m, ...) each
    shared: Named  # (...) each
    how: How
    stds: Rows | None = None  # of what is a distribution, pruned weights too

    def with_buffers(self, buffers: Named) -> "Realised":
        return replace(self, own={**self.own, **buffers})


@dataclass(frozen=True)
class Weights:
    """What a weight is; the fields are what can be written after the name."""

    kind: str = "point"
    rate: float = 0.1  # of dropout that a network without dropout layers gets
    draws: int = 1  # predictions of each member
    law: str = "inverted_0.5"  # of masks

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise Misuse(f"rate={self.rate}: need a share of at least 0 and below 1, such as 0.1")
        if self.draws < 1:
            raise Misuse(f"draws={self.draws}: need at least 1")
        if self.draws > 1 and self.kind != "dropout":
            raise Misuse(f"draws={self.draws} of weights {self.kind}: they have no chance in them; leave it out")
        if law_named(self.law).negative > 0:
            raise Misuse(f"law={self.law}: a mask lets through or not; write bernoulli_0.5 or inverted_0.5")

    def times(self, draws: int | None) -> int:
        """How often each member answers: as often as asked, or as usual."""
        return self.draws if draws is None else replace(self, draws=draws).draws


WEIGHTS: dict[str, Weights | Gaussian] = {
    "point": Weights("point"),
    "dropout": Weights("dropout", draws=30),
    "masks": Weights("masks"),
    "gaussian": Gaussian(),
    "moped": Gaussian(around="yes", prior="gaussian_1"),
}


def weights_named(text: str) -> Weights | Gaussian:
    """The answer that a text stands for.

    >>> weights_named("dropout:rate=0.2").rate
    0.2
    """
    return read(text, "weights", WEIGHTS, fixed=("kind",))


@dataclass(frozen=True)
class Family:
    """What a weight is in one network, ready to be realised."""

    weights: Weights | Gaussian
    how: How
    resting: bool = False  # whether distributions are taken at their means

    def realise(
        self,
        own: Named,
        shared: Named,
        noise: Sequence[Noise],
        *,
        buffers: Named | None = None,
        training: bool = False,
    ) -> Realised:
        """The weights that the m members at hand use in one pass; `noise` has one stream a member.

        In training, kernels that are distributions may leave their noise to the operators. `buffers` say which weights
        are pruned: they are zero, and not a distribution.
        """
        if not isinstance(self.weights, Gaussian) or self.resting:
            return Realised(own, shared, self.how)
        operators = training and self.weights.estimator != "draw"
        noisy = {name for kernel in self.how.kernels.values() for name in (kernel.name, *kernel.biases)}
        left = noisy if operators else frozenset()
        mine, ours, stds = realised(self.weights, own, shared, noise, left, buffers or {})
        return Realised(mine, ours, self.how, stds)

    def complexity(
        self, own: Named, shared: Named, buffers: Named, noise: Sequence[Noise], stds: Rows | None = None
    ) -> Tensor | None:
        """What it costs each member (m,), in nats, that its weights are not as they were believed to be; or None.

        Standard deviations found when these weights were realised need not be found again.
        """
        if not isinstance(self.weights, Gaussian):
            return None
        return complexity(self.weights, own, shared, buffers, noise, self.how.kernels, stds)

    def for_draws(self, population: Population) -> "tuple[Family, Population]":
        """The same, ready to be realised many times."""
        if not isinstance(self.weights, Gaussian):
            return self, population
        weights, spelled = with_stds(self.weights, population)
        return replace(self, weights=weights), spelled

    @property
    def chance(self) -> bool:
        """Whether a member answers differently each time it is asked."""
        return self.weights.kind in ("dropout", "gaussian") and not self.resting

    def at_rest(self) -> "Family":
        """The same without chance: what a network does when it is asked once."""
        calm = replace(self.how, rates={}, dropout="training" if self.how.dropout == "always" else self.how.dropout)
        return replace(self, how=calm, resting=True)


POINT = Family(Weights(), How())  # a number, in any network


def family_of(weights: Weights | Gaussian, outline: Outline, *, inside: bool = False) -> Family:
    """What a weight is in the network of this outline."""
    kernels = {kernel.name: kernel for kernel in outline.kernels}
    if weights.kind == "masks":
        return Family(weights, How(kernels, inside, dropout="never"))
    if isinstance(weights, Weights) and weights.kind == "dropout":
        rates = {} if outline.drops else dict.fromkeys(outline.names[1:], weights.rate)
        return Family(weights, How(kernels, inside, rates, dropout="always"))
    return Family(weights, How(kernels, inside))


def masked_population(
    population: Population, weights: Weights | Gaussian, outline: Outline, streams: Callable[[int], torch.Generator]
) -> Population:
    """The population with one mask a member before every kernel but the first; masks are not trained."""
    if not isinstance(weights, Weights) or weights.kind != "masks" or population.members == 1:
        return population
    if any(name.endswith((INTO, OUT)) for name in population.own):
        raise Misuse("weights masks with factors of members' own: both would scale what kernels take; choose one")
    law, masks, tensors = law_named(weights.law), {}, {**population.own, **population.shared}
    generators = [streams(member) for member in range(population.members)]
    for kernel in outline.kernels[1:]:
        kind = tensors[kernel.name].dtype
        rows = [law.sample((kernel.inputs,), generator, dtype=kind) for generator in generators]
        masks[kernel.name + INTO] = torch.stack(rows)
    return Population(population.members, population.own, population.shared, {**population.buffers, **masks})


def explicit(kernel: Kernel, tensors: Mapping[str, Tensor], weight: Tensor) -> Tensor:
    """The kernel with its companions multiplied in: what a plain network would have in its place."""
    scale = kernel.matrix(tensors.get(kernel.name + INTO), tensors.get(kernel.name + OUT), weight)
    return weight if scale is None else weight * scale
