"""When to decline: thresholds on how sure a prediction is, chosen on examples kept aside, with a guarantee.

Everywhere here `sureness` is larger the surer, and an input is answered if its sureness is at least the
threshold: -inf answers everything, inf nothing.
"""

import math
from dataclasses import dataclass

import numpy as np

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
