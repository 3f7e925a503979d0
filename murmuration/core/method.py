"""`BoundRecipe`: a recipe bound to a network, a likelihood and training inputs; everything that its steps need."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.core.coupling import Coupling
from murmuration.core.coupling.space import FEATURES, INPUTS, OWN_WEIGHTS, SUB_BATCH
from murmuration.core.dynamics import Dynamics, Optimizer, TorchOptimizer, TrainTime
from murmuration.core.engines import ALONE, Ranks
from murmuration.core.flat_buffers import pack
from murmuration.core.population import Population, populate
from murmuration.core.recipe import Recipe
from murmuration.core.sharing import SMOOTH, input_chunks
from murmuration.core.state import NoiseStreams, State, StepConfig
from murmuration.core.tangent_kernels import measured_gamma
from murmuration.core.update import Updater
from murmuration.core.weights import KernelTrace, NetworkWeights, Structure, run_members, trace_kernels
from murmuration.likelihoods import Likelihood
from murmuration.system.devices import FLOAT32
from murmuration.system.errors import Misuse
from murmuration.system.streams import Noise, generator

KERNEL_INPUTS = 32  # training inputs on which members' tangent kernels are compared


@dataclass(frozen=True)
class BoundRecipe:
    """A recipe bound to a network.

    Attributes:
        network: Builds the network that a member starts as, by its number.
        likelihood: Distribution of the target given outputs.
        recipe: The four answers.
        inputs: Training inputs (N, ...), which some recipes need statistics of.
        members: Number of members of all processes.
        batch_size: Examples per step.
        end: Time after the last step.
        optimizer: Update rule, where the dynamics has none of its own.
        lr_multipliers: Pairs (pattern of parameter names, multiplier of the learning rate).
        clip_norm: Largest gradient norm of a member.
        precision: Precision of the network's operators.
        noise: Seed and random streams.
        common_start: Whether all members start from the initial weights of the first.
        gamma: Measured gamma(M), where sharing asks for it.
        ranks: The processes that members are divided among.
        examples: Number of training examples; None: that of the inputs.
    """

    network: Callable[[int], nn.Module]
    likelihood: Likelihood
    recipe: Recipe
    inputs: Any
    members: int
    batch_size: int
    end: TrainTime
    optimizer: Optimizer | TorchOptimizer
    lr_multipliers: tuple[tuple[str, float], ...] = ()
    clip_norm: float | None = None
    precision: str = FLOAT32
    noise: NoiseStreams = field(default_factory=NoiseStreams)
    common_start: bool = False
    gamma: float | None = None
    ranks: Ranks = ALONE
    examples: int | None = None

    @property
    def example_count(self) -> int:
        """The number of training examples."""
        return len(self.inputs) if self.examples is None else self.examples

    @property
    def rows(self) -> range:
        """The members of this process, among all."""
        return self.ranks.rows(self.members)

    @cached_property
    def coupling(self) -> Coupling | None:
        """The interaction between members, prepared for the training inputs."""
        if self.recipe.coupling is None:
            return None
        steps, epochs = self.end.steps_per_epoch, self.end.epochs
        return self.recipe.coupling.prepare(
            self.inputs, members=self.members, batch=self.batch_size, steps=steps, epochs=epochs, examples=self.examples
        )

    @cached_property
    def trace(self) -> KernelTrace:
        """The kernels of the network, where the recipe acts on them."""
        if not self._acts_on_kernels:
            return KernelTrace(())
        self.recipe.sharing.check_trace(self.full_trace)
        self.recipe.weights.check_trace(self.full_trace)
        return self.full_trace.require_supported("leave l1 out") if self.optimizer.l1 else self.full_trace

    @cached_property
    def structure(self) -> nn.Module:
        """A network that shows what members are made of; never trained."""
        return self.network(0)

    @cached_property
    def full_trace(self) -> KernelTrace:
        """The trace of the network over a batch; over two examples where the recipe does not act on kernels."""
        if self._acts_on_kernels:
            return trace_kernels(self.structure, self.inputs[: self.batch_size])
        with suppress(Exception):  # a network that cannot be traced, which this recipe need not know about
            return trace_kernels(self.structure, self.inputs[:2])
        return KernelTrace(())

    @property
    def _acts_on_kernels(self) -> bool:
        return self.recipe.needs_kernels or self.optimizer.l1 > 0

    @cached_property
    def weights(self) -> NetworkWeights:
        """The weight family in this network."""
        weights = self.recipe.weights.in_network(self.trace, bias_inside=self.recipe.sharing.bias_inside)
        return weights.in_precision(self.precision)

    @cached_property
    def dynamics(self) -> Dynamics:
        """The dynamics, prepared for the number of training examples."""
        return self.recipe.dynamics.prepare(self.example_count)

    @cached_property
    def step_config(self) -> StepConfig:
        """The settings of a training step."""
        sharing = self.recipe.sharing
        clip_norm = self.dynamics.gradient_bound() if self.clip_norm is None else self.clip_norm
        kernels, factors = frozenset(self.weights.spec.kernels), (sharing.lr_multiplier, sharing.decay)
        updater = Updater(self.optimizer, self.dynamics, *factors, self.lr_multipliers, clip_norm, kernels)
        objective = self.recipe.weights.objective(self.example_count, self.end.steps_per_epoch, self.end.epochs)
        gamma = sharing.gamma_of(members=self.members, smooth=self.gamma)
        return StepConfig(self.likelihood, self.weights, self.coupling, updater, objective, gamma, self.members)

    def measure_gamma(self) -> float | None:
        """Measure gamma(M), between the mean and the sum of members' gradients, from their initial tangent kernels."""
        if self.recipe.sharing.gamma != SMOOTH or self.members == 1:
            return None
        everybody = replace(self, ranks=ALONE, noise=replace(self.noise, first_row=0)).initial_members()
        return measured_gamma(self.structure, everybody, self.weights.deterministic(), self.inputs[:KERNEL_INPUTS])

    def init_state(self, population: Population) -> State:
        """Return the state before any step: own tensors copied into one buffer, fresh optimizer state."""
        population = replace(population, own=pack(population.own))
        updater, active = self.step_config.updater, torch.ones(population.members, dtype=torch.bool)
        opt_states = updater.init(population.own), updater.init(population.shared)
        return State(population, *opt_states, active, noise=self.noise)

    def start(self) -> Population:
        """Return the members before the first step; refuses a network that the recipe cannot work with."""
        needs = frozenset() if self.coupling is None else self.coupling.space.needs
        if self.recipe.sharing.needs_parts or FEATURES in needs:
            Structure(self.structure).require_parts()
        if {INPUTS, SUB_BATCH} & needs:
            x = self.inputs[:2].clone().requires_grad_()
            outputs = self.network(0).eval()(x.clone())
            if not outputs.requires_grad or torch.autograd.grad(outputs.sum(), x, allow_unused=True)[0] is None:
                net = "a net whose outputs have no gradient by its inputs, such as one that makes tokens of them"
                raise Misuse(f"coupling {self.recipe.text('coupling')} with {net}: write coupling outputs or weights")
        population = self.initial_members()
        self._require_varying_draws(population)
        return population

    def initial_members(self) -> Population:
        """Return the members of this process with the factors, masks or standard deviations of the recipe."""
        recipe, rows, first = self.recipe, self.rows, self.structure
        fixed = {name for name, parameter in first.named_parameters() if not parameter.requires_grad}

        def stream(row: int) -> torch.Generator:
            member = self.noise.first_member + (0 if self.common_start else rows.start + row)
            return generator(self.noise.seed, "factors", member)

        shared = recipe.sharing.predicate(first, self.trace)
        population = populate(lambda i: self.network(rows.start + i), len(rows), shared, fixed.__contains__)
        if rows.start:  # shared tensors are those of the first of all members
            common = {name: first.get_parameter(name).detach().clone() for name in population.shared}
            population = replace(population, shared=common)
        if not population.own and not population.shared:
            reason = "has requires_grad=False" if fixed else "does not exist"
            raise Misuse(f"nothing to train: every parameter of {type(first).__name__} {reason}; leave some trainable")
        if self.members > 1:
            population = recipe.sharing.add_factors(population, self.trace, stream, input_chunks(first))
        if self.members > 1 or not recipe.weights.separates_members:
            population = recipe.weights.init(population, self.trace, stream, self.dynamics.initial_std())
        if self.members > 1 and not population.own and not population.buffers:
            raise Misuse(f"sharing {recipe.text('sharing')} leaves members nothing of their own: they would stay equal")
        needs = recipe.coupling.space.needs if recipe.coupling is not None else ()
        if not population.own and OWN_WEIGHTS in needs:
            both = f"coupling {recipe.text('coupling')} with sharing {recipe.text('sharing')}"
            raise Misuse(f"{both}: members have no weights of their own to repel")
        if FEATURES in needs and not any(name.startswith("body.") for name in (*population.own, *population.shared)):
            problem = "with a body that is not trained: its features do not move; write coupling outputs"
            raise Misuse(f"coupling {recipe.text('coupling')} {problem}")
        names = [*population.own, *population.shared]
        for pattern, _ in self.lr_multipliers:
            if not any(fnmatchcase(name, pattern) for name in names):
                hint = f"write a pattern of {', '.join(names[:6])}, ..."
                raise Misuse(f"lr_multipliers: '{pattern}' matches no tensor of the net; {hint}")
        return population

    def check_times(self, *, schedule: str | None, has_optimizer: bool, stops_early: bool) -> None:
        """Refuse settings that do not fit the dynamics, the coupling or what the network does in one pass.

        Args:
            schedule: Learning-rate schedule that was asked for.
            has_optimizer: Whether an optimizer was asked for.
            stops_early: Whether members may stop early.
        """
        coupling, family = self.recipe.coupling, self.recipe.weights
        if self.precision != FLOAT32 and coupling is not None and {INPUTS, SUB_BATCH} & coupling.space.needs:
            problem = "gradients of input gradients are too rough in it; write precision=float32"
            raise Misuse(f"precision={self.precision} with coupling {self.recipe.text('coupling')}: {problem}")
        self.dynamics.check(
            total=self.end, stochastic=family.stochastic, schedule=schedule, own_rule=has_optimizer, early=stops_early
        )
        self.full_trace.require_once(("dropout",), "the masks of the first time")
        if coupling is not None or family.objective(1, 1, 1).samples > 1:
            recomputed = self.full_trace.recomputed
            self.full_trace.require_once(recomputed, f"the weights of its own pass ({self.recipe.name})")

    def refuse_unused_optimizer(self, population: Population, asked: Any) -> None:
        """Refuse an optimizer that was `asked` for where the dynamics moves all tensors by a rule of its own."""
        updater = self.step_config.updater
        groups = [*updater.param_groups(population.own), *updater.param_groups(population.shared)]
        plain = [rule for _, rule, _ in groups if isinstance(rule, Optimizer | TorchOptimizer)]
        if asked is not None and (not plain or (callable(asked) and len(plain) < len(groups))):
            problem = "which moves weights by a rule of its own: leave the optimizer out"
            raise Misuse(f"an optimizer with dynamics {self.recipe.text('dynamics')}, {problem}")

    def _require_varying_draws(self, population: Population) -> None:
        """Refuse masks that are drawn in every pass and leave the outputs on the first batch as they are.

        Normal numbers are added to the weights first: those of a last layer may begin at zero.
        """
        family = self.recipe.weights
        if not (family.stochastic and family.point_estimates):
            return
        source, first = torch.Generator().manual_seed(0), population.group(slice(1))
        tensors = {**first.own, **{name: tensor[None] for name, tensor in population.shared.items()}}
        own = {name: t + 0.1 * torch.randn(t.shape, generator=source).to(t) for name, t in tensors.items()}
        x, structure = self.inputs[: self.batch_size].clone(), Structure(self.network(0)).train(False)

        @torch.no_grad()
        def outputs(time: int) -> Tensor:
            noise = [Noise(0, 0, time)]
            buffers = {name: tensor.clone() for name, tensor in first.buffers.items()}
            weights = self.weights.realise(own, {}, noise).with_buffers(buffers, first.fixed)
            return run_members(structure, weights, x[None], noise, False)

        reference = outputs(0)
        if all(torch.equal(reference, outputs(time)) for time in range(1, 4)):
            problem = "all draws of the net are equal on the first batch, so dropout does not reach its outputs"
            hint = "add torch.nn.Dropout layers before the last layer"
            raise Misuse(f"weights {self.recipe.text('weights')}: {problem}; {hint}")


def collect(dynamics: Dynamics, state: State, time: TrainTime, ranks: Ranks = ALONE) -> None:
    """Let the dynamics collect the weights of members that are trained and finite, if it does so at this time."""
    if not dynamics.keep(time) or not ranks.any(len(rows := collectable(state)) > 0):
        return
    dynamics.collect(state.path, state.population, rows)
    for point in state.path.points.values():
        if not isinstance(point, Population):
            problem = f"put a {type(point).__name__} in points: need a Population"
            raise Misuse(f"{type(dynamics).__name__}.collect {problem}")


def collectable(state: State) -> Tensor:
    """Return the rows of the members that are trained and finite; none of them if shared tensors are not."""
    finite = state.active.clone()
    for tensor in state.population.own.values():
        if tensor.is_floating_point():
            finite &= tensor.flatten(1).isfinite().all(1).cpu()
    if not all(bool(tensor.isfinite().all()) for tensor in state.population.shared.values()):
        finite[:] = False
    return finite.nonzero().flatten()


def final_members(dynamics: Dynamics, state: State) -> tuple[Population, Tensor]:
    """Return the members that the dynamics makes of the collected weights, and the row that each comes from."""
    noise = state.noise

    def streams(member: int, draw: int) -> Noise:
        return Noise(noise.seed, noise.first_member + member, draw, "draws")

    result = dynamics.finish(state.path, state.population, streams)
    if not isinstance(result, tuple) or len(result) != 2 or result[0].members != len(result[1]):
        name = type(dynamics).__name__
        raise Misuse(f"{name}.finish must return (population, rows): the members, and for each the row it comes from")
    return result
