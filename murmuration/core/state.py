"""What a training step works on: its configuration, its state, its batch, and a group of members after a pass."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from murmuration.core.coupling import Coupling
from murmuration.core.dynamics import Dynamics, Optimizer, OptState, TorchOptimizer, TrainTime, UpdateRule
from murmuration.core.dynamics.optimizer import Memory
from murmuration.core.population import Named, Population
from murmuration.core.vectors import Vectors
from murmuration.core.weights import ELBO, NetworkWeights
from murmuration.likelihoods import Likelihood
from murmuration.system.streams import ALL_MEMBERS

START = TrainTime(0, 1, 1)

Gradients = tuple[list[Tensor], list[Tensor]]  # of own tensors (m, ...) each, and of shared ones
ParamGroup = tuple[dict[str, None], UpdateRule, float]  # names, update rule, multiplier of the learning rate


@dataclass(frozen=True)
class StepConfig:
    """Everything about a step that stays the same during training."""

    likelihood: Likelihood
    weights: NetworkWeights
    coupling: Coupling | None = None
    optimizer: Optimizer | TorchOptimizer = field(default_factory=lambda: Optimizer("adam"))
    dynamics: Dynamics = field(default_factory=Dynamics)
    objective: ELBO = field(default_factory=ELBO)
    gamma: float = 1.0  # shared gradients are gamma / M times their sum over members
    factor_lr_multiplier: float = 1.0  # of factors of shared kernels
    factor_decay: bool = False  # whether weight decay acts on them
    lr_multipliers: tuple[tuple[str, float], ...] = ()  # (pattern of tensor names, multiplier); the last match counts
    clip_norm: float | None = None  # largest norm of a member's own gradients, and of the shared ones
    seed: int = 0
    first_member: int = 0
    first_row: int = 0  # the row, among all members, of the first one of this process
    members: int | None = None  # of all processes; None: those of the state
    same_noise: bool = False  # whether all members draw the noise of the first
    known_groups: dict[tuple[str, ...], "list[ParamGroup]"] = field(  # parameter groups by names of tensors
        default_factory=dict, init=False, repr=False, compare=False
    )
    vectors: Vectors = field(default_factory=Vectors, init=False, repr=False, compare=False)

    def noise_member(self, index: int) -> int:
        """The member whose noise the member at this row draws."""
        return index if index == ALL_MEMBERS else self.first_member + (0 if self.same_noise else self.first_row + index)

    @cached_property
    def same_operators(self) -> bool:
        """Whether losses and coupling run the same operators at every step: parts of the caller's own may not."""
        parts = [self.likelihood, self.weights.family, *([] if self.coupling is None else [self.coupling.space])]
        ours = all(type(each).__module__.startswith("murmuration.") for each in parts)
        return ours and not self.weights.stochastic and self.objective.samples == 1

    def count(self, population: Population) -> int:
        """The number of members of all processes."""
        return population.members if self.members is None else self.members


@dataclass(frozen=True)
class Divergence:
    """A member that left the finite numbers, and what became of it."""

    reason: str
    restored: int | None = None  # epoch whose weights it returned to; 0: initial weights; None: not yet returned

    def __str__(self) -> str:
        if self.restored is None:
            return self.reason
        if self.restored == 0:
            return f"{self.reason}; has its initial weights and is left out of the ensemble"
        return f"{self.reason}; has its weights of epoch {self.restored}"


@dataclass
class State:
    """Everything that a step changes."""

    population: Population
    opt_state: OptState  # of the own tensors
    shared_opt_state: OptState
    active: Tensor  # (M,) bool: members that are still trained
    step: int = 0
    diverged: dict[int, Divergence] = field(default_factory=dict)
    coupling_stats: dict[str, float] = field(default_factory=dict)  # of the last measured interaction
    seconds: dict[str, float] = field(default_factory=dict)  # spent in steps, and of these in coupling
    memory: Memory = field(default_factory=dict)  # of an optimizer of the caller's own
    others_active: bool = False  # whether other processes have members that are still trained


@dataclass(frozen=True)
class Batch:
    """One step's examples; a group of members fetches its own when it runs."""

    fetch: Callable[[slice], tuple[Tensor, Tensor]]  # members -> x (m, B, ...), y (m, B, ...)
    lr: float
    measured: bool = False  # whether to measure the interaction
    time: TrainTime = START
    weight: Callable[[slice], Tensor | None] = lambda members: None  # members -> sample weights (m, B), of mean 1
    fraction: float = 1.0  # of the batch's examples that these are; other processes have the rest


@dataclass(frozen=True)
class Local:
    """One group of m members after its forward pass."""

    members: slice
    own: Named  # leaves of the graph
    shared: Named
    losses: Tensor  # (m,)
    active: Tensor  # (m,) bool: members that are still trained; the others contribute nothing to shared gradients
    features: Tensor | None  # (m, B, R)
    buffers_before: Named  # to undo the step
    gradients: Gradients | None = None  # of the losses, where they are computed before the members interact
