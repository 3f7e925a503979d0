"""What every member answers: forward passes without learning."""

import torch
from torch import Tensor

from murmuration.engines.team import Team
from murmuration.population import Population
from murmuration.streams import Noise
from murmuration.weights import NetworkWeights, run_members

CHUNK = 512  # inputs a member sees at once: bounds memory, keeps operators large


def member_outputs(team: Team, weights: NetworkWeights, population: Population, x: Tensor, draws: int = 1) -> Tensor:
    """Outputs (M draws, N, K) on inputs (N, ...), with the network in evaluation mode; a member's draws are neighbours.

    Noise, where weights have any, belongs to the draw alone: the same inputs get the same answer.
    """
    noise = [Noise(0, draw) for draw in range(population.members * draws)]
    if draws > 1:
        weights, population = weights.for_draws(population)

    @torch.no_grad()
    def run(group: slice) -> Tensor:
        mine, some = noise[group], drawn(population, group, draws)
        tensors = weights.realise(some.own, some.shared, mine, buffers=some.buffers).with_buffers(some.buffers)
        device = next(iter({**tensors.own, **tensors.shared}.values())).device
        structure, direct = team.structure(training=False), team.engine.direct
        parts = (part.to(device).expand(some.members, *part.shape) for part in x.split(CHUNK))
        return torch.cat([run_members(structure, tensors, part, mine, direct) for part in parts], dim=1)

    return torch.cat(team.map(run, team.engine.groups(len(noise))))


def drawn(population: Population, group: slice, draws: int) -> Population:
    """The members behind some of all draws; views where nobody is needed twice."""
    if draws == 1:
        return population.group(group)
    first, last = group.start // draws, (group.stop - 1) // draws
    if group.stop - group.start == 1:
        return population.group(slice(first, last + 1))
    return population.take(torch.arange(group.start, group.stop) // draws)
