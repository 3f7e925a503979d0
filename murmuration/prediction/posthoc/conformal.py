"""Split conformal prediction: sets of classes and intervals with guaranteed marginal coverage.

A nonconformity score is computed for calibration examples; the threshold is their ceil((n + 1) coverage)-th smallest
score; a new input gets every label, or the interval of targets, whose score is at most the threshold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from murmuration.data.numpy_arrays import as_array
from murmuration.prediction.checks import checked_labels
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse, require_integer, require_number, unknown
from murmuration.system.streams import ALL_MEMBERS, stream_seed

MOST_RANKS = 2**31  # more than any number of classes
PENALTY = 0.01  # of raps, for each rank beyond the start: the value Angelopoulos et al. 2021 fix for ImageNet
START = 5  # the last rank that raps does not penalise, or the last but one where there are few classes
CALIBRATION, PREDICTION = 0, 1  # moments of the stream: calibration examples and new inputs never share a draw
FLOOR = 1e-3  # of the total standard deviation: the least scale, where members agree to the last digit

SET_METHODS = {
    "lac": "classes of high probability: the smallest sets on average (Sadinle et al. 2019)",
    "aps": "the most probable classes until their sum is large: larger sets for hard inputs (Romano et al. 2020)",
    "raps": "aps with a penalty on low ranks: no very large sets (Angelopoulos et al. 2021)",
    "mondrian": "lac with a threshold for each class: coverage holds for rare classes too (Vovk et al. 2005)",
}
INTERVAL_METHODS = {
    "absolute": "the mean plus or minus the same width for every input (Lei et al. 2018)",
    "quantile": "the predicted interval, both ends moved by the same amount (Romano, Patterson and Candes 2019)",
    "normalised": "the mean plus or minus a multiple of the predicted std (Papadopoulos et al. 2002)",
}
SCALES = ("epistemic", "total", "none")  # std of the members' means, total predictive std, for methods without one

Regions = np.ndarray | tuple[np.ndarray, np.ndarray]  # sets (N, K), or the ends (low, high), each (N, K)


# The threshold


def quantile_rank(examples: int, coverage: float) -> int:
    """Return the rank, counted from one, of the threshold among the sorted scores: ceil((n + 1) coverage).

    The product is rounded before it is rounded up: 100 * 0.55 is 55.00000000000001 in floating point.
    """
    return math.ceil(round((examples + 1) * coverage, 9))


def conformal_quantile(scores: np.ndarray, coverage: float) -> np.ndarray:
    """Return the ceil((n + 1) coverage)-th smallest (...) of scores (n, ...); infinite if n is too small.

    A new score is exchangeable with the n given ones, so it is at most this value with probability at least `coverage`
    (Vovk, Gammerman and Shafer 2005). This fails under distribution shift.

    >>> conformal_quantile(np.arange(1.0, 10.0), 0.9).item(), conformal_quantile(np.arange(1.0, 9.0), 0.9).item()
    (9.0, inf)
    """
    rank = quantile_rank(len(scores), coverage)
    if rank > len(scores):
        return np.full(scores.shape[1:], np.inf)
    return np.partition(scores, rank - 1, axis=0)[rank - 1]


def fewest_examples(coverage: float) -> int:
    """Return the smallest number of calibration examples with a finite threshold: n with ceil((n + 1) coverage) <= n.

    >>> fewest_examples(0.9), fewest_examples(0.95), fewest_examples(0.5)
    (9, 19, 1)
    """
    return math.ceil(round(coverage / (1 - coverage), 9))


def check_rule(coverage: float, examples: int) -> None:
    """Refuse a nominal coverage outside (0, 1), and less than one calibration example."""
    require_number("coverage", coverage, 0.9)
    if not 0 < coverage < 1:
        raise Misuse(f"coverage {coverage} is outside (0, 1): write for example 0.9")
    if examples < 1:
        raise Misuse(f"{examples} examples: expected at least one")


def check_finite(values: np.ndarray, what: str) -> np.ndarray:
    """Return the values, if all are finite: NaN from a diverged member must not enter a threshold."""
    if (bad := ~np.isfinite(values)).any():
        place = tuple(np.argwhere(bad)[0].tolist())
        raise Failure(f"{what} at {list(place)} is {values[place]}: a member diverged; leave it out with select(...)")
    return values


def shortage_note(examples: int, coverage: float) -> str:
    """Return a warning if a threshold is infinite for want of calibration examples; else an empty string."""
    fewest = fewest_examples(coverage)
    if examples >= fewest:
        return ""
    return f"; regions are unbounded: {examples} calibration examples, and coverage {coverage:g} needs {fewest}"


# Sets of classes


@dataclass(frozen=True)
class SetRule:
    """Prediction sets: the classes whose score is at most the threshold.

    `randomised` concerns aps and raps: the class at the edge is included at random, which makes the coverage exact.
    Otherwise it is always included, and the sets are supersets of the randomised ones.
    `never_empty` adds the most probable class to an empty set; coverage only grows.
    Change either with `dataclasses.replace(rule, randomised=False)`.
    `mondrian` has a threshold for each class, infinite for a class of too few calibration examples, which is then in
    every set: the label is in the set with the nominal probability whatever class it is.
    """

    method: str
    coverage: float  # nominal
    threshold: float  # of mondrian: the largest
    examples: int  # calibration examples of the threshold; of mondrian: those of its rarest class
    classes: int
    seed: int = 0  # of the randomisation at the edge
    penalty: float = 0.0  # 0 for lac and aps
    start: int = 0
    randomised: bool = True
    never_empty: bool = True
    by_class: tuple[float, ...] = ()  # thresholds (K,) of mondrian

    def __post_init__(self) -> None:
        if self.method not in SET_METHODS:
            raise unknown("classification method", self.method, SET_METHODS)
        check_rule(self.coverage, self.examples)
        require_number("penalty", self.penalty, PENALTY)
        require_integer("start", self.start, 0)
        require_integer("seed", self.seed, 0)
        if not 0 <= self.penalty < np.inf or self.start > MOST_RANKS:
            raise Misuse(
                f"penalty {self.penalty:g} from rank {self.start}: expected both 0 or more, and a smaller rank"
            )
        if len(self.by_class) not in (0, self.classes):
            raise Misuse(f"{len(self.by_class)} thresholds by class: expected {self.classes}, or none")

    @property
    def about(self) -> str:
        """Return a one-line description, with a warning if there were too few calibration examples."""
        return SET_METHODS[self.method] + shortage_note(self.examples, self.coverage)

    def sets(self, pred: Predictive, *, first: int = 0) -> np.ndarray:
        """Return the membership (N, K) of each class in the set of each input.

        `first` is the index of the first input in its data set: batches that pass it get the same random draws, and so
        the same sets, as the whole data set.
        """
        probs = mean_probs(pred)  # (N, K)
        if probs.shape[1] != self.classes:
            raise Misuse(f"predictions for {probs.shape[1]} classes: this rule was fitted for {self.classes}")
        draws = uniforms(self.seed, PREDICTION, first, len(probs)) if self.randomised else np.ones(len(probs))
        inside = self.scores(probs, draws) <= (np.array(self.by_class) if self.by_class else self.threshold)
        if self.never_empty:
            inside[np.arange(len(probs)), probs.argmax(1)] |= ~inside.any(1)
        return inside

    regions = sets

    def scores(self, probs: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Return the nonconformity score (N, K) of each class, from probabilities (N, K) and uniform draws (N,)."""
        if self.method in ("lac", "mondrian"):
            return 1 - probs
        return ranked_scores(probs, draws, penalty=self.penalty, start=self.start)


def ranked_scores(probs: np.ndarray, draws: np.ndarray, *, penalty: float, start: int) -> np.ndarray:
    """Return the scores (N, K) of aps and raps, from probabilities (N, K) and draws (N,).

    The cumulative probability down to the class, less draw times its own, plus `penalty` for each rank beyond `start`.
    Equal probabilities rank by class index.

    >>> ranked_scores(np.array([[0.2, 0.7, 0.1]]), np.zeros(1), penalty=0.5, start=2).round(6).tolist()
    [[0.9, 0.7, 1.5]]
    """
    order = np.argsort(-probs, axis=1, kind="stable")
    ranked = np.take_along_axis(probs, order, axis=1)
    beyond = np.maximum(np.arange(1, probs.shape[1] + 1) - start, 0)
    scores = np.empty_like(probs)
    np.put_along_axis(scores, order, ranked.cumsum(1) - draws[:, None] * ranked + float(penalty) * beyond, axis=1)
    return scores


def uniforms(seed: int, moment: int, first: int, count: int) -> np.ndarray:
    """Return uniform draws (count,) for the inputs from index `first` on, by seed and index alone.

    A counter-based generator (Philox) jumps to any index; it makes four numbers at a time.
    """
    words = np.random.Philox(stream_seed(seed, "noise", ALL_MEMBERS, moment)).advance(first // 4)
    return np.random.Generator(words).random(first % 4 + count)[first % 4 :]


def mean_probs(pred: Predictive) -> np.ndarray:
    """Return the mean probabilities (N, K) of the members, checked to be finite."""
    if pred.task != "classification":
        raise Misuse(f"sets of classes belong to classification, and this is a {pred.task}: ask for intervals")
    with torch.no_grad():
        return check_finite(pred.mean.cpu().numpy(), "the mean probability")


# Intervals


@dataclass(frozen=True)
class IntervalRule:
    """Prediction intervals: the method's own ends, moved outwards by threshold times scale.

    Each of several targets has its threshold, and the coverage holds for each of them alone (marginal): all
    targets of an input are covered at once less often, at worst 1 - K (1 - coverage) for K targets.
    """

    method: str
    coverage: float  # nominal
    thresholds: tuple[float, ...]  # one per target
    examples: int  # calibration examples of the thresholds
    scale: str = "none"  # of "normalised"

    def __post_init__(self) -> None:
        if self.method not in INTERVAL_METHODS:
            raise unknown("regression method", self.method, INTERVAL_METHODS)
        check_rule(self.coverage, self.examples)
        if not isinstance(self.scale, str) or self.scale not in SCALES:
            raise unknown("scale", self.scale, SCALES)
        if (self.method == "normalised") == (self.scale == "none"):
            raise Misuse(f"scale '{self.scale}' for method '{self.method}': normalised has a scale, the others none")

    @property
    def threshold(self) -> float:
        """Return the threshold of a single target; of several, the largest."""
        return max(self.thresholds)

    @property
    def about(self) -> str:
        """Return a one-line description, with a warning if there were too few calibration examples."""
        plural = "; coverage is of each target alone, not of all at once" if len(self.thresholds) > 1 else ""
        return INTERVAL_METHODS[self.method] + plural + shortage_note(self.examples, self.coverage)

    def intervals(self, pred: Predictive, *, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends (low, high), each (N, K), of the interval of each input and target.

        An interval that a negative threshold would turn inside out becomes its midpoint. `first` is not used: it is
        there so that both kinds of rules are called alike.
        """
        low, high, scale = self.ends(pred)
        if low.shape[1] != len(self.thresholds):
            raise Misuse(f"predictions of {low.shape[1]} targets: this rule was fitted for {len(self.thresholds)}")
        reach = np.array(self.thresholds) * scale
        middle = (low + high) / 2
        return np.minimum(low - reach, middle), np.maximum(high + reach, middle)

    regions = intervals

    def ends(self, pred: Predictive) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the uncorrected ends, low and high (N, K), and the scale (N, K) of the correction."""
        if pred.task != "regression":
            raise Misuse(f"intervals belong to regression, and this is a {pred.task}: ask for sets of classes")
        with torch.no_grad():
            low, high = pred.interval(self.coverage) if self.method == "quantile" else (pred.mean, pred.mean)
            scale = torch.ones_like(low) if self.scale == "none" else pred.total_var.sqrt()
            if self.scale == "epistemic":  # the floor depends on the input's own prediction only: still exact
                scale = torch.maximum(pred.epistemic_var.sqrt(), FLOOR * scale)
        parts = [check_finite(values.cpu().numpy(), "the prediction") for values in (low, high, scale)]
        return parts[0], parts[1], parts[2]


# Fitting


Rule = SetRule | IntervalRule


OPTIONS = {"raps": ("penalty", "start"), "normalised": ("scale",)}  # besides coverage and seed
CONFORMAL_METHODS = {"classification": SET_METHODS, "regression": INTERVAL_METHODS}  # name -> description, by task


def fit_conformal(
    method: str,
    pred: Predictive,
    y: Any,
    *,
    coverage: float = 0.9,
    seed: int = 0,
    penalty: float | None = None,
    start: int | None = None,
    scale: str | None = None,
) -> Rule:
    """Fit a conformal rule on held-out examples.

    Its sets or intervals contain the target of a new input with probability `coverage` or more, if new inputs are
    exchangeable with the examples.

    Args:
        method: Nonconformity score: "lac", "aps", "raps" or "mondrian" for classes; "absolute", "quantile" or
            "normalised" for a regression.
        pred: Predictions for examples that were used neither in training nor in calibration.
        y: Their labels (N,), or targets (N, K).
        coverage: Nominal probability of the target being covered.
        seed: Seed of the randomisation of aps and raps.
        penalty: For raps: penalty on each rank beyond `start`; None: 0.01.
        start: For raps: the last rank without a penalty; None: 5, or one less than the number of classes.
        scale: For normalised: "epistemic" or "total"; None: "epistemic" with several members, else "total".

    Returns:
        A `SetRule` or `IntervalRule`; `rule.regions(pred)` gives a mask (N, K), or the ends (low, high) of intervals.

    Raises:
        Misuse: If the task does not have the method, or the method does not take an option.
        Failure: If predictions are not finite.

    >>> pred = Predictive.from_probs([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    >>> fit_conformal("lac", pred, [0, 1, 1], coverage=0.5).threshold.__round__(6)
    0.3
    """
    if pred.task not in CONFORMAL_METHODS:
        raise Misuse(f"conformal prediction for {pred.task}: there is none; it is for classification and regression")
    if not isinstance(method, str) or method not in CONFORMAL_METHODS[pred.task]:
        raise unknown(f"{pred.task} method", method, CONFORMAL_METHODS[pred.task])
    for name, value in {"penalty": penalty, "start": start, "scale": scale}.items():
        if value is not None and name not in OPTIONS.get(method, ()):
            owner = next(other for other, names in OPTIONS.items() if name in names)
            raise Misuse(f"{name}={value!r} belongs to '{owner}', not to '{method}': leave it out")
    if pred.task == "regression":
        usual = ("epistemic" if len(pred.outputs) > 1 else "total") if method == "normalised" else "none"
        intervals = IntervalRule(method, coverage, (), 1, usual if scale is None else scale)
        low, high, unit = intervals.ends(pred)
        targets = pred.targets(y).cpu().numpy()  # (N, K)
        distances = np.maximum(low - targets, targets - high) / unit  # outside the ends; negative inside
        thresholds = tuple(conformal_quantile(distances, coverage).tolist())
        return replace(intervals, thresholds=thresholds, examples=len(targets))
    classes = pred.mean.shape[1]
    ranks = (PENALTY if penalty is None else penalty, min(START, classes - 1) if start is None else start)
    sets = SetRule(method, coverage, math.inf, 1, classes, seed, *(ranks if method == "raps" else (0.0, 0)))
    labels, probs = pred.labels(y).cpu().numpy(), mean_probs(pred)
    scores = sets.scores(probs, uniforms(seed, CALIBRATION, 0, len(probs)))
    of_label = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    if method == "mondrian":
        parts = [of_label[labels == label] for label in range(classes)]
        limits = tuple(float(conformal_quantile(part, coverage)) for part in parts)
        return replace(sets, threshold=max(limits), by_class=limits, examples=max(1, min(map(len, parts))))
    return replace(sets, threshold=float(conformal_quantile(of_label, coverage)), examples=len(labels))


@dataclass(frozen=True)
class GroupedRule:
    """Conformal rules by group (Mondrian: Vovk 2012).

    Attributes:
        rules: The rule of each group.
        rest: The rule of all examples, for other groups.
    """

    rules: dict[str, Rule]
    rest: Rule

    def regions(self, pred: Predictive, by: Sequence[Any] | np.ndarray, *, first: int = 0) -> Regions:
        """Return sets (N, K), or the ends of intervals, each (N, K), by the rule of each input's group `by[i]`."""
        names = group_names(by, pred.outputs.shape[1])
        regions = self.rest.regions(pred, first=first)
        for name in sorted(set(names) & set(self.rules)):
            in_group, own = names == name, self.rules[name].regions(pred, first=first)
            for target, part in zip(arrays(regions), arrays(own), strict=True):
                target[in_group] = part[in_group]
        return regions


def fit_conformal_by_group(
    method: str, pred: Predictive, y: Any, by: Sequence[Any] | np.ndarray, *, coverage: float = 0.9, seed: int = 0
) -> GroupedRule:
    """Fit a conformal rule for each group of inputs: coverage then holds within every group.

    Args:
        method: As for `fit_conformal`.
        pred: As for `fit_conformal`.
        y: As for `fit_conformal`.
        by: Group (N,) of each input, known without the target: a column of the input, a site, the predicted class.
        coverage: Nominal coverage within each group. A group with fewer examples than it needs gets sets of all
            classes, or infinite intervals.
        seed: As for `fit_conformal`.

    Returns:
        A rule; `rule.regions(pred, by)` uses the group of each input.

    Raises:
        Misuse: As `fit_conformal`, or if there is not one group per input.
    """
    names, labels = group_names(by, pred.outputs.shape[1]), as_array(y)
    fit = partial(fit_conformal, method, coverage=coverage, seed=seed)
    groups = {str(name): names == name for name in np.unique(names)}
    rest = fit(pred, labels)
    return GroupedRule({name: fit(pred.at(rows), labels[rows]) for name, rows in groups.items()}, rest)


def group_names(by: Sequence[Any] | np.ndarray, inputs: int) -> np.ndarray:
    """Return the name (N,) of each input's group, as text."""
    names = as_array(by)
    if names.shape != (inputs,):
        raise Misuse(f"groups of shape {names.shape} for {inputs} inputs: expected ({inputs},)")
    return names.astype(str)


# Sets and intervals on labelled examples


def arrays(regions: Regions) -> tuple[np.ndarray, ...]:
    """Return the arrays of regions: one of sets, or two of ends."""
    return regions if isinstance(regions, tuple) else (regions,)


def covered(regions: Regions, y: Any) -> np.ndarray:
    """Return whether each target is covered (N,), or of several targets the fraction that is.

    >>> covered(np.array([[True, False], [True, True]]), [1, 0]).tolist()
    [False, True]
    """
    if isinstance(regions, tuple):
        low, high = regions
        targets = as_array(y).astype(float)
        targets = targets[:, None] if targets.ndim == 1 and low.shape[1] == 1 else targets
        if targets.shape != low.shape:
            raise Misuse(f"targets of shape {targets.shape} for intervals of shape {low.shape}: expected the same")
        inside = (low <= targets) & (targets <= high)
        return inside[:, 0] if inside.shape[1] == 1 else inside.mean(1)
    labels = checked_labels(y, inputs=len(regions), classes=regions.shape[1]).numpy()
    return np.take_along_axis(regions, labels[:, None], axis=1)[:, 0]


def region_sizes(regions: Regions) -> np.ndarray:
    """Return the size (N,) of each region: the number of classes, or the mean width over targets."""
    return (regions[1] - regions[0]).mean(1) if isinstance(regions, tuple) else regions.sum(1)


# Cross-fitted models


# Quantiles of mean_k(i)(x) -+ R_i over the examples: coverage of at least 1 - 2 (1 - coverage); or the smallest and the
# largest mean of the folds -+ the quantile of R_i: at least the coverage, wider.
CROSS_METHODS = ("plus", "minmax")


def cross_intervals(
    means: np.ndarray, folds: np.ndarray, residuals: np.ndarray, coverage: float, method: str = "plus"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends (low, high), each (N, K), of the intervals of new inputs: CV+ (Barber et al. 2021).

    Every one of n training examples has the absolute residual R_i of the model that did not train on it, that of its
    fold k(i). With one example a fold, CV+ is the jackknife+. `means` (F, N, K) are the predictions of the model of
    every fold for new inputs, `folds` (n,) the folds of the training examples, and `residuals` (n, K) their absolute
    residuals. Ends are infinite if n is too small for the coverage.

    >>> low, high = cross_intervals(np.zeros((2, 1, 1)), np.array([0, 1] * 5), np.arange(10.0)[:, None], 0.8)
    >>> low.item(), high.item()
    (-8.0, 8.0)
    """
    check_rule(coverage, len(residuals))
    if method not in CROSS_METHODS:
        raise unknown("method of cross-fitted intervals", method, CROSS_METHODS)
    if len(folds) != len(residuals) or folds.max() >= len(means):
        raise Misuse(f"{len(residuals)} residuals in {len(np.unique(folds))} folds: expected those of {len(means)}")
    if method == "plus":
        inputs = means.swapaxes(0, 1)  # (N, F, K)
        high = np.stack([conformal_quantile(folds_means[folds] + residuals, coverage) for folds_means in inputs])
        low = np.stack([conformal_quantile(-folds_means[folds] + residuals, coverage) for folds_means in inputs])
        return -low, high  # the low end of x is minus the high end of -x
    reach = conformal_quantile(residuals, coverage)  # (K,)
    return means.min(0) - reach, means.max(0) + reach
