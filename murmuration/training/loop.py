"""The only loop: epochs of steps, a look at the validation set after each, and a record of what was seen."""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from murmuration.coupling import Coupling, make_coupling
from murmuration.data import Data, Split
from murmuration.dynamics import Ivon, keeps, learning_rate_factor
from murmuration.dynamics.schedules import Moment
from murmuration.engines import Engine, Team, assemble, member_outputs
from murmuration.errors import Misuse
from murmuration.likelihoods import Likelihood
from murmuration.population import Population, concatenate, populate
from murmuration.recipe import Plan, Recipe
from murmuration.sharing import SMOOTH
from murmuration.streams import generator, global_stream
from murmuration.tangent_kernels import measured_gamma
from murmuration.training.batches import epoch_batches, steps_per_epoch
from murmuration.training.moving import Factors, Method, moments_of
from murmuration.training.step import State, step
from murmuration.weights import KernelTrace, NetworkWeights, Structure, trace_kernels

MEASURED = 32  # training inputs on which members' kernels are compared


@dataclass
class Progress:
    """Where a run stands: everything that a checkpoint holds."""

    state: State
    kept: Population  # what a member returns to: its last sound epoch, or its best one when it may stop early
    loss_sum: Tensor  # (M,) float64, of the running epoch
    best: Tensor  # (M,) lowest validation NLL so far
    waited: Tensor  # (M,) epochs since then
    history: list[dict[str, Any]] = field(default_factory=list)
    path: list[Population] = field(default_factory=list)  # points of the path that join the ensemble
    seconds: float = 0.0


class Watcher(Protocol):
    """Somebody who looks on: shows a bar, writes checkpoints."""

    def after_step(self, progress: Progress) -> None: ...

    def after_epoch(self, progress: Progress) -> None: ...


@dataclass(frozen=True)
class Job:
    """What is to be trained, on what, and how."""

    build: Callable[[], nn.Module]  # a network with fresh weights
    data: Data
    likelihood: Likelihood
    recipe: Recipe
    plan: Plan
    alpha: float | None = None  # of tuned lengthscales, once it is chosen
    gamma: float | None = None  # measured, where sharing asks for it
    backbone: nn.Module | None = None  # a network whose body is used as it is
    around: tuple[nn.Module, ...] = ()  # trained networks that members begin as, in turn, if distributions are around

    @cached_property
    def coupling(self) -> Coupling | None:
        """What members say to each other, made for these inputs."""
        plan = self.plan
        return make_coupling(
            self.recipe.repulsion,
            self.data.train.x,
            members=plan.members,
            batch=plan.batch_size,
            epochs=plan.epochs,
            alpha=self.alpha,
        )

    @cached_property
    def kernel_trace(self) -> KernelTrace:
        """The kernels of the network, where the recipe does something with them."""
        if not self.recipe.needs_kernels and not self.plan.l1:
            return KernelTrace(())
        return trace_kernels(self.member(0), self.data.train.x[:2]).require_supported()

    def measured_gamma(self) -> float | None:
        """Between the mean and the sum of members' gradients, by what their kernels have in common at the start."""
        if self.recipe.shares.gamma != SMOOTH or self.plan.members == 1:
            return None
        return measured_gamma(
            self.member(0), members_of(self), self.weights.deterministic(), self.data.train.x[:MEASURED]
        )

    @property
    def weights(self) -> NetworkWeights:
        """The weight family in this network."""
        return self.recipe.weighs.in_network(self.kernel_trace, bias_inside=self.recipe.shares.bias_inside)

    def method(self) -> Method:
        """The recipe's answers and the plan's numbers, as a step needs them."""
        sharing, examples = self.recipe.shares, len(self.data.train)
        return Method(
            self.likelihood,
            self.weights,
            self.coupling,
            self.plan.make_optimiser(),
            gamma=sharing.gamma_of(members=self.plan.members, smooth=self.gamma),
            factors=Factors(sharing.lr_multiplier, sharing.decay),
            seed=self.plan.seed,
            first_member=self.plan.first_member,
            bound=self.recipe.weighs.objective(
                examples, steps_per_epoch(examples, self.plan.batch_size), self.plan.epochs
            ),
            ivon=self.ivon,
        )

    @property
    def ivon(self) -> Ivon | None:
        """What moves distributions, if it is not the optimiser."""
        chosen = self.recipe.ivon
        return None if chosen is None else chosen.among(len(self.data.train))

    def member(self, index: int) -> nn.Module:
        """The network that member `index` begins as, from its own initialisation stream if it is not trained."""
        if self.around:
            return copy.deepcopy(self.around[index % len(self.around)])
        with global_stream(self.plan.seed, "initialisation", self.plan.first_member + index):
            return self.build()


def begin(job: Job) -> Progress:
    """Members as they are before the first step; refuses a network or inputs that the coupling cannot work with."""
    plan = job.plan
    if job.recipe.shares.needs_parts or (job.coupling is not None and job.coupling.needs_features):
        Structure(job.member(0)).require_parts()
    return before_first_step(job, members_of(job).map(lambda t: t.to(plan.device)))


def before_first_step(job: Job, population: Population) -> Progress:
    """These members, as they stand, about to be trained."""
    plan = job.plan
    return Progress(
        at_rest(population, job.method()),
        kept=population.clone(),
        loss_sum=torch.zeros(plan.members, dtype=torch.float64),
        best=torch.full((plan.members,), math.inf),
        waited=torch.zeros(plan.members, dtype=torch.int64),
    )


def members_of(job: Job) -> Population:
    """The members as they begin, with what tells those apart who share."""
    recipe, plan = job.recipe, job.plan
    shared = recipe.shares.predicate(job.member(0), job.kernel_trace)

    def stream(member: int) -> torch.Generator:
        return generator(plan.seed, "factors", plan.first_member + member)

    factored = recipe.shares.add_factors(populate(job.member, plan.members, shared), job.kernel_trace, stream)
    first_std = None if job.ivon is None else job.ivon.first_std
    population = recipe.weighs.init(factored, job.kernel_trace, stream, first_std)
    different = population if recipe.weighs.separates_members else factored
    if plan.members > 1 and not different.own and not different.buffers:
        raise Misuse(f"sharing {recipe.sharing} leaves members nothing of their own: they would be equal for ever")
    if not factored.own and recipe.repulsion is not None and recipe.repulsion.space == "weights":
        raise Misuse(f"coupling weights with sharing {recipe.sharing}: members have no weights of their own to repel")
    return population


def at_rest(population: Population, method: Method) -> State:
    """A population with no momentum, before any step."""
    active = torch.ones(population.members, dtype=torch.bool)
    return State(population, moments_of(method, population.own), moments_of(method, population.shared), active)


def train(job: Job, engine: Engine, progress: Progress, watcher: Watcher) -> Population:
    """Carry the job out from where `progress` stands; returns the members the ensemble is made of."""
    data, plan, method = job.data, job.plan, job.method()
    steps = steps_per_epoch(len(data.train), plan.batch_size)
    with assemble(engine, job.member(0)) as team:
        while progress.state.step < steps * plan.epochs and bool(progress.state.active.any()):
            start = time.perf_counter()
            run_epoch(team, method, data.train, plan, progress, watcher)
            close_epoch(team, method, data.val, plan, progress)
            if keeps(job.recipe.dynamics, len(progress.history), plan.epochs):
                progress.path.append(progress.state.population.clone())
            progress.seconds += time.perf_counter() - start
            watcher.after_epoch(progress)
    if plan.patience is not None:
        progress.state.population.copy_members(progress.kept, torch.arange(plan.members))
        progress.state.population.copy_shared(progress.kept)
    return concatenate([*progress.path, progress.state.population]).take(_usable(progress))


def _usable(progress: Progress) -> Tensor:
    """Indices of the draws that predict anything: a member that never was sound is left out, in every point kept."""
    sound = torch.tensor(progress.history[-1]["val_nll"]).isfinite()
    for member in (~sound).nonzero().flatten().tolist():
        progress.state.trouble[member] += "; left out of the ensemble"
    return sound.repeat(len(progress.path) + 1).nonzero().flatten()


def run_epoch(team: Team, method: Method, split: Split, plan: Plan, progress: Progress, watcher: Watcher) -> None:
    """The steps of one epoch that are still to be done."""
    steps = steps_per_epoch(len(split), plan.batch_size)
    epoch, first = divmod(progress.state.step, steps)
    batches = epoch_batches(split, plan, epoch)
    measuring = method.coupling.settings.every if method.coupling is not None else 0  # the first meeting is among these
    for index in range(first, steps):
        losses = step(team, method, progress.state, replace(batches(index), measured=index < measuring))
        progress.loss_sum += losses.double().nan_to_num(0.0)
        restore_fallen(progress)
        if index < steps - 1:  # after the last step of an epoch the epoch is closed first
            watcher.after_step(progress)


def close_epoch(team: Team, method: Method, split: Split, plan: Plan, progress: Progress) -> None:
    """Score every member on the validation split, remember sound or best states, and write the epoch's record."""
    state = progress.state
    outputs = member_outputs(team, method.weights.deterministic(), state.population, split.x)  # (M, N, K)
    scores = method.likelihood.validate(outputs, split.y.to(outputs.device))
    nll = torch.tensor(scores["val_nll"])
    for member in (state.active & ~nll.isfinite()).nonzero().flatten().tolist():
        state.trouble[member] = f"validation NLL {float(nll[member])} at step {state.step}"
        state.active[member] = False
    judged = together(nll, state.active) if state.population.shared else nll
    better = state.active & (judged < progress.best) if plan.patience is not None else state.active.clone()
    progress.kept.copy_members(state.population, better.nonzero().flatten())
    if bool(better.any()):
        progress.kept.copy_shared(state.population)
    progress.best = torch.where(better, judged, progress.best)
    progress.waited = torch.where(better, 0, progress.waited + 1)
    if plan.patience is not None:
        state.active &= progress.waited < plan.patience
    restore_fallen(progress)
    _write_record(plan, progress, scores)


def together(nll: Tensor, active: Tensor) -> Tensor:
    """One score (M,) for all who share weights: they get better, and stop, together."""
    return nll[active].mean().expand(len(nll)) if bool(active.any()) else nll


def restore_fallen(progress: Progress) -> None:
    """Members in trouble go back to the last state that was sound."""
    trouble, epoch = progress.state.trouble, len(progress.history)
    fallen = [member for member, text in trouble.items() if "; kept" not in text]
    if not fallen:
        return
    progress.state.population.copy_members(progress.kept, torch.tensor(fallen))
    for member in fallen:
        trouble[member] += f"; kept as it was after epoch {epoch}" if epoch else "; kept as initialised"


def _write_record(plan: Plan, progress: Progress, scores: dict[str, Any]) -> None:
    epoch, state = len(progress.history) + 1, progress.state
    steps = state.step // epoch
    factor = learning_rate_factor(plan.schedule, Moment(state.step - 1, steps, plan.epochs))
    record = {
        "epoch": epoch,
        "lr": plan.lr * factor,
        "train_loss": (progress.loss_sum / steps).tolist(),
        **scores,
        **({"coupling": dict(state.felt)} if state.felt else {}),
        "active": state.active.tolist(),
        "trouble": {str(member): text for member, text in state.trouble.items()},
    }
    progress.history.append(record)
    progress.loss_sum.zero_()
    state.felt = {}
