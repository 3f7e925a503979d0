"""What is to be trained, on what, and how: the network, data, likelihood, recipe and plan of one training run."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.core.dynamics import TrainTime
from murmuration.core.engines import ALONE, Ranks
from murmuration.core.method import BoundRecipe
from murmuration.core.population import Population
from murmuration.core.recipe import Recipe
from murmuration.core.roles import ParameterRoles, roles_of
from murmuration.core.state import NoiseStreams
from murmuration.core.weights import Structure
from murmuration.data import Data, Split
from murmuration.data.streamed import Streamed
from murmuration.likelihoods import Likelihood
from murmuration.models.nets.source import is_named
from murmuration.system.errors import Misuse
from murmuration.system.streams import global_stream
from murmuration.training.batches import examples_per_epoch, plan_slices
from murmuration.training.plan import Plan


@dataclass(frozen=True)
class TrainSpec:
    """One training run before it begins.

    Attributes:
        build: Builds a network with fresh weights.
        data: Training, validation and test examples.
        likelihood: Distribution of the target given outputs.
        recipe: The four answers.
        plan: Settings of training.
        gamma: Measured gamma(M), where sharing asks for it.
        backbone: A network whose body is used as it is.
        init_from: Trained networks whose weights the members start from, in turn.
        reset: Patterns of the tensors among these that are initialised again.
        ranks: The processes that members are divided among.
    """

    build: Callable[[], nn.Module]
    data: Data
    likelihood: Likelihood
    recipe: Recipe
    plan: Plan
    gamma: float | None = None
    backbone: nn.Module | None = None
    init_from: tuple[nn.Module, ...] = ()
    reset: tuple[str, ...] = ()
    ranks: Ranks = ALONE

    @cached_property
    def method(self) -> BoundRecipe:
        """The recipe bound to this network, these inputs and these settings."""
        noise = NoiseStreams(self.plan.seed, self.plan.first_member, self.rows.start, "noise" in self.plan.same)
        more: dict[str, Any] = {"noise": noise, "gamma": self.gamma, "ranks": self.ranks}
        return bind(self.recipe, self.member, self.likelihood, self.data.train.prepared, self.plan, self.end, **more)

    @property
    def rows(self) -> range:
        """The members of this process, among all."""
        return self.ranks.rows(self.plan.members)

    @cached_property
    def train_split(self) -> Split:
        """The training examples with targets as the loss takes them, and sample weights of mean 1."""
        split = self.data.train
        inputs: Any = split.prepared
        inputs = inputs.then(self.likelihood.encode) if isinstance(inputs, Streamed) else inputs
        y, weight = self.likelihood.encode(split.y), mean_one(split.weight, len(split))
        return replace(split, y=y, prepared=inputs, weight=weight)

    def roles(self, population: Population) -> ParameterRoles:
        """Return the role of every parameter of these members."""
        return roles_of(self.method.full_trace, population, self.method.weights, self.recipe)

    @property
    def schedule(self) -> str:
        """The learning-rate schedule: the plan's, or that of the dynamics, or cosine."""
        return self.plan.schedule or self.method.dynamics.schedule() or "cosine"

    @cached_property
    def end(self) -> TrainTime:
        """The time after the last step."""
        steps = len(plan_slices(examples_per_epoch(self.data.train), self.plan))
        return TrainTime(steps * self.plan.epochs, steps, self.plan.epochs)

    def check(self) -> None:
        """Refuse a plan that does not fit the network, the dynamics or the coupling."""
        schedule, has_optimizer = self.plan.schedule, self.plan.optimizer is not None
        if self.plan.ranks_per_member > 1:
            self.require_separate_examples()
        stops_early = self.plan.patience is not None
        self.method.check_times(schedule=schedule, has_optimizer=has_optimizer, stops_early=stops_early)

    def require_separate_examples(self) -> None:
        """Refuse what needs a whole batch in one process: interactions, random draws and batch normalisation."""
        reasons = {
            f"coupling {self.recipe.text('coupling')}": self.recipe.coupling is not None and self.plan.members > 1,
            f"weights {self.recipe.text('weights')}": self.recipe.weights.stochastic,
            "a net with dropout": self.method.full_trace.has_dropout,
            "a net with batch normalisation": Structure(self.method.structure).mixes_examples,
        }
        for reason in (text for text, holds in reasons.items() if holds):
            problem = f"ranks_per_member={self.plan.ranks_per_member} with {reason}, which needs a whole batch in one"
            advice = f"leave it out, and start no more processes than members ({self.plan.members})"
            raise Misuse(f"{problem} process: {advice}")

    def member(self, index: int) -> nn.Module:
        """Return the network that a member starts as: a trained one, or fresh from its initialisation stream.

        Parts of a trained one may be fresh too.
        """
        source = 0 if "initialisation" in self.plan.same else index
        trained = copy.deepcopy(self.init_from[source % len(self.init_from)]) if self.init_from else None
        if trained is not None and not self.reset:
            return trained
        with global_stream(self.plan.seed, "initialisation", self.plan.first_member + source):
            fresh = self.build()
        if trained is None:
            return fresh
        tensors = {name: tensor for name, tensor in fresh.state_dict().items() if is_named(name, self.reset)}
        trained.load_state_dict(tensors, strict=False)
        return trained

    def start(self) -> Population:
        """Return the members of this process before the first step; refuses what the recipe cannot work with.

        Several networks to start from must not differ in a tensor of which members have one copy. Weights around those
        of a run (moped) take the first member's.
        """
        self.check()
        population = self.method.start()
        networks = () if self.recipe.weights.init_from else self.init_from[: self.plan.members]
        states = [dict(net.named_parameters()) for net in networks]
        for name, tensor in population.shared.items():
            if not is_named(name, self.reset) and any(not torch.equal(tensor, state[name]) for state in states):
                problem = f"init_from has {len(states)} networks that differ in '{name}', which members share by"
                advice = "give one network, or choose sharing own"
                raise Misuse(f"{problem} sharing {self.recipe.text('sharing')}: {advice}")
        return population


Network = Callable[[int], nn.Module]  # by the number of a member


def bind(
    recipe: Recipe, network: Network, likelihood: Likelihood, inputs: Any, plan: Plan, end: TrainTime, **more: Any
) -> BoundRecipe:
    """Bind a recipe to networks by member, with the settings of a plan; `more` are further fields of `BoundRecipe`."""
    names = ("members", "batch_size", "lr_multipliers", "clip_norm", "precision")
    settings: dict[str, Any] = {name: getattr(plan, name) for name in names}
    settings |= {"end": end, "optimizer": plan.make_optimizer(), "common_start": "initialisation" in plan.same}
    return BoundRecipe(network, likelihood, recipe, inputs, **settings, **more)


def mean_one(weight: Tensor | None, examples: int) -> Tensor | None:
    """Sample weights (N,) divided by their mean, in float64, then float32; refuses weights that are none."""
    if weight is None:
        return None
    exact = weight.double()
    if exact.shape != (examples,) or not ((exact >= 0) & (exact < torch.inf)).all() or not exact.any():
        got = f"sample weights of shape {tuple(exact.shape)}, smallest {exact.min().item():g}"
        raise Misuse(f"{got}: expected ({examples},) finite numbers, none negative and not all zero")
    return (exact / exact.mean()).float()
