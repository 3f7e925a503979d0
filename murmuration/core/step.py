"""One training step, for every method.

    local      each member, alone:   realise its weights -> outputs -> loss, and its features in the coupling's space
    couple     all members, once:    features -> cotangents
    pull back  each member, alone:   one backward pass from (loss, features) with cotangents (1, c)
    share      own gradients as they are; shared gradients gamma / M times their sum over members
    move       the update rule of the dynamics

Members interact only in `couple` and `share`. A member whose loss or features are not finite has diverged: it neither
repels nor is repelled, and its gradients do not reach shared tensors.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from murmuration.core.engines import Team
from murmuration.core.gradients import GroupResult, add_gradients, local_pass, pull_back, repulsion_gradients
from murmuration.core.group_step import GroupStep
from murmuration.core.interaction import couple, mix, total_norm
from murmuration.core.state import Batch, Probe, State, StepConfig


def step(team: Team, config: StepConfig, state: State, batch: Batch, probe: Probe | None = None) -> Tensor:
    """Move every active member once.

    Args:
        team: Runs groups of members.
        config: Settings that stay the same.
        state: Members, optimizer state and counters; changed in place.
        batch: Examples and learning rate of this step.
        probe: Collects statistics and timings.

    Returns:
        The members' losses (M,), NaN where a member is inactive.
    """
    updater, probe = config.updater_at(state.step), probe or Probe()

    def gradients(group: slice) -> GroupResult:
        return team.call(GroupStep(team, config, state, group, batch, probe))  # local, pull back

    def move(result: GroupResult) -> GroupResult:
        updater.move(state, result, batch)
        return replace(result, own=[]) if len(groups) > 1 else result  # frees the memory of the next group's gradients

    groups = team.engine.groups(state.population.members)
    if config.coupling_at(state.step) is not None:
        results = team.map(move, coupled_gradients(team, config, state, groups, batch, probe))
    else:
        trained = groups if state.active.all() else [group for group in groups if state.active[group].any()]
        results = team.run(gradients, move, trained, batch.fraction)
    factor = config.gamma / config.member_count(state.population)
    updater.move_shared(team.ranks, state, [result.shared for result in results], batch, factor)
    state.step += 1
    if len(results) == 1 and len(results[0].losses) == len(state.active) and bool(state.active.all()):
        return results[0].losses.to("cpu", torch.get_default_dtype(), copy=True)
    losses = torch.full((state.population.members,), torch.nan)
    for result in results:
        losses[result.members] = result.losses.to("cpu", losses.dtype)
    return losses.masked_fill(~state.active, torch.nan)  # some engines run inactive members too


def coupled_gradients(
    team: Team, config: StepConfig, state: State, groups: Sequence[slice], batch: Batch, probe: Probe
) -> list[GroupResult]:
    """Compute losses and gradients of all groups, whose members interact.

    If all members are in one group of one process, it waits for no other.
    """
    coupling, begun, loss_scale = config.coupling_at(state.step), time.perf_counter(), config.loss_scale(state.step)
    assert coupling is not None
    mixes, members = coupling.space.mixing_estimator, config.member_count(state.population)
    if len(groups) == 1 and team.ranks.size == 1 and not mixes and not probe.measure:
        return [team.call(GroupStep(team, config, state, groups[0], batch, probe))]
    passes = team.map(lambda group: local_pass(team, config, state, group, batch), groups)
    start = time.perf_counter()
    cotangents, stats = couple(team.ranks, coupling, passes, members, state.step, probe.measure)
    probe.spend("coupling", time.perf_counter() - start)
    if not mixes and not probe.measure:
        gradients = team.map(lambda local, cotangent: pull_back(local, cotangent, loss_scale), passes, cotangents)
    else:
        losses = team.map(lambda local: pull_back(local, loss_scale=loss_scale, keep=True), passes)
        repulsions = team.map(repulsion_gradients, passes, cotangents)
        if mixes:
            pairs = zip(passes, losses, strict=True)
            decayed = [(config.updater.add_decay(p.own, own, loss_scale), shared) for p, (own, shared) in pairs]
            losses = mix(team.ranks, coupling, passes, decayed, members)
        if probe.measure:
            stats["push_to_loss"] = total_norm(team.ranks, repulsions) / max(total_norm(team.ranks, losses), 1e-30)
        gradients = [add_gradients(*pair) for pair in zip(losses, repulsions, strict=True)]
    probe.stats = stats or probe.stats
    probe.spend("steps", time.perf_counter() - begun)
    return [local.result(grads) for local, grads in zip(passes, gradients, strict=True)]
