"""What every member answers: forward passes without learning."""

import torch
from torch import Tensor

from murmuration.engines.team import Team
from murmuration.population import Population
from murmuration.streams import Noise
from murmuration.weights import Family, run_members

CHUNK = 512  # inputs a member sees at once: bounds memory, keeps operators large


def member_outputs(team: Team, weights: Family, population: Population, x: Tensor, draws: int = 1) -> Tensor:
    """Outputs (M draws, N, K) on inputs (N, ...), with the network in evaluation mode; a member's draws are neighbours.

    Noise, where weights have any, belongs to the draw alone: the same inputs get the same answer.
    """
    noise = [Noise(0, draw) for draw in range(population.members * draws)]

    @torch.no_grad()
    def run(group: slice) -> Tensor:
        mine = noise[group]
        whose = torch.arange(group.start, group.stop) // draws
        some = population.group(group) if draws == 1 else population.take(whose)
        tensors = weights.realise(some.own, some.shared, mine).with_buffers(some.buffers)
        device = next(iter({**tensors.own, **tensors.shared}.values())).device
        structure, direct = team.structure(training=False), team.engine.direct
        parts = (part.to(device).expand(some.members, *part.shape) for part in x.split(CHUNK))
        return torch.cat([run_members(structure, tensors, part, mine, direct) for part in parts], dim=1)

    return torch.cat(team.map(run, team.engine.groups(len(noise))))
