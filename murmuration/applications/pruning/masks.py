"""Masks: which weights of a population are left, by the line that a rule draws."""

from collections.abc import Sequence

import torch
from torch import Tensor

from murmuration.applications.pruning.rules import RULES, Pruning
from murmuration.errors import Misuse
from murmuration.population import KEPT, Named, Population
from murmuration.weights import Kernel, Outline, Weights
from murmuration.weights.gaussian import SPREAD, Gaussian

Pool = list[tuple[str, int | None]]  # tensors, and whose they are; None: all members'


def pruned(population: Population, weights: Weights | Gaussian, outline: Outline, pruning: Pruning) -> Population:
    """The population without the weights that go: they are zero, masked, and no distributions any more."""
    kernels = outline.kernels
    if not kernels:
        raise Misuse("nothing to prune: the net has no linear layers or convolutions")
    if pruning.structured:
        return masked(population, channel_masks(population, kernels, pruning))
    return masked(population, weight_masks(population, weights, kernels, pruning))


def masked(population: Population, masks: Named) -> Population:
    """The population with these masks (M, ...) beside those it has; what they leave out becomes zero."""
    before = population.buffers
    masks = {name: mask & before[name + KEPT] if name + KEPT in before else mask for name, mask in masks.items()}
    own = {name: t.masked_fill(~masks[name], 0) if name in masks else t.clone() for name, t in population.own.items()}
    shared = {
        name: t.masked_fill(~masks[name][0], 0) if name in masks else t.clone() for name, t in population.shared.items()
    }
    buffers = {name: t.clone() for name, t in before.items()}
    buffers |= {name + KEPT: mask for name, mask in masks.items()}
    return Population(population.members, own, shared, buffers)


def weight_masks(
    population: Population, weights: Weights | Gaussian, kernels: Sequence[Kernel], pruning: Pruning
) -> Named:
    """Masks (M, ...) of kernels, weight by weight."""
    rule, found = RULES[pruning.rule], {}
    for kernel in kernels:
        named = population.own if kernel.name in population.own else population.shared
        mean = named[kernel.name]
        if isinstance(weights, Gaussian) and kernel.name + SPREAD in named:
            found[kernel.name] = rule.worth(mean, weights.std(kernel.name, mean, named))
        elif not rule.noisy:
            found[kernel.name] = rule.worth(mean, mean)
    if not found:
        raise Misuse(f"rule={pruning.rule} looks at spreads, and no kernel has one: write rule=magnitude")
    return lines_drawn(population, found, pruning)


def lines_drawn(population: Population, worths: Named, pruning: Pruning) -> Named:
    """Masks (M, ...) from the worth (M, ...) or, of what is shared, (...) of what could go."""
    if pruning.sparsity is None:
        masks = {name: worth > pruning.cut for name, worth in worths.items()}
    else:
        masks = {name: torch.zeros_like(worth, dtype=torch.bool) for name, worth in worths.items()}
        for pool in pools(population, worths, pruning.within):
            rows = [worths[name] if member is None else worths[name][member] for name, member in pool]
            for (name, member), best in zip(pool, best_of(rows, pruning.sparsity), strict=True):
                masks[name][... if member is None else member] = best
    return {name: mask if name in population.own else for_all(mask, population) for name, mask in masks.items()}


def for_all(mask: Tensor, population: Population) -> Tensor:
    """The mask of what members share, once for each of them."""
    return mask.expand(population.members, *mask.shape).clone()


def pools(population: Population, names: Named, scope: str) -> list[Pool]:
    """Tensors among which one line is drawn: a member's own together, and those that all share."""
    found: list[Pool] = [[(name, None) for name in names if name in population.shared]]
    found += [[(name, i) for name in names if name in population.own] for i in range(population.members)]
    return [pool for pool in found if pool] if scope == "global" else [[one] for pool in found for one in pool]


def best_of(worths: Sequence[Tensor], sparsity: float) -> list[Tensor]:
    """Masks of the most worthy entries of some tensors together; of equals the first stay.

    >>> best_of([torch.tensor([3.0, 1.0]), torch.tensor([2.0, 2.0])], 0.5)
    [tensor([ True, False]), tensor([ True, False])]
    """
    together = torch.cat([worth.flatten() for worth in worths])
    count = len(together) - round(sparsity * len(together))
    kept = torch.zeros_like(together, dtype=torch.bool)
    kept[together.argsort(descending=True, stable=True)[:count]] = True
    parts = kept.split([worth.numel() for worth in worths])
    return [part.view(worth.shape) for part, worth in zip(parts, worths, strict=True)]


def channel_masks(population: Population, kernels: Sequence[Kernel], pruning: Pruning) -> Named:
    """Masks (M, ...) of kernels and their biases, whole output channels at a time; the last layer is left alone."""
    worths = {}
    for kernel in kernels[:-1]:
        each = torch.stack([channel_worth(kernel, row) for row in rows_of(population, kernel.name)])  # (M, C)
        worths[kernel.name] = each if kernel.name in population.own else each[0]
    if not worths:
        raise Misuse("structured: the net has one layer, whose outputs are the predictions; leave structured out")
    best = {name: worth == worth.max(-1, keepdim=True).values for name, worth in worths.items()}
    found = lines_drawn(population, worths, pruning)
    masks: Named = {}
    for kernel in kernels[:-1]:
        channels, rows = found[kernel.name] | best[kernel.name], rows_of(population, kernel.name)  # (M, C)
        pairs = zip(channels, rows.expand(population.members, *rows.shape[1:]), strict=True)
        masks[kernel.name] = torch.stack([widely(kernel, keep, row) for keep, row in pairs])
        whole = kernel.name in population.shared  # else a bias that all share belongs to channels that some have
        masks |= {bias: channels.clone() for bias in kernel.biases if whole or bias in population.own}
    return masks


def rows_of(population: Population, name: str) -> Tensor:
    """A parameter member by member (M, ...), or in one row (1, ...) if they share it."""
    return population.own[name] if name in population.own else population.shared[name][None]


def channel_worth(kernel: Kernel, weight: Tensor) -> Tensor:
    """The mean magnitude (C,) of the weights that make each output channel."""
    if not kernel.transposed:
        return weight.abs().flatten(1).mean(1)
    each = weight.reshape(kernel.groups, kernel.inputs // kernel.groups, kernel.outputs // kernel.groups, -1)
    return each.abs().mean((1, 3)).flatten()


def widely(kernel: Kernel, channels: Tensor, weight: Tensor) -> Tensor:
    """The mask of a kernel, from that of its output channels (C,)."""
    scale = kernel.matrix(None, channels.to(weight.dtype), weight)
    assert scale is not None
    return (scale > 0).expand_as(weight).clone()
