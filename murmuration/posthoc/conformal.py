"""Conformal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.errors import Failure, Misuse, unknown
from murmuration.predictive import Predictive, checked_labels
from murmuration.streams import EVERYONE, stream_seed


def place_of(examples: int, level: float) -> int:
    """The place, counted from one, of the threshold among the sorted scores: ceil((n + 1) level).

    The product is rounded before it is rounded up: 100 * 0.55 is 55.00000000000001 in floating point.
    """
    return math.ceil(round((examples + 1) * level, 9))


def threshold_of(scores: np.ndarray, level: float) -> np.ndarray:
    """The ceil((n + 1) level)-th smallest (...) of scores (n, ...); infinite where n is too small for the level.

    A new score is one of n + 1 that could stand in any order, so it is at most this one with probability at
    least `level` (Vovk, Gammerman and Shafer 2005). This fails where new inputs come from elsewhere.

    >>> threshold_of(np.arange(1.0, 10.0), 0.9).item(), threshold_of(np.arange(1.0, 9.0), 0.9).item()
    (9.0, inf)
    """
    place = place_of(len(scores), level)
    if place > len(scores):
        return np.full(scores.shape[1:], np.inf)
    return np.partition(scores, place - 1, axis=0)[place - 1]


def least_examples(level: float) -> int:
    """The smallest number of examples whose threshold is finite: n with ceil((n + 1) level) <= n.

    >>> least_examples(0.9), least_examples(0.95), least_examples(0.5)
    (9, 19, 1)
    """
    return math.ceil(round(level / (1 - level), 9))


def check_level(level: float) -> None:
    """Nothing, if the level is a probability strictly inside (0, 1)."""
    if not 0 < level < 1:
        raise Misuse(f"level {level} is outside (0, 1): write for example 0.9")


def check_examples(examples: int) -> None:
    """Nothing, if the number of examples is at least one."""
    if examples < 1:
        raise Misuse(f"{examples} examples: expected at least one")


def check_numbers(values: np.ndarray, what: str) -> np.ndarray:
    """The values, if none of them is NaN or infinite: a diverged member must not hide inside a threshold."""
    bad = ~np.isfinite(values)
    if bad.any():
        place = tuple(np.argwhere(bad)[0].tolist())
        raise Failure(f"{what} at {list(place)} is {values[place]}: a member diverged; leave it out with select(...)")
    return values


def shortage(examples: int, level: float) -> str:
    """What to say of a threshold that may be infinite: nothing, or how many examples are missing."""
    least = least_examples(level)
    if examples >= least:
        return ""
    return f"; everything is inside, since {examples} examples are fewer than the {least} that level {level:g} needs"


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


FLOOR = 1e-3  # of the total standard deviation: the scale is at least this, where members agree to the last digit

NUMBER_METHODS = {
    "absolute": "the mean, give or take the same for every input (Lei et al. 2018)",
    "quantile": "the predicted interval, each end moved by the same amount (Romano, Patterson and Candes 2019)",
    "normalised": "the mean, give or take a multiple of the predicted spread (Papadopoulos et al. 2002)",
}
SCALES = {
    "epistemic": "how far the members' means spread",
    "total": "that spread and the noise the members expect",
    "none": "no scale: the method needs none",
}


@dataclass(frozen=True)
class IntervalRule:
    """Intervals whose ends lie `thresholds` beyond the prediction, in the units of the method; one per target."""

    method: str
    level: float
    thresholds: tuple[float, ...]  # one per target
    examples: int  # the thresholds were chosen on
    scale: str = "none"  # of "normalised"

    def __post_init__(self) -> None:
        if self.method not in NUMBER_METHODS:
            raise unknown("regression method", self.method, NUMBER_METHODS)
        check_level(self.level)
        check_examples(self.examples)
        if self.scale not in SCALES:
            raise unknown("scale", self.scale, SCALES)
        if (self.method == "normalised") == (self.scale == "none"):
            raise Misuse(f"scale '{self.scale}' for method '{self.method}': normalised has a scale, the others none")

    @property
    def threshold(self) -> float:
        """The threshold of a single target; of several, the largest."""
        return max(self.thresholds)

    @property
    def about(self) -> str:
        """One line: the method, and what to know if there were too few examples."""
        return NUMBER_METHODS[self.method] + shortage(self.examples, self.level)

    def intervals(self, pred: Predictive) -> tuple[np.ndarray, np.ndarray]:
        """The ends (low, high), each (N, K), of the interval of each input and target.

        An interval that the thresholds would turn inside out becomes the point in its middle.
        """
        low, high, scale = self.ends(pred)
        if low.shape[1] != len(self.thresholds):
            raise Misuse(f"predictions of {low.shape[1]} targets: this rule was fitted for {len(self.thresholds)}")
        reach = np.array(self.thresholds) * scale
        middle = (low + high) / 2
        return np.minimum(low - reach, middle), np.maximum(high + reach, middle)

    def ends(self, pred: Predictive) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the interval starts from, low and high (N, K), and the unit (N, K) in which it is widened."""
        if pred.task != "regression":
            raise Misuse("intervals belong to regression, and this is a classification: ask for sets of classes")
        with torch.no_grad():
            low, high = pred.interval(self.level) if self.method == "quantile" else (pred.mean, pred.mean)
            scale = torch.ones_like(low) if self.scale == "none" else spread_of(pred, self.scale)
        parts = [check_numbers(values.cpu().numpy(), "the prediction") for values in (low, high, scale)]
        return parts[0], parts[1], parts[2]


def fit_intervals(rule: IntervalRule, pred: Predictive, y: Any) -> IntervalRule:
    """The rule with the thresholds of these predictions and targets.

    The score of a target is how far it lies outside the ends, in units of the scale; negative inside.
    """
    low, high, scale = rule.ends(pred)
    targets = pred.targets(y).cpu().numpy()  # (N, K)
    scores = np.maximum(low - targets, targets - high) / scale
    thresholds = tuple(threshold_of(scores, rule.level).tolist())
    return replace(rule, thresholds=thresholds, examples=len(targets))


def spread_of(pred: Predictive, scale: str) -> Tensor:
    """The predicted standard deviation (N, K): epistemic, but at least 1e-3 of the total, or total.

    The floor is made of the input's own prediction and of nothing else, so the guarantee stays exact.
    """
    total = pred.total_var.sqrt()
    return total if scale == "total" else torch.maximum(pred.epistemic_var.sqrt(), FLOOR * total)


Regions = np.ndarray | tuple[np.ndarray, np.ndarray]  # sets (N, K), or the ends (low, high), each (N, K)


def coverage(regions: Regions, y: Any) -> np.ndarray:
    """Whether each truth is inside (N,): bool for sets and for one target, the share of targets for several.

    >>> coverage(np.array([[True, False], [True, True]]), [1, 0]).tolist()
    [False, True]
    """
    if isinstance(regions, tuple):
        low, high = regions
        targets = np.asarray(y, dtype=float)
        targets = targets[:, None] if targets.ndim == 1 and low.shape[1] == 1 else targets
        if targets.shape != low.shape:
            raise Misuse(f"targets of shape {targets.shape} for intervals of shape {low.shape}: expected the same")
        inside = (low <= targets) & (targets <= high)
        return inside[:, 0] if inside.shape[1] == 1 else inside.mean(1)
    labels = checked_labels(y, inputs=len(regions), classes=regions.shape[1]).numpy()
    return np.take_along_axis(regions, labels[:, None], axis=1)[:, 0]


def sizes(regions: Regions) -> np.ndarray:
    """How large each region is (N,): the number of classes, or the mean width over targets."""
    if isinstance(regions, tuple):
        return (regions[1] - regions[0]).mean(1)
    return regions.sum(1)


Rule = SetRule | IntervalRule


@dataclass(frozen=True)
class Method:
    """What a method does in one line, and the options it takes besides level and seed."""

    about: str
    options: tuple[str, ...] = ()


OPTIONS = {"raps": ("penalty", "start"), "normalised": ("scale",)}
METHODS: dict[str, dict[str, Method]] = {
    task: {name: Method(about, OPTIONS.get(name, ())) for name, about in table.items()}
    for task, table in (("classification", SET_METHODS), ("regression", NUMBER_METHODS))
}


def fit_conformal(
    method: str,
    pred: Predictive,
    y: Any,
    *,
    level: float = 0.9,
    seed: int = 0,
    penalty: float | None = None,
    start: int | None = None,
    scale: str | None = None,
) -> Rule:
    """The rule of that method whose sets or intervals hold the truth with probability `level` or more.

    The examples must not have been used in training or calibration, and new inputs must come from where they
    came from. `seed` fixes the chance in aps and raps; `penalty` (0.01) and `start` (5, or one less than the
    classes) belong to raps; `scale` ("epistemic" for several members, else "total") to normalised.

    >>> pred = Predictive.from_probs([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    >>> fit_conformal("lac", pred, [0, 1, 1], level=0.5).threshold.__round__(6)
    0.3
    """
    check_method(method, pred.task, {"penalty": penalty, "start": start, "scale": scale})
    if pred.task == "regression":
        spread = ("epistemic" if len(pred.outputs) > 1 else "total") if scale is None else scale
        unfitted = IntervalRule(method, level, (), 1, spread if method == "normalised" else "none")
        return fit_intervals(unfitted, pred, y)
    classes = pred.mean.shape[1]
    ranks = (PENALTY if penalty is None else penalty, min(START, classes - 1) if start is None else start)
    blank = SetRule(method, level, math.inf, 1, classes, seed, *(ranks if method == "raps" else (0.0, 0)))
    return fit_sets(blank, pred, y)


def check_method(method: str, task: str, options: dict[str, Any]) -> None:
    """Nothing, if the task has the method and the method takes the options that are given."""
    if method not in METHODS[task]:
        raise unknown(f"{task} method", method, METHODS[task])
    strange = [name for name, value in options.items() if value is not None and name not in OPTIONS.get(method, ())]
    if strange:
        owner = next(name for name, names in OPTIONS.items() if strange[0] in names)
        raise Misuse(f"{strange[0]}={options[strange[0]]!r} belongs to '{owner}', not to '{method}': leave it out")


@dataclass(frozen=True)
class GroupedRule:
    """A rule for each group, and one of all examples for groups that were not seen (Vovk 2012, Mondrian)."""

    rules: dict[str, Rule]
    rest: Rule

    def sets(self, pred: Predictive, by: Sequence[Any] | np.ndarray, *, first: int = 0) -> np.ndarray:
        """Which classes (N, K) are in the set of each input, by the rule of its group by[i]."""
        names = group_names(by, pred.outputs.shape[1])
        found = set_rule(self.rest).sets(pred, first=first)
        for name in sorted(set(names) & set(self.rules)):
            here = names == name
            found[here] = set_rule(self.rules[name]).sets(pred, first=first)[here]
        return found

    def intervals(self, pred: Predictive, by: Sequence[Any] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ends (low, high), each (N, K), of the interval of each input, by the rule of its group by[i]."""
        names = group_names(by, pred.outputs.shape[1])
        low, high = interval_rule(self.rest).intervals(pred)
        for name in sorted(set(names) & set(self.rules)):
            here = names == name
            ends = interval_rule(self.rules[name]).intervals(pred.at(here))
            low[here], high[here] = ends
        return low, high


def fit_by_group(
    method: str,
    pred: Predictive,
    y: Any,
    by: Sequence[Any] | np.ndarray,
    *,
    level: float = 0.9,
    seed: int = 0,
) -> GroupedRule:
    """A rule for each group of inputs by[i]: the truth is inside with probability `level` within every group.

    A group of fewer examples than the level needs gets everything: sets of all classes, infinite intervals.
    """
    names, labels = group_names(by, pred.outputs.shape[1]), np.asarray(y)
    rest = fit_conformal(method, pred, labels, level=level, seed=seed)
    rules = {
        str(name): fit_conformal(method, pred.at(names == name), labels[names == name], level=level, seed=seed)
        for name in np.unique(names)
    }
    return GroupedRule(rules, rest)


def group_names(by: Sequence[Any] | np.ndarray, inputs: int) -> np.ndarray:
    """The name (N,) of each input's group, as text."""
    names = np.asarray(by)
    if names.shape != (inputs,):
        raise Misuse(f"groups of shape {names.shape} for {inputs} inputs: expected ({inputs},)")
    return names.astype(str)


def set_rule(rule: Rule) -> SetRule:
    if not isinstance(rule, SetRule):
        raise Misuse("this rule is for regression and makes intervals, not sets: call intervals(pred, by)")
    return rule


def interval_rule(rule: Rule) -> IntervalRule:
    if not isinstance(rule, IntervalRule):
        raise Misuse("this rule is for classification and makes sets, not intervals: call sets(pred, by)")
    return rule
