"""What every member answers: forward passes without learning."""

from collections.abc import Sequence

import torch
from torch import Tensor

from murmuration.engines.team import Team
from murmuration.population import Population
from murmuration.streams import Noise
from murmuration.weights import Weights, run_members

CHUNK = 512  # inputs a member sees at once: bounds memory, keeps operators large


def member_outputs(
    team: Team, weights: Weights, population: Population, x: Tensor, noise: Sequence[Noise] | None = None
) -> Tensor:
    """Every member's outputs (M, N, K) on inputs (N, ...), with the network in evaluation mode."""
    # A net that insists on dropout when predicting gets the same mask always.
    given = noise or [Noise(0, member) for member in range(population.members)]

    @torch.no_grad()
    def run(group: slice) -> Tensor:
        some, mine = population.group(group), given[group]
        realised, _ = weights.realise(some.own, some.shared, mine)
        tensors = {**realised, **some.buffers}
        device = next(iter(tensors.values())).device
        structure, direct = team.structure(training=False), team.engine.direct
        parts = (part.to(device).expand(some.members, *part.shape) for part in x.split(CHUNK))
        return torch.cat([run_members(structure, tensors, part, mine, direct) for part in parts], dim=1)

    return torch.cat(team.map(run, team.engine.groups(population.members)))
