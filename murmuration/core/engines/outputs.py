"""Predictions of all members: forward passes without gradients."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from murmuration.core.engines.team import Team
from murmuration.core.population import Population
from murmuration.core.weights import NetworkWeights, run_members
from murmuration.system.streams import Noise, Stream

CHUNK = 1024  # maximum of inputs per forward pass: bounds memory, keeps operators large
STACKED_CHUNK = 128  # the same for stacked members, whose activations are many times larger
ENTRIES = 393_216  # input values per forward pass, 128 images of 3 x 32 x 32: larger passes were slower


def member_outputs(
    team: Team,
    weights: NetworkWeights,
    population: Population,
    x: Tensor,
    draws: int = 1,
    *,
    seed: int = 0,
    first_member: int = 0,
) -> Tensor:
    """Run all members in evaluation mode, without gradients.

    A draw is one function: its weights and dropout masks depend on the seed, the member and the index of the draw, and
    are the same for all inputs. So the outputs of an input do not depend on the other inputs, up to rounding.

    Args:
        team: Runs groups of members.
        weights: The weight family bound to the network.
        population: The M members.
        x: Inputs (N, ...).
        draws: Draws of the weights of each member.
        seed: Seed of the draws.
        first_member: Index of the first member in the random streams.

    Returns:
        Outputs (M draws, N, K) on the CPU; the draws of a member are adjacent.
    """
    addresses = [(seed, first_member + member, draw) for member in range(population.members) for draw in range(draws)]
    if draws > 1:
        weights, population = weights.for_draws(population)

    def noise(group: slice, stream: Stream) -> list[Noise]:
        return [Noise(*address, stream, per_example=False) for address in addresses[group]]

    @torch.no_grad()
    def run(group: slice) -> Tensor:
        members = members_of_draws(population, group, draws)
        realised = weights.realise(members.own, members.shared, noise(group, "prediction"), buffers=members.buffers)
        tensors = realised.with_buffers(members.buffers, members.fixed)
        structure, direct = team.structure(training=False), team.engine.direct

        def outputs(part: Tensor) -> Tensor:  # masks from the start of their streams for every part
            inputs = part.to(population.device).expand(members.members, *part.shape)
            return run_members(structure, tensors, inputs, noise(group, "prediction-masks"), direct).cpu()

        return join([outputs(part) for part in passes(x, team.engine.stacked)], dim=1)

    return join(team.map(run, team.engine.groups(len(addresses))))


def outputs_by_ranks(
    team: Team, weights: NetworkWeights, population: Population, x: Tensor, draws: int = 1, *, seed: int = 0
) -> Tensor:
    """Run all members, divided among processes that all have them; arguments and result are as in `member_outputs`."""
    rows = team.ranks.rows(population.members)
    if team.ranks.size == 1 or population.members < team.ranks.size:
        return member_outputs(team, weights, population, x, draws, seed=seed)
    members = population.group(slice(rows.start, rows.stop))
    outputs = member_outputs(team, weights, members, x, draws, seed=seed, first_member=rows.start)
    return team.ranks.gather(outputs.unflatten(0, (len(rows), draws)), population.members).flatten(0, 1)


def join(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Concatenate parts; a single part is returned as it is."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


def passes(x: Tensor, stacked: bool = False) -> Sequence[Tensor]:
    """Return the inputs (N, ...) of each forward pass.

    >>> [len(part) for part in passes(torch.empty(200, 3, 32, 32))], len(passes(torch.empty(1024, 20)))
    ([128, 72], 1)
    """
    size = max(1, min(STACKED_CHUNK if stacked else CHUNK, ENTRIES // max(1, math.prod(x.shape[1:]))))
    return (x,) if isinstance(x, Tensor) and len(x) <= size else x.split(size)


def members_of_draws(population: Population, group: slice, draws: int) -> Population:
    """Return the member of each of the draws in `group`; views if every member occurs once."""
    if draws == 1:
        return population.group(group)
    first, last = group.start // draws, (group.stop - 1) // draws
    if group.stop - group.start == 1:
        return population.group(slice(first, last + 1))
    return population.take(torch.arange(group.start, group.stop) // draws)
