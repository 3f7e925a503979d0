"""Intervals of a regression, each target on its own: a centre or two ends, widened by what was measured."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

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

    def to_json(self) -> dict[str, Any]:
        return {"kind": "intervals", **to_record(self)}


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
