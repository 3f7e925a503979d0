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
from murmuration.prediction.posthoc.serialization import from_json
from murmuration.prediction.posthoc_config import PostHocConfig
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse, unknown

FEWEST = 20  # validation examples: half of them for the calibrator, half for the rules
UNCERTAINTY = {"classification": "confidence", "regression": "total_std"}  # that abstention rules compare
NONE = "none"
COST = "cost"
ABSTENTION_RULES = (COST, "error-rate", "risk-control")
DEFAULT_METHOD = {"classification": "lac", "regression": "quantile"}


@dataclass(frozen=True)
class PostHoc:
    """The fitted post-hoc steps of an ensemble, and the numbers of examples they were fitted on."""

    calibrator: Calibrator | None
    conformal: tuple[Rule, ...]  # predictions are written with the first
    abstention: tuple[Abstention, ...]
    calibrator_examples: int
    rule_examples: int
    choice: Choice | None = None  # why the calibrator is applied or is the identity; None where the caller decided

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
            known = rule.name in ABSTENTION_RULES and rule.uncertainty in uncertainties
            if not known or bool(rule.costs) != (rule.name == COST):
                got = f"rule '{rule.name:.40}' by '{rule.uncertainty:.40}' with {len(rule.costs)} costs"
                raise Misuse(f"{got}: expected {', '.join(ABSTENTION_RULES)}; the first with two")

    def calibrated(self, pred: Predictive) -> Predictive:
        """The predictive after the calibrator, which keeps the one before it; unchanged if there is none."""
        found = pred if self.calibrator is None else self.calibrator(pred)
        return pred if found is pred else replace(found, uncalibrated=pred)

    def per_example(self, pred: Predictive, y: Any, *, first: int = 0) -> dict[str, np.ndarray]:
        """Columns (N,) of a calibrated predictive: covered and region size by each conformal rule, answered by each
        abstention rule. `first` is the index of the first input in its data set."""
        found: dict[str, np.ndarray] = {}
        for rule in self.conformal:
            regions = rule.regions(pred, first=first)
            found[f"covered_{rule.method}"] = conformal.covered(regions, y)
            found[f"size_{rule.method}"] = conformal.region_sizes(regions)
        return {**found, **self.answered(pred)}

    def columns(self, pred: Predictive, first: int = 0) -> dict[str, np.ndarray]:
        """The conformal set or interval (N, K) of calibrated predictions, and whether the rule by cost answers (N,)."""
        found: dict[str, np.ndarray] = {}
        if self.conformal:
            percent, regions = f"{100 * self.conformal[0].coverage:g}", self.conformal[0].regions(pred, first=first)
            if isinstance(regions, tuple):
                found = {f"conformal_low_{percent}": regions[0], f"conformal_high_{percent}": regions[1]}
            else:
                found = {f"set_{percent}": regions}
        answered = next(iter(self.answered(pred).values()), None)
        return found if answered is None else {**found, "answered": answered}

    def answered(self, pred: Predictive) -> dict[str, np.ndarray]:
        """Which inputs (N,) of a calibrated predictive each abstention rule answers."""
        values = uncertainty_of(pred) if self.abstention else np.empty(0)
        return {f"answered_{rule.name}": rule.answers(values) for rule in self.abstention}


def posthoc_from_json(record: Any) -> PostHoc:
    """The post-hoc steps that `to_json` wrote, every part checked."""
    return from_json(
        record, PostHoc, "post-hoc record", (*calibrator_kinds(), SetRule, IntervalRule, Abstention, Choice)
    )


def check_config(config: PostHocConfig, task: str) -> None:
    """Refuse a calibrator or conformal method that the task does not have."""
    known, name = (*calibrator_names(task), NONE), config.calibrate.partition(":")[0]
    if name not in known:
        raise unknown(f"calibrator for {task}", name, known)
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
    """The post-hoc steps fitted on predictions and targets of examples that were not trained on.

    The predictions may be those of one ensemble on validation examples, or out-of-fold ones: of models that were each
    trained without a fold of the data, on this fold, joined by `Predictive.concatenate`. The calibrator is fitted on
    one random half and the rules on the other: conformal coverage is guaranteed only if calibration used other
    examples. It is applied if it helps held-out examples (see `choose_calibrator`). Without a calibrator the rules
    have them all. A multi-label task has a calibrator alone, fitted on all. `counts` are the training examples of each
    class, for calibrators that need them.
    """
    config = config or PostHocConfig()
    check_config(config, pred.task)
    targets = pred.checked(y)
    if len(targets) < FEWEST:
        raise Misuse(f"{len(targets)} validation examples: expected at least {FEWEST} to fit post-hoc steps on")
    if pred.task == MULTI_LABEL:
        chosen = (None, None) if config.calibrate == NONE else choose_calibrator(config.calibrate, pred, targets)
        return PostHoc(chosen[0], (), (), 0 if chosen[0] is None else len(targets), 0, chosen[1])
    first, second = halves(len(targets), config)
    calibrator, choice = None, None
    if config.calibrate != NONE:
        calibrator, choice = choose_calibrator(config.calibrate, pred.at(first), targets[first], counts)
    rest = pred.at(second) if calibrator is None else calibrator(pred.at(second))
    rules = tuple(
        conformal.fit_conformal(method, rest, targets[second], coverage=config.coverage)
        for method in conformal_methods(pred.task, config.conformal)
    )
    abstention = fit_abstention(rest, targets[second], config)
    return PostHoc(calibrator, rules, abstention, len(first), len(second), choice)


def halves(count: int, config: PostHocConfig) -> tuple[Tensor, Tensor]:
    """The indices, in order, of the examples for the calibrator and for the rules: a fixed random split."""
    if config.calibrate == NONE:
        return torch.arange(0), torch.arange(count)
    order = torch.from_numpy(np.random.default_rng(0).permutation(count))
    return order[: count // 2].sort().values, order[count // 2 :].sort().values


def conformal_methods(task: str, chosen: str | None) -> list[str]:
    """The conformal methods of a task, the chosen one first."""
    known = conformal.CONFORMAL_METHODS[task]
    if chosen is not None and chosen not in known:
        raise unknown(f"{task} method", chosen, known)
    first = chosen or DEFAULT_METHOD[task]
    return [first, *(method for method in known if method != first)]


def fit_abstention(pred: Predictive, targets: Tensor, config: PostHocConfig) -> tuple[Abstention, ...]:
    """The rules by cost, error rate and risk control; a regression has one by cost, if abstaining has a cost."""
    values, kind, classes = uncertainty_of(pred), UNCERTAINTY[pred.task], pred.task == "classification"
    wrong = (pred.predicted != targets).double() if classes else (pred.mean - targets).abs().mean(-1)
    losses = wrong.cpu().numpy()  # (N,): 1 if the class is wrong, or the mean absolute error
    cost = ABSTAIN_COST if config.abstain_cost is None and classes else config.abstain_cost
    found = []
    if cost is not None:
        found.append(by_cost(values, losses, error_cost=config.error_cost, abstain_cost=cost, uncertainty=kind))
    if classes:
        found.append(by_error_rate(values, losses, max_error_rate=config.max_error_rate, uncertainty=kind))
        found.append(by_risk_control(values, losses, max_risk=config.max_error_rate, uncertainty=kind))
    return tuple(found)


def uncertainty_of(pred: Predictive) -> np.ndarray:
    """The values (N,) that abstention rules compare: confidence, or the total standard deviation."""
    values = pred.confidence if pred.task == "classification" else pred.total_var.mean(-1).sqrt()
    return values.cpu().numpy()
