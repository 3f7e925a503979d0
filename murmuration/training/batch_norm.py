"""Batch-norm statistics of averaged or drawn weights, computed anew on the training inputs.

The running mean is the mean of the batch means and the running variance the mean of the batch variances, both weighted
by the examples of a batch (as `torch.optim.swa_utils.update_bn` and the released code of SWA do).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from murmuration.core.engines import Team
from murmuration.core.population import Population
from murmuration.core.weights import NetworkWeights, run_members
from murmuration.system.streams import Noise
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
    names, deterministic = statistics(team.structure(training=True).module), weights.deterministic()
    if not names:
        return
    for name in names:
        members.buffers[name].fill_(1 if name.endswith("running_var") else 0)

    @torch.no_grad()
    def run(group: slice) -> None:
        population, structure = members.group(group), team.structure(training=True)
        norms = [part for part in structure.module.modules() if isinstance(part, BatchNorm) and moves_statistics(part)]
        momenta = [norm.momentum for norm in norms]
        for index, rows in enumerate(batch_slices(len(x), CHUNK)):
            part = x[rows]
            for norm in norms:  # statistics are means over all examples so far
                norm.momentum = len(part) / rows.stop
            noise = [Noise(seed, number, step + 1 + index) for number in numbers[group]]
            tensors = deterministic.realise(population.own, population.shared, noise, buffers=population.buffers)
            tensors = tensors.with_buffers(population.buffers, population.fixed)
            inputs = part.to(population.device).expand(population.members, *part.shape)
            with team.noise_stream(seed, numbers[group][0], step + 1 + index, population.device):
                run_members(structure, tensors, inputs, noise, team.engine.direct)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum

    rows = team.ranks.rows(members.members)
    if rows:
        team.map(run, [slice(rows.start + g.start, rows.start + g.stop) for g in team.engine.groups(len(rows))])
    for name in names:
        members.buffers[name].copy_(team.ranks.gather(members.buffers[name][rows.start : rows.stop], members.members))


def statistics(module: nn.Module) -> list[str]:
    """Names of the running means, variances and counters of these layers."""
    layers = [(prefix, layer) for prefix, layer in module.named_modules() if moves_statistics(layer)]
    return [name for prefix, layer in layers for name, _ in layer.named_buffers(prefix, recurse=False)]


def moves_statistics(layer: nn.Module) -> bool:
    """Whether a layer has running statistics, and is not kept in evaluation mode by the network."""
    return isinstance(layer, BatchNorm) and layer.track_running_stats and layer.training
