"""Pruning criteria, the masks that follow from them, and parameter counts of a pruned population.

| rule | a weight is removed if | default threshold |
|---|---|---|
| `magnitude` | abs(mean) is at or below the threshold (Shridhar et al. 2019) | 0: exact zeros alone |
| `snr` | abs(mean) / std is (Graves 2011, Blundell et al. 2015) | |
| `log-alpha` | log(std^2 / mean^2) is at or above it (Molchanov et al. 2017) | 3, which is an snr of e^-1.5 = 0.223 |

A sparsity sets the threshold so that this fraction of a kernel's weights is removed (`scope=layer`), or of all kernels
together (`scope=global`, which removes most from layers with small weights, and may remove a whole layer). Each member
has a threshold of its own for its own kernels; shared kernels are pruned once, for all members. `structured` removes
whole output channels with their biases, by the mean magnitude of their weights (L1 norm over their number), in each
layer separately unless a scope is given; the last layer keeps its outputs, every layer its best channel. Masks are
nested: a higher sparsity, or pruning a pruned population, removes more.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from murmuration.core.population import KEPT, Named, Population, is_auxiliary, zero_pruned
from murmuration.core.weights import Kernel, KernelTrace, WeightFamily
from murmuration.system.errors import Misuse, unknown

SCOPES = ("global", "layer")
Pool = list[tuple[str, int | None]]  # tensor names, each with its member, or None if it is shared


@dataclass(frozen=True)
class Rule:
    """A criterion: the score of a weight from its mean and its standard deviation; low scores are removed first."""

    score: Callable[[Tensor, Tensor], Tensor]
    noisy: bool = True  # whether it uses standard deviations
    sign: int = 1  # by which a threshold given by the user is multiplied to compare with scores
    usual: float | None = None  # default threshold


RULES = {
    "magnitude": Rule(lambda mean, std: mean.abs(), noisy=False),
    "snr": Rule(lambda mean, std: mean.abs() / std),
    "log-alpha": Rule(lambda mean, std: 2 * (mean.abs().log() - std.log()), sign=-1, usual=3.0),
}


@dataclass(frozen=True)
class Pruning:
    """Settings of pruning: a rule, and a sparsity or a threshold.

    Attributes:
        rule: How weights are ranked; a name of `RULES`.
        sparsity: Fraction of weights, or of channels, to remove.
        threshold: Score below which weights are removed, instead of a sparsity.
        scope: "global" or "layer": where scores are compared; by default global, and by layer for channels.
        structured: Whether whole channels are removed.
    """

    rule: str = "magnitude"
    sparsity: float | None = None  # fraction of weights, or of channels, to remove
    threshold: float | None = None
    scope: str | None = None  # None: global, of channels layer
    structured: bool = False

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise unknown("rule", self.rule, RULES)
        if self.scope is not None and self.scope not in SCOPES:
            raise unknown("scope", self.scope, SCOPES)
        if self.sparsity is not None and not 0 <= self.sparsity < 1:
            raise Misuse(f"sparsity={self.sparsity}: need a fraction of at least 0 and below 1, such as 0.8")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise Misuse(f"threshold={self.threshold}: need a finite number")
        if self.sparsity is not None and self.threshold is not None:
            raise Misuse(f"sparsity={self.sparsity} and threshold={self.threshold}: give one of them")
        if self.structured and self.rule != "magnitude":
            reason = "channels go by the magnitude of their means; leave rule out"
            raise Misuse(f"rule={self.rule} with structured: {reason}")

    @property
    def within(self) -> str:
        """The scope; by layer for channels, since layers differ in the scale of their weights, else global."""
        return self.scope or ("layer" if self.structured else "global")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "scope": self.within}


def prune_population(population: Population, weights: WeightFamily, trace: KernelTrace, pruning: Pruning) -> Population:
    """Return the population with some weights removed: they are zero, masked, and have no distribution any more."""
    trained, before = [kernel for kernel in trace.kernels if kernel.name not in population.fixed], population.buffers
    if not trained:
        raise Misuse("nothing to prune: the net has no trained linear layers or convolutions")
    if pruning.structured:
        masks = channel_masks(population, [kernel for kernel in trained if kernel != trace.kernels[-1]], pruning)
    else:
        masks = weight_masks(population, weights, trained, pruning)
    masks = {name: mask & before[name + KEPT] if name + KEPT in before else mask for name, mask in masks.items()}
    pruned = population.clone()
    pruned.buffers.update({name + KEPT: mask for name, mask in masks.items()})
    zero_pruned(pruned.own, pruned.buffers, slice(None))
    zero_pruned(pruned.shared, pruned.buffers, 0)
    return pruned


def weight_masks(population: Population, weights: WeightFamily, kernels: Sequence[Kernel], pruning: Pruning) -> Named:
    """Return masks (M, ...) of kernels, weight by weight."""
    rule, scores = RULES[pruning.rule], {}
    for kernel in kernels:
        named = population.own if kernel.name in population.own else population.shared
        mean, std = named[kernel.name], weights.std(kernel.name, named)
        if std is not None or not rule.noisy:
            scores[kernel.name] = rule.score(mean, mean if std is None else std)
    if not scores:
        raise Misuse(f"rule={pruning.rule} uses standard deviations, and no kernel has one: write rule=magnitude")
    return threshold_masks(population, scores, pruning)


def threshold_masks(population: Population, scores: Named, pruning: Pruning) -> Named:
    """Return masks (M, ...) from scores (M, ...), or (...) for shared tensors."""
    if pruning.sparsity is None:
        assert pruning.threshold is not None
        cut = RULES[pruning.rule].sign * pruning.threshold
        masks = {name: score > cut for name, score in scores.items()}
    else:
        masks = {name: torch.zeros_like(score, dtype=torch.bool) for name, score in scores.items()}
        for pool in pools(population, scores, pruning.within):
            rows = [scores[name] if member is None else scores[name][member] for name, member in pool]
            for (name, member), best in zip(pool, largest(rows, pruning.sparsity), strict=True):
                masks[name][... if member is None else member] = best
    for name in masks.keys() - population.own.keys():  # shared: the same mask for every member
        masks[name] = masks[name].expand(population.members, *masks[name].shape).clone()
    return masks


def pools(population: Population, names: Named, scope: str) -> list[Pool]:
    """Return groups of tensors with one threshold.

    Each member's own, and the shared ones; or (`layer`) every tensor alone.
    """
    groups: list[Pool] = [[(name, None) for name in names if name in population.shared]]
    groups += [[(name, i) for name in names if name in population.own] for i in range(population.members)]
    return [pool for pool in groups if pool] if scope == "global" else [[one] for pool in groups for one in pool]


def largest(scores: Sequence[Tensor], sparsity: float) -> list[Tensor]:
    """Return masks of the entries with the largest scores over several tensors; of equal ones the first are kept.

    >>> largest([torch.tensor([3.0, 1.0]), torch.tensor([2.0, 2.0])], 0.5)
    [tensor([ True, False]), tensor([ True, False])]
    """
    together = torch.cat([score.flatten() for score in scores])
    count = len(together) - round(sparsity * len(together))
    mask = torch.zeros_like(together, dtype=torch.bool)
    mask[together.argsort(descending=True, stable=True)[:count]] = True
    parts = mask.split([score.numel() for score in scores])
    return [part.view(score.shape) for part, score in zip(parts, scores, strict=True)]


def channel_masks(population: Population, kernels: Sequence[Kernel], pruning: Pruning) -> Named:
    """Return masks (M, ...) of kernels and their biases, whole output channels at a time."""
    scores = {}
    for kernel in kernels:
        by_member = torch.stack([channel_scores(kernel, row) for row in rows_of(population, kernel.name)])  # (M, C)
        scores[kernel.name] = by_member if kernel.name in population.own else by_member[0]
    if not scores:
        raise Misuse("structured: the net has one layer, whose outputs are the predictions; leave structured out")
    kept_channels = threshold_masks(population, scores, pruning)
    masks: Named = {}
    for kernel in kernels:
        score, weight = scores[kernel.name], rows_of(population, kernel.name)[0]
        channels = kept_channels[kernel.name] | (score == score.max(-1, keepdim=True).values)  # (M, C)
        scales = [kernel.matrix(None, keep.to(weight.dtype), weight) for keep in channels]
        masks[kernel.name] = torch.stack([(s > 0).expand_as(weight) for s in scales if s is not None])
        # A shared bias of an own kernel belongs to channels that some members keep.
        pruned = population.own if kernel.name in population.own else population.own | population.shared
        masks |= {bias: channels.clone() for bias in kernel.biases if bias in pruned}
    return masks


def rows_of(population: Population, name: str) -> Tensor:
    """Return a parameter by member (M, ...), or (1, ...) if it is shared."""
    return population.own[name] if name in population.own else population.shared[name][None]


def channel_scores(kernel: Kernel, weight: Tensor) -> Tensor:
    """Return the mean magnitude (C,) of the weights that make each output channel."""
    if not kernel.transposed:
        return weight.abs().flatten(1).mean(1)
    by_group = weight.reshape(kernel.groups, kernel.inputs // kernel.groups, kernel.outputs // kernel.groups, -1)
    return by_group.abs().mean((1, 3)).flatten()


@dataclass(frozen=True)
class ParameterCounts:
    """Parameter counts over all members; shared parameters count once."""

    dense: int  # parameters of the networks
    nonzero: int  # parameters that are not zero
    numbers: int  # stored values for the parameters that are kept: a mean, and the standard deviation of a Gaussian
    numbers_before: int  # the same without pruning


def count_parameters(population: Population) -> ParameterCounts:
    """Return the counts of a population."""
    tensors = [*population.own.items(), *population.shared.items(), *population.fixed.items()]
    weights = [tensor for name, tensor in tensors if not is_auxiliary(name)]
    nonzero = sum(int(tensor.count_nonzero()) for tensor in weights)
    dense, stored = (sum(tensor.numel() for tensor in some) for some in (weights, [tensor for _, tensor in tensors]))
    return ParameterCounts(dense, nonzero, population.parameters_stored(), stored)


def layer_densities(population: Population, trace: KernelTrace) -> list[dict[str, Any]]:
    """Return for every kernel its name, weights per member, and the fraction that is kept, over all members."""
    rows, members = [], population.members
    weights = {name: tensor.numel() // members for name, tensor in population.own.items()}
    weights |= {name: tensor.numel() for name, tensor in population.shared.items()}
    for name in (name for name in trace.names if name in weights):
        mask = population.buffers.get(name + KEPT)
        density = 1.0 if mask is None else float(mask.double().mean())
        rows.append({"name": name, "weights": weights[name], "kept": density})
    return rows


def sparsity_of(population: Population, trace: KernelTrace) -> float:
    """Return the fraction of kernel weights that is pruned."""
    layers = layer_densities(population, trace)
    total = sum(layer["weights"] for layer in layers)
    return 1 - sum(layer["weights"] * layer["kept"] for layer in layers) / total if total else 0.0
