"""What every member answers: forward passes without learning."""

from collections.abc import Sequence

import torch
from torch import Tensor

from murmuration.engines.team import Team
from murmuration.population import Population
from murmuration.weights import Draw, Weights, run_members

CHUNK = 512  # inputs a member sees at once: bounds memory, keeps operators large


def member_outputs(
    team: Team, weights: Weights, population: Population, x: Tensor, draws: Sequence[Draw] | None = None
) -> Tensor:
    """Every member's outputs (M, N, K) on inputs (N, ...), with the network in evaluation mode."""
    noise = draws or [silence] * population.members

    @torch.no_grad()
    def run(group: slice) -> Tensor:
        some, mine = population.group(group), noise[group]
        realised, _ = weights.realise(some.own, some.shared, mine)
        tensors = {**realised, **some.buffers}
        device = next(iter(tensors.values())).device
        structure, direct = team.structure(training=False), team.engine.direct
        parts = (part.to(device).expand(some.members, *part.shape) for part in x.split(CHUNK))
        return torch.cat([run_members(structure, tensors, part, mine, direct) for part in parts], dim=1)

    return torch.cat(team.map(run, team.engine.groups(population.members)))


def silence(device: torch.device) -> torch.Generator:
    """The noise of a member that draws none; a net that insists on dropout gets the same mask always."""
    return torch.Generator(device).manual_seed(0)
