"""The interface of a dynamics: how weights move, and which points of their path become the ensemble.

A dynamics supplies the update rule of the tensors it moves itself (`rule`, `claim`), the learning-rate schedule it
needs (`schedule`), the steps after which weights are collected (`keep`, `collect`), and the members of the ensemble
(`finish`). The defaults are plain training: the optimizer moves everything, nothing is collected, and the last weights
are the ensemble.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from murmuration.core.dynamics.schedules import TrainTime
from murmuration.core.population import Population
from murmuration.system.errors import Misuse
from murmuration.system.streams import Noise

Tensors = list[Tensor]
OptState = dict[str, dict[str, Tensor]]  # kind -> parameter name -> tensor of the parameter's shape
Draw = Callable[[Sequence[Tensor]], list[Tensor]]  # standard normal tensors like these, one stream per member
Streams = Callable[[int, int], Noise]  # member, draw -> the stream of one draw from a distribution of weights


@dataclass(frozen=True)
class StepTime:
    """The circumstances of one update.

    Attributes:
        lr: Learning rate, with schedule and multipliers applied.
        updates: Number of earlier updates of these tensors.
        time: Time in training.
        draw: Draws standard normal tensors, for rules that add noise.
        members: Number M of members, if the tensors are stacks (M, ...).
    """

    lr: float
    updates: int
    time: TrainTime
    draw: Draw
    members: int = 1


class UpdateRule(Protocol):
    """An in-place update of tensors, element by element: a leading member axis makes no difference."""

    @abstractmethod
    def init(self, parameters: dict[str, Tensor]) -> OptState:
        """Return the optimizer state of parameters that have not moved yet.

        Args:
            parameters: Tensors by name, (...) or stacks (M, ...).

        Returns:
            For every kind of state, such as "momentum", tensors by name of the parameters' shapes.
        """

    @abstractmethod
    def update(self, parameters: Tensors, gradients: Tensors, state: list[Tensors], when: StepTime) -> None:
        """Move the parameters in place.

        Args:
            parameters: Tensors to move.
            gradients: Their gradients, in the same order and shapes.
            state: One list of tensors for each kind of state of `init`; changed in place.
            when: Learning rate, time and source of noise.
        """


Claim = tuple[dict[str, None], UpdateRule, float]  # names of tensors, their rule, multiplier of the learning rate


@dataclass
class WeightPath:
    """Points collected along the path of training.

    Attributes:
        points: Populations by name, such as a mean of weights.
        counts: For each point, how many states of each member it was computed from: (M,) int64.
    """

    points: dict[str, Population] = field(default_factory=dict)
    counts: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Dynamics:
    """Base class of dynamics: plain training. A subclass overrides the methods that differ.

    Attributes:
        moves_std: Whether the dynamics moves standard deviations of weights itself.
        refreshes_statistics: Whether batch-norm statistics must be computed again for the members of the ensemble,
            because those of training do not belong to their weights.
    """

    moves_std: ClassVar[bool] = False
    refreshes_statistics: ClassVar[bool] = False

    def prepare(self, examples: int) -> "Dynamics":
        """Return the dynamics for a training set; by default itself.

        Args:
            examples: Number of training examples.
        """
        return self

    def check(self, *, total: TrainTime, stochastic: bool, schedule: str | None, own_rule: bool, early: bool) -> None:
        """Refuse training settings that do not fit.

        Args:
            total: Time at the end of training.
            stochastic: Whether weights are random variables.
            schedule: Requested learning-rate schedule, if any.
            own_rule: Whether an optimizer was requested.
            early: Whether members may stop early.

        Raises:
            Misuse: If one of them does not fit.
        """

    def schedule(self) -> str | None:
        """Return the learning-rate schedule to use if none is requested; None for the default of the plan."""
        return None

    def gradient_bound(self) -> float | None:
        """Return the largest norm of a member's gradient, if the plan does not set one; None for no bound."""
        return None

    def initial_std(self) -> float | None:
        """Return the initial standard deviation of random weights; None to leave it to the weight family."""
        return None

    def prior_std(self) -> float | None:
        """Return the standard deviation of the prior on random weights that the dynamics implies, if any."""
        return None

    def claim(self, tensors: dict[str, Tensor]) -> list[Claim]:
        """Return the tensors that the dynamics moves by separate rules; all others follow `rule`.

        Args:
            tensors: All tensors that are trained, by name.

        Returns:
            For each rule the names of its tensors, the rule and a multiplier of the learning rate.
        """
        return []

    def rule(self, optimizer: UpdateRule) -> UpdateRule:
        """Return the update rule of all tensors that are not claimed; by default the optimizer of the plan.

        Args:
            optimizer: Optimizer of the plan.
        """
        return optimizer

    def keep(self, time: TrainTime) -> bool:
        """Return whether weights are collected after `time.step` steps.

        Args:
            time: Time after a step.
        """
        return False

    def copies(self, total: TrainTime) -> int:
        """Return the largest number of copies of all weights in memory beside the members.

        Args:
            total: Time at the end of training.
        """
        return 0

    def collect(self, path: WeightPath, population: Population, rows: Tensor) -> None:
        """Add the current weights to the path; called after each step for which `keep` is true.

        Args:
            path: Points collected so far; changed in place.
            population: All M members.
            rows: Indices (m,), m > 0, of the members to collect.
        """

    def finish(self, path: WeightPath, population: Population, streams: Streams) -> tuple[Population, Tensor]:
        """Return the members of the ensemble at the end of training.

        Args:
            path: All collected points.
            population: The M trained members, at their last weights.
            streams: Random stream of each (member, draw).

        Returns:
            The S members of the ensemble, and for each the row of `population` that it comes from, (S,).
        """
        return population, torch.arange(population.members)


def keep_times(dynamics: Dynamics, total: TrainTime) -> list[int]:
    """Return the steps of a run after which a dynamics collects weights."""
    return [step for step in range(1, total.step + 1) if dynamics.keep(total.at(step))]


def refuse_early_stopping(name: str, early: bool) -> None:
    """Refuse early stopping: the collected weights belong to a schedule of fixed length."""
    if early:
        reason = "it collects weights on a schedule of fixed length; leave patience, or StopTraining, out"
        raise Misuse(f"stopping early with dynamics {name}: {reason}")
