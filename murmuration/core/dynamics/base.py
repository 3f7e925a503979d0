"""The interface of a dynamics: how weights move, and which points of their path become the ensemble.

A dynamics supplies the update rule of the tensors it moves itself (`rule`, `claim`), the learning-rate schedule it
needs (`schedule`), the steps after which the weights are collected (`keep`, `collect`), and the members that the
collected points leave (`finish`). The defaults are those of plain training: the optimizer moves everything, nothing is
collected, and the last weights are the ensemble.
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

OptState = dict[str, dict[str, Tensor]]  # kind -> parameter name -> tensor of the parameter's shape
Draw = Callable[[Sequence[Tensor]], list[Tensor]]  # standard normal tensors like these, one stream per member
Streams = Callable[[int, int], Noise]  # member, draw -> the stream of one draw from a distribution of weights


@dataclass(frozen=True)
class StepTime:
    """When and how an update happens."""

    lr: float  # with schedule and multipliers applied
    updates: int  # taken before by these tensors
    time: TrainTime
    draw: Draw  # for rules that add noise
    members: int = 1  # of which the tensors are stacks (M, ...)


class UpdateRule(Protocol):
    """An update of tensors in place. Element by element, so that a leading member axis makes no difference."""

    @abstractmethod
    def init(self, parameters: dict[str, Tensor]) -> OptState:
        """The state of parameters that have not moved yet."""

    @abstractmethod
    def update(
        self, parameters: list[Tensor], gradients: list[Tensor], state: list[list[Tensor]], when: StepTime
    ) -> None:
        """Move the parameters in place; `state` has one list for each kind of `init`."""


Claim = tuple[dict[str, None], UpdateRule, float]  # names of tensors, their rule, multiplier of the learning rate


@dataclass
class WeightPath:
    """Points collected along the path of training: populations by name, and how many states went into each."""

    points: dict[str, Population] = field(default_factory=dict)
    counts: dict[str, Tensor] = field(default_factory=dict)  # (M,) int64: states of each member in a point


@dataclass(frozen=True)
class Dynamics:
    """Base class of dynamics: plain training. A dynamics of one's own overrides what differs."""

    moves_std: ClassVar[bool] = False  # whether it moves standard deviations of weights itself
    refreshes_statistics: ClassVar[bool] = False  # whether batch-norm statistics do not belong to its members' weights

    def prepare(self, examples: int) -> "Dynamics":
        """The dynamics for so many training examples."""
        return self

    def check(self, *, total: TrainTime, stochastic: bool, schedule: str | None, own_rule: bool, early: bool) -> None:
        """Refuse training settings that do not fit.

        `total` is the time at the end of training, `stochastic` whether weights are random variables, `schedule` the
        learning-rate schedule that was asked for, `own_rule` whether an optimizer was, `early` whether members may
        stop early.
        """

    def schedule(self) -> str | None:
        """The learning-rate schedule to use unless another is asked for."""
        return None

    def gradient_bound(self) -> float | None:
        """The largest norm of a member's gradient unless the plan has one; None: any."""
        return None

    def initial_std(self) -> float | None:
        """The standard deviation that random weights begin with, if the dynamics decides it."""
        return None

    def prior_std(self) -> float | None:
        """The standard deviation of the prior on random weights, if the dynamics implies one."""
        return None

    def claim(self, tensors: dict[str, Tensor]) -> list[Claim]:
        """The tensors that the dynamics moves by rules of its own; the others follow `rule`."""
        return []

    def rule(self, optimizer: UpdateRule) -> UpdateRule:
        """The update rule of all tensors that are not claimed."""
        return optimizer

    def keep(self, time: TrainTime) -> bool:
        """Whether the weights are collected after `time.step` steps."""
        return False

    def copies(self, total: TrainTime) -> int:
        """The number of copies of all weights that are in memory beside the members, at most."""
        return 0

    def collect(self, path: WeightPath, population: Population, rows: Tensor) -> None:
        """Take the members at these rows (m,), m > 0, of the population into the path; called where `keep` says so."""

    def finish(self, path: WeightPath, population: Population, streams: Streams) -> tuple[Population, Tensor]:
        """The members of the ensemble, and for each the row of the population that it comes from."""
        return population, torch.arange(population.members)


def keep_times(dynamics: Dynamics, total: TrainTime) -> list[int]:
    """The steps after which a dynamics collects weights in a whole run."""
    steps = range(1, total.step + 1)
    return [step for step in steps if dynamics.keep(total.at(step))]


def refuse_early_stopping(name: str, early: bool) -> None:
    """Refuse early stopping: the collected weights belong to a schedule of fixed length."""
    if early:
        raise Misuse(f"patience with dynamics {name}: it collects weights on a schedule of fixed length; leave it out")


def append_point(path: WeightPath, population: Population, rows: Tensor) -> None:
    """Collect a copy of the members at these rows as one more point."""
    name = str(len(path.points))
    path.points[name] = population.clone()
    path.counts[name] = torch.zeros(population.members, dtype=torch.int64).index_fill(0, rows, 1)


def join_points(path: WeightPath, population: Population) -> tuple[Population, Tensor]:
    """All collected points as members, point after point; a member never collected enters with its last weights."""
    counts = [path.counts[name] for name in path.points]
    never = (torch.stack(counts).sum(0) if counts else torch.zeros(population.members)) == 0
    chosen = [(path.points[name], count.nonzero().flatten()) for name, count in zip(path.points, counts, strict=True)]
    chosen.append((population, never.nonzero().flatten()))
    parts = [point.with_own_copies().take(rows) for point, rows in chosen if len(rows)]
    return Population.concatenate(parts), torch.cat([rows for _, rows in chosen])
