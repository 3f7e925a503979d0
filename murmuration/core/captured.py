"""Steps that are captured: losses and gradients of a group of members as a function of tensors alone.

A group can be captured if it waits for no other: members that do not interact, or all members stacked in one group.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from murmuration.core.engines import Team
from murmuration.core.engines.captures import StepInputs
from murmuration.core.gradients import FARTHEST, coupling_now, local, moving, pull_back, step_noise
from murmuration.core.population import Population, is_auxiliary
from murmuration.core.state import Batch, Gradients, Local, State, StepConfig
from murmuration.system.streams import RepeatableNoise


@dataclass(frozen=True)
class Capturable:
    """The losses and gradients of a group that waits for no other, as a function of tensors and random bits alone."""

    inputs: StepInputs
    compute: Callable[[], list[Tensor]]  # losses, gradients, and the length of the features of members that interact
    batch: Batch  # with the examples fetched
    members: slice
    active: Tensor  # (m,) bool
    own: int  # number of own tensors
    interacts: bool


def capturable(
    team: Team, config: StepConfig, state: State, members: slice, batch: Batch, loss_scale: float
) -> Capturable | None:
    """The step of a group as a function that can be captured; None if its operators may change."""
    population, coupling = state.population, coupling_now(config, state)
    if not can_capture(team, config, state, population):
        return None
    (x, y), weight = batch.fetch(members), batch.weight(members)
    fetched = replace(batch, fetch=lambda _: (x, y), weight=lambda _: weight)
    factors = as_tensor(loss_scale, 0.0 if coupling is None else coupling.strength(state.step), x.device)

    def compute() -> list[Tensor]:
        rewind(inputs.noise)
        here, cotangent, lengths = local(team, config, state, members, fetched, inputs.noise), None, []
        if coupling is not None:
            assert here.features is not None
            features = here.features.detach()
            lengths = [torch.linalg.vector_norm(features)]
            cotangent = moving(coupling.interact(features, factors[1]).cotangents, here.active)
        own, shared = pull_back(here, cotangent, factors[0])
        return [here.losses.detach(), *own, *shared, *lengths]

    inputs = StepInputs(
        key=(members.start, members.stop, coupling is None),
        settings=(config.likelihood, coupling),
        held=[state.active, *population.own.values(), *population.shared.values()],  # of which a group is views
        given=[x, y, factors, *([] if weight is None else [weight])],
        make_noise=lambda: step_noise(config, state, members, RepeatableNoise),
    )
    active, own = state.active[members], len(population.own)
    return Capturable(inputs, compute, fetched, members, active, own, coupling is not None)


@lru_cache(maxsize=8)
def as_tensor(loss_scale: float, strength: float, device: torch.device) -> Tensor:
    """The factors of losses and repulsion as a tensor (2,), which is made once as long as they stay the same."""
    return torch.tensor([loss_scale, strength], dtype=torch.float64, device=device)


def rewind(noise: list[RepeatableNoise]) -> None:
    """Give the random bits of a step once more."""
    for each in noise:
        each.rewind()


def replayed(team: Team, known: Capturable) -> tuple[Local, Gradients] | None:
    """Losses and gradients by a captured step; None if there is none, or features are not finite."""
    found = team.captures.replay(known.inputs)
    if found is None:
        return None
    if known.interacts and not float(found.pop()) < FARTHEST:
        rewind(known.inputs.noise)
        return None
    losses, *gradients = found
    here = Local(known.members, {}, {}, losses, known.active, None, {})
    return here, (gradients[: known.own], gradients[known.own :])


def learn(team: Team, known: Capturable | None, here: Local, gradients: Gradients) -> None:
    """Capture the step that was just computed, before members move."""
    if known is not None:
        results = [here.losses.detach(), *gradients[0], *gradients[1]]
        team.captures.learn(known.inputs, known.compute, results, joined=slice(1, 1 + known.own))


def can_capture(team: Team, config: StepConfig, state: State, group: Population) -> bool:
    """Whether the operators of a group's losses and gradients are the same at every step, as far as can be known."""
    if not team.captures.possible or not config.same_operators:
        return False
    changing = any(not is_auxiliary(name) for name in group.buffers)
    return not changing and all(found.restored is not None for found in state.diverged.values())
