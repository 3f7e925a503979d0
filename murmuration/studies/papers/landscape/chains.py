"""Cyclical SG-MCMC: diversity between independent chains against diversity between cycles of one chain (figure S5)."""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from murmuration.prediction.ensemble import Ensemble
from murmuration.studies.landscape import Result, Verdict
from murmuration.studies.similarity import Similarity
from murmuration.system.records import plain_json

RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Chains(Result):
    """Normalised diversity D of pairs of samples, one sample a cycle and chain, symmetrised over the pair."""

    diversity: NDArray[np.float64]  # (R, C, R, C): D of chain and cycle with chain and cycle
    accuracy: NDArray[np.float64]  # (R, C)

    @property
    def pairs(self) -> dict[str, list[float]]:
        """D of pairs of chains at the same cycle, and of pairs of cycles of one chain."""
        runs, cycles = self.accuracy.shape
        between = [float(self.diversity[a, c, b, c]) for a, b in combinations(range(runs), 2) for c in range(cycles)]
        within = [float(self.diversity[r, a, r, b]) for r in range(runs) for a, b in combinations(range(cycles), 2)]
        return {"independent chains": between, "cycles of one chain": within}

    def difference(self, chains: NDArray[np.int64] | None = None) -> float:
        """Return mean D between different chains minus mean D between cycles of one chain, for some of the chains."""
        runs, cycles = self.accuracy.shape
        rows = np.arange(runs) if chains is None else chains
        between = [self.diversity[a, c, b, c] for a, b in combinations(rows, 2) if a != b for c in range(cycles)]
        within = [self.diversity[r, a, r, b] for r in rows for a, b in combinations(range(cycles), 2)]
        return float(np.mean(between) - np.mean(within)) if between and within else math.nan

    def interval(self, seed: int = 0) -> tuple[float, float]:
        """Return a 95 % bootstrap interval of the difference, over chains."""
        rng, runs = np.random.default_rng(seed), len(self.accuracy)
        differences = [self.difference(rng.integers(runs, size=runs)) for _ in range(RESAMPLES)]
        low, high = np.nanquantile(differences, (0.025, 0.975))
        return float(low), float(high)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        means, (low, high) = {name: np.mean(values) for name, values in self.pairs.items()}, self.interval()
        sentence = (
            f"D = {means['independent chains']:.3f} between {len(self.accuracy)} chains and "
            f"{means['cycles of one chain']:.3f} between cycles of one chain; difference {self.difference():.3f} "
            f"({low:.3f} to {high:.3f}, bootstrap over chains)"
        )
        return (Verdict("independent chains are more diverse than cycles of one chain", low > 0, sentence),)

    def to_json(self) -> dict[str, Any]:
        facts = {"pairs": self.pairs, "accuracy": self.accuracy, "difference": self.difference()}
        return plain_json({**facts, "interval": self.interval(), "verdicts": self.verdicts})

    def frame(self) -> pd.DataFrame:
        """Return one row for each pair: group and D."""
        rows = [(name, value) for name, values in self.pairs.items() for value in values]
        return pd.DataFrame(rows, columns=["pairs", "diversity"])


def chains_of(ensemble: Ensemble, found: Similarity, chains: int, cycles: int) -> Chains:
    """Return the record of an ensemble with one sample for each chain and cycle."""
    origins = ensemble.manifest.rows(ensemble.members)
    places = [[i for i, origin in enumerate(origins) if origin == chain] for chain in range(chains)]  # in time order
    order = [i for chain in places for i in chain[:cycles]]
    one_way = found.diversity[np.ix_(order, order)]
    both = (one_way + one_way.T) / 2
    shape = (chains, cycles)
    return Chains(both.reshape(*shape, *shape), found.accuracy[order].reshape(shape))
