"""Scores in a table of corruptions by severities, with intervals that resampling the examples gives.

All cells are of the same examples, so they are not independent: each drawn example brings all its corrupted versions
along.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.metrics import Evaluation, Measure, Score
from murmuration.metrics.intervals import bootstrap_means, group_sums, percentile_interval, wilson

RESAMPLES = 1000


@dataclass(frozen=True, eq=False)
class Table:
    """Sums of features of every cell, from which the scores of cells and of means of cells follow."""

    shape: tuple[int, int]  # corruptions by severities, (T, V)
    measures: Mapping[str, Measure]
    groups: np.ndarray  # (N,) group of each example
    cells: Sequence[Mapping[str, np.ndarray]]  # T * V of them: measure -> sums (G, F) over groups

    def grid(self, name: str, *, together: bool = False) -> "Grid":
        """One score in every cell, and in every cell of every resample of the examples.

        With `together` the corruptions of a severity are one cell: their features are averaged before they are scored.
        """
        measure, sums = self.measures[name], np.stack([cell[name] for cell in self.cells], axis=1)
        sums = sums.reshape(len(sums), *self.shape, -1)  # (G, T, V, F)
        sums = sums.mean(1, keepdims=True) if together else sums
        flat, sizes = sums.reshape(len(sums), -1), np.bincount(self.groups).astype(float)
        drawn = bootstrap_means(flat, sizes, resamples=RESAMPLES, seed=0).reshape(RESAMPLES, *sums.shape[1:])
        means = sums.sum(0) / len(self.groups)
        values, resampled = (measure.finish(measure.combine(each)) for each in (means, drawn))
        counted = measure.proportion and bool((sums == sums.round()).all())  # not so with several targets
        return Grid(measure, values, resampled, len(self.groups) if counted else None)

    def mean_sums(self, name: str) -> np.ndarray:
        """The sums (G, F) of one score's features, averaged over the cells."""
        return np.mean([cell[name] for cell in self.cells], axis=0)


@dataclass(frozen=True, eq=False)
class Grid:
    """One score in every cell."""

    measure: Measure
    values: np.ndarray  # (T, V)
    drawn: np.ndarray  # (B, T, V)
    counted: int | None = None  # examples of a cell, where the score is the share of them that have a property

    def mean(self, *cells: Any) -> Score:
        """The mean of the score over some cells, all of them if none are named, with its 95 % interval.

        The share in a single cell gets Wilson's, as everywhere: resampling examples that are all right shows no doubt.
        """
        value = float(self.values[cells].mean())
        if self.counted is not None and self.values[cells].size == 1:
            trials = np.array(self.counted)
            return Score(value, *(float(end) for end in wilson(value * trials, trials)))
        drawn = self.drawn[(slice(None), *cells)]
        low, high = percentile_interval(value, drawn.reshape(len(drawn), -1).mean(1))
        return Score(value, *np.clip([low, high], *self.measure.bounds))


def sums_of(evaluation: Evaluation, measures: Mapping[str, Measure], groups: np.ndarray) -> dict[str, np.ndarray]:
    """For each measure the sums (G, F) of its features over groups of examples."""
    return {name: group_sums(each.features(evaluation.columns), groups) for name, each in measures.items()}
