"""Cyclical SG-MCMC beside a deep ensemble: diversity between runs, between chains, between cycles of a chain (S5)."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from murmuration.studies.diversity import diversity_terms
from murmuration.studies.landscape import Result
from murmuration.studies.verdicts import Verdict, jackknife_estimate
from murmuration.system.records import plain_json

Array = NDArray[np.float64]
VANILLA, BETWEEN, WITHIN = "runs of the ensemble", "independent chains", "cycles of one chain"


@dataclass(frozen=True, eq=False)
class Chains(Result):
    """Normalised diversity D of pairs of networks, symmetrised over the pair, and its terms by example."""

    runs: dict[tuple[int, int], Array]  # (i, j) -> terms (N,) of two runs of the ensemble
    samples: dict[tuple[int, int, int, int], Array]  # (chain, cycle, chain, cycle) -> terms (N,)
    counts: tuple[int, int, int]  # runs, chains, cycles
    accuracy: dict[str, list[float]]  # of the runs, and of the samples in the order of chains and cycles

    def vanilla(self, runs: Sequence[int]) -> Array:
        """Return D by example (N,) between runs of the ensemble."""
        return np.mean([self.runs[pair] for pair in itertools.combinations(runs, 2)], axis=0)

    def between(self, chains: Sequence[int]) -> Array:
        """Return D by example (N,) between chains at the same cycle."""
        pairs = itertools.product(itertools.combinations(chains, 2), range(self.counts[2]))
        return np.mean([self.samples[a, cycle, b, cycle] for (a, b), cycle in pairs], axis=0)

    def within(self, chains: Sequence[int]) -> Array:
        """Return D by example (N,) between cycles of one chain."""
        pairs = itertools.product(chains, itertools.combinations(range(self.counts[2]), 2))
        return np.mean([self.samples[chain, a, chain, b] for chain, (a, b) in pairs], axis=0)

    @property
    def pairs(self) -> dict[str, list[float]]:
        """D of every pair of the three groups."""
        between = {key: terms for key, terms in self.samples.items() if key[0] != key[2]}
        within = {key: terms for key, terms in self.samples.items() if key[0] == key[2]}
        groups: dict[str, Any] = {VANILLA: self.runs, BETWEEN: between, WITHIN: within}
        return {name: [float(terms.mean()) for terms in group.values()] for name, group in groups.items()}

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        runs, chains, cycles = self.counts
        if chains < 2 or cycles < 2:
            return ()
        sizes = {"runs": runs, "chains": chains}
        vanilla: Callable[..., Array] = lambda rows, chosen: self.vanilla(rows) - self.within(chosen)  # noqa: E731
        between: Callable[..., Array] = lambda chosen: self.between(chosen) - self.within(chosen)  # noqa: E731
        estimates = (
            jackknife_estimate(f"D, {VANILLA} less {WITHIN}", vanilla, sizes, 0.0, math.inf),
            jackknife_estimate(f"D, {BETWEEN} less {WITHIN}", between, {"chains": chains}, 0.0, math.inf),
        )
        note = "; ".join(f"D {np.mean(values):.3f} between {name}" for name, values in self.pairs.items())
        claim = (
            "independently initialised networks, vanilla ensembles and chains alike, are more diverse than cycles of "
        )
        return (Verdict("chains", f"{claim}one chain", estimates, note),)

    def to_json(self) -> dict[str, Any]:
        return plain_json({"pairs": self.pairs, "accuracy": self.accuracy, "verdicts": self.verdicts})

    def frame(self) -> pd.DataFrame:
        """Return one row for each pair: group and D."""
        rows = [(name, value) for name, values in self.pairs.items() for value in values]
        return pd.DataFrame(rows, columns=["pairs", "diversity"])


def chains_of(runs: Tensor, samples: Tensor, y: Tensor, origins: Sequence[int], chains: int, cycles: int) -> Chains:
    """Return diversity of runs and chains.

    Args:
        runs: Classes (R, N) predicted by the runs of an ensemble.
        samples: Classes (S, N) predicted by samples of chains, one a cycle.
        y: Labels (N,).
        origins: Chain of every sample, whose samples are in time order.
        chains: Number of chains.
        cycles: Number of cycles.

    Returns:
        The terms of D of all pairs that are compared.
    """
    places = [[row for row, origin in enumerate(origins) if origin == chain] for chain in range(chains)]

    def terms(one: Tensor, two: Tensor) -> Array:
        both = (diversity_terms(a.numpy()[None], b.numpy(), y.numpy())[0] for a, b in ((one, two), (two, one)))
        return sum(both, np.zeros(len(y))) / 2

    pairs = [
        *((a, c, b, c) for a, b in itertools.combinations(range(chains), 2) for c in range(cycles)),
        *((r, a, r, b) for r in range(chains) for a, b in itertools.combinations(range(cycles), 2)),
    ]
    sampled = {(r, a, s, b): terms(samples[places[r][a]], samples[places[s][b]]) for r, a, s, b in pairs}
    vanilla = {(i, j): terms(runs[i], runs[j]) for i, j in itertools.combinations(range(len(runs)), 2)}
    right = {name: (labels == y).double().mean(1).tolist() for name, labels in (("runs", runs), ("samples", samples))}
    return Chains(vanilla, sampled, (len(runs), chains, cycles), right)
