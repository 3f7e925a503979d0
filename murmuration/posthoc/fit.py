"""What stands between an ensemble's predictions and those who use them, learned from validation examples.

A calibrator makes probabilities mean what they say, conformal rules turn predictions into sets that hold the truth as
often as promised, and rules for declining say which questions to leave to someone else. They are kept with the run.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.errors import Misuse, unknown
from murmuration.posthoc.abstention import Abstention, by_cost, by_risk, by_risk_control
from murmuration.posthoc.calibration import Calibrator, calibrator_kinds, calibrator_names, fit_calibrator
from murmuration.posthoc.config import PostHocConfig
from murmuration.posthoc.conformal import (
    METHODS,
    IntervalRule,
    Regions,
    Rule,
    SetRule,
    coverage,
    fit_conformal,
    sizes,
)
from murmuration.posthoc.serialization import from_json
from murmuration.predictive import Predictive

FEWEST = 20  # validation examples: half of them for the calibrator, half for the rules
UNCERTAINTY = {"classification": "confidence", "regression": "total_std"}
NONE = "none"
COST = "cost"
DECLINING = (COST, "risk", "risk-control")
PRIMARY = {"classification": "lac", "regression": "quantile"}


@dataclass(frozen=True)
class PostHoc:
    """What was learned from validation examples, and from how many."""

    calibrator: Calibrator | None
    sets: tuple[Rule, ...]  # the first is the one that predictions are written with
    declining: tuple[Abstention, ...]
    calibrator_examples: int
    rule_examples: int

    def calibrated(self, pred: Predictive) -> Predictive:
        """The predictive after the calibrator; as it is, if there is none."""
        return pred if self.calibrator is None else self.calibrator(pred)

    def kept(self, pred: Predictive, y: Any, *, first: int = 0) -> dict[str, np.ndarray]:
        """Whether each truth (N,) of a calibrated predictive lies in each rule's set, that set's size, and which
        questions each rule for declining answers."""
        found: dict[str, np.ndarray] = {}
        for rule in self.sets:
            regions = regions_of(rule, pred, first)
            found |= {f"covered_{rule.method}": coverage(regions, y), f"size_{rule.method}": sizes(regions)}
        return {**found, **self.answered(pred)}

    def answered(self, pred: Predictive) -> dict[str, np.ndarray]:
        """Which inputs (N,) of a calibrated predictive each rule for declining answers."""
        sureness = sureness_of(pred) if self.declining else np.empty(0)
        return {f"answered_{rule.name}": rule.answers(sureness) for rule in self.declining}

    def __post_init__(self) -> None:
        """Refuse parts of several tasks, two of one name, and rules for declining that are not fitted here."""
        counts = (self.calibrator_examples, self.rule_examples)
        if min(counts) < 0:
            raise Misuse(f"{counts} examples: expected two counts")
        tasks = {"classification" if isinstance(rule, SetRule) else "regression" for rule in self.sets}
        tasks |= {self.calibrator.task} if self.calibrator is not None else set()
        uncertainties = {UNCERTAINTY[task] for task in tasks} or set(UNCERTAINTY.values())
        methods, names = [rule.method for rule in self.sets], [rule.name for rule in self.declining]
        if len(tasks) > 1 or len({*methods, *names}) < len(methods) + len(names):
            raise Misuse(f"{', '.join([*sorted(tasks), *methods, *names])}: expected one of each")
        for rule in self.declining:
            known = rule.name in DECLINING and rule.uncertainty in uncertainties
            if not known or bool(rule.costs) != (rule.name == COST):
                told = f"rule '{rule.name:.40}' by '{rule.uncertainty:.40}' with {len(rule.costs)} costs"
                raise Misuse(f"{told}: expected {', '.join(DECLINING)}; the first with two")


def posthoc_from_json(record: Any) -> PostHoc:
    """The post-hoc steps that `to_json` wrote, every part checked."""
    return from_json(record, PostHoc, "post-hoc record", (*calibrator_kinds(), SetRule, IntervalRule, Abstention))


def check_config(config: PostHocConfig, task: str) -> None:
    """Nothing, if the task knows what is wished for."""
    known = (*calibrator_names(task), NONE)
    if config.calibrate not in known:
        raise unknown(f"calibrator for {task}", config.calibrate, known)
    set_methods(task, config.sets)


def fit_posthoc(pred: Predictive, y: Any, config: PostHocConfig | None = None) -> PostHoc:
    """The post-hoc steps that examples (pred, y) teach; none of them may have been trained on.

    The calibrator learns from one random half and the rules from the other: sets keep their promise only if the
    examples behind them changed nothing before. Without a calibrator the rules have them all.
    """
    config = config or PostHocConfig()
    check_config(config, pred.task)
    targets = pred.labels(y) if pred.task == "classification" else pred.targets(y)
    if len(targets) < FEWEST:
        raise Misuse(f"{len(targets)} validation examples: expected at least {FEWEST} to fit post-hoc steps on")
    first, second = halves(len(targets), config)
    calibrator = None
    if config.calibrate != NONE:
        calibrator = fit_calibrator(config.calibrate, pred.at(first), targets[first])
    rest = pred.at(second) if calibrator is None else calibrator(pred.at(second))
    rules = tuple(
        fit_conformal(method, rest, targets[second], level=config.level)
        for method in set_methods(pred.task, config.sets)
    )
    declining = rules_for_declining(rest, targets[second], config)
    return PostHoc(calibrator, rules, declining, len(first), len(second))


def halves(count: int, config: PostHocConfig) -> tuple[Tensor, Tensor]:
    """The examples for the calibrator and those for the rules, drawn at random, always the same, and put in order."""
    if config.calibrate == NONE:
        return torch.arange(0), torch.arange(count)
    order = torch.from_numpy(np.random.default_rng(0).permutation(count))
    return order[: count // 2].sort().values, order[count // 2 :].sort().values


def set_methods(task: str, primary: str | None) -> list[str]:
    """The conformal methods of a task, the wished one first."""
    known = METHODS[task]
    if primary is not None and primary not in known:
        raise unknown(f"{task} method", primary, known)
    chosen = primary or PRIMARY[task]
    return [chosen, *(method for method in known if method != chosen)]


def rules_for_declining(pred: Predictive, targets: Tensor, config: PostHocConfig) -> tuple[Abstention, ...]:
    """The rules by cost and by risk; a regression has one by cost, if declining has a price."""
    sureness, losses = sureness_of(pred), losses_of(pred, targets)
    kind = UNCERTAINTY[pred.task]
    price = 0.2 if config.decline_cost is None and pred.task == "classification" else config.decline_cost
    found = []
    if price is not None:
        found.append(by_cost(sureness, losses, error_cost=config.error_cost, abstain_cost=price, uncertainty=kind))
    if pred.task == "classification":
        found.append(by_risk(sureness, losses, risk=config.risk, uncertainty=kind))
        found.append(by_risk_control(sureness, losses, risk=config.risk, uncertainty=kind))
    return tuple(found)


def sureness_of(pred: Predictive) -> np.ndarray:
    """What rules for declining look at (N,): confidence, or the standard deviation of y."""
    values = pred.confidence if pred.task == "classification" else pred.total_var.mean(-1).sqrt()
    return values.cpu().numpy()


def losses_of(pred: Predictive, targets: Tensor) -> np.ndarray:
    """What a prediction costs (N,): 1 if it is wrong, or its absolute error."""
    if pred.task == "classification":
        return (pred.predicted != targets).double().cpu().numpy()
    return (pred.mean - targets).abs().mean(-1).cpu().numpy()


def regions_of(rule: Rule, pred: Predictive, first: int) -> Regions:
    """The sets (N, K) or the ends of the intervals of a calibrated predictive."""
    return rule.sets(pred, first=first) if isinstance(rule, SetRule) else rule.intervals(pred)
