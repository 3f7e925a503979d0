"""What is left of a population: how many numbers, and where."""

from dataclasses import asdict, dataclass
from typing import Any

from murmuration.population import KEPT, Population, is_companion, kept_of
from murmuration.weights import Outline
from murmuration.weights.gaussian import SPREAD


@dataclass(frozen=True)
class Counts:
    """How many numbers there are, of all members together; what they share counts once."""

    dense: int  # parameters of the networks
    nonzero: int  # of these, those that are not zero
    numbers: int  # that describe what is left: a mean, and where it is a distribution a spread too
    numbers_before: int  # the same if nothing were pruned

    def to_json(self) -> dict[str, int]:
        return asdict(self)


def counts_of(population: Population) -> Counts:
    """How many numbers a population has, and how many of them are left."""
    dense = nonzero = numbers = before = 0
    for named, own in ((population.own, True), (population.shared, False)):
        for name, tensor in named.items():
            mask = kept_of(name.removesuffix(SPREAD), population.buffers, own)
            before += tensor.numel()
            alike = mask is not None and mask.shape == tensor.shape  # one spread may stand for many weights
            numbers += int(mask.sum()) if mask is not None and alike else tensor.numel()
            if not is_companion(name):
                dense, nonzero = dense + tensor.numel(), nonzero + int(tensor.count_nonzero())
    return Counts(dense, nonzero, numbers, before)


def layers_of(population: Population, outline: Outline) -> list[dict[str, Any]]:
    """Every kernel with its number of weights, in one member, and the share of them that is left, over all."""
    found = []
    for kernel in outline.kernels:
        tensor = population.own.get(kernel.name, population.shared.get(kernel.name))
        if tensor is not None:
            mask = population.buffers.get(kernel.name + KEPT)
            weights = tensor.numel() // (population.members if kernel.name in population.own else 1)
            kept = 1.0 if mask is None else float(mask.double().mean())
            found.append({"name": kernel.name, "weights": weights, "kept": kept})
    return found


def sparsity_of(population: Population, outline: Outline) -> float:
    """The share of kernels' weights that is pruned."""
    layers = layers_of(population, outline)
    total = sum(layer["weights"] for layer in layers)
    return 1 - sum(layer["weights"] * layer["kept"] for layer in layers) / total if total else 0.0
