"""Classification class by class: confusion matrix, precision and recall, uncertainty, and scores by class frequency.

Classes are imbalanced if the largest has at least three times the training examples of the smallest.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from murmuration.evaluation.coverage import UNDEFINED, mean_score
from murmuration.evaluation.metrics import ExampleScores, Score
from murmuration.evaluation.metrics.intervals import wilson
from murmuration.evaluation.metrics.no_input import class_accuracy
from murmuration.evaluation.metrics.per_example import Columns
from murmuration.evaluation.metrics.ranking import placements, precision_influence
from murmuration.evaluation.metrics.scores import POSITIVE, UNIT, measure_of
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc import PostHoc
from murmuration.prediction.predictive import Predictive

UNCERTAINTIES = ("aleatoric", "epistemic", "entropy", "expected_entropy", "mutual_information")
GROUPINGS = {"label": "true", "predicted": "predicted"}  # column -> what its classes are
IMBALANCED = 3.0  # largest over smallest class from which classes count as imbalanced
MANY, FEW = 100, 20  # training examples: more than MANY, fewer than FEW, and medium between (Liu et al. 2019)
EPISTEMIC = "mutual_information"


@dataclass(frozen=True)
class ClassScores:
    """Precision, recall and F1 of one class; NaN where there is nothing to divide by."""

    name: str
    examples: int  # of the class
    predicted: int  # examples that are predicted to be of the class
    precision: Score
    recall: Score
    f1: float

    def to_json(self) -> dict[str, Any]:
        return {"class" if key == "name" else key: value for key, value in vars(self).items()}


@dataclass(frozen=True)
class ClassUncertainty:
    """The examples of one class: accuracy, and mean uncertainty of every kind."""

    name: str
    examples: int
    scores: dict[str, Score]  # accuracy, then UNCERTAINTIES

    def to_json(self) -> dict[str, Any]:
        return {"class": self.name, "examples": self.examples, **self.scores}


def confusion_matrix(scores: ExampleScores, classes: int) -> np.ndarray:
    """Return the number of examples (K, K) by true class (rows) and predicted class (columns)."""
    cells = scores.columns["label"] * classes + scores.columns["predicted"]
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)


def class_scores(matrix: np.ndarray, classes: tuple[str, ...]) -> tuple[ClassScores, ...]:
    """Precision and recall of every class with Wilson's intervals, from a confusion matrix (K, K)."""
    scores = []
    for name, right, true, predicted in zip(classes, matrix.diagonal(), matrix.sum(1), matrix.sum(0), strict=True):
        precision, recall = fraction(right, predicted), fraction(right, true)
        f1 = float(2 * right / (true + predicted)) if true + predicted else np.nan
        scores.append(ClassScores(name, int(true), int(predicted), precision, recall, f1))
    return tuple(scores)


def fraction(count: int, total: int) -> Score:
    """Return count / total with Wilson's interval; NaN for nothing of nothing."""
    return UNDEFINED if not total else Score(count / total, *map(float, wilson(np.array(count), np.array(total))))


def uncertainty_by_class(
    scores: ExampleScores, classes: tuple[str, ...], by: str = "label"
) -> tuple[ClassUncertainty, ...]:
    """Return the uncertainty of every class that has examples, by true class (`label`) or by `predicted` class."""
    parts = []
    for k, name in enumerate(classes):
        rows = np.flatnonzero(scores.columns[by] == k)
        if len(rows):
            means = {"accuracy": mean_score(scores.columns["correct"][rows], proportion=True)}
            means |= {kind: mean_of(scores.columns, kind, rows) for kind in UNCERTAINTIES}
            parts.append(ClassUncertainty(name, len(rows), means))
    return tuple(parts)


def mean_of(columns: Columns, kind: str, rows: np.ndarray) -> Score:
    """Return the mean of one uncertainty over some examples."""
    return mean_score(columns[kind][rows], measure_of(kind, "classification").bounds)


# Class frequencies


@dataclass(frozen=True)
class FrequencyGroup:
    """Classes of similar frequency in training, and the scores of their test examples."""

    name: str  # many, medium or few
    classes: int
    training: tuple[int, int]  # fewest and most training examples of a class
    examples: int  # to evaluate on
    scores: dict[str, Score]  # accuracy (mean over classes), mutual_information, coverage_ and size_ of conformal sets

    def to_json(self) -> dict[str, Any]:
        about = {"group": self.name, "classes": self.classes, "training": self.training, "examples": self.examples}
        return {**about, **self.scores}


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
            final = pred if self.posthoc is None else self.posthoc.widened(self.posthoc.calibrated(pred))
            self.parts.append(final.mean.float().cpu().numpy())
            yield pred, y


def training_counts(ensemble: Ensemble) -> tuple[int, ...] | None:
    """Return the training examples of each class, if they are known and imbalanced."""
    counts = ensemble.manifest.data.get("class_counts")
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
    scores = {
        "class_accuracy": accuracy_of(correct, label, np.arange(len(counts))),
        "macro_f1": mean_score(macro_f1(label, columns["predicted"]), UNIT),
        "macro_auroc": mean_score(macro_auroc(label, probs), UNIT),
        "macro_average_precision": mean_score(macro_average_precision(label, probs), UNIT),
    }
    return ClassImbalance(counts, scores, tuple(groups))


def accuracy_of(correct: np.ndarray, label: np.ndarray, classes: np.ndarray) -> Score:
    """Return the mean accuracy of these classes, by Wilson's interval where all examples or none are right."""
    rows = np.isin(label, classes)
    right, total = int(correct[rows].sum()), int(rows.sum())
    if right in (0, total):
        return fraction(right, total)
    return mean_score(class_accuracy(correct, label, classes), UNIT)


def means_of(columns: Columns, rows: np.ndarray) -> dict[str, Score]:
    """Epistemic uncertainty, and coverage and size of the sets of every conformal rule, on some examples."""
    means = {EPISTEMIC: mean_of(columns, EPISTEMIC, rows)}
    for method in (name.removeprefix("covered_") for name in columns if name.startswith("covered_")):
        means[f"coverage_{method}"] = mean_score(columns[f"covered_{method}"][rows], proportion=True)
        means[f"size_{method}"] = mean_score(columns[f"size_{method}"][rows], POSITIVE)
    return means


# Scores that count every class alike: accuracy, F1, AUROC and average precision, each a mean over classes. Functions
# return a value (N,) per example whose mean is the score, with the same variance: the score plus N times its derivative
# by the weight of the example (the infinitesimal jackknife, Efron 1982), so that intervals need no model of how the
# classes depend on each other. Classes without examples are left out.


def macro_f1(label: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return values (N,) whose mean is the mean over classes of F1 = 2 TP / (predicted + true)."""
    return _mean_over_classes(_f1(label == k, predicted == k) for k in np.unique(label))


def macro_auroc(label: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Return values (N,) with the mean over classes of the one-against-rest AUROC, from probabilities (N, K)."""
    return _mean_over_classes(_auroc(probs[:, k], label == k) for k in np.unique(label))


def macro_average_precision(label: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Return values (N,) whose mean is the mean over classes of the average precision against the rest."""
    classes = {k: (label == k).astype(int) for k in np.unique(label)}
    pairs = ({"positive_prob": probs[:, k], "label": own} for k, own in classes.items())
    return _mean_over_classes(map(precision_influence, pairs))


def _mean_over_classes(parts: Iterable[np.ndarray]) -> np.ndarray:
    influences = list(parts)
    return np.asarray(sum(influences) / len(influences))


def _f1(true: np.ndarray, said: np.ndarray) -> np.ndarray:
    both, either = (true & said).astype(float), true.astype(float) + said
    score = 2 * both.sum() / either.sum()
    return score + len(true) * (2 * both - score * either) / either.sum()


def _auroc(scores: np.ndarray, positive: np.ndarray) -> np.ndarray:
    if positive.all():
        return np.full(len(scores), np.nan)
    place = np.empty(len(scores))  # the fraction of the other kind on the right side
    place[positive] = placements(scores[positive], np.sort(scores[~positive]))
    place[~positive] = 1 - placements(scores[~positive], np.sort(scores[positive]))
    area = place[positive].mean()
    return area + len(scores) * (place - area) / np.where(positive, positive.sum(), (~positive).sum())
