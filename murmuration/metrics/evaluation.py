"""An evaluation: the columns of all inputs, gathered in chunks, and the scores with their intervals."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from murmuration.errors import Misuse
from murmuration.metrics.intervals import (
    Feature,
    bootstrap_means,
    group_of,
    group_sums,
    percentile_interval,
    wilson,
)
from murmuration.metrics.per_example import Columns, columns
from murmuration.metrics.scores import SCORES, Measure, Task
from murmuration.predictive import Predictive

ELEMENTS = 2**21  # of (S, N, K) unfolded at once: 16 MB


class Score(float):
    """A number that knows its 95 % interval. It is a float first: it adds, compares and is written as one.

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


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What a predictive is worth on N examples: one value per input and column, without the predictions."""

    task: Task
    columns: Columns  # see `columns`
    agreement: np.ndarray  # (S, S) share of inputs two members classify alike; regression: correlation of means

    def __repr__(self) -> str:
        return f"Evaluation(task={self.task!r}, inputs={self.inputs}, members={len(self.agreement)})"

    @property
    def inputs(self) -> int:
        return len(self.columns["log_prob"])

    @staticmethod
    def from_chunks(chunks: Iterable[tuple[Predictive, Any]]) -> "Evaluation":
        """The evaluation of pairs (predictive, y) that come one after another and are not kept."""
        tables: list[Columns] = []
        sums: Tensor | None = None
        origin: Tensor | None = None
        for pred, y in chunks:
            tables.append(columns(pred, y))
            origin = member_origin(pred) if origin is None else origin
            part = agreement_sums(pred, origin)
            sums = torch.zeros_like(part) if sums is None else sums
            if part.shape != sums.shape:
                raise Misuse(
                    f"a chunk has {len(pred.outputs)} members or a task unlike the first: expected one ensemble"
                )
            sums = sums + part
        if sums is None:
            raise Misuse("no predictions to evaluate: expected at least one (predictive, y)")
        joined = {name: np.concatenate([t.pop(name) for t in tables], axis=-1) for name in list(tables[0])}
        inputs = len(joined["log_prob"])
        return Evaluation(cast(Task, pred.task), joined, agreement_of(sums, inputs, pred.task))

    def scores(self, *, seed: int = 0, resamples: int = 1000) -> dict[str, Score]:
        """All scores of the task by name, each with its 95 % interval.

        A proportion gets the Wilson interval; all others the percentile bootstrap over inputs (over 10,000
        random groups of inputs when there are more). Bins of calibration errors stay where the full sample
        put them.
        """
        groups, measures = group_of(self.inputs, seed), SCORES[self.task]
        features = [measure.features(self.columns) for measure in measures.values()]
        sums = [group_sums(each, groups) for each in features]
        sizes = np.bincount(groups).astype(float)
        drawn = bootstrap_means(np.concatenate(sums, axis=1), sizes, resamples=resamples, seed=seed)
        parts = np.split(drawn, np.cumsum([part.shape[1] for part in sums])[:-1], axis=1)
        return {
            name: scored(measure, each, part)
            for (name, measure), each, part in zip(measures.items(), features, parts, strict=True)
        }


def scored(measure: Measure, features: list[Feature], resampled: np.ndarray) -> Score:
    """The score of features of all inputs, with the interval that the resampled means (B, F) give."""
    statistic = float(measure.combine(overall_means(features)))
    values = features[0].values
    if measure.proportion and ((values == 0) | (values == 1)).all():  # not so with several targets
        inputs = len(values)
        low, high = (float(end) for end in wilson(np.array(statistic * inputs), np.array(inputs)))
    else:
        low, high = percentile_interval(statistic, measure.combine(resampled))
    value, low, high = (float(measure.finish(np.array(end))) for end in (statistic, low, high))
    return Score(value, *np.clip([low, high], *measure.bounds))


def overall_means(features: list[Feature]) -> np.ndarray:
    """The means (F,) of the features over all inputs."""
    inputs = len(features[0].values)
    return group_sums(features, np.zeros(inputs, dtype=np.int64))[0] / inputs


def evaluate(pred: Predictive, y: Any) -> Evaluation:
    """The evaluation of a predictive on targets y, (N,) labels or (N, K) numbers."""
    return Evaluation.from_chunks(split(pred, y))


def split(pred: Predictive, y: Any) -> Iterator[tuple[Predictive, Tensor]]:
    """Pairs (predictive, y) of as many inputs as are worth unfolding at once."""
    targets = pred.labels(y) if pred.task == "classification" else pred.targets(y)
    members, _, width = pred.outputs.shape
    size = max(1, ELEMENTS // (members * width))
    yield from zip(pred.batches(size), targets.split(size), strict=True)


def score(pred: Predictive, y: Any, *, seed: int = 0, resamples: int = 1000) -> dict[str, Score]:
    """The scores of a predictive on targets y by name: floats that know their 95 % interval.

    >>> pred = Predictive.from_probs([[0.7, 0.3], [0.4, 0.6], [0.9, 0.1]])
    >>> float(score(pred, [0, 1, 1])["brier"]) * 3  # 0.18 + 0.32 + 1.62
    2.12
    """
    return evaluate(pred, y).scores(seed=seed, resamples=resamples)


def member_origin(pred: Predictive) -> Tensor | None:
    """A point (K,) near the members' means, to subtract before squares are summed; classes need none."""
    return None if pred.task == "classification" else pred.mean.mean(0)


def agreement_sums(pred: Predictive, origin: Tensor | None) -> Tensor:
    """Sums over inputs, to be added chunk by chunk, from which the agreement of members follows.

    Classification: the number (S, S) of inputs two members classify alike. Regression: for each target the
    products (K, S + 1, S + 1) of members' means, with a last member that always says one.
    """
    with torch.no_grad():
        if origin is None:
            votes = pred.probs.argmax(-1)  # (S, N)
            hot = torch.nn.functional.one_hot(votes, pred.outputs.shape[-1]).flatten(1).double()
            return hot @ hot.T
        means = (pred.member_mean - origin).permute(2, 0, 1)  # (K, S, N)
        rows = torch.cat([means, torch.ones_like(means[:, :1])], dim=1)
        return rows @ rows.mT


def agreement_of(sums: Tensor, inputs: int, task: str) -> np.ndarray:
    """The agreement (S, S) that summed products stand for; NaN where a regression member never varies."""
    products = sums.cpu().numpy() / inputs
    if task == "classification":
        return products
    mean = products[:, :-1, -1]  # (K, S)
    covariance = products[:, :-1, :-1] - mean[:, :, None] * mean[:, None, :]
    std = np.sqrt(np.einsum("kss->ks", covariance).clip(min=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (covariance / (std[:, :, None] * std[:, None, :])).mean(0)
