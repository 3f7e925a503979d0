"""Parameter counts of a pruned population."""

from dataclasses import asdict, dataclass
from typing import Any

from murmuration.population import KEPT, Population, is_auxiliary, kept_mask
from murmuration.weights import KernelTrace
from murmuration.weights.gaussian import STD_PARAM


@dataclass(frozen=True)
class ParameterCounts:
    """Parameter counts over all members; shared parameters count once."""

    dense: int  # parameters of the networks
    nonzero: int  # parameters that are not zero
    numbers: int  # stored values for the parameters that are kept: a mean, and the standard deviation of a Gaussian
    numbers_before: int  # the same without pruning

    def to_json(self) -> dict[str, int]:
        return asdict(self)


def count_parameters(population: Population) -> ParameterCounts:
    """The counts of a population."""
    dense = nonzero = numbers = before = 0
    for named, own in ((population.own, True), (population.shared, False)):
        for name, tensor in named.items():
            mask = kept_mask(name.removesuffix(STD_PARAM), population.buffers, own)
            before += tensor.numel()
            alike = mask is not None and mask.shape == tensor.shape  # several weights may have one std
            numbers += int(mask.sum()) if mask is not None and alike else tensor.numel()
            if not is_auxiliary(name):
                dense, nonzero = dense + tensor.numel(), nonzero + int(tensor.count_nonzero())
    return ParameterCounts(dense, nonzero, numbers, before)


def layer_densities(population: Population, trace: KernelTrace) -> list[dict[str, Any]]:
    """For every kernel: its name, weights per member, and the fraction that is kept, over all members."""
    found = []
    for kernel in trace.kernels:
        tensor = population.own.get(kernel.name, population.shared.get(kernel.name))
        if tensor is not None:
            mask = population.buffers.get(kernel.name + KEPT)
            weights = tensor.numel() // (population.members if kernel.name in population.own else 1)
            kept = 1.0 if mask is None else float(mask.double().mean())
            found.append({"name": kernel.name, "weights": weights, "kept": kept})
    return found


def sparsity_of(population: Population, trace: KernelTrace) -> float:
    """The fraction of kernel weights that is pruned."""
    layers = layer_densities(population, trace)
    total = sum(layer["weights"] for layer in layers)
    return 1 - sum(layer["weights"] * layer["kept"] for layer in layers) / total if total else 0.0
