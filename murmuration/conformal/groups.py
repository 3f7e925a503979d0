"""One rule for each group of inputs, so that the promise holds in every group and not only on average."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.conformal.classes import SetRule
from murmuration.conformal.fitting import Rule, fit_conformal, rule_from_json
from murmuration.conformal.numbers import IntervalRule
from murmuration.errors import Failure, Misuse
from murmuration.predictive import Predictive


@dataclass(frozen=True)
class GroupedRule:
    """A rule for each group, and one of all examples for groups that were not seen (Vovk 2012, Mondrian)."""

    rules: Mapping[str, Rule]
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

    def to_json(self) -> dict[str, Any]:
        rules = {name: rule.to_json() for name, rule in self.rules.items()}
        return {"kind": "grouped", "rules": rules, "rest": self.rest.to_json()}


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


def grouped_from_json(record: Any) -> GroupedRule:
    """The grouped rule that `to_json` wrote down, every field checked."""
    fields = {"kind", "rules", "rest"}
    if not isinstance(record, dict) or set(record) != fields or not isinstance(record["rules"], dict):
        raise Failure(f"the grouped rule is damaged: expected an object of {', '.join(sorted(fields))}")
    rules = {name: rule_from_json(rule) for name, rule in record["rules"].items()}
    return GroupedRule(rules, rule_from_json(record["rest"]))


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
