"""Per-example scores of predictions, accumulated in chunks, and the scores with their intervals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

import murmuration.evaluation.metrics.intervals as intervals
from murmuration.evaluation.metrics.per_example import Columns, columns
from murmuration.evaluation.metrics.scores import MEASURES, Measure, Task
from murmuration.likelihoods import REGRESSION, Likelihood
from murmuration.prediction.checks import inputs_at_once
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse, described
from murmuration.system.progress import html_table
from murmuration.system.workers import parallel_map


class Score(float):
    """A number that knows its 95 % interval. It is a float first: it adds, compares and is written as one.

    Args:
        value: The score.
        low: Lower end of the interval.
        high: Upper end of the interval.

    >>> accuracy = Score(0.91, 0.90, 0.92)
    >>> accuracy > 0.9, accuracy.low
    (True, 0.9)
    >>> accuracy
    0.91 [0.9, 0.92]
    >>> print(accuracy)
    0.91
    """

    low: float
    high: float

    def __new__(cls, value: float, low: float, high: float) -> "Score":
        score = super().__new__(cls, value)
        score.low, score.high = float(low), float(high)
        return score

    def __getnewargs__(self) -> tuple[float, float, float]:  # type: ignore[override]
        return float(self), self.low, self.high

    def __repr__(self) -> str:
        return f"{float(self):.4g} [{self.low:.4g}, {self.high:.4g}]"

    def __str__(self) -> str:  # what files and tables get; without it, str would be the line above
        return float.__repr__(self)

    def to_json(self) -> dict[str, float]:
        return {"value": float(self), "low": self.low, "high": self.high}


class Scores(dict[str, Score]):
    """Scores by name; a dict that prints as a table.

    >>> Scores(accuracy=Score(0.9, 0.8, 0.95))
    score     value  95 % interval
    accuracy    0.9    0.8 to 0.95
    """

    def __repr__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows)

    def _repr_html_(self) -> str:
        rows = {name: f"{value} ({ends})" if ends else value for name, value, ends in self._rows()[1:]}
        return html_table("score (95 % interval)", rows)

    def _rows(self) -> list[tuple[str, str, str]]:
        """Return the cells of the table, the heads of its columns first."""
        rows = [
            (name, f"{s:.3g}", f"{s.low:.3g} to {s.high:.3g}" if isfinite(s.low) else "") for name, s in self.items()
        ]
        return [("score", "value", "95 % interval"), *rows]


@dataclass(frozen=True, eq=False, repr=False)
class ExampleScores:
    """Per-example scores and uncertainties of predictions on N labelled examples; the predictions are not kept.

    Attributes:
        task: Task of the predictions.
        columns: One array (..., N) per score and uncertainty, by name.
        agreement: (S, S) fraction of inputs that two members classify alike; regression: correlation of means.
    """

    task: Task
    columns: Columns  # see `columns`
    agreement: np.ndarray  # (S, S) fraction of inputs two members classify alike; regression: correlation of means

    def __repr__(self) -> str:
        return f"ExampleScores(task={self.task!r}, inputs={self.inputs}, members={len(self.agreement)})"

    @property
    def inputs(self) -> int:
        return len(self.columns["log_prob"])

    @staticmethod
    def from_chunks(chunks: Iterable[tuple[Predictive, Any]]) -> "ExampleScores":
        """Return the scores of predictions that are not kept.

        Args:
            chunks: Pairs (predictive, y), one after another.
        """
        gathered = ScoreAccumulator()
        for pred, y in chunks:
            gathered.add(pred, y)
            del pred, y  # before the next is made
        return gathered.result()

    @staticmethod
    def joined(parts: Sequence["ExampleScores"]) -> "ExampleScores":
        """Return the inputs of all parts, one after another; the agreement of a regression is then NaN.

        Args:
            parts: Scores of the same task.
        """
        first, sizes = parts[0], [part.inputs for part in parts]
        columns = {name: np.concatenate([p.columns[name] for p in parts], axis=-1) for name in first.columns}
        agreement = np.average([part.agreement for part in parts], axis=0, weights=sizes)
        defined = first.task != REGRESSION or len(parts) == 1
        return ExampleScores(first.task, columns, agreement if defined else np.full_like(agreement, np.nan))

    def select(self, rows: Any) -> "ExampleScores":
        """Return the scores of some inputs alone.

        Which members agree on them is not stored: the agreement is NaN, of the same shape.

        Args:
            rows: Indices, or a mask (N,).
        """
        columns = {name: values[..., rows] for name, values in self.columns.items()}
        return ExampleScores(self.task, columns, np.full_like(self.agreement, np.nan))

    def scores(
        self, *, seed: int = 0, resamples: int = 1000, measures: Mapping[str, Measure] | None = None
    ) -> dict[str, Score]:
        """Compute the scores with their 95 % intervals.

        A proportion gets the Wilson interval, an AUROC that of DeLong, an ECE or MCE that of an inverted test, without
        its bias; all others the percentile bootstrap over inputs (over 10,000 random groups if there are more). Bins of
        calibration errors stay where the full sample put them.

        Args:
            seed: Seed of the resampling.
            resamples: Number of bootstrap resamples.
            measures: The measures to compute; by default all of the task.

        Returns:
            Scores by name. Those that do not exist for these columns are left out: fair ones of a single member, the
            ranking of errors where there are none.
        """
        selected = MEASURES[self.task] if measures is None else measures
        existing = {name: measure for name, measure in selected.items() if measure.exists(self.columns)}
        groups = intervals.group_of(self.inputs, seed)
        sums = [intervals.group_sums(measure.features(self.columns), groups) for measure in existing.values()]
        sizes = np.bincount(groups).astype(float)
        resampled = intervals.bootstrap_means(np.concatenate(sums, axis=1), sizes, resamples=resamples, seed=seed)
        parts = np.split(resampled, np.cumsum([part.shape[1] for part in sums])[:-1], axis=1)
        return {
            name: scored(measure, self.columns, total.sum(0) / self.inputs, part)
            for (name, measure), total, part in zip(existing.items(), sums, parts, strict=True)
        }


class ScoreAccumulator:
    """Collects the columns of inputs chunk by chunk, and the sums that the agreement of members follows from.

    Columns are copied into arrays that double when they are full. Kept as they come, thousands of small arrays
    would lie between the large ones that each chunk needs for a moment, and hold on to the memory of those.
    """

    def __init__(self) -> None:
        self.inputs = 0
        self._kind: tuple[int, Likelihood] | None = None  # members, and what their outputs mean: alike in all chunks
        self._origin: Tensor | None = None
        self._sums: Tensor | float = 0.0
        self._columns: Columns = {}

    def add(self, pred: Predictive, y: Any, more: Columns | None = None) -> None:
        """Add predictions for further inputs, and more columns (..., N) of them."""
        targets, size, start = pred.checked(y), inputs_at_once(pred.outputs), self.inputs
        kind = len(pred.outputs), pred.likelihood
        if self._kind is None:
            self._kind = kind
            if pred.task == REGRESSION:  # a point (K,) near the members' means, subtracted before squares are summed
                self._origin = pred.at(slice(size)).mean.mean(0)
        if kind != self._kind:
            raise Misuse(f"a chunk has {len(pred.outputs)} members or a task unlike the first: expected one ensemble")

        def measured(first: int) -> tuple[Columns, Tensor]:
            part = pred.at(slice(first, first + size))  # made here, so that what it unfolds in memory goes with it
            return columns(part, targets[first : first + size]), agreement_sums(part, self._origin)

        for table, sums in parallel_map(measured, range(0, len(targets), size)):
            self._put(table, self.inputs)
            self._sums = self._sums + sums
            self.inputs += len(table["log_prob"])
        self._put(more or {}, start)

    def result(self) -> ExampleScores:
        """Return the scores of all that was added."""
        if self._kind is None or not isinstance(self._sums, Tensor):
            raise Misuse("no predictions to evaluate: expected at least one (predictive, y)")
        for name in list(self._columns):  # one at a time: no second copy of all
            self._columns[name] = self._columns[name][..., : self.inputs].copy()
        task = cast(Task, self._kind[1].task)
        return ExampleScores(task, dict(self._columns), agreement_of(self._sums, self.inputs, task))

    def _put(self, table: Columns, first: int) -> None:
        for name, values in table.items():
            self._columns[name] = placed(self._columns.get(name), values, first)


def placed(array: np.ndarray | None, values: np.ndarray, first: int) -> np.ndarray:
    """Return the array (..., capacity) with values (..., n) from place `first` on; a longer copy if it was too short.

    >>> placed(placed(None, np.array([1, 2]), 0), np.array([3, 4]), 2)[:4].tolist()
    [1, 2, 3, 4]
    """
    end = first + values.shape[-1]
    if array is None or end > array.shape[-1]:
        longer = np.empty((*values.shape[:-1], max(end, 2 * first)), dtype=values.dtype)
        if array is not None:
            longer[..., :first] = array[..., :first]
        array = longer
    array[..., first:end] = values
    return array


def scored(measure: Measure, columns: Columns, means: np.ndarray, resampled: np.ndarray) -> Score:
    """Return the score of means (F,) of features, with an interval by the columns or by resampled means (B, F)."""
    statistic = float(measure.combine(means))
    measure.check(float(measure.finished(statistic)))
    if measure.interval is not None:
        low, high = measure.interval(columns)
        return Score(statistic, *np.clip([min(low, statistic), max(high, statistic)], *measure.bounds))
    if measure.proportion and np.isin(measure.features(columns)[0].values, (0, 1)).all():  # not so with several targets
        inputs = len(columns["log_prob"])
        low, high = (float(end) for end in intervals.wilson(np.array(statistic * inputs), np.array(inputs)))
    else:
        low, high = intervals.percentile_interval(statistic, measure.combine(resampled))
    value, low, high = (float(measure.finished(end)) for end in (statistic, low, high))
    return Score(value, *np.clip([low, high], *measure.bounds))


def score_examples(pred: Predictive, y: Any) -> ExampleScores:
    """Compute the per-example scores of a predictive.

    Args:
        pred: Predictions of S members for N inputs.
        y: Their targets: class indices (N,), or values or labels (N, K).

    Returns:
        The scores of every example; `scores()` gives their means with intervals.
    """
    return ExampleScores.from_chunks([(pred, y)])


def score(pred: Predictive, y: Any, *, seed: int = 0, resamples: int = 1000) -> Scores:
    """Compute the scores of a predictive on targets, each with its 95 % interval.

    Args:
        pred: Predictions of S members for N inputs.
        y: Their targets: class indices (N,), or values or labels (N, K).
        seed: Seed of the resampling.
        resamples: Number of bootstrap resamples.

    Returns:
        Scores by name, a dict that prints as a table: floats with the attributes `low` and `high`.

    Raises:
        Misuse: If targets do not fit the predictions, or come first.

    >>> pred = Predictive.from_probs([[0.7, 0.3], [0.4, 0.6], [0.9, 0.1]])
    >>> float(score(pred, [0, 1, 1])["brier"]) * 3  # 0.18 + 0.32 + 1.62
    2.12
    """
    if not isinstance(pred, Predictive):
        raise Misuse(f"score got {described(pred)} first: expected predictions; write mm.score(ensemble.predict(x), y)")
    return Scores(score_examples(pred, y).scores(seed=seed, resamples=resamples))


def agreement_sums(pred: Predictive, origin: Tensor | None) -> Tensor:
    """Return sums over inputs, to be added chunk by chunk, from which the agreement of members follows.

    Classification: the number (S, S) of inputs two members classify alike, mean over labels if there are several.
    Regression: for each target the products (K, S + 1, S + 1) of members' means, with a last member that always says
    one.
    """
    with torch.no_grad():
        if origin is None:
            votes = pred.votes if pred.votes.dim() > 2 else pred.votes[..., None]  # (S, N, 1 or K)
            return torch.stack([(votes == own).sum(1).double().mean(-1) for own in votes])
        means = (pred.member_mean - origin).permute(2, 0, 1)  # (K, S, N)
        rows = torch.cat([means, torch.ones_like(means[:, :1])], dim=1)
        return rows @ rows.mT


def agreement_of(sums: Tensor, inputs: int, task: str) -> np.ndarray:
    """Return the agreement (S, S) that summed products stand for; NaN where a regression member never varies."""
    products = sums.cpu().numpy() / inputs
    if task != REGRESSION:
        return products
    mean = products[:, :-1, -1]  # (K, S)
    covariance = products[:, :-1, :-1] - mean[:, :, None] * mean[:, None, :]
    std = np.sqrt(np.einsum("kss->ks", covariance).clip(min=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (covariance / (std[:, :, None] * std[:, None, :])).mean(0)
