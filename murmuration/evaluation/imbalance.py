"""Evaluation by frequency of the training classes: many-, medium- and few-shot classes, and scores by class alike.

Classes are imbalanced if the largest has at least three times the training examples of the smallest.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from murmuration.evaluation.by_class import fraction
from murmuration.evaluation.coverage import mean_score
from murmuration.evaluation.metrics import ExampleScores, Score
from murmuration.evaluation.metrics.imbalance import class_accuracy, macro_auroc, macro_average_precision, macro_f1
from murmuration.evaluation.metrics.scores import measure_of
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc import PostHoc
from murmuration.prediction.predictive import Predictive

IMBALANCED = 3.0  # largest over smallest class from which classes count as imbalanced
MANY, FEW = 100, 20  # training examples: more than MANY, fewer than FEW, and medium between (Liu et al. 2019)
UNIT = (0.0, 1.0)
EPISTEMIC = "mutual_information"


@dataclass(frozen=True)
class FrequencyGroup:
    """Classes of similar frequency in training, and the scores of their test examples."""

    name: str  # many, medium or few
    classes: int
    training: tuple[int, int]  # fewest and most training examples of a class
    examples: int  # to evaluate on
    scores: dict[str, Score]  # accuracy (mean over classes), mutual_information, coverage_ and size_ of conformal sets

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.name,
            "classes": self.classes,
            "training": self.training,
            "examples": self.examples,
        } | dict(self.scores)


@dataclass(frozen=True)
class ClassImbalance:
    """Scores by frequency of the training classes."""

    counts: tuple[int, ...]  # training examples of each class
    scores: dict[str, Score]  # class_accuracy, macro_f1, macro_auroc, macro_average_precision
    groups: tuple[FrequencyGroup, ...]  # without empty ones

    @property
    def factor(self) -> float:
        """Training examples of the largest class over those of the smallest."""
        return max(self.counts) / max(min(self.counts), 1)

    def to_json(self) -> dict[str, Any]:
        return {"factor": self.factor, "counts": self.counts, "scores": self.scores, "groups": self.groups}


@dataclass
class MeanProbabilities:
    """The mean class probabilities of predictions that come one after another, after a calibrator if there is one."""

    posthoc: PostHoc | None
    parts: list[np.ndarray] = field(default_factory=list)

    def kept(self, chunks: Iterable[tuple[Predictive, Any]]) -> Iterator[tuple[Predictive, Any]]:
        """Yield the pairs (predictive, y), whose mean probabilities are kept on the way."""
        for pred, y in chunks:
            final = pred if self.posthoc is None else self.posthoc.calibrated(pred)
            self.parts.append(final.mean.float().cpu().numpy())
            yield pred, y

    @property
    def joined(self) -> np.ndarray:
        """The probabilities (N, K) of all."""
        return np.concatenate(self.parts)


def training_counts(ensemble: Ensemble) -> tuple[int, ...] | None:
    """Return the training examples of each class, if they are known and imbalanced."""
    counts = ensemble.manifest.get("data", {}).get("class_counts")
    return tuple(counts) if counts and max(counts) >= IMBALANCED * max(min(counts), 1) else None


def shot_groups(counts: Sequence[int]) -> dict[str, np.ndarray]:
    """Return the classes with many, medium and few training examples.

    >>> {name: classes.tolist() for name, classes in shot_groups([500, 100, 20, 19, 3]).items()}
    {'many': [0], 'medium': [1, 2], 'few': [3, 4]}
    """
    sizes = np.asarray(counts)
    masks = {"many": sizes > MANY, "medium": (sizes >= FEW) & (sizes <= MANY), "few": sizes < FEW}
    return {name: np.flatnonzero(mask) for name, mask in masks.items()}


def class_imbalance(counts: tuple[int, ...], examples: ExampleScores, probs: np.ndarray) -> ClassImbalance:
    """Return the scores by class frequency of predictions with mean probabilities (N, K)."""
    columns = examples.columns
    label, correct = columns["label"], columns["correct"].astype(float)
    groups = []
    for name, classes in shot_groups(counts).items():
        rows = np.flatnonzero(np.isin(label, classes))
        if len(rows):
            sizes = [counts[k] for k in classes]
            scores = {"accuracy": accuracy_of(correct, label, classes), **means_of(columns, rows)}
            groups.append(FrequencyGroup(name, len(classes), (min(sizes), max(sizes)), len(rows), scores))
    values = {
        "macro_f1": macro_f1(label, columns["predicted"]),
        "macro_auroc": macro_auroc(label, probs),
        "macro_average_precision": macro_average_precision(label, probs),
    }
    scores = {"class_accuracy": accuracy_of(correct, label, np.arange(len(counts)))}
    scores |= {name: mean_score(column, UNIT) for name, column in values.items()}
    return ClassImbalance(counts, scores, tuple(groups))


def accuracy_of(correct: np.ndarray, label: np.ndarray, classes: np.ndarray) -> Score:
    """Return the mean accuracy of these classes, by Wilson's interval where all examples or none are right."""
    rows = np.isin(label, classes)
    right = correct[rows].sum()
    if right in (0, rows.sum()):
        return fraction(int(right), int(rows.sum()))
    return mean_score(class_accuracy(correct, label, classes), UNIT)


def means_of(columns: Any, rows: np.ndarray) -> dict[str, Score]:
    """Epistemic uncertainty, and coverage and size of the sets of every conformal rule, on some examples."""
    means = {EPISTEMIC: mean_score(columns[EPISTEMIC][rows], measure_of(EPISTEMIC, "classification").bounds)}
    for method in (name.removeprefix("covered_") for name in columns if name.startswith("covered_")):
        means[f"coverage_{method}"] = mean_score(columns[f"covered_{method}"][rows], proportion=True)
        means[f"size_{method}"] = mean_score(columns[f"size_{method}"][rows], (0.0, np.inf))
    return means
