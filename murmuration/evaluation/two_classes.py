"""Two classes: the rarer one against the other, its ROC and precision-recall curves, and the costs of a threshold."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murmuration.evaluation.metrics import MEASURES, ExampleScores, Score
from murmuration.evaluation.metrics.per_example import Columns

if TYPE_CHECKING:
    from murmuration.evaluation.record import Evaluation

RATIOS = (1.0, 5.0, 20.0)  # cost of a missed example of the rarer class over that of a false alarm
THRESHOLDS = 200  # of a cost curve


@dataclass(frozen=True, eq=False)
class RareClass:
    """The rarer of two classes on N evaluated examples.

    Attributes:
        name: Name of the class.
        probs: Its predicted probabilities (N,).
        labels: Whether the examples are of the class (N,).
    """

    name: str
    probs: np.ndarray
    labels: np.ndarray

    @property
    def share(self) -> float:
        """The fraction of the examples that are of the class, which is the precision of chance."""
        return float(self.labels.mean())


@dataclass(frozen=True, eq=False)
class ThresholdCosts:
    """Mean cost of an example by threshold, over that of the cheaper constant decision.

    Attributes:
        ratio: Cost of a missed example of the class over that of a false alarm.
        thresholds: Probabilities (T,) from which an example is said to be of the class.
        costs: Cost (T,) at each, as a fraction of the cheaper of "always" and "never".
    """

    ratio: float
    thresholds: np.ndarray
    costs: np.ndarray

    @property
    def calibrated(self) -> float:
        """The threshold that is best for calibrated probabilities: where both mistakes cost the same on average."""
        return 1 / (1 + self.ratio)

    def cost_at(self, threshold: float) -> float:
        """Return the cost at the nearest threshold."""
        return float(self.costs[np.abs(self.thresholds - threshold).argmin()])


def has_two_classes(evaluation: "Evaluation") -> bool:
    """Return whether there are two classes, with examples of both."""
    columns = evaluation.examples.columns
    return "positive_prob" in columns and 0 < int((columns["label"] == 1).sum()) < len(columns["label"])


def rarer_class(evaluation: "Evaluation") -> RareClass:
    """Return the class with fewer training examples; the second of equal ones.

    Args:
        evaluation: A classification of two classes.
    """
    columns, counts = evaluation.examples.columns, evaluation.baseline.counts
    if counts[0] < counts[1]:
        return RareClass(evaluation.classes[0], 1 - columns["positive_prob"], columns["label"] == 0)
    return RareClass(evaluation.classes[1], columns["positive_prob"], columns["label"] == 1)


def average_precision(evaluation: "Evaluation") -> Score:
    """Return the average precision of the rarer class."""
    rare, columns = rarer_class(evaluation), evaluation.examples.columns
    turned: Columns = {"positive_prob": rare.probs, "label": rare.labels.astype(int), "log_prob": columns["log_prob"]}
    name = "average_precision"
    scores = ExampleScores("classification", turned, np.ones((1, 1)))
    return scores.scores(measures={name: MEASURES["classification"][name]})[name]


def counts_by_threshold(probs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return distinct probabilities (T,), falling, and how many of the class and of the other reach each of them."""
    values, place = np.unique(probs, return_inverse=True)
    right = np.bincount(place, weights=labels, minlength=len(values))[::-1]
    total = np.bincount(place, minlength=len(values))[::-1]
    return values[::-1], np.cumsum(right), np.cumsum(total - right)


def roc_curve(rare: RareClass) -> tuple[np.ndarray, np.ndarray]:
    """Return false and true positive rates (T + 1,), from (0, 0) to (1, 1)."""
    _, right, wrong = counts_by_threshold(rare.probs, rare.labels)
    return np.concatenate([[0.0], wrong / wrong[-1]]), np.concatenate([[0.0], right / right[-1]])


def precision_recall_curve(rare: RareClass) -> tuple[np.ndarray, np.ndarray]:
    """Return recall and precision (T,) by falling threshold."""
    _, right, wrong = counts_by_threshold(rare.probs, rare.labels)
    return right / right[-1], right / (right + wrong)


def threshold_costs(rare: RareClass, ratio: float) -> ThresholdCosts:
    """Return the costs of thresholds for one ratio of the costs of both mistakes.

    Args:
        rare: Probabilities and labels of the class.
        ratio: Cost of a missed example over that of a false alarm.
    """
    thresholds = np.arange(THRESHOLDS + 1) / THRESHOLDS
    inside, outside = (np.sort(rare.probs[mask]) for mask in (rare.labels, ~rare.labels))
    missed = np.searchsorted(inside, thresholds, "left")  # below the threshold
    alarms = len(outside) - np.searchsorted(outside, thresholds, "left")
    return ThresholdCosts(ratio, thresholds, (ratio * missed + alarms) / min(ratio * len(inside), len(outside)))
