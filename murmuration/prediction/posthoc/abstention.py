"""Selective prediction: thresholds on an uncertainty above which an input is not answered, chosen on held-out examples.

`values` (N,) are uncertainties of the predictions, by name: a larger "confidence" is more certain; every other name
(entropy, mutual_information, total_std, ...) is an uncertainty, and smaller is more certain. `losses` (N,) are 0 and 1
for right and wrong, or for a regression absolute or squared errors. `by_cost` and the curves take any losses,
`by_risk_control` losses within [0, 1], `by_error_rate` losses of 0 and 1.

Inside, `certainty` is larger the more certain; an input is answered if its certainty is at least the threshold: -inf
answers everything, inf nothing.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.data.numpy_arrays import as_array
from murmuration.system.errors import Misuse

# Where the search for a certified threshold starts, in multiples of the smallest count that could pass. The error
# probability is divided by the number of starts: more of them lose more than they find.
STARTS = (1, 4)
GRID_BITS = 7  # significant bits of the thresholds that are tested: neighbours differ by less than 2 %
ERROR_COST, ABSTAIN_COST = 1.0, 0.2


@dataclass(frozen=True)
class Abstention:
    """A rule that answers inputs on the certain side of a threshold, and abstains on the others.

    An infinite threshold answers everything, or nothing.
    """

    name: str  # "cost", "error-rate" or "risk-control"
    uncertainty: str  # compared with the threshold: "confidence", "entropy", "total_std", ...
    threshold: float
    target: float  # the nominal error rate or risk; for costs, the error probability at which abstaining starts to pay
    guarantee: str  # on inputs exchangeable with the examples, in words
    examples: int  # the threshold was chosen on
    costs: tuple[float, ...] = ()  # of an error and of abstaining, for a rule by cost

    def __post_init__(self) -> None:
        if len(self.costs) not in (0, 2):
            raise Misuse(f"{len(self.costs)} costs of an abstention rule: expected two or none")

    def answers(self, values: Any) -> np.ndarray:
        """Return which inputs (N,) are answered, from their uncertainty (N,); NaN is not.

        >>> Abstention("error-rate", "entropy", 0.5, 0.05, "", 100).answers([0.1, 0.5, 0.9]).tolist()
        [True, True, False]
        """
        numbers = np.asarray(values, dtype=float)
        return numbers >= self.threshold if larger_is_certain(self.uncertainty) else numbers <= self.threshold

    def cost(self, values: Any, losses: Any) -> np.ndarray:
        """Return the cost (N,) of each input: `error_cost` times its loss if answered, else `abstain_cost`."""
        if len(self.costs) != 2:
            raise Misuse(f"rule '{self.name}' has no costs: choose it with by_cost(...)")
        return np.where(self.answers(values), self.costs[0] * np.asarray(losses, dtype=float), self.costs[1])


def by_cost(
    values: Any,
    losses: Any,
    *,
    error_cost: float = ERROR_COST,
    abstain_cost: float = ABSTAIN_COST,
    uncertainty: str = "confidence",
) -> Abstention:
    """Return the rule with the smallest mean cost on these examples; among equals, the one that answers most.

    An answer costs `error_cost` times its loss, abstaining costs `abstain_cost`. With calibrated probabilities the
    threshold is near `chow_threshold`; where they are not, it follows the examples.
    """
    target = 1 - chow_threshold(error_cost, abstain_cost)
    numbers, loss_values = check_columns(values, losses)
    path = selection_path(certainty_of(numbers, uncertainty), loss_values)
    loss, answered = np.insert(path.loss, 0, 0.0), np.insert(path.answered, 0, 0)
    cost = error_cost * loss + abstain_cost * (path.examples - answered)  # (G + 1,), by the number of steps
    rounding = 1e-12 * (error_cost * loss[-1] + abstain_cost * path.examples)
    threshold = path.threshold(int(np.flatnonzero(cost <= cost.min() + rounding)[-1]))
    threshold = threshold if larger_is_certain(uncertainty) else -threshold
    costs = float(error_cost), float(abstain_cost)
    price = f"(error {error_cost:g}, abstain {abstain_cost:g})"
    guarantee = f"no guarantee; smallest mean cost on {path.examples:,} examples {price}"
    return Abstention("cost", uncertainty, threshold, target, guarantee, path.examples, costs)


def chow_threshold(error_cost: float = ERROR_COST, abstain_cost: float = ABSTAIN_COST) -> float:
    """Return the confidence below which abstaining is cheaper: 1 - abstain_cost / error_cost (Chow 1970).

    At most zero if abstaining costs as much as an error: then everything is answered.
    """
    if not (0 < error_cost < math.inf and 0 <= abstain_cost < math.inf):
        got = f"an error cost of {error_cost:g} and an abstain cost of {abstain_cost:g}"
        raise Misuse(f"{got}: expected the first above 0 and the second at least 0, for example 1 and 0.2")
    return 1 - abstain_cost / error_cost


def by_error_rate(
    values: Any,
    losses: Any,
    *,
    max_error_rate: float = 0.05,
    confidence_level: float = 0.95,
    uncertainty: str = "confidence",
) -> Abstention:
    """Return the rule that answers most with an error rate of at most `max_error_rate` among its answers.

    It holds with probability `confidence_level` over the choice of the examples, by an exact binomial test (see
    `certified_threshold`). Losses must be 0 or 1. With too few examples or too many errors nothing is answered, and
    the rule says so.
    """
    check_open_unit(max_error_rate, "max_error_rate", 0.05)
    check_open_unit(confidence_level, "confidence_level", 0.95)
    numbers, wrong = check_columns(values, losses)
    if len(odd := wrong[~np.isin(wrong, (0.0, 1.0))]):
        raise Misuse(f"a loss of {odd[0]:g}: by_error_rate counts errors, and needs losses of 0 (right) and 1 (wrong)")
    flipped = larger_is_certain(uncertainty)
    largest = certified_threshold(1 - numbers if flipped else numbers, wrong, max_error_rate, confidence_level)
    threshold = 1 - largest if flipped else largest
    guarantee = f"with probability {confidence_level:g}, at most {max_error_rate:.3g} of the answers are wrong"
    if largest == -math.inf:
        unshown = f"even the most certain answers have an error rate of at most {max_error_rate:.3g}"
        guarantee = f"no guarantee: {len(wrong):,} examples do not show that {unshown}"
    return Abstention("error-rate", uncertainty, threshold, max_error_rate, guarantee, len(wrong))


def by_risk_control(values: Any, losses: Any, *, max_risk: float = 0.05, uncertainty: str = "confidence") -> Abstention:
    """Return the rule that answers most with a mean over all inputs of loss times answered of at most `max_risk`.

    The mean is an expectation over the choice of the examples too (see `controlled_threshold`), and over all inputs:
    with half of them answered, the error rate among the answered may be twice `max_risk`. Losses in [0, 1].
    """
    check_open_unit(max_risk, "max_risk", 0.05)
    numbers, costs = check_columns(values, losses)
    if costs.min() < 0 or costs.max() > 1:
        raise Misuse(f"losses from {costs.min():g} to {costs.max():g}: by_risk_control needs them within [0, 1]")
    threshold = controlled_threshold(certainty_of(numbers, uncertainty), costs, max_risk)
    guarantee = f"on average, at most {max_risk:.3g} of all inputs are answered and wrong"
    if threshold == math.inf:
        fewest = math.ceil(round(1 / max_risk, 9)) - 1
        guarantee = f"no guarantee: a risk of {max_risk:.3g} needs at least {fewest:,} examples, got {len(costs):,}"
    threshold = threshold if larger_is_certain(uncertainty) else -threshold
    return Abstention("risk-control", uncertainty, threshold, max_risk, guarantee, len(costs))


# Thresholds


@dataclass(frozen=True, eq=False)
class SelectionPath:
    """Answered inputs and their losses as the threshold falls, one step for each distinct certainty."""

    certainty: np.ndarray  # (G,) distinct, decreasing
    answered: np.ndarray  # (G,) number of examples of at least that certainty
    loss: np.ndarray  # (G,) sum of their losses

    @property
    def examples(self) -> int:
        return int(self.answered[-1])

    def threshold(self, steps: int) -> float:
        """Return the threshold that answers a number of first steps: just above the next certainty, or -inf."""
        return -math.inf if steps == len(self.certainty) else float(np.nextafter(self.certainty[steps], np.inf))


def selection_path(certainty: np.ndarray, losses: np.ndarray) -> SelectionPath:
    """Return the path from the most certain example to the least, from certainty and losses (N,)."""
    decreasing, group = np.unique(-certainty, return_inverse=True)
    return SelectionPath(-decreasing, np.cumsum(np.bincount(group)), np.cumsum(np.bincount(group, weights=losses)))


def controlled_threshold(certainty: np.ndarray, losses: np.ndarray, max_risk: float) -> float:
    """Return the smallest t with (n R(t) + 1) / (n + 1) <= max_risk, from certainty and losses (n,) in [0, 1].

    R(t) is the mean over all examples of loss times answered, which decreases in t. The expected loss times answered of
    a new input is then at most `max_risk` (conformal risk control: Angelopoulos et al. 2024). With n < 1 / max_risk - 1
    examples there is no such threshold, and nothing is answered (inf).
    """
    path = selection_path(certainty, losses)
    budget = round(max_risk * (path.examples + 1), 9) - 1
    return math.inf if budget < 0 else path.threshold(int((path.loss <= budget).sum()))


def certified_threshold(
    uncertainty: np.ndarray, wrong: np.ndarray, max_error_rate: float, confidence_level: float
) -> float:
    """Return the largest uncertainty to answer with an error rate of at most `max_error_rate`; -inf for none.

    It holds with probability `confidence_level` over the choice of the examples. Answering up to t passes if its number
    of errors among n_t answers has probability at most d under the error rate r = `max_error_rate`:
    P(Bin(n_t, r) <= errors) <= d, the exact test (Clopper and Pearson 1934; for selective prediction, Geifman and
    El-Yaniv 2017). Thresholds are tested in increasing order until one fails. Such a sequence needs no correction for
    its length if it is fixed beforehand (Learn then Test: Angelopoulos et al. 2021), so thresholds lie on a grid of few
    bits rather than at the examples' own values. One error among the most certain few must not end the search: it
    starts at the smallest count that could pass and again at four times that, each with d = (1 - confidence_level) / 2.
    """
    from scipy.special import bdtr

    path = selection_path(-on_grid(uncertainty), wrong)
    level = (1 - confidence_level) / len(STARTS)
    passed = bdtr(path.loss, path.answered, max_error_rate) <= level  # (G,)
    fewest = math.ceil(min(math.log(level) / math.log1p(-max_error_rate), len(uncertainty) + 1))
    steps = 0
    for start in np.searchsorted(path.answered, fewest * np.array(STARTS)):
        failed = np.flatnonzero(~passed[start:])
        run = failed[0] if len(failed) else len(passed) - start
        steps = max(steps, start + run if run > 0 else 0)
    return float(-path.certainty[steps - 1]) if steps else -math.inf


def on_grid(values: np.ndarray) -> np.ndarray:
    """Return each value (N,) rounded up to seven significant bits: a grid that does not depend on the data.

    >>> on_grid(np.array([0.0, 0.5, 0.501, 100.1])).tolist()
    [0.0, 0.5, 0.5078125, 101.0]
    """
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.ceil(np.ldexp(mantissa, GRID_BITS)), exponent - GRID_BITS)


def check_columns(values: Any, losses: Any) -> tuple[np.ndarray, np.ndarray]:
    """Check values and losses and return them as float arrays (N,)."""
    numbers, costs = (as_array(column).astype(float) for column in (values, losses))
    if numbers.ndim != 1 or numbers.shape != costs.shape or not len(numbers):
        raise Misuse(f"values of shape {numbers.shape} and losses of shape {costs.shape}: expected (N,) both, N >= 1")
    for name, column in (("value", numbers), ("loss", costs)):
        if len(bad := np.flatnonzero(~np.isfinite(column))):
            raise Misuse(f"{name} {column[bad[0]]} at [{bad[0]}]: expected a finite number; leave such inputs out")
    return numbers, costs


def larger_is_certain(uncertainty: str) -> bool:
    """Return whether larger values of the named uncertainty mean more certain: of "confidence" alone."""
    return uncertainty == "confidence"


def certainty_of(values: np.ndarray, uncertainty: str) -> np.ndarray:
    """Return the values (N,) with the sign that makes larger mean more certain."""
    return values if larger_is_certain(uncertainty) else -values


def check_open_unit(value: float, name: str, usual: float) -> None:
    """Refuse a number outside (0, 1)."""
    if not 0 < value < 1:
        raise Misuse(f"{name} {value} is outside (0, 1): write for example {usual}")
