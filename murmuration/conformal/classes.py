"""Sets of classes: what each class scores for an input, and the rule that keeps the classes of low scores."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from murmuration.conformal.threshold import (
    check_examples,
    check_level,
    check_numbers,
    shortage,
    threshold_of,
)
from murmuration.conformal.written import to_record
from murmuration.errors import Misuse, unknown
from murmuration.predictive import Predictive
from murmuration.streams import EVERYONE, stream_seed

PENALTY = 0.01  # of raps, for each rank beyond the start: the value Angelopoulos et al. 2021 fix for ImageNet
START = 5  # the last rank that raps does not penalise, or the last but one where there are few classes
CALIBRATION, PREDICTION = 0, 1  # moments of the stream: examples kept aside and new inputs never share a draw

SET_METHODS = {
    "lac": "classes of high probability: the smallest sets on average (Sadinle et al. 2019)",
    "aps": "the most probable classes until their sum is large: larger sets where it is hard (Romano et al. 2020)",
    "raps": "aps with a penalty on low ranks: no very large sets (Angelopoulos et al. 2021)",
}


@dataclass(frozen=True)
class SetRule:
    """The classes whose score is at most the threshold.

    `randomised` concerns aps and raps: their class on the edge is in by chance, which makes the coverage
    exact. Without chance it is always in, so the sets contain the randomised ones and cover more.
    `never_empty` puts the most probable class into a set that would have none; coverage only grows.
    Change either with `dataclasses.replace(rule, randomised=False)`.
    """

    method: str
    level: float
    threshold: float
    examples: int  # the threshold was chosen on
    classes: int
    seed: int = 0  # of the chance at the edge
    penalty: float = 0.0  # 0 for lac and aps
    start: int = 0
    randomised: bool = True
    never_empty: bool = True

    def __post_init__(self) -> None:
        if self.method not in SET_METHODS:
            raise unknown("classification method", self.method, SET_METHODS)
        check_level(self.level)
        check_examples(self.examples)
        if not 0 <= self.penalty < np.inf or self.start < 0:
            raise Misuse(f"penalty {self.penalty:g} from rank {self.start}: expected both 0 or more")

    @property
    def about(self) -> str:
        """One line: the method, and what to know if there were too few examples."""
        return SET_METHODS[self.method] + shortage(self.examples, self.level)

    def sets(self, pred: Predictive, *, first: int = 0) -> np.ndarray:
        """Which classes (N, K) are in the set of each input.

        `first` is the place of the first input in its data: batches that say it get the chance, and so
        the sets, that the whole data would.
        """
        probs = mean_probs(pred)  # (N, K)
        if probs.shape[1] != self.classes:
            raise Misuse(f"predictions for {probs.shape[1]} classes: this rule was fitted for {self.classes}")
        draws = uniforms(self.seed, PREDICTION, first, len(probs)) if self.randomised else np.ones(len(probs))
        inside = self.scores(probs, draws) <= self.threshold
        if self.never_empty:
            inside[np.arange(len(probs)), probs.argmax(1)] |= ~inside.any(1)
        return inside

    def scores(self, probs: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """How far out each class is (N, K), from probabilities (N, K) and a draw from [0, 1) for each input."""
        if self.method == "lac":
            return 1 - probs
        return ranked_scores(probs, draws, penalty=self.penalty, start=self.start)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "sets", **to_record(self)}


def fit_sets(rule: SetRule, pred: Predictive, y: Any) -> SetRule:
    """The rule with the threshold of these predictions and labels."""
    labels, probs = pred.labels(y).cpu().numpy(), mean_probs(pred)
    scores = rule.scores(probs, uniforms(rule.seed, CALIBRATION, 0, len(probs)))
    of_label = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    return replace(rule, threshold=float(threshold_of(of_label, rule.level)), examples=len(labels))


def ranked_scores(probs: np.ndarray, draws: np.ndarray, *, penalty: float, start: int) -> np.ndarray:
    """The scores (N, K) of aps and raps, from probabilities (N, K) and draws (N,).

    The sum of the probabilities down to the class, less draw times its own, plus penalty times how many
    ranks the class lies beyond `start`. Equal probabilities rank by the number of the class.

    >>> ranked_scores(np.array([[0.2, 0.7, 0.1]]), np.zeros(1), penalty=0.5, start=2).round(6).tolist()
    [[0.9, 0.7, 1.5]]
    """
    order = np.argsort(-probs, axis=1, kind="stable")
    ranked = np.take_along_axis(probs, order, axis=1)
    beyond = np.maximum(np.arange(1, probs.shape[1] + 1) - start, 0)
    scores = np.empty_like(probs)
    np.put_along_axis(scores, order, ranked.cumsum(1) - draws[:, None] * ranked + penalty * beyond, axis=1)
    return scores


def uniforms(seed: int, moment: int, first: int, count: int) -> np.ndarray:
    """One number (count,) in [0, 1) for each input from place `first` on: it follows from seed and place alone.

    A counter-based generator (Philox) jumps to any place; it makes four numbers at a time.
    """
    words = np.random.Philox(stream_seed(seed, "noise", EVERYONE, moment)).advance(first // 4)
    return np.random.Generator(words).random(first % 4 + count)[first % 4 :]


def mean_probs(pred: Predictive) -> np.ndarray:
    """The mean probabilities (N, K) of the members, checked to be numbers."""
    if pred.task != "classification":
        raise Misuse("sets of classes belong to classification, and this is a regression: ask for intervals")
    with torch.no_grad():
        return check_numbers(pred.mean.cpu().numpy(), "the mean probability")
