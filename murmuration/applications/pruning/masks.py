"""Pruning masks: which weights of a population are kept by a rule."""

from collections.abc import Sequence

import torch
from torch import Tensor

from murmuration.applications.pruning.rules import RULES, Pruning
from murmuration.errors import Misuse
from murmuration.population import KEPT, Named, Population
from murmuration.weights import Kernel, KernelTrace, WeightFamily

Pool = list[tuple[str, int | None]]  # tensor names, each with its member, or None if it is shared


def prune_population(population: Population, weights: WeightFamily, trace: KernelTrace, pruning: Pruning) -> Population:
    """The population with some weights removed: they are zero, masked, and have no distribution any more."""
    kernels = trace.kernels
    if not kernels:
        raise Misuse("nothing to prune: the net has no linear layers or convolutions")
    if pruning.structured:
        return masked(population, channel_masks(population, kernels, pruning))
    return masked(population, weight_masks(population, weights, kernels, pruning))


def masked(population: Population, masks: Named) -> Population:
    """The population with these masks (M, ...) combined with its own; masked weights become zero."""
    before = population.buffers
    masks = {name: mask & before[name + KEPT] if name + KEPT in before else mask for name, mask in masks.items()}
    own = {name: t.masked_fill(~masks[name], 0) if name in masks else t.clone() for name, t in population.own.items()}
    shared = {
        name: t.masked_fill(~masks[name][0], 0) if name in masks else t.clone() for name, t in population.shared.items()
    }
    buffers = {name: t.clone() for name, t in before.items()}
    buffers |= {name + KEPT: mask for name, mask in masks.items()}
    return Population(population.members, own, shared, buffers)


def weight_masks(population: Population, weights: WeightFamily, kernels: Sequence[Kernel], pruning: Pruning) -> Named:
    """Masks (M, ...) of kernels, weight by weight."""
    rule, found = RULES[pruning.rule], {}
    for kernel in kernels:
        named = population.own if kernel.name in population.own else population.shared
        mean, std = named[kernel.name], weights.std(kernel.name, named)
        if std is not None:
            found[kernel.name] = rule.score(mean, std)
        elif not rule.noisy:
            found[kernel.name] = rule.score(mean, mean)
    if not found:
        raise Misuse(f"rule={pruning.rule} uses standard deviations, and no kernel has one: write rule=magnitude")
    return threshold_masks(population, found, pruning)


def threshold_masks(population: Population, scores: Named, pruning: Pruning) -> Named:
    """Masks (M, ...) from scores (M, ...), or (...) for shared tensors."""
    if pruning.sparsity is None:
        masks = {name: score > pruning.cut for name, score in scores.items()}
    else:
        masks = {name: torch.zeros_like(score, dtype=torch.bool) for name, score in scores.items()}
        for pool in pools(population, scores, pruning.within):
            rows = [scores[name] if member is None else scores[name][member] for name, member in pool]
            for (name, member), best in zip(pool, largest(rows, pruning.sparsity), strict=True):
                masks[name][... if member is None else member] = best
    return {name: mask if name in population.own else per_member(mask, population) for name, mask in masks.items()}


def per_member(mask: Tensor, population: Population) -> Tensor:
    """The mask (...) of a shared tensor, repeated for every member (M, ...)."""
    return mask.expand(population.members, *mask.shape).clone()


def pools(population: Population, names: Named, scope: str) -> list[Pool]:
    """Groups of tensors with one threshold: each member's own, and the shared ones; or (`layer`) every tensor alone."""
    found: list[Pool] = [[(name, None) for name in names if name in population.shared]]
    found += [[(name, i) for name in names if name in population.own] for i in range(population.members)]
    return [pool for pool in found if pool] if scope == "global" else [[one] for pool in found for one in pool]


def largest(scores: Sequence[Tensor], sparsity: float) -> list[Tensor]:
    """Masks of the entries with the largest scores over several tensors; of equal ones the first are kept.

    >>> largest([torch.tensor([3.0, 1.0]), torch.tensor([2.0, 2.0])], 0.5)
    [tensor([ True, False]), tensor([ True, False])]
    """
    together = torch.cat([score.flatten() for score in scores])
    count = len(together) - round(sparsity * len(together))
    kept = torch.zeros_like(together, dtype=torch.bool)
    kept[together.argsort(descending=True, stable=True)[:count]] = True
    parts = kept.split([score.numel() for score in scores])
    return [part.view(score.shape) for part, score in zip(parts, scores, strict=True)]


def channel_masks(population: Population, kernels: Sequence[Kernel], pruning: Pruning) -> Named:
    """Masks (M, ...) of kernels and their biases, whole output channels at a time; the last layer is left alone."""
    scores = {}
    for kernel in kernels[:-1]:
        each = torch.stack([channel_scores(kernel, row) for row in rows_of(population, kernel.name)])  # (M, C)
        scores[kernel.name] = each if kernel.name in population.own else each[0]
    if not scores:
        raise Misuse("structured: the net has one layer, whose outputs are the predictions; leave structured out")
    best = {name: score == score.max(-1, keepdim=True).values for name, score in scores.items()}
    found = threshold_masks(population, scores, pruning)
    masks: Named = {}
    for kernel in kernels[:-1]:
        channels, rows = found[kernel.name] | best[kernel.name], rows_of(population, kernel.name)  # (M, C)
        pairs = zip(channels, rows.expand(population.members, *rows.shape[1:]), strict=True)
        masks[kernel.name] = torch.stack([kernel_mask(kernel, keep, row) for keep, row in pairs])
        whole = kernel.name in population.shared  # else a shared bias belongs to channels that some members keep
        masks |= {bias: channels.clone() for bias in kernel.biases if whole or bias in population.own}
    return masks


def rows_of(population: Population, name: str) -> Tensor:
    """A parameter by member (M, ...), or (1, ...) if it is shared."""
    return population.own[name] if name in population.own else population.shared[name][None]


def channel_scores(kernel: Kernel, weight: Tensor) -> Tensor:
    """The mean magnitude (C,) of the weights that make each output channel."""
    if not kernel.transposed:
        return weight.abs().flatten(1).mean(1)
    each = weight.reshape(kernel.groups, kernel.inputs // kernel.groups, kernel.outputs // kernel.groups, -1)
    return each.abs().mean((1, 3)).flatten()


def kernel_mask(kernel: Kernel, channels: Tensor, weight: Tensor) -> Tensor:
    """The mask of a kernel from the mask of its output channels (C,)."""
    scale = kernel.matrix(None, channels.to(weight.dtype), weight)
    assert scale is not None
    return (scale > 0).expand_as(weight).clone()
