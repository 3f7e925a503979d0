"""What a training step works on: the settings that stay the same, the state that it changes, and the batch."""

import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from murmuration.core.coupling import Coupling
from murmuration.core.divergence import Divergence
from murmuration.core.dynamics.base import OptState, TrainTime, WeightPath
from murmuration.core.dynamics.optimizer import Memory
from murmuration.core.population import KINDS, Named, Population, below, grouped, population_from_tensors
from murmuration.core.update import Updater
from murmuration.core.weights import ELBO, NetworkWeights
from murmuration.likelihoods import Likelihood
from murmuration.system.errors import Failure
from murmuration.system.streams import ALL_MEMBERS, Noise, Stream

START = TrainTime(0, 1, 1)
MEMORY = "memory"  # of a torch optimizer, in the names of tensors


@dataclass(frozen=True)
class NoiseStreams:
    """The random streams that the members of this process draw their noise from.

    Attributes:
        seed: Seed of the run.
        first_member: Number of the first of all members.
        first_row: Row, among all members, of the first one of this process.
        common: Whether all members draw the noise of the first.
    """

    seed: int = 0
    first_member: int = 0
    first_row: int = 0
    common: bool = False

    def member(self, row: int) -> int:
        """Return the member whose noise the member at a row draws."""
        return row if row == ALL_MEMBERS else self.first_member + (0 if self.common else self.first_row + row)

    def noise(self, rows: Sequence[int], step: int, stream: Stream | None = None) -> list[Noise]:
        """Return the noise of the members at these rows at a step."""
        return [Noise(self.seed, self.member(row), step, stream) for row in rows]


@dataclass(frozen=True)
class StepConfig:
    """What stays the same during training.

    Attributes:
        likelihood: Distribution of the target given outputs.
        weights: The weight family in this network.
        coupling: Interaction between members.
        updater: Moves tensors along their gradients.
        objective: Evidence lower bound: samples of the weights, weight of the KL divergence.
        gamma: Shared gradients are gamma / M times their sum over members.
        members: Number of members of all processes; None: those of the state.
    """

    likelihood: Likelihood
    weights: NetworkWeights
    coupling: Coupling | None = None
    updater: Updater = field(default_factory=Updater)
    objective: ELBO = field(default_factory=ELBO)
    gamma: float = 1.0
    members: int | None = None

    def coupling_at(self, step: int) -> Coupling | None:
        """Return the coupling if it is computed at a step."""
        return self.coupling if self.coupling is not None and self.coupling.due(step) else None

    def loss_scale(self, step: int) -> float:
        """Return the factor of the loss at a step."""
        return 1.0 if self.coupling is None else self.coupling.loss_scale(step)

    def updater_at(self, step: int) -> Updater:
        """Return the updater of a step: without weight decay where that is mixed with the loss gradients (SVGD)."""
        coupling = self.coupling_at(step)
        return self.updater if coupling is None or not coupling.space.mixing_estimator else self.updater.without_decay

    @cached_property
    def same_operators(self) -> bool:
        """Whether losses and coupling run the same operators at every step; those of user-defined objects may not."""
        return self.is_built_in and not self.weights.stochastic and self.objective.samples == 1

    @cached_property
    def is_built_in(self) -> bool:
        """Whether likelihood, weights and coupling space are those of this library."""
        parts = [self.likelihood, self.weights.family, *([] if self.coupling is None else [self.coupling.space])]
        return all(type(part).__module__.startswith("murmuration.") for part in parts)

    def member_count(self, population: Population) -> int:
        """Return the number of members of all processes."""
        return population.members if self.members is None else self.members


@dataclass
class State:
    """What a step changes.

    Attributes:
        population: The members.
        opt_state: Optimizer state of the own tensors.
        shared_opt_state: Optimizer state of the shared tensors.
        active: (M,) bool: members that are still trained.
        step: Number of steps taken.
        diverged: Members that left the finite numbers, and what became of them.
        memory: State of a torch optimizer, by member.
        others_active: Whether other processes have members that are still trained.
        path: Weights that the dynamics has collected.
        noise: Random streams of the members.
    """

    population: Population
    opt_state: OptState
    shared_opt_state: OptState
    active: Tensor
    step: int = 0
    diverged: dict[int, Divergence] = field(default_factory=dict)
    memory: Memory = field(default_factory=dict)
    others_active: bool = False
    path: WeightPath = field(default_factory=WeightPath)
    noise: NoiseStreams = field(default_factory=NoiseStreams)

    def state_dict(self) -> Named:
        """Return copies of all tensors, by name, as `safetensors.torch.save_file` takes them."""
        tensors = {name: tensor.detach().clone() for name, tensor in state_tensors(self).items()}
        noise = torch.tensor([int(value) for value in astuple(self.noise)])
        return {**tensors, "step": torch.tensor(self.step), "noise": noise}

    @classmethod
    def from_state_dict(cls, tensors: Named) -> "State":
        """Return the state whose `state_dict` these tensors are."""
        paths = (re.match(rf"path/(.+?)/({'|'.join(KINDS)})/", name) for name in tensors)
        points = list(dict.fromkeys(match[1] for match in paths if match))
        seed, first_member, first_row, common = tensors["noise"].tolist()
        inactive = (~tensors["active"]).nonzero().flatten().tolist()
        state = state_from_tensors(tensors, points)
        state.step, state.noise = int(tensors["step"]), NoiseStreams(seed, first_member, first_row, bool(common))
        state.diverged = {row: Divergence("diverged before the state was saved") for row in inactive}
        return state


@dataclass(frozen=True)
class Batch:
    """The examples of one step; a group of members fetches its examples when it runs.

    Attributes:
        fetch: Returns x (m, B, ...) and y (m, B, ...) of a group of m members.
        lr: Learning rate.
        time: Time of training.
        weight: Returns sample weights (m, B) of mean 1, or None.
        fraction: Fraction of the batch that these examples are; other processes have the rest.
    """

    fetch: Callable[[slice], tuple[Tensor, Tensor]]
    lr: float
    time: TrainTime = START
    weight: Callable[[slice], Tensor | None] = lambda members: None
    fraction: float = 1.0


@dataclass
class Probe:
    """Statistics and timings of steps, for whoever asks.

    Attributes:
        measure: Whether to measure the interaction at the next step, which costs a separate backward pass.
        stats: Statistics of the last interaction that was measured.
        seconds: Seconds spent in steps with an interaction, and in the interaction alone.
    """

    measure: bool = False
    stats: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def spend(self, part: str, seconds: float) -> None:
        """Add to the seconds of a part."""
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds


def state_tensors(state: State) -> Named:
    """Return the tensors of members, their optimizer and their path, by name."""
    points = {f"path/{name}": replace(point, fixed={}) for name, point in state.path.points.items()}
    populations = {"population": state.population, **points}
    tensors = {f"{key}/{name}": t for key, p in populations.items() for name, t in p.to_tensors().items()}
    for key, opt_state in (("opt_state", state.opt_state), ("shared_opt_state", state.shared_opt_state)):
        tensors |= {f"{key}/{kind}/{name}": t for kind, named in opt_state.items() for name, t in named.items()}
    tensors |= {f"counts/{name}": count for name, count in state.path.counts.items()}
    for member, entries in state.memory.items():
        for index, entry in enumerate(entries):
            tensors |= {f"{MEMORY}/{member}/{index}/{key}": as_tensor(key, value) for key, value in entry.items()}
    return {**tensors, "active": state.active}


def state_from_tensors(tensors: Named, points: Sequence[str]) -> State:
    """Return the state of these tensors; `points` are the names of the points of its path."""
    members = len(tensors["active"])
    population = population_from_tensors(below(tensors, "population"), members)
    moments = grouped(below(tensors, "opt_state")), grouped(below(tensors, "shared_opt_state"))
    memory: Memory = {}
    for member, entries in grouped(below(tensors, MEMORY)).items():
        rows = {int(index): entry for index, entry in grouped(entries).items()}
        memory[int(member)] = [rows.get(i, {}) for i in range(max(rows) + 1)]
    collected = {name: population_from_tensors(below(tensors, f"path/{name}"), members) for name in points}
    path = {name: replace(point, fixed=population.fixed) for name, point in collected.items()}
    points_of_path = WeightPath(path, below(tensors, "counts"))
    return State(population, *moments, tensors["active"], memory=memory, path=points_of_path)


def as_tensor(key: str, value: object) -> Tensor:
    """Return one entry of a torch optimizer's state as a tensor."""
    if isinstance(value, Tensor):
        return value.clone()  # entries may share memory, which safetensors refuses
    if isinstance(value, bool | int | float):
        return torch.tensor(value, dtype=torch.float64)
    raise Failure(f"the optimizer keeps '{key}' as {type(value).__name__}: only tensors and numbers can be stored")
