"""Abstention."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.errors import Misuse

# Where the search for a certified threshold starts, in multiples of the count that could ever pass. Each start has an
# equal share of the error probability: more of them lose more to sharing than they find.
STARTS = (1, 4)
GRID_BITS = 7  # significant bits of the thresholds that are tested: neighbours differ by less than 2 %


@dataclass(frozen=True, eq=False)
class Steps:
    """Answering more and more: down to each distinct sureness, how many are answered and what they lose."""

    sureness: np.ndarray  # (G,) distinct, falling
    count: np.ndarray  # (G,) answered down to it, equals together
    loss: np.ndarray  # (G,) the sum of their losses

    @property
    def examples(self) -> int:
        return int(self.count[-1])

    def threshold(self, groups: int) -> float:
        """The threshold that answers the first so many groups: just above the surest declined, or -inf."""
        if groups == len(self.sureness):
            return -math.inf
        return float(np.nextafter(self.sureness[groups], np.inf))


def steps_of(sureness: np.ndarray, losses: np.ndarray) -> Steps:
    """The steps from the surest example to the least sure."""
    falling, group = np.unique(-sureness, return_inverse=True)
    return Steps(-falling, np.cumsum(np.bincount(group)), np.cumsum(np.bincount(group, weights=losses)))


def controlled_threshold(sureness: np.ndarray, losses: np.ndarray, risk: float) -> float:
    """The smallest threshold t for which (n R(t) + 1) / (n + 1) <= risk, from sureness and losses (n,) in [0, 1].

    R(t) is the mean over all examples of loss times answered, which only falls as t grows. A new input then
    is answered and loses no more than `risk` in expectation (conformal risk control: Angelopoulos et al.
    2024). With n < 1 / risk - 1 examples nothing can be promised, and nothing is answered.
    """
    steps = steps_of(sureness, losses)
    budget = round(risk * (steps.examples + 1), 9) - 1
    if budget < 0:
        return math.inf
    return steps.threshold(int((steps.loss <= budget).sum()))


def certified_threshold(uncertainty: np.ndarray, wrong: np.ndarray, risk: float, confidence_level: float) -> float:
    """The largest uncertainty to answer, so that at most a share `risk` of the answers is wrong; -inf for none.

    This holds with probability `confidence_level` over the choice of the examples. Answering up to t is
    accepted if so few errors among n_t answers would have probability at most d under a true error rate
    `risk`: P(Bin(n_t, risk) <= errors) <= d, the exact test (Clopper and Pearson 1934; for selective
    prediction, Geifman and El-Yaniv 2017). Uncertainties are tested in growing order until one fails. Such a
    sequence costs nothing for its length if it is fixed beforehand (Learn then Test: Angelopoulos et al.
    2021), so thresholds are numbers of few bits rather than the examples' own values. One unlucky error
    among the surest few must not end the search: it starts at the smallest count that could ever pass and
    anew at four times that, each time with d half of 1 - confidence_level.
    """
    from scipy.special import bdtr

    steps = steps_of(-on_grid(uncertainty), wrong)
    share = (1 - confidence_level) / len(STARTS)
    passed = bdtr(steps.loss, steps.count, risk) <= share  # (G,)
    least = math.ceil(math.log(share) / math.log1p(-risk))
    found = 0
    for start in np.searchsorted(steps.count, least * np.array(STARTS)):
        failed = np.flatnonzero(~passed[start:])
        run = failed[0] if len(failed) else len(passed) - start
        found = max(found, start + run if run > 0 else 0)
    return float(-steps.sureness[found - 1]) if found else -math.inf


def on_grid(values: np.ndarray) -> np.ndarray:
    """Each value (N,) rounded up to a number of seven significant bits: a grid that no data had a say in.

    >>> on_grid(np.array([0.0, 0.5, 0.501, 100.1])).tolist()
    [0.0, 0.5, 0.5078125, 101.0]
    """
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.ceil(np.ldexp(mantissa, GRID_BITS)), exponent - GRID_BITS)


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

    def __post_init__(self) -> None:
        if len(self.costs) not in (0, 2):
            raise Misuse(f"{len(self.costs)} costs of an abstention rule: expected two or none")

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
