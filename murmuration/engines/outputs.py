"""Predictions of all members: forward passes without gradients."""

import torch
from torch import Tensor

from murmuration.engines.team import Team
from murmuration.population import Population
from murmuration.streams import Noise
from murmuration.weights import NetworkWeights, run_members

CHUNK = 512  # inputs per forward pass: bounds memory, keeps operators large


def member_outputs(team: Team, weights: NetworkWeights, population: Population, x: Tensor, draws: int = 1) -> Tensor:
    """Outputs (M draws, N, K) on inputs (N, ...), in evaluation mode; the draws of a member are adjacent.

    The noise of random weights depends on the index of the draw alone, so the same inputs get the same outputs.
    """
    noise = [Noise(0, draw) for draw in range(population.members * draws)]
    if draws > 1:
        weights, population = weights.for_draws(population)

    @torch.no_grad()
    def run(group: slice) -> Tensor:
        mine, some = noise[group], members_of_draws(population, group, draws)
        tensors = weights.realise(some.own, some.shared, mine, buffers=some.buffers).with_buffers(some.buffers)
        device = next(iter({**tensors.own, **tensors.shared}.values())).device
        structure, direct = team.structure(training=False), team.engine.direct
        parts = (part.to(device).expand(some.members, *part.shape) for part in x.split(CHUNK))
        return torch.cat([run_members(structure, tensors, part, mine, direct) for part in parts], dim=1)

    return torch.cat(team.map(run, team.engine.groups(len(noise))))


def members_of_draws(population: Population, group: slice, draws: int) -> Population:
    """The member of each of the draws in `group`; views where every member occurs once."""
    if draws == 1:
        return population.group(group)
    first, last = group.start // draws, (group.stop - 1) // draws
    if group.stop - group.start == 1:
        return population.group(slice(first, last + 1))
    return population.take(torch.arange(group.start, group.stop) // draws)
