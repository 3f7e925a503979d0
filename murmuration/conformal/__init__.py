"""Sets and intervals that hold the truth as often as promised; see README.md for the path."""

from murmuration.conformal.classes import SetRule
from murmuration.conformal.columns import coverage, sizes
from murmuration.conformal.fitting import METHODS, Method, Rule, fit_conformal, rule_from_json
from murmuration.conformal.groups import GroupedRule, fit_by_group, grouped_from_json
from murmuration.conformal.numbers import IntervalRule
from murmuration.conformal.threshold import least_examples

__all__ = [
    "METHODS",
    "GroupedRule",
    "IntervalRule",
    "Method",
    "Rule",
    "SetRule",
    "coverage",
    "fit_by_group",
    "fit_conformal",
    "grouped_from_json",
    "least_examples",
    "rule_from_json",
    "sizes",
]
