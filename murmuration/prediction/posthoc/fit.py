"""`PostHoc`: a calibrator, conformal rules and abstention rules, fitted on validation examples and kept with a run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import murmuration.prediction.posthoc.conformal as conformal
from murmuration.likelihoods import MULTI_LABEL
from murmuration.prediction.posthoc.abstention import ABSTAIN_COST, Abstention, by_cost, by_error_rate, by_risk_control
from murmuration.prediction.posthoc.calibration import Calibrator, calibrator_kinds, calibrator_names, parse_method
from murmuration.prediction.posthoc.choice import Choice, choose_calibrator
from murmuration.prediction.posthoc.conformal import IntervalRule, Rule, SetRule
from murmuration.prediction.posthoc_config import PostHocConfig
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse, unknown
from murmuration.system.records import from_json

FEWEST = 20  # validation examples: half of them for the calibrator, half for the rules
UNCERTAINTY = {"classification": "confidence", "regression": "total_std"}  # that abstention rules compare
NONE = "none"
COST = "cost"
ABSTENTION_RULES = (COST, "error-rate", "risk-control")
DEFAULT_METHOD = {"classification": "lac", "regression": "quantile"}


@dataclass(frozen=True)
class PostHoc:
    """The fitted post-hoc steps of an ensemble.

    Attributes:
        calibrator: The calibrator, or None.
        conformal: Conformal rules; predictions are written with the first.
        abstention: Abstention rules.
        calibrator_examples: Number of examples that the calibrator was fitted on.
        rule_examples: Number of examples that the rules were fitted on.
        choice: Why the calibrator is applied or is the identity; None if the caller decided.
    """

    calibrator: Calibrator | None
    conformal: tuple[Rule, ...]
    abstention: tuple[Abstention, ...]
    calibrator_examples: int
    rule_examples: int
    choice: Choice | None = None

    def __post_init__(self) -> None:
        """Refuse parts of several tasks, two of one name, and abstention rules other than `fit_posthoc` makes."""
        counts = (self.calibrator_examples, self.rule_examples)
        if min(counts) < 0:
            raise Misuse(f"{counts} examples: expected two counts")
        tasks = {"classification" if isinstance(rule, SetRule) else "regression" for rule in self.conformal}
        tasks |= {self.calibrator.task} if self.calibrator is not None else set()
        uncertainties = {UNCERTAINTY[task] for task in tasks if task in UNCERTAINTY} or set(UNCERTAINTY.values())
        methods, names = [rule.method for rule in self.conformal], [rule.name for rule in self.abstention]
        if len(tasks) > 1 or len({*methods, *names}) < len(methods) + len(names):
            raise Misuse(f"{', '.join([*sorted(tasks), *methods, *names])}: expected one of each")
        for rule in self.abstention:
            is_known = rule.name in ABSTENTION_RULES and rule.uncertainty in uncertainties
            if not is_known or bool(rule.costs) != (rule.name == COST):
                got = f"rule '{rule.name:.40}' by '{rule.uncertainty:.40}' with {len(rule.costs)} costs"
                raise Misuse(f"{got}: expected {', '.join(ABSTENTION_RULES)}; the first with two")

    def calibrated(self, pred: Predictive) -> Predictive:
        """Apply the calibrator.

        Args:
            pred: Uncalibrated predictions.

        Returns:
            The calibrated predictive, with `pred` as its `uncalibrated`; `pred` itself without a calibrator.

        Raises:
            Misuse: If the calibrator was fitted on other members or classes.
        """
        calibrated = pred if self.calibrator is None else self.calibrator(pred)
        return pred if calibrated is pred else replace(calibrated, uncalibrated=pred)

    def per_example(self, pred: Predictive, y: Any, *, first: int = 0) -> dict[str, np.ndarray]:
        """Apply all rules to labelled examples.

        Args:
            pred: Calibrated predictions.
            y: Labels (N,), or targets (N, K).
            first: Index of the first input in its data set, which random sets depend on.

        Returns:
            Columns (N,): covered and region size for each conformal rule, answered for each abstention rule.
        """
        columns: dict[str, np.ndarray] = {}
        for rule in self.conformal:
            regions = rule.regions(pred, first=first)
            columns[f"covered_{rule.method}"] = conformal.covered(regions, y)
            columns[f"size_{rule.method}"] = conformal.region_sizes(regions)
        return {**columns, **self.answered(pred)}

    def columns(self, pred: Predictive, first: int = 0) -> dict[str, np.ndarray]:
        """Return the conformal sets or intervals and the decisions that are written with predictions.

        Args:
            pred: Calibrated predictions.
            first: As for `per_example`.

        Returns:
            The set or interval (N, K) by the first conformal rule, and whether the rule by cost answers (N,).
        """
        columns: dict[str, np.ndarray] = {}
        for rule in self.conformal[:1]:
            regions = conformal.arrays(rule.regions(pred, first=first))
            names = ("set",) if len(regions) == 1 else ("conformal_low", "conformal_high")
            columns = {f"{name}_{100 * rule.coverage:g}": part for name, part in zip(names, regions, strict=True)}
        for answered in list(self.answered(pred).values())[:1]:
            columns["answered"] = answered
        return columns

    def answered(self, pred: Predictive) -> dict[str, np.ndarray]:
        """Decide which inputs to answer.

        Args:
            pred: Calibrated predictions.

        Returns:
            A mask (N,) for each abstention rule.
        """
        values = uncertainty_of(pred) if self.abstention else np.empty(0)
        return {f"answered_{rule.name}": rule.answers(values) for rule in self.abstention}


def posthoc_from_json(record: Any) -> PostHoc:
    """Return the post-hoc steps that `to_json` wrote, every part checked."""
    kinds = (*calibrator_kinds(), SetRule, IntervalRule, Abstention, Choice)
    return from_json(record, PostHoc, "post-hoc record", kinds)


def check_config(config: PostHocConfig, task: str) -> None:
    """Refuse a calibrator or conformal method that the task does not have."""
    names, name = (*calibrator_names(task), NONE), config.calibrate.partition(":")[0]
    if name not in names:
        raise unknown(f"calibrator for {task}", name, names)
    if config.calibrate != NONE:
        parse_method(config.calibrate)
    if task == MULTI_LABEL:
        if config.conformal is not None:
            raise Misuse(f"conformal={config.conformal} for multi-label: there are no sets of labels; leave it out")
        return
    conformal_methods(task, config.conformal)


def fit_posthoc(
    pred: Predictive, y: Any, config: PostHocConfig | None = None, counts: Sequence[float] | None = None
) -> PostHoc:
    """Fit a calibrator, conformal rules and abstention rules on examples that were not trained on.

    The calibrator is fitted on one random half and the rules on the other: conformal coverage is guaranteed only if
    calibration used other examples. The calibrator is applied if it helps held-out examples (`choose_calibrator`).
    Without a calibrator the rules have all examples; a multi-label task has only a calibrator, fitted on all.

    Args:
        pred: Predictions of one ensemble on validation examples, or out-of-fold predictions of models that were each
            trained without a fold of the data, joined by `Predictive.concatenate`.
        y: Their labels (N,), or targets (N, K).
        config: What to fit; None: the defaults.
        counts: Training examples of each class, for calibrators that need them.

    Returns:
        The fitted steps.

    Raises:
        Misuse: With fewer than 20 examples, or a method that the task does not have.
    """
    config = config or PostHocConfig()
    check_config(config, pred.task)
    targets = pred.checked(y)
    if len(targets) < FEWEST:
        raise Misuse(f"{len(targets)} validation examples: expected at least {FEWEST} to fit post-hoc steps on")
    if pred.task == MULTI_LABEL:
        fitted = (None, None) if config.calibrate == NONE else choose_calibrator(config.calibrate, pred, targets)
        return PostHoc(fitted[0], (), (), 0 if fitted[0] is None else len(targets), 0, fitted[1])
    first, second = halves(len(targets), config)
    calibrator, choice = None, None
    if config.calibrate != NONE:
        calibrator, choice = choose_calibrator(config.calibrate, pred.at(first), targets[first], counts)
    held_out, y = pred.at(second) if calibrator is None else calibrator(pred.at(second)), targets[second]
    methods = conformal_methods(pred.task, config.conformal)
    rules = tuple(conformal.fit_conformal(method, held_out, y, coverage=config.coverage) for method in methods)
    return PostHoc(calibrator, rules, fit_abstention(held_out, y, config), len(first), len(second), choice)


def halves(count: int, config: PostHocConfig) -> tuple[Tensor, Tensor]:
    """Return the indices, in order, of the examples for the calibrator and for the rules: a fixed random split."""
    half = count // 2 if config.calibrate != NONE else 0
    order = torch.from_numpy(np.random.default_rng(0).permutation(count))
    return order[:half].sort().values, order[half:].sort().values


def conformal_methods(task: str, chosen: str | None) -> list[str]:
    """Return the conformal methods of a task, the chosen one first."""
    methods = conformal.CONFORMAL_METHODS[task]
    if chosen is not None and chosen not in methods:
        raise unknown(f"{task} method", chosen, methods)
    first = chosen or DEFAULT_METHOD[task]
    return [first, *(method for method in methods if method != first)]


def fit_abstention(pred: Predictive, targets: Tensor, config: PostHocConfig) -> tuple[Abstention, ...]:
    """Return the rules by cost, error rate and risk control; a regression has one by cost, if abstaining has a cost."""
    values, kind, classes = uncertainty_of(pred), UNCERTAINTY[pred.task], pred.task == "classification"
    wrong = (pred.predicted != targets).double() if classes else (pred.mean - targets).abs().mean(-1)
    losses = wrong.cpu().numpy()  # (N,): 1 if the class is wrong, or the mean absolute error
    cost = ABSTAIN_COST if config.abstain_cost is None and classes else config.abstain_cost
    rules = []
    if cost is not None:
        rules.append(by_cost(values, losses, error_cost=config.error_cost, abstain_cost=cost, uncertainty=kind))
    if classes:
        rules.append(by_error_rate(values, losses, max_error_rate=config.max_error_rate, uncertainty=kind))
        rules.append(by_risk_control(values, losses, max_risk=config.max_error_rate, uncertainty=kind))
    return tuple(rules)


def uncertainty_of(pred: Predictive) -> np.ndarray:
    """Return the values (N,) that abstention rules compare: confidence, or the total standard deviation."""
    return (pred.confidence if pred.task == "classification" else pred.total_var.mean(-1).sqrt()).cpu().numpy()
