"""When to answer and when to decline: rules chosen on examples kept aside, from how sure and how wrong each was.

`values` (N,) are how sure or unsure the predictions are, by name: a larger "confidence" is surer, while every
other uncertainty (entropy, mutual_information, total_std, ...) is surer the smaller. `losses` (N,) are what the
predictions cost: 0 and 1 for right and wrong, or for a regression absolute or squared errors. Costs and
curves take any losses; `by_risk_control` needs losses within [0, 1], `by_risk` losses of 0 and 1.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.conformal.risk import Steps, certified_threshold, controlled_threshold, steps_of
from murmuration.conformal.written import from_record, to_record
from murmuration.errors import Failure, Misuse

SURER_WHEN_LARGER = ("confidence",)
ERROR_COST, ABSTAIN_COST = 1.0, 0.2


@dataclass(frozen=True)
class Abstention:
    """A rule that answers where an uncertainty is on the right side of a threshold, and declines elsewhere.

    An infinite threshold answers everything, or nothing.
    """

    name: str  # "cost", "risk" or "risk-control"
    uncertainty: str  # what is compared: "confidence", "entropy", "total_std", ...
    threshold: float
    target: float  # the risk aimed at; for costs, the error probability at which declining starts to pay
    promise: str  # what is guaranteed on inputs like the examples, in words
    examples: int  # the threshold was chosen on
    costs: tuple[float, ...] = ()  # of an error and of declining, for a rule that weighs them

    def answers(self, values: Any) -> np.ndarray:
        """Which inputs (N,) are answered, from their uncertainty (N,); NaN is declined.

        >>> Abstention("risk", "entropy", 0.5, 0.05, "", 100).answers([0.1, 0.5, 0.9]).tolist()
        [True, True, False]
        """
        numbers = np.asarray(values, dtype=float)
        return numbers >= self.threshold if larger_is_surer(self.uncertainty) else numbers <= self.threshold

    def cost(self, values: Any, losses: Any) -> np.ndarray:
        """What each input costs (N,): its loss times the cost of an error if answered, else that of declining."""
        if len(self.costs) != 2:
            raise Misuse(f"rule '{self.name}' weighs no costs: choose it with by_cost(...) to know what it costs")
        return np.where(self.answers(values), self.costs[0] * np.asarray(losses, dtype=float), self.costs[1])

    def to_json(self) -> dict[str, Any]:
        return to_record(self)

    @staticmethod
    def from_json(record: Any) -> "Abstention":
        """The rule that `to_json` wrote down, every field checked."""
        rule = from_record(Abstention, record, "the rule of abstention")
        if len(rule.costs) not in (0, 2):
            raise Failure(f"the rule of abstention is damaged: {len(rule.costs)} costs, expected two or none")
        return rule


def by_cost(
    values: Any,
    losses: Any,
    *,
    error_cost: float = ERROR_COST,
    abstain_cost: float = ABSTAIN_COST,
    uncertainty: str = "confidence",
) -> Abstention:
    """The rule of the smallest mean cost on these examples; of several such, the one that answers most.

    An answer costs `error_cost` times its loss, declining costs `abstain_cost`. With calibrated
    probabilities the threshold comes near `chow_threshold`; where they are not, it follows the data.
    """
    target = 1 - chow_threshold(error_cost, abstain_cost)
    steps = examples_of(values, losses, uncertainty)
    threshold = steps.threshold(cheapest(steps, error_cost, abstain_cost))
    return Abstention(
        name="cost",
        uncertainty=uncertainty,
        threshold=threshold if larger_is_surer(uncertainty) else -threshold,
        target=target,
        promise=f"none; the smallest mean cost on {steps.examples:,} examples (an error costs {error_cost:g}, "
        f"declining {abstain_cost:g})",
        examples=steps.examples,
        costs=(float(error_cost), float(abstain_cost)),
    )


def cheapest(steps: Steps, error_cost: float, abstain_cost: float) -> int:
    """How many groups of equals to answer for the smallest cost; the most, among costs equal up to rounding."""
    loss, count = np.insert(steps.loss, 0, 0.0), np.insert(steps.count, 0, 0)
    cost = error_cost * loss + abstain_cost * (steps.examples - count)  # (G + 1,)
    rounding = 1e-12 * (error_cost * loss[-1] + abstain_cost * steps.examples)
    return int(np.flatnonzero(cost <= cost.min() + rounding)[-1])


def chow_threshold(error_cost: float = ERROR_COST, abstain_cost: float = ABSTAIN_COST) -> float:
    """The confidence below which declining is cheaper, if probabilities are calibrated: 1 - abstain / error.

    Chow 1970. At most zero if declining costs as much as an error: then everything is answered.
    """
    if not (0 < error_cost < math.inf and 0 <= abstain_cost < math.inf):
        got = f"an error cost of {error_cost:g} and an abstain cost of {abstain_cost:g}"
        raise Misuse(f"{got}: expected the first above 0 and the second at least 0, for example 1 and 0.2")
    return 1 - abstain_cost / error_cost


def by_risk(
    values: Any,
    losses: Any,
    *,
    risk: float = 0.05,
    confidence_level: float = 0.95,
    uncertainty: str = "confidence",
) -> Abstention:
    """The rule that answers most while at most a share `risk` of its answers is wrong, surely enough.

    "Surely enough": with probability `confidence_level` over the choice of the examples, by an exact binomial
    test (see `certified_threshold`). Losses must be 0 or 1. If the examples are too few or the errors
    too many, nothing is answered and the promise says so.
    """
    check_share(risk, "risk", 0.05)
    check_share(confidence_level, "confidence_level", 0.95)
    numbers, wrong = checked(values, losses)
    odd = wrong[~np.isin(wrong, (0.0, 1.0))]
    if len(odd):
        raise Misuse(f"a loss of {odd[0]:g}: by_risk counts errors, and needs losses of 0 (right) and 1 (wrong)")
    flipped = larger_is_surer(uncertainty)
    largest = certified_threshold(1 - numbers if flipped else numbers, wrong, risk, confidence_level)
    threshold = 1 - largest if flipped else largest
    promise = f"with probability {confidence_level:g}, at most {risk:.3g} of the answers are wrong"
    if largest == -math.inf:
        promise = f"none: {len(wrong):,} examples do not show that even the surest answers err at most {risk:.3g}"
    return Abstention("risk", uncertainty, threshold, risk, promise, len(wrong))


def by_risk_control(values: Any, losses: Any, *, risk: float = 0.05, uncertainty: str = "confidence") -> Abstention:
    """The rule that answers most while the mean over all inputs of loss times answered is at most `risk`.

    An expectation, over the choice of the examples too (see `controlled_threshold`), and over all inputs:
    with half of them declined, the error rate among the answered may be twice the risk. Losses in [0, 1].
    """
    check_share(risk, "risk", 0.05)
    numbers, costs = checked(values, losses)
    if costs.min() < 0 or costs.max() > 1:
        raise Misuse(f"losses from {costs.min():g} to {costs.max():g}: by_risk_control needs them within [0, 1]")
    threshold = controlled_threshold(sureness_of(numbers, uncertainty), costs, risk)
    promise = f"on average, at most {risk:.3g} of all inputs are answered and wrong"
    if threshold == math.inf:
        least = math.ceil(round(1 / risk, 9)) - 1
        promise = f"none: a risk of {risk:.3g} needs at least {least:,} examples, and there are {len(costs):,}"
    threshold = threshold if larger_is_surer(uncertainty) else -threshold
    return Abstention("risk-control", uncertainty, threshold, risk, promise, len(costs))


def coverage_at_risk(values: Any, losses: Any, risk: float, *, uncertainty: str = "confidence") -> float:
    """The largest share of inputs that can be answered with a mean loss of at most `risk` among them.

    Inputs as sure as each other are answered together or not at all. Measured on these examples: a description,
    not a promise.

    >>> coverage_at_risk([0.9, 0.8, 0.7, 0.6], [0, 0, 1, 1], 0.34)
    0.75
    """
    steps = examples_of(values, losses, uncertainty)
    within = steps.count[steps.loss <= risk * steps.count * (1 + 1e-12)]
    return float(within[-1] / steps.examples) if len(within) else 0.0


def risk_at_coverage(values: Any, losses: Any, coverage: float, *, uncertainty: str = "confidence") -> float:
    """The mean loss among the surest share `coverage` of inputs, at least one; ties share their losses.

    >>> risk_at_coverage([0.9, 0.8, 0.7, 0.7], [0, 0, 1, 0], 0.75)
    0.16666666666666666
    """
    if not 0 < coverage <= 1:
        raise Misuse(f"coverage {coverage} is outside (0, 1]: write for example 0.8")
    steps = examples_of(values, losses, uncertainty)
    answered = math.ceil(round(coverage * steps.examples, 9))
    return float(np.interp(answered, np.insert(steps.count, 0, 0), np.insert(steps.loss, 0, 0.0)) / answered)


def examples_of(values: Any, losses: Any, uncertainty: str) -> Steps:
    """The checked examples, from the surest to the least sure."""
    numbers, costs = checked(values, losses)
    return steps_of(sureness_of(numbers, uncertainty), costs)


def checked(values: Any, losses: Any) -> tuple[np.ndarray, np.ndarray]:
    """Values and losses as numbers (N,), all finite."""
    numbers, costs = np.asarray(values, dtype=float), np.asarray(losses, dtype=float)
    if numbers.ndim != 1 or numbers.shape != costs.shape or not len(numbers):
        raise Misuse(f"values of shape {numbers.shape} and losses of shape {costs.shape}: expected (N,) both, N >= 1")
    for name, column in (("value", numbers), ("loss", costs)):
        bad = np.flatnonzero(~np.isfinite(column))
        if len(bad):
            raise Misuse(f"{name} {column[bad[0]]} at [{bad[0]}]: expected a finite number; leave such inputs out")
    return numbers, costs


def larger_is_surer(uncertainty: str) -> bool:
    return uncertainty in SURER_WHEN_LARGER


def sureness_of(numbers: np.ndarray, uncertainty: str) -> np.ndarray:
    return numbers if larger_is_surer(uncertainty) else -numbers


def check_share(share: float, name: str, usual: float) -> None:
    if not 0 < share < 1:
        raise Misuse(f"{name} {share} is outside (0, 1): write for example {usual}")
