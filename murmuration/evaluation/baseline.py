"""The no-input baseline: what predictions that ignore the input score on the same examples.

Classification: the class frequencies of the training split. Regression: a Gaussian with the mean and the standard
deviation of its targets. A model whose scores are not better has learned nothing that its inputs tell.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murmuration.evaluation.metrics import ExampleScores, Score
from murmuration.evaluation.metrics.comparison import paired_interval
from murmuration.likelihoods import CLASSIFICATION, REGRESSION
from murmuration.prediction.predictive import Predictive
from murmuration.runs.directory import target_moments

if TYPE_CHECKING:
    from murmuration.evaluation.record import Evaluation

COMMON = 0.8  # share of a class from which its frequency is as good as always saying it
ROWS = 8192  # predicted at once
IMBALANCED = 5.0  # largest over smallest class from which accuracy says little
PROPER = {CLASSIFICATION: ("nll", "brier"), REGRESSION: ("crps", "nll")}  # scores that decide, the first before others
TRAINING, EVALUATED = "training", "evaluated"  # examples that the baseline knows


@dataclass(frozen=True, eq=False)
class BaselineScores:
    """Predictions without input, scored on the evaluated examples.

    Attributes:
        name: What it predicts, such as "always 'no'".
        source: Examples whose targets it knows: "training", or "evaluated" where no training targets are stored.
        counts: Examples of each class in the source; empty for a regression.
        examples: Its score of every evaluated example.
        differences: Model minus baseline in proper scores, all of which are better when lower, with paired intervals.
    """

    name: str
    source: str
    counts: tuple[int, ...]
    examples: ExampleScores
    differences: dict[str, Score]

    @cached_property
    def scores(self) -> dict[str, Score]:
        """The scores of the baseline, with intervals."""
        return self.examples.scores()

    @property
    def beaten(self) -> tuple[str, ...]:
        """The scores in which the model is better by more than the noise of the examples."""
        return tuple(name for name, difference in self.differences.items() if difference.high < 0)

    @property
    def is_beaten(self) -> bool:
        """Whether the model is better than predictions without input, by the score that decides."""
        return next(iter(self.differences)) in self.beaten

    @property
    def imbalance(self) -> float:
        """Examples of the largest class over those of the smallest that has some; 1 for a regression."""
        present = [count for count in self.counts if count]
        return max(present) / min(present) if present else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return the record in `metrics.json`."""
        about = {"name": self.name, "source": self.source, "counts": self.counts or None}
        return {**about, "metrics": self.scores, "differences": self.differences, "beaten": self.is_beaten}


def baseline_of(evaluation: "Evaluation") -> BaselineScores:
    """Score predictions without input on the examples of an evaluation.

    Args:
        evaluation: The evaluation of a classification or regression.

    Returns:
        The baseline. Where the training targets are unknown, as for predictions in a file, it knows the frequencies, or
        mean and standard deviation, of the evaluated targets themselves.
    """
    columns, data, train = evaluation.examples.columns, evaluation.manifest.data, evaluation.eval_set.train
    source, counts, moments = TRAINING, data.get("class_counts"), data.get("target_moments")
    if evaluation.classes:
        if not counts or len(counts) != len(evaluation.classes):
            source = EVALUATED if train is None else TRAINING
            labels = columns["label"] if train is None else train.y.numpy()
            counts = np.bincount(labels, minlength=len(evaluation.classes)).tolist()
        largest = int(np.argmax(counts))
        is_common = counts[largest] >= COMMON * sum(counts)
        name = f"always '{evaluation.classes[largest]}'" if is_common else "the class frequencies"
        prediction = Predictive.from_probs(np.asarray(counts, dtype=float)[None] / sum(counts))
        targets: np.ndarray = columns["label"]
    else:
        targets = columns["target"].T if columns["target"].ndim > 1 else columns["target"][:, None]  # (N, K)
        if not moments:
            source = EVALUATED if train is None else TRAINING
            moments = target_moments(targets if train is None else train.y.numpy())
        name, counts = "the mean target", ()
        mean, std = (np.asarray(moment)[None, None] for moment in moments)  # (1, 1, K)
        prediction = Predictive.from_moments(mean, std)

    def chunks() -> Iterator[tuple[Predictive, Any]]:
        for start in range(0, len(targets), ROWS):
            y = torch.from_numpy(targets[start : start + ROWS])
            yield prediction.at(torch.zeros(len(y), dtype=torch.long)), y

    examples = ExampleScores.from_chunks(chunks())
    scored = [n for n in PROPER[evaluation.task] if n != "crps" or "crps" in evaluation.examples.columns]
    differences = {score: paired_interval(evaluation.examples, examples, score) for score in scored}
    return BaselineScores(name, source, tuple(counts), examples, differences)
