"""Steps that are captured: losses and gradients of a group of members as a function of tensors alone.

A group can be captured if it waits for no other: members that do not interact, or all members stacked in one group.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from murmuration.engines import Team
from murmuration.population import Population, is_auxiliary
from murmuration.training.gradients import FARTHEST, coupling_now, local, moving, pull_back
from murmuration.training.state import Batch, Gradients, Local, State, StepConfig


@dataclass(frozen=True)
class Capturable:
    """The losses and gradients of a group that waits for no other, as a function of tensors alone."""

    key: tuple
    settings: tuple  # objects that the operators depend on
    inputs: list[Tensor]
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
    group, coupling = state.population.group(members), coupling_now(config, state)
    if not can_capture(team, config, state, group):
        return None
    (x, y), weight = batch.fetch(members), batch.weight(members)
    fetched = replace(batch, fetch=lambda _: (x, y), weight=lambda _: weight)
    strength = 0.0 if coupling is None else coupling.strength(state.step)
    factors = torch.tensor([loss_scale, strength], dtype=torch.float64, device=x.device)

    def compute() -> list[Tensor]:
        here, cotangent, lengths = local(team, config, state, members, fetched), None, []
        if coupling is not None:
            assert here.features is not None
            features = here.features.detach()
            lengths = [torch.linalg.vector_norm(features)]
            cotangent = moving(coupling.interact(features, factors[1]).cotangents, here.active)
        own, shared = pull_back(here, cotangent, factors[0])
        return [here.losses.detach(), *own, *shared, *lengths]

    population = state.population  # of which a group is views
    inputs = [x, y, state.active, factors, *population.own.values(), *population.shared.values()]
    return Capturable(
        key=(members.start, members.stop, coupling is None),
        settings=(config.likelihood, coupling),
        inputs=inputs if weight is None else [*inputs, weight],
        compute=compute,
        batch=fetched,
        members=members,
        active=state.active[members],
        own=len(group.own),
        interacts=coupling is not None,
    )


def replayed(team: Team, known: Capturable) -> tuple[Local, Gradients] | None:
    """Losses and gradients by a captured step; None if there is none, or features are not finite."""
    found = team.captures.replay(known.key, known.settings, known.inputs)
    if found is None or (known.interacts and not float(found.pop()) < FARTHEST):
        return None
    losses, *gradients = found
    here = Local(known.members, {}, {}, losses, known.active, None, {})
    return here, (gradients[: known.own], gradients[known.own :])


def learn(team: Team, known: Capturable | None, here: Local, gradients: Gradients) -> None:
    """Capture the step that was just computed, before members move."""
    if known is not None:
        results = [here.losses.detach(), *gradients[0], *gradients[1]]
        team.captures.learn(known.key, known.settings, known.inputs, known.compute, results)


def can_capture(team: Team, config: StepConfig, state: State, group: Population) -> bool:
    """Whether the operators of a group's losses and gradients are the same at every step, as far as can be known."""
    parts = [config.likelihood, config.weights.family, *([] if config.coupling is None else [config.coupling.space])]
    ours = all(type(each).__module__.startswith("murmuration.") for each in parts)
    changing = any(not is_auxiliary(name) for name in group.buffers)
    finite = all(found.restored is not None for found in state.diverged.values())
    fixed = not config.weights.stochastic and config.objective.samples == 1
    return team.captures.possible and ours and fixed and finite and not changing
