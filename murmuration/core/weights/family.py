"""The protocol of a weight family: the answer to the question what a weight is.

A `WeightFamily` is a frozen dataclass of settings. `init` adds the tensors that it needs to a population (masks,
standard deviations), `in_network` binds it to the kernels of one network, and `realise` turns the stored tensors of
some members into the weights of one forward pass. A family of your own derives from `WeightFamily` and overrides what
differs; an instance of it can be given wherever a recipe takes weights.

Realised kernels may have auxiliary tensors beside them: `K:in` (C_in,) scales the input channels of kernel K, `K:out`
(C_out,) its output channels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from murmuration.core.population import Population
from murmuration.core.weights.distributions import Distribution
from murmuration.core.weights.elbo import ELBO
from murmuration.core.weights.kernel_trace import Kernel, KernelTrace
from murmuration.system.devices import FLOAT32
from murmuration.system.errors import Misuse
from murmuration.system.streams import Noise

if TYPE_CHECKING:
    from murmuration.core.weights.priors import WeightPosterior

Named = dict[str, Tensor]
Rows = dict[int, Tensor | None]  # member axes, 1 or 0 -> standard deviations of all such tensors, (m, P) or (P,)
Streams = Callable[[int], torch.Generator]  # member -> the generator of its factors and masks
INTO, OUT = ":in", ":out"  # auxiliary tensors that scale a kernel's input and output channels


class MovesStd(Protocol):
    """The part of a dynamics that a weight family must know."""

    @property
    def moves_std(self) -> bool:
        """Whether the dynamics moves stored standard deviations itself, with a prior of its own."""


@dataclass(frozen=True)
class ForwardSpec:
    """How the operators of a forward pass use realised weights, and when dropout layers are active."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    bias_inside: bool = False  # whether `K:out` scales the bias of K too
    rates: dict[str, float] = field(default_factory=dict)  # kernel -> dropout rate of its inputs
    dropout: Literal["training", "always", "never"] = "training"
    precision: str = FLOAT32  # that operators compute in
    random_modules: tuple[str, ...] = ()  # modules whose randomness needs their training mode: DropPath, attention


@dataclass(frozen=True)
class Realised:
    """The weights of m members in one forward pass."""

    own: Named  # (m, ...) each
    shared: Named  # (...) each
    spec: ForwardSpec
    stds: Rows | None = None  # standard deviations before pruning, so that the complexity need not find them again

    def with_buffers(self, buffers: Named, fixed: Named | None = None) -> "Realised":
        """All tensors of the pass: buffers (m, ...), and fixed parameters, (1, ...) or (m, ...), beside the weights."""
        own, common = {**self.own, **buffers}, dict(self.shared)
        for name, tensor in (fixed or {}).items():
            if len(tensor) == 1:
                common[name] = tensor[0]
            else:
                own[name] = tensor
        return replace(self, own=own, shared=common)


class WeightFamily:
    """Base of weight families: every weight is a point estimate unless a method is overridden."""

    draws: int = 1  # predictions per member
    stochastic: bool = False  # whether a forward pass has random weights or masks
    needs_kernels: bool = True  # whether the kernels of the network must be traced
    separates_members: bool = False  # whether `init` gives each member tensors that differ, such as masks
    point_estimates: bool = True  # whether stored weights are point estimates, perhaps under masks
    init_from: bool | str = False  # True: weights begin at the net given; a string: at the members of that run

    @property
    def mask_distribution(self) -> Distribution | None:
        """The distribution of fixed masks on the inputs of kernels, if there are any."""
        return None

    def init(
        self, population: Population, trace: KernelTrace, streams: Streams, initial_std: float | None = None
    ) -> Population:
        """The population with the tensors that the family adds: masks, standard deviations.

        `initial_std` is the first standard deviation where the dynamics prescribes one.
        """
        return population

    def check_trace(self, trace: KernelTrace) -> None:
        """Raise Misuse if the family cannot act on all of the network that it should."""
        if self.needs_kernels:
            trace.require_supported()

    def in_network(self, trace: KernelTrace, *, bias_inside: bool = False) -> "NetworkWeights":
        """The family bound to the kernels of one network."""
        kernels = {kernel.name: kernel for kernel in trace.kernels}
        return NetworkWeights(self, ForwardSpec(kernels, bias_inside, random_modules=trace.random_modules))

    def realise(
        self, spec: ForwardSpec, own: Named, shared: Named, noise: Sequence[Noise], *, buffers: Named, training: bool
    ) -> Realised:
        """The weights of m members in one pass, from their own tensors (m, ...) and shared ones (...)."""
        return Realised(own, shared, spec)

    def complexity(
        self, spec: ForwardSpec, own: Named, shared: Named, buffers: Named, noise: Sequence[Noise], stds: Rows | None
    ) -> Tensor | None:
        """KL(q || p) of each of m members (m,), in nats; None for weights that are not distributions."""
        return None

    def objective(self, examples: int, steps_per_epoch: int, epochs: int) -> ELBO:
        """The loss of a step: passes per step, and the weight of the complexity."""
        return ELBO(examples, steps_per_epoch, epochs)

    def without_warmup(self) -> "WeightFamily":
        """The family for further training of a trained posterior: without KL warm-up."""
        return self

    def for_draws(self, population: Population) -> "tuple[WeightFamily, Population]":
        """The family and the population in a form that is cheaper to realise many times."""
        return self, population

    def std(self, name: str, named: Named) -> Tensor | None:
        """The standard deviations of a tensor, like it; None if it is not a distribution."""
        return None

    def posteriors(self, population: Population, spec: ForwardSpec) -> "list[WeightPosterior]":
        """The tensors of a population that are distributions, each with its prior."""
        return []

    def check_dynamics(self, dynamics: MovesStd) -> None:
        """Raise Misuse if the dynamics cannot move weights of this family."""
        if dynamics.moves_std:
            raise Misuse(
                f"weights {type(self).__name__.lower()} with a dynamics that moves standard deviations: they have none;"
                " write weights gaussian:estimator=draw,std_param=std,beta=0"
            )

    def resolve_draws(self, requested: int | None) -> int:
        """Predictions per member: as many as requested, else `draws`."""
        draws = self.draws if requested is None else requested
        if draws < 1:
            raise Misuse(f"draws={draws}: need at least 1")
        if draws > 1 and not self.stochastic:
            raise Misuse(
                f"draws={draws} of weights {type(self).__name__.lower()}: they are not random; leave draws out"
            )
        return draws


@dataclass(frozen=True)
class Point(WeightFamily):
    """A weight is a point estimate."""

    needs_kernels = False


@dataclass(frozen=True)
class NetworkWeights:
    """A weight family in one network."""

    family: WeightFamily
    spec: ForwardSpec
    at_mean: bool = False  # whether distributions are replaced by their means

    def realise(
        self, own: Named, shared: Named, noise: Sequence[Noise], *, buffers: Named | None = None, training: bool = False
    ) -> Realised:
        """The weights of m members in one pass; `noise` has one stream per member.

        In training, kernels that are distributions may leave their noise to the operators. `buffers` hold the masks of
        pruned weights, which are zero and have no standard deviation.
        """
        if self.at_mean:
            return Realised(own, shared, self.spec)
        return self.family.realise(self.spec, own, shared, noise, buffers=buffers or {}, training=training)

    def complexity(
        self, own: Named, shared: Named, buffers: Named, noise: Sequence[Noise], stds: Rows | None = None
    ) -> Tensor | None:
        """KL(q || p) of each of m members (m,), in nats, or None; `stds` are those of `realise`, if they are known."""
        return self.family.complexity(self.spec, own, shared, buffers, noise, stds)

    def for_draws(self, population: Population) -> "tuple[NetworkWeights, Population]":
        """The same weights in a form that is cheaper to realise many times."""
        family, population = self.family.for_draws(population)
        return replace(self, family=family), population

    @property
    def stochastic(self) -> bool:
        """Whether two passes of a member on the same inputs differ."""
        return self.family.stochastic and not self.at_mean

    def in_precision(self, precision: str) -> "NetworkWeights":
        """The same weights in a network that computes in this precision, float32 or bf16."""
        return replace(self, spec=replace(self.spec, precision=precision))

    def deterministic(self) -> "NetworkWeights":
        """The same network with distributions at their means and without dropout in evaluation."""
        dropout = self.spec.dropout if self.spec.dropout != "always" else "training"
        return replace(self, spec=replace(self.spec, rates={}, dropout=dropout), at_mean=True)


POINT = NetworkWeights(Point(), ForwardSpec())  # point estimates, in any network


def effective_kernel(kernel: Kernel, tensors: Mapping[str, Tensor], weight: Tensor) -> Tensor:
    """The kernel with the scales of its input and output channels multiplied in, like `weight`."""
    scale = kernel.matrix(tensors.get(kernel.name + INTO), tensors.get(kernel.name + OUT), weight)
    return weight if scale is None else weight * scale
