"""Batch-norm statistics of averaged or drawn weights, computed anew on the training inputs.

The running mean is the mean of the batch means and the running variance the mean of the batch variances, both weighted
by the examples of a batch (as `torch.optim.swa_utils.update_bn` and the released code of SWA do).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from murmuration.core.engines import Team
from murmuration.core.population import Population
from murmuration.core.weights import NetworkWeights, Structure, run_members
from murmuration.system.streams import Noise, global_stream
from murmuration.training.batches import batch_slices

CHUNK = 512  # inputs of a batch
BatchNorm = nn.modules.batchnorm._BatchNorm


def refresh_batch_norm(
    team: Team, weights: NetworkWeights, members: Population, x: Tensor, *, seed: int, numbers: Sequence[int], step: int
) -> None:
    """Replace the members' batch-norm statistics, in place, by those of one training pass over inputs x (N, ...).

    Every process has all members; each computes the statistics of some, for all.

    `numbers` (one for each member) and `step` address the noise of dropout layers. A network without batch-norm layers
    is left alone.
    """
    names = statistics(team.structure(training=True).module)
    if not names:
        return
    for name in names:
        members.buffers[name].fill_(1 if name.endswith("running_var") else 0)

    @torch.no_grad()
    def run(group: slice) -> None:
        population, structure = members.group(group), team.structure(training=True)
        momenta = {part: part.momentum for part in batch_norms(structure)}
        deterministic = weights.deterministic()
        for index, rows in enumerate(batch_slices(len(x), CHUNK)):
            part = x[rows]
            for norm in momenta:  # statistics are means over all examples so far
                norm.momentum = len(part) / rows.stop
            noise = [Noise(seed, number, step + 1 + index) for number in numbers[group]]
            tensors = deterministic.realise(population.own, population.shared, noise, buffers=population.buffers)
            inputs = part.to(population.device).expand(population.members, *part.shape)
            redirect, tensors_of_group = (
                team.engine.name == "loop",
                tensors.with_buffers(population.buffers, population.fixed),
            )
            with global_stream(seed, "noise", numbers[group][0], step + 1 + index, redirect, population.device):
                run_members(structure, tensors_of_group, inputs, noise, team.engine.direct)
        for norm, momentum in momenta.items():
            norm.momentum = momentum

    rows = team.ranks.rows(members.members)
    if rows:
        team.map(run, [slice(rows.start + g.start, rows.start + g.stop) for g in team.engine.groups(len(rows))])
    for name in names:
        own_statistics = members.buffers[name][rows.start : rows.stop]
        members.buffers[name].copy_(team.ranks.gather(own_statistics, members.members))


def batch_norms(structure: Structure) -> list[BatchNorm]:
    """The layers whose running statistics a pass in training mode moves."""
    parts = structure.module.modules()
    return [part for part in parts if isinstance(part, BatchNorm) and moves_statistics(part)]


def statistics(module: nn.Module) -> list[str]:
    """Names of the running means, variances and counters of these layers."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, layer in module.named_modules()
        if moves_statistics(layer)
        for name, _ in layer.named_buffers(recurse=False)
    ]


def moves_statistics(layer: nn.Module) -> bool:
    """Whether a layer has running statistics, and is not kept in evaluation mode by the network."""
    return isinstance(layer, BatchNorm) and layer.track_running_stats and layer.training
