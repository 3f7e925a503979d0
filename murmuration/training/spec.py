"""What is to be trained, on what, and how: the network, data, likelihood, recipe and plan of one training run."""

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.core.coupling import Coupling
from murmuration.core.coupling.space import FEATURES, INPUTS, OWN_WEIGHTS, SUB_BATCH
from murmuration.core.dynamics import Dynamics, TrainTime
from murmuration.core.engines import ALONE, Ranks
from murmuration.core.population import Named, Population, populate
from murmuration.core.recipe import Recipe
from murmuration.core.roles import ParameterRoles, roles_of
from murmuration.core.sharing import SMOOTH, input_chunks
from murmuration.core.state import StepConfig
from murmuration.core.tangent_kernels import measured_gamma
from murmuration.core.weights import KernelTrace, NetworkWeights, Structure, run_members, trace_kernels
from murmuration.data import Data, Split
from murmuration.data.streamed import Streamed
from murmuration.likelihoods import Likelihood
from murmuration.models.nets.source import is_named
from murmuration.system.devices import FLOAT32
from murmuration.system.errors import Misuse
from murmuration.system.streams import Noise, generator, global_stream
from murmuration.training.batches import examples_per_epoch, plan_slices
from murmuration.training.plan import Plan

MEASURED = 32  # training inputs on which members' tangent kernels are compared


@dataclass(frozen=True)
class TrainSpec:
    """One training run before it begins."""

    build: Callable[[], nn.Module]  # a network with fresh weights
    data: Data
    likelihood: Likelihood
    recipe: Recipe
    plan: Plan
    gamma: float | None = None  # measured, where sharing asks for it
    backbone: nn.Module | None = None  # a network whose body is used as it is
    init_from: tuple[nn.Module, ...] = ()  # trained networks whose weights the members begin with, in turn
    reset: tuple[str, ...] = ()  # patterns of the tensors among these that are initialised anew
    ranks: Ranks = ALONE  # the processes that members are divided among

    @property
    def rows(self) -> range:
        """The members of this process, among all."""
        return self.ranks.rows(self.plan.members)

    @cached_property
    def coupling(self) -> Coupling | None:
        """The interaction between members, prepared for the training inputs."""
        plan, chosen = self.plan, self.recipe.coupling
        if chosen is None:
            return None
        steps, x = self.end.steps_per_epoch, self.data.train.prepared
        return chosen.prepare(x, members=plan.members, batch=plan.batch_size, steps=steps, epochs=plan.epochs)

    @cached_property
    def train_split(self) -> Split:
        """The training examples with targets as the loss takes them, and sample weights of mean 1."""
        split = self.data.train
        inputs: Any = split.prepared
        inputs = inputs.then(self.likelihood.encode) if isinstance(inputs, Streamed) else inputs
        y, weight = self.likelihood.encode(split.y), mean_one(split.weight, len(split))
        return replace(split, y=y, prepared=inputs, weight=weight)

    @cached_property
    def trace(self) -> KernelTrace:
        """The kernels of the network, where the recipe acts on them."""
        if not self.recipe.needs_kernels and not self.plan.l1:
            return KernelTrace(())
        trace = self.full_trace
        self.recipe.sharing.check_trace(trace)
        self.recipe.weights.check_trace(trace)
        return trace.require_supported("leave l1 out") if self.plan.l1 else trace

    @cached_property
    def full_trace(self) -> KernelTrace:
        """The trace of the network over a batch; over two examples where the recipe does not act on kernels."""
        if self.recipe.needs_kernels or self.plan.l1:
            return trace_kernels(self.member(0), self.data.train.prepared[: self.plan.batch_size])
        with suppress(Exception):  # a network that cannot be traced, which this recipe need not know about
            return trace_kernels(self.member(0), self.data.train.prepared[:2])
        return KernelTrace(())

    @cached_property
    def weights(self) -> NetworkWeights:
        """The weight family in this network."""
        found = self.recipe.weights.in_network(self.trace, bias_inside=self.recipe.sharing.bias_inside)
        return found.in_precision(self.plan.precision)

    def roles(self, population: Population) -> ParameterRoles:
        """The role of every parameter of these members."""
        return roles_of(self.full_trace, population, self.weights, self.recipe)

    @cached_property
    def dynamics(self) -> Dynamics:
        """The dynamics, prepared for the number of training examples."""
        return self.recipe.dynamics.prepare(len(self.data.train))

    @property
    def schedule(self) -> str:
        """The learning-rate schedule: the plan's, or that of the dynamics, or cosine."""
        return self.plan.schedule or self.dynamics.schedule() or "cosine"

    @property
    def end(self) -> TrainTime:
        """The time after the last step."""
        steps = len(plan_slices(examples_per_epoch(self.data.train), self.plan))
        return TrainTime(steps * self.plan.epochs, steps, self.plan.epochs)

    def check(self) -> None:
        """Refuse a plan that does not fit the dynamics or the coupling."""
        plan, coupling = self.plan, self.recipe.coupling
        if plan.ranks_per_member > 1:
            self.require_separate_examples()
        if plan.precision != FLOAT32 and coupling is not None and {INPUTS, SUB_BATCH} & coupling.space.needs:
            raise Misuse(
                f"precision={plan.precision} with coupling {self.recipe.text('coupling')}: gradients of input gradients"
                " are too rough in it; write precision=float32"
            )
        self.dynamics.check(
            total=self.end,
            stochastic=self.recipe.weights.stochastic,
            schedule=plan.schedule,
            own_rule=plan.optimizer is not None,
            early=plan.patience is not None,
        )
        trace, samples = self.full_trace, self.recipe.weights.objective(1, 1, 1).samples
        trace.require_once(("dropout",), "the masks of the first time")
        if self.recipe.coupling is not None or samples > 1:
            trace.require_once(trace.recomputed, f"the weights of its own pass ({self.recipe.name})")

    def require_separate_examples(self) -> None:
        """Refuse what needs a whole batch in one process: interactions, random draws and batch normalisation."""
        found = {
            f"coupling {self.recipe.text('coupling')}": self.recipe.coupling is not None and self.plan.members > 1,
            f"weights {self.recipe.text('weights')}": self.recipe.weights.stochastic,
            "a net with dropout": self.full_trace.has_dropout,
            "a net with batch normalisation": Structure(self.member(0)).mixes_examples,
        }
        wrong = next((what for what, there in found.items() if there), None)
        if wrong is not None:
            raise Misuse(
                f"ranks_per_member={self.plan.ranks_per_member} with {wrong}, which needs a whole batch in one process:"
                f" leave it out, and start no more processes than members ({self.plan.members})"
            )

    def measure_gamma(self) -> float | None:
        """gamma(M) between the mean and the sum of members' gradients, from their tangent kernels at the start."""
        if self.recipe.sharing.gamma != SMOOTH or self.plan.members == 1:
            return None
        inputs = self.data.train.prepared[:MEASURED]
        everybody = initial_members(replace(self, ranks=ALONE))
        return measured_gamma(self.member(0), everybody, self.weights.deterministic(), inputs)

    def step_config(self) -> StepConfig:
        """The recipe and the plan as a training step needs them."""
        sharing, plan = self.recipe.sharing, self.plan
        return StepConfig(
            self.likelihood,
            self.weights,
            self.coupling,
            plan.make_optimizer(),
            self.dynamics,
            self.recipe.weights.objective(len(self.data.train), self.end.steps_per_epoch, plan.epochs),
            gamma=sharing.gamma_of(members=plan.members, smooth=self.gamma),
            factor_lr_multiplier=sharing.lr_multiplier,
            factor_decay=sharing.decay,
            lr_multipliers=plan.lr_multipliers,
            clip_norm=self.dynamics.gradient_bound() if plan.clip_norm is None else plan.clip_norm,
            seed=plan.seed,
            first_member=plan.first_member,
            first_row=self.rows.start,
            members=plan.members,
            same_noise="noise" in plan.same,
        )

    def member(self, index: int) -> nn.Module:
        """The network that member `index` begins as: a trained one, or fresh from its own initialisation stream.

        Parts of a trained one may be fresh too.
        """
        first = 0 if "initialisation" in self.plan.same else index
        given = copy.deepcopy(self.init_from[first % len(self.init_from)]) if self.init_from else None
        if given is not None and not self.reset:
            return given
        with global_stream(self.plan.seed, "initialisation", self.plan.first_member + first):
            fresh = self.build()
        if given is None:
            return fresh
        anew = {name: tensor for name, tensor in fresh.state_dict().items() if is_named(name, self.reset)}
        given.load_state_dict(anew, strict=False)
        return given


def initial_members(spec: TrainSpec) -> Population:
    """The members of this process before the first step, with the factors, masks or stds of the recipe."""
    recipe, plan, rows = spec.recipe, spec.plan, spec.rows
    first = spec.member(0)
    shared = recipe.sharing.predicate(first, spec.trace)
    fixed = {name for name, parameter in first.named_parameters() if not parameter.requires_grad}

    def stream(member: int) -> torch.Generator:
        first = 0 if "initialisation" in plan.same else rows.start + member
        return generator(plan.seed, "factors", plan.first_member + first)

    population = populate(lambda i: spec.member(rows.start + i), len(rows), shared, fixed.__contains__)
    if rows.start:  # shared tensors are those of the first of all members
        given = dict(first.named_parameters())
        population = replace(population, shared={name: given[name].detach().clone() for name in population.shared})
    refuse_ignored_weights(spec, population)
    if not population.own and not population.shared:
        found = "has requires_grad=False" if fixed else "does not exist"
        raise Misuse(f"nothing to train: every parameter of {type(first).__name__} {found}; leave some trainable")
    if plan.members > 1:
        population = recipe.sharing.add_factors(population, spec.trace, stream, input_chunks(first))
    if plan.members > 1 or not recipe.weights.separates_members:
        population = recipe.weights.init(population, spec.trace, stream, spec.dynamics.initial_std())
    if plan.members > 1 and not population.own and not population.buffers:
        raise Misuse(f"sharing {recipe.text('sharing')} leaves members nothing of their own: they would stay equal")
    needs = recipe.coupling.space.needs if recipe.coupling is not None else ()
    if not population.own and OWN_WEIGHTS in needs:
        raise Misuse(
            f"coupling {recipe.text('coupling')} with sharing {recipe.text('sharing')}: members have no weights of"
            " their own to repel"
        )
    if FEATURES in needs and not any(name.startswith("body.") for name in (*population.own, *population.shared)):
        raise Misuse(
            f"coupling {recipe.text('coupling')} with a body that is not trained: its features do not move; write"
            " coupling outputs"
        )
    unmatched = [pattern for pattern, _ in plan.lr_multipliers if not _matches(pattern, population)]
    if unmatched:
        names = ", ".join([*population.own, *population.shared][:6])
        raise Misuse(f"lr_multipliers: '{unmatched[0]}' matches no tensor of the net; write a pattern of {names}, ...")
    return population


def require_varying_draws(spec: TrainSpec, population: Population) -> None:
    """Raise Misuse if masks that are drawn in every pass leave the outputs on the first batch as they are.

    Normal numbers are added to the weights first: those of a last layer may begin at zero.
    """
    family = spec.recipe.weights
    if not (family.stochastic and family.point_estimates):
        return
    source = torch.Generator().manual_seed(0)

    def moved(named: Named) -> Named:
        return {name: t[:1] + 0.1 * torch.randn(t[:1].shape, generator=source).to(t) for name, t in named.items()}

    shared = {name: tensor[None] for name, tensor in population.shared.items()}
    own = moved({**population.own, **shared})
    x, structure = spec.data.train.prepared[: spec.plan.batch_size].clone(), Structure(spec.member(0)).train(False)

    @torch.no_grad()
    def outputs(time: int) -> Tensor:
        first, noise = population.group(slice(1)), [Noise(0, 0, time)]
        buffers = {name: tensor.clone() for name, tensor in first.buffers.items()}
        weights = spec.weights.realise(own, {}, noise).with_buffers(buffers, first.fixed)
        return run_members(structure, weights, x[None], noise, False)

    first = outputs(0)
    if all(torch.equal(first, outputs(time)) for time in range(1, 4)):
        raise Misuse(
            f"weights {spec.recipe.text('weights')}: all draws of the net are equal on the first batch, so dropout does"
            " not reach its outputs; add torch.nn.Dropout layers before the last layer"
        )


def require_input_gradients(spec: TrainSpec) -> None:
    """Raise Misuse if a coupling needs gradients by inputs and the network's outputs have none."""
    if spec.coupling is None or not {INPUTS, SUB_BATCH} & spec.coupling.needs:
        return
    x = spec.data.train.prepared[:2].clone().requires_grad_()
    outputs = spec.member(0).eval()(x.clone())
    if not outputs.requires_grad or torch.autograd.grad(outputs.sum(), x, allow_unused=True)[0] is None:
        raise Misuse(
            f"coupling {spec.recipe.text('coupling')} with a net whose outputs have no gradient by its inputs, such as"
            " one that makes tokens of them: write coupling outputs or weights"
        )


def refuse_ignored_weights(spec: TrainSpec, population: Population) -> None:
    """Refuse several networks to begin with that differ in a tensor of which members have one copy.

    Weights around those of a run (moped) take the first member's.
    """
    given = () if spec.recipe.weights.init_from else spec.init_from[: spec.plan.members]
    states = [dict(net.named_parameters()) for net in given]
    for name, tensor in population.shared.items():
        if not is_named(name, spec.reset) and any(not torch.equal(tensor, each[name]) for each in states):
            raise Misuse(
                f"init_from has {len(states)} networks that differ in '{name}', which members share by sharing"
                f" {spec.recipe.text('sharing')}: give one network, or choose sharing own"
            )


def mean_one(weight: Tensor | None, examples: int) -> Tensor | None:
    """Sample weights (N,) divided by their mean, in float64, then float32; refuses weights that are none."""
    if weight is None:
        return None
    exact = weight.double()
    if exact.shape != (examples,) or not bool((exact.isfinite() & (exact >= 0)).all()) or not bool(exact.any()):
        got = f"sample weights of shape {tuple(exact.shape)}, smallest {exact.min().item():g}"
        raise Misuse(f"{got}: expected ({examples},) finite numbers, none negative and not all zero")
    return (exact / exact.mean()).float()


def _matches(pattern: str, population: Population) -> bool:
    return any(fnmatchcase(name, pattern) for name in (*population.own, *population.shared))
