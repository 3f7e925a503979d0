"""Question 2: what a weight is. The protocol of a weight family.

A `WeightFamily` is a frozen dataclass of settings. `init` adds the tensors that it needs to a population (masks,
standard deviations), `in_network` binds it to the kernels of one network, and `realise` turns the stored tensors of
some members into the weights of one forward pass. To write a family, derive from `WeightFamily`, override the methods
that differ, and pass an instance wherever a recipe takes weights.

Realised kernels may have auxiliary tensors beside them: `K:in` (C_in,) scales the input channels of kernel K, `K:out`
(C_out,) its output channels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from murmuration.core.population import Population
from murmuration.core.weights.distributions import Distribution
from murmuration.core.weights.elbo import ELBO
from murmuration.core.weights.kernel_trace import Kernel, KernelTrace
from murmuration.core.weights.priors import WeightPosterior
from murmuration.system.devices import FLOAT32
from murmuration.system.errors import Misuse, require_integer
from murmuration.system.streams import Noise

Named = dict[str, Tensor]
Rows = dict[int, Tensor | None]  # member axes, 1 or 0 -> standard deviations of all such tensors, (m, P) or (P,)
Streams = Callable[[int], torch.Generator]  # member -> the generator of its factors and masks
INTO, OUT = ":in", ":out"  # auxiliary tensors that scale a kernel's input and output channels


class MovesStd(Protocol):
    """The part of a dynamics that a weight family depends on."""

    @property
    def moves_std(self) -> bool:
        """Whether the dynamics moves stored standard deviations itself, under its own prior."""


@dataclass(frozen=True)
class ForwardSpec:
    """How the operators of a forward pass use realised weights, and when dropout layers are active.

    Attributes:
        kernels: Kernels of the network, by name.
        bias_inside: Whether `K:out` scales the bias of K too.
        rates: Dropout rate of the inputs of a kernel, by name.
        dropout: When dropout layers are active.
        precision: Precision that operators compute in.
        random_modules: Modules that are random in training mode only, such as DropPath and attention.
    """

    kernels: dict[str, Kernel] = field(default_factory=dict)
    bias_inside: bool = False
    rates: dict[str, float] = field(default_factory=dict)
    dropout: Literal["training", "always", "never"] = "training"
    precision: str = FLOAT32
    random_modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Realised:
    """The weights of m members in one forward pass.

    Attributes:
        own: Own tensors (m, ...), by name.
        shared: Shared tensors (...), by name.
        spec: How operators use them.
        stds: Standard deviations before pruning, which `complexity` can use again.
    """

    own: Named
    shared: Named
    spec: ForwardSpec
    stds: Rows | None = None

    def with_buffers(self, buffers: Named, fixed: Named | None = None) -> "Realised":
        """Add buffers (m, ...) and fixed parameters, (1, ...) or (m, ...), to the tensors of the pass."""
        fixed = fixed or {}
        own = {**self.own, **buffers, **{name: tensor for name, tensor in fixed.items() if len(tensor) > 1}}
        shared = {**self.shared, **{name: tensor[0] for name, tensor in fixed.items() if len(tensor) == 1}}
        return replace(self, own=own, shared=shared)


class WeightFamily:
    """Base class of weight families: every weight is a point estimate unless a method is overridden.

    Attributes:
        draws: Predictions per member.
        stochastic: Whether a forward pass has random weights or masks.
        needs_kernels: Whether the kernels of the network must be traced.
        separates_members: Whether `init` adds tensors that differ between members, such as masks.
        point_estimates: Whether stored weights are point estimates, possibly under masks.
        init_from: True to start at the weights of the network passed to `fit`, or a run to start at its members.
    """

    draws: int = 1
    stochastic: bool = False
    needs_kernels: bool = True
    separates_members: bool = False
    point_estimates: bool = True
    init_from: bool | str = False

    @property
    def mask_distribution(self) -> Distribution | None:
        """The distribution of fixed masks on the inputs of kernels, if there are any."""
        return None

    def init(
        self, population: Population, trace: KernelTrace, streams: Streams, initial_std: float | None = None
    ) -> Population:
        """Add the tensors of the family, such as masks or standard deviations, to a population.

        Args:
            population: The M members.
            trace: Kernels of the network.
            streams: Random stream of each member.
            initial_std: Initial standard deviation, if the dynamics prescribes one.

        Returns:
            The population with these tensors.
        """
        return population

    def check_trace(self, trace: KernelTrace) -> None:
        """Refuse a network with parameters that the family must act on and cannot.

        Args:
            trace: Kernels of the network.
        """
        if self.needs_kernels:
            trace.require_supported()

    def in_network(self, trace: KernelTrace, *, bias_inside: bool = False) -> "NetworkWeights":
        """Bind the family to the kernels of one network.

        Args:
            trace: Kernels of the network.
            bias_inside: Whether factors of a kernel's outputs scale its bias too.

        Returns:
            The family in this network.
        """
        kernels = {kernel.name: kernel for kernel in trace.kernels}
        return NetworkWeights(self, ForwardSpec(kernels, bias_inside, random_modules=trace.random_modules))

    def realise(
        self, spec: ForwardSpec, own: Named, shared: Named, noise: Sequence[Noise], *, buffers: Named, training: bool
    ) -> Realised:
        """Compute the weights of m members in one pass.

        Args:
            spec: How operators use weights.
            own: Own tensors (m, ...), by name.
            shared: Shared tensors (...), by name.
            noise: Random stream of each member.
            buffers: Buffers (m, ...), among them masks of pruned weights.
            training: Whether the pass is one of training; the noise may then be left to the operators.

        Returns:
            The weights.
        """
        return Realised(own, shared, spec)

    def complexity(
        self, spec: ForwardSpec, own: Named, shared: Named, buffers: Named, noise: Sequence[Noise], stds: Rows | None
    ) -> Tensor | None:
        """Compute KL(q || p) of each member, in nats.

        Args:
            spec: How operators use weights.
            own: Own tensors (m, ...), by name.
            shared: Shared tensors (...), by name.
            buffers: Buffers (m, ...), among them masks of pruned weights.
            noise: Random stream of each member.
            stds: Standard deviations of `realise`, if available.

        Returns:
            The KL (m,); None for weights that are not distributions.
        """
        return None

    def objective(self, examples: int, steps_per_epoch: int, epochs: int) -> ELBO:
        """Return the objective of training.

        Args:
            examples: Training examples.
            steps_per_epoch: Steps per epoch.
            epochs: Epochs.

        Returns:
            The objective: passes per step, and the weight of the complexity.
        """
        return ELBO(examples, steps_per_epoch, epochs)

    def without_warmup(self) -> "WeightFamily":
        """Return the family without KL warm-up, to train a trained posterior further."""
        return self

    def for_draws(self, population: Population) -> "tuple[WeightFamily, Population]":
        """Return the family and the population in a form that is cheaper to realise many times.

        Args:
            population: All members.
        """
        return self, population

    def std(self, name: str, named: Named) -> Tensor | None:
        """Return the standard deviations of a tensor, in its shape; None if it is not a distribution.

        Args:
            name: Name of the tensor.
            named: Tensors of the population, by name.
        """
        return None

    def posteriors(self, population: Population, spec: ForwardSpec) -> list[WeightPosterior]:
        """Return the tensors of a population that are distributions, each with its prior.

        Args:
            population: All members.
            spec: How the network uses its kernels.
        """
        return []

    def check_dynamics(self, dynamics: MovesStd) -> None:
        """Refuse a dynamics that cannot move weights of this family.

        Args:
            dynamics: The dynamics.
        """
        if dynamics.moves_std:
            raise Misuse(
                f"weights {type(self).__name__.lower()} with a dynamics that moves standard deviations: they have none;"
                " write weights gaussian:estimator=draw,std_param=std,beta=0"
            )

    def resolve_draws(self, requested: int | None) -> int:
        """Return the number of predictions per member.

        Args:
            requested: Requested number; None for `draws`.

        Returns:
            The number, at least 1.

        Raises:
            Misuse: If it is below 1, or above 1 and weights are not random.
        """
        draws = self.draws if requested is None else requested
        require_integer("draws", draws, 1)
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
    """A weight family in one network.

    Attributes:
        family: The family.
        spec: How operators use its weights.
        at_mean: Whether distributions are replaced by their means.
    """

    family: WeightFamily
    spec: ForwardSpec
    at_mean: bool = False

    def realise(
        self, own: Named, shared: Named, noise: Sequence[Noise], *, buffers: Named | None = None, training: bool = False
    ) -> Realised:
        """Compute the weights of m members in one pass.

        In training, kernels that are distributions may leave their noise to the operators. Pruned weights are zero and
        have no standard deviation.

        Args:
            own: Own tensors (m, ...), by name.
            shared: Shared tensors (...), by name.
            noise: Random stream of each member.
            buffers: Buffers (m, ...), among them masks of pruned weights.
            training: Whether the pass is one of training.

        Returns:
            The weights.
        """
        if self.at_mean:
            return Realised(own, shared, self.spec)
        return self.family.realise(self.spec, own, shared, noise, buffers=buffers or {}, training=training)

    def complexity(
        self, own: Named, shared: Named, buffers: Named, noise: Sequence[Noise], stds: Rows | None = None
    ) -> Tensor | None:
        """Compute KL(q || p) of each member (m,), in nats, or None; arguments are as in `WeightFamily.complexity`."""
        return self.family.complexity(self.spec, own, shared, buffers, noise, stds)

    def for_draws(self, population: Population) -> "tuple[NetworkWeights, Population]":
        """Return the weights and the population in a form that is cheaper to realise many times."""
        family, population = self.family.for_draws(population)
        return replace(self, family=family), population

    @property
    def stochastic(self) -> bool:
        """Whether two passes of a member on the same inputs differ."""
        return self.family.stochastic and not self.at_mean

    def in_precision(self, precision: str) -> "NetworkWeights":
        """Return the same weights in a network that computes in this precision, float32 or bf16."""
        return replace(self, spec=replace(self.spec, precision=precision))

    def deterministic(self) -> "NetworkWeights":
        """Return the same weights with distributions at their means and without dropout in evaluation."""
        dropout = self.spec.dropout if self.spec.dropout != "always" else "training"
        return replace(self, spec=replace(self.spec, rates={}, dropout=dropout), at_mean=True)


POINT = NetworkWeights(Point(), ForwardSpec())  # point estimates, in any network


def effective_kernel(kernel: Kernel, tensors: Mapping[str, Tensor], weight: Tensor) -> Tensor:
    """Return the kernel with the scales of its input and output channels multiplied in, like `weight`."""
    scale = kernel.matrix(tensors.get(kernel.name + INTO), tensors.get(kernel.name + OUT), weight)
    return weight if scale is None else weight * scale
