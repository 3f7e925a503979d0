"""Seven predictions of the theory of embedded ensembles, each a function from a record to a verdict.

What "about", "flat" or "near" mean is fixed here, before looking: the constants below are the regions in which an
estimate has to lie. Every estimate is one number a seed; its interval is Student's over seeds.
"""

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

from murmuration.papers.embedded.found import Found, known
from murmuration.papers.embedded.running import Record
from murmuration.papers.embedded.settings import BETWEEN, PROBED, Cell, between_name
from murmuration.papers.embedded.tangents import spike_threshold
from murmuration.papers.verdicts import Verdict, estimated, slope

ROOMY = 1 / 8  # M / N up to which a layer is not full
ALIKE = 0.01  # accuracies this near are alike
FALL = 0.01  # an accuracy that is lower by this has fallen
FLAT = 0.002  # change of an accuracy a doubling of M that counts as none
SATURATED = 0.005  # gain of the last two doublings of M that counts as none
PROPORTIONAL = (0.75, 1.25)  # exponents that count as 1
OUT_OF_BULK = 1.25  # an eigenvalue this much above that of factors of mean 0 has left the bulk
NEAR = (0.5, 2.0)  # a ratio of thresholds that are near each other


def like_naive(found: Found) -> Verdict:
    """P1: while M / N is small, the independent arm is as good as separate networks."""
    roomy = [
        (width, models)
        for width in found.widths
        for models in found.models
        if models > 1 and models <= ROOMY * found.neurons(width)
    ]

    def gaps(name: str) -> list[float]:
        return known(mean_of(_gap(found, width, models, seed, name) for width, models in roomy) for seed in found.seeds)

    return Verdict(
        "P1",
        f"independent members are worth as much as separate networks while M / N is at most {ROOMY:g}",
        (
            estimated("ensemble accuracy, independent less naive", gaps("accuracy"), -ALIKE, ALIKE),
            estimated("member accuracy, independent less naive", gaps("member_accuracy"), -ALIKE, ALIKE),
        ),
        f"mean over {len(roomy)} cells of width and M",
    )


def _gap(found: Found, width: float, models: int, seed: int, name: str) -> float | None:
    ours, theirs = (found.score(Cell(arm, width, models, seed), name) for arm in ("independent", "naive"))
    return None if ours is None or theirs is None else ours - theirs


def train_falls_first(found: Found) -> Verdict:
    """P2: as M / N grows, training accuracy of members falls before the test accuracy of the ensemble."""
    per_seed, places = [], []
    for seed in found.seeds:
        leads = []
        for width in found.widths:
            falls = falls_of(found, width, seed, "member_train_accuracy")
            first = next((models for models, fall in falls.items() if fall >= FALL), None)
            tested = falls_of(found, width, seed, "accuracy")
            if first is not None and first in tested:
                leads.append(falls[first] - tested[first])
                places.append(first / found.neurons(width))
        per_seed.append(mean_of(leads))
    note = f"at M / N from {min(places):.2g} to {max(places):.2g}" if places else "training accuracy never fell"
    what = "by how much more member training accuracy has fallen than ensemble test accuracy"
    return Verdict(
        "P2",
        f"where member training accuracy has first fallen by {FALL:g}, ensemble test accuracy has fallen less",
        (estimated(what, known(per_seed), 0.0, math.inf),),
        note,
    )


def falls_of(found: Found, width: float, seed: int, name: str) -> dict[int, float]:
    """By how much a score of the independent arm is below that of its fewest members, for every larger M."""
    line = {m: found.score(Cell("independent", width, m, seed), name) for m in found.models if m > 1}
    there = {models: value for models, value in line.items() if value is not None}
    values = list(there.values())
    return {models: values[0] - value for models, value in there.items()}


def wider_hold_more(found: Found) -> Verdict:
    """P3: the number of members that a width tolerates grows in proportion to it."""
    per_seed, held = [], dict[int, list[float]]()
    for seed in found.seeds:
        tolerated = {found.neurons(width): tolerance(found, width, seed) for width in found.widths}
        there = {neurons: models for neurons, models in tolerated.items() if models is not None}
        for neurons, models in there.items():
            held.setdefault(neurons, []).append(models)
        if len(there) >= 3:
            per_seed.append(slope([math.log(n) for n in there], [math.log(m) for m in there.values()]))
    told = ", ".join(f"N={neurons}: {mean_of(models):.2g}" for neurons, models in sorted(held.items()))
    return Verdict(
        "P3",
        f"the M at which member training accuracy has fallen by {FALL:g} grows in proportion to the width N",
        (estimated("exponent of N", known(per_seed), *PROPORTIONAL),),
        f"M tolerated: {told}" if told else "training accuracy never fell",
    )


def tolerance(found: Found, width: float, seed: int) -> float | None:
    """The M at which member training accuracy is down by FALL, between grid points on a line in log M."""
    falls = falls_of(found, width, seed, "member_train_accuracy")
    for (before, low), (after, high) in pairwise(falls.items()):
        if low < FALL <= high:
            share = (FALL - low) / (high - low)
            return math.exp(math.log(before) + share * math.log(after / before))
    return None


def collective_saturates(found: Found) -> Verdict:
    """P4: in the collective arm members do not mind how many they are, and more of them soon add nothing."""
    several = [models for models in found.models if models > 1]
    most = max(several, default=0)
    flat, late = [], []
    for seed in found.seeds:
        slopes, gains = [], []
        for width in found.widths:
            line = {m: found.score(Cell("collective", width, m, seed), "member_accuracy") for m in several}
            there = {models: value for models, value in line.items() if value is not None}
            slopes.append(slope([math.log2(models) for models in there], list(there.values())))
            gains.append(_late_gain(found, width, seed, most))
        flat.append(mean_of(slopes))
        late.append(mean_of(gains))
    return Verdict(
        "P4",
        "collective members are as good alone however many there are, and the gain of their ensemble saturates",
        (
            estimated("member accuracy a doubling of M", known(flat), -FLAT, FLAT),
            estimated(f"ensemble gain from M={most // 4} to {most}", known(late), -SATURATED, SATURATED),
        ),
        "the gain is ensemble accuracy less member accuracy",
    )


def _late_gain(found: Found, width: float, seed: int, most: int) -> float | None:
    """By how much the gain of the ensemble grew over the last two doublings of M."""
    gains = []
    for models in (most // 4, most):
        cell = Cell("collective", width, models, seed)
        whole, alone = found.score(cell, "accuracy"), found.score(cell, "member_accuracy")
        if whole is None or alone is None:
            return None
        gains.append(whole - alone)
    return gains[1] - gains[0]


def sum_needs_small_steps(found: Found) -> Verdict:
    """P5: with gamma = M the collective arm needs steps that shrink as 1 / M."""
    return Verdict(
        "P5",
        "the largest stable step of collective members shrinks as 1 / M when gradients are summed, and not at all "
        "when they are averaged",
        (
            estimated("exponent of M, sum", exponents(found, "largest-step"), -PROPORTIONAL[1], -PROPORTIONAL[0]),
            estimated("exponent of M, mean", exponents(found, "largest-step-mean"), -0.25, 0.25),
        ),
        "plain gradient descent; steps are known to a factor of 1.41",
    )


def exponents(found: Found, arm: str) -> list[float]:
    """For every seed, the slope of the logarithm of what was probed over that of M."""
    width, numbers = PROBED["step"]
    made = []
    for seed in found.seeds:
        line = {models: found.score(Cell(arm, width, models, seed), "value") for models in numbers}
        there = {models: value for models, value in line.items() if value is not None}
        made.append(slope([math.log(models) for models in there], [math.log(value) for value in there.values()]))
    return known(made)


def mean_needs_many_steps(found: Found) -> Verdict:
    """P6: with gamma = 1 the independent arm needs about M times as many steps."""
    width, numbers = PROBED["steps"]
    per_seed, ratios = [], dict[int, list[float]]()
    for seed in found.seeds:
        powers = []
        for models in numbers:
            mean, total = (found.score(Cell(arm, width, models, seed), "value") for arm in ("steps-mean", "steps"))
            if mean is not None and total is not None:
                powers.append(math.log(mean / total) / math.log(models))
                ratios.setdefault(models, []).append(mean / total)
        per_seed.append(mean_of(powers))
    told = ", ".join(f"M={models}: {mean_of(each):.3g}" for models, each in ratios.items())
    return Verdict(
        "P6",
        "independent members need about M times as many steps when gradients are averaged instead of summed",
        (estimated("exponent of M in the ratio of steps", known(per_seed), *PROPORTIONAL),),
        f"times as many steps: {told}" if told else "",
    )


def switch_at_threshold(found: Found) -> Verdict:
    """P7: members begin to act on each other where the mean of factors is near (M N)^(-1/4)."""
    width, (models,) = PROBED[BETWEEN]
    expected = spike_threshold(models, found.neurons(width))
    switches = known(switch(found, seed) for seed in found.seeds)
    return Verdict(
        "P7",
        f"the largest eigenvalue of members' alignments leaves the bulk (is {OUT_OF_BULK:g} times that of mean 0) at a "
        "mean of factors near (M N)^(-1/4), blurred by depth",
        (estimated("mean at the switch over (M N)^(-1/4)", [each / expected for each in switches], *NEAR),),
        f"(M N)^(-1/4) = {expected:.3g}, switch at {mean_of(switches):.3g}" if switches else "no switch was seen",
    )


def switch(found: Found, seed: int) -> float | None:
    """The mean of factors at which the largest eigenvalue has left the bulk, between measured means on a line."""
    width, (models,) = PROBED[BETWEEN]
    tops = [found.score(Cell(between_name(mean), width, models, seed), "top_alignment") for mean in found.means]
    there = [(mean, top) for mean, top in zip(found.means, tops, strict=True) if top is not None]
    if not there or there[0][0] != 0:
        return None
    goal = OUT_OF_BULK * there[0][1]
    for (before, low), (after, high) in pairwise(there):
        if low < goal <= high:
            return before + (goal - low) / (high - low) * (after - before)
    return None


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are there."""
    there = known(values)
    return sum(there) / len(there) if there else None


PREDICTIONS: tuple[Callable[[Found], Verdict], ...] = (
    like_naive,
    train_falls_first,
    wider_hold_more,
    collective_saturates,
    sum_needs_small_steps,
    mean_needs_many_steps,
    switch_at_threshold,
)


def verdicts(record: Record) -> list[Verdict]:
    """All verdicts on a record."""
    found = Found(record)
    return [predict(found) for predict in PREDICTIONS]
