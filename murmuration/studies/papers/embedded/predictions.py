"""Seven predictions of the theory of embedded ensembles, each a function from results to a verdict.

The constants below are the regions in which an estimate has to lie; they were fixed before the records were made. Every
estimate is a mean over seeds with Student's interval, which needs three of them: two agree by chance too often.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from murmuration.reports.formatting import percent, plural
from murmuration.studies.kernels import spike_threshold
from murmuration.studies.papers.embedded.record import Results, known
from murmuration.studies.papers.embedded.settings import BETWEEN, PROBED, Cell, between_name
from murmuration.studies.papers.record import Record
from murmuration.studies.verdicts import Verdict, estimate

ROOMY = 1 / 8  # M / N up to which independent members should not interfere
ALIKE = 0.01  # accuracies closer than this count as equal
FALL = 0.01  # a decrease of accuracy by this counts as a fall
FLAT = 0.002  # change of accuracy per doubling of M that counts as none
SATURATED = 0.005  # gain of the last two doublings of M that counts as none
MIN_SATURATED = 16  # members: a gain from 2 to 8 has not saturated
PROPORTIONAL = (0.75, 1.25)  # exponents that count as 1
OUT_OF_BULK = 1.25  # an eigenvalue so many times that of factors of mean 0 counts as outside the bulk
NEAR = (0.5, 2.0)  # a ratio of thresholds that count as near each other
TRAINED = 0.9  # training accuracy of the widest separate networks below which they count as undertrained


def slope(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return the least-squares slope of points; None with fewer than two different x.

    >>> slope([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    2.0
    """
    if len(set(x)) < 2:
        return None
    return statistics.linear_regression(x, y).slope


def like_naive(found: Results) -> Verdict:
    """P1: while M / N is small, the independent arm is as accurate as separate networks."""
    roomy = [(w, models) for w in found.widths for models in found.models if 1 < models <= ROOMY * found.neurons(w)]

    def gap(width: float, models: int, seed: int, name: str) -> float | None:
        ours, theirs = (found.score(Cell(arm, width, models, seed), name) for arm in ("independent", "naive"))
        return None if ours is None or theirs is None else ours - theirs

    def gaps(name: str) -> list[float]:
        return known(mean_of(gap(*shape, seed, name) for shape in roomy) for seed in found.seeds)

    return Verdict(
        "P1",
        f"independent members are as accurate as separate networks while M / N is at most {ROOMY:g}",
        (
            estimate("ensemble accuracy, independent less naive", gaps("accuracy"), -ALIKE, ALIKE),
            estimate("member accuracy, independent less naive", gaps("member_accuracy"), -ALIKE, ALIKE),
        ),
        f"mean over {len(roomy)} cells of width and M",
    )


def train_falls_first(results: Results) -> Verdict:
    """P2: as M / N grows, training accuracy of members falls before the test accuracy of the ensemble."""
    per_seed, places = [], []
    for seed in results.seeds:
        leads = []
        for width in results.widths:
            falls = falls_of(results, width, seed, "member_train_accuracy")
            first = next((models for models, fall in falls.items() if fall >= FALL), None)
            tested = falls_of(results, width, seed, "accuracy")
            if first is not None and first in tested:
                leads.append(falls[first] - tested[first])
                places.append(first / results.neurons(width))
        per_seed.append(mean_of(leads))
    note = f"at M / N from {min(places):.2g} to {max(places):.2g}" if places else "training accuracy never fell"
    quantity = "by how much more member training accuracy has fallen than ensemble test accuracy"
    return Verdict(
        "P2",
        f"where member training accuracy has first fallen by {FALL:g}, ensemble test accuracy has fallen less",
        (estimate(quantity, known(per_seed), 0.0, math.inf),),
        note,
    )


def falls_of(found: Results, width: float, seed: int, name: str) -> dict[int, float]:
    """Return decrease of a score of the independent arm from the smallest M on, for every M."""
    line = found.line("independent", width, [models for models in found.models if models > 1], seed, name)
    return {models: next(iter(line.values())) - value for models, value in line.items()}


def wider_hold_more(results: Results) -> Verdict:
    """P3: the number of members that a width tolerates grows in proportion to it."""
    per_seed, tolerated_by_width = [], dict[int, list[float]]()
    for seed in results.seeds:
        tolerated = {results.neurons(width): members_tolerated(results, width, seed) for width in results.widths}
        reached = {neurons: models for neurons, models in tolerated.items() if models is not None}
        for neurons, models in reached.items():
            tolerated_by_width.setdefault(neurons, []).append(models)
        if len(reached) >= 3:
            per_seed.append(slope([math.log(n) for n in reached], [math.log(m) for m in reached.values()]))
    listed = ", ".join(f"N={neurons}: {mean_of(models):.2g}" for neurons, models in sorted(tolerated_by_width.items()))
    return Verdict(
        "P3",
        f"the M at which member training accuracy has fallen by {FALL:g} grows in proportion to the width N",
        (estimate("exponent of N", known(per_seed), *PROPORTIONAL),),
        f"M tolerated: {listed}" if listed else "training accuracy never fell",
    )


def members_tolerated(found: Results, width: float, seed: int) -> float | None:
    """Return the M at which member training accuracy has fallen by FALL, interpolated linearly in log M."""
    falls = falls_of(found, width, seed, "member_train_accuracy")
    for (before, low), (after, high) in pairwise(falls.items()):
        if low < FALL <= high:
            return math.exp(math.log(before) + (FALL - low) / (high - low) * math.log(after / before))
    return None


def collective_saturates(results: Results) -> Verdict:
    """P4: in the collective arm member accuracy does not depend on M, and the gain of the ensemble saturates."""
    counts = [models for models in results.models if models > 1]
    most = max(counts, default=0)
    ends = (most // 4, most)
    flat, late = [], []
    for seed in results.seeds:
        slopes, gains = [], []
        for width in results.widths:
            member_line = results.line("collective", width, counts, seed, "member_accuracy")
            slopes.append(slope([math.log2(models) for models in member_line], list(member_line.values())))
            ensemble_line = results.line("collective", width, ends, seed, "accuracy")
            member_ends = results.line("collective", width, ends, seed, "member_accuracy")
            gain = {m: ensemble_line[m] - member_ends[m] for m in ensemble_line.keys() & member_ends.keys()}
            gains.append(gain[most] - gain[most // 4] if len(gain) == 2 else None)  # over two doublings of M
        flat.append(mean_of(slopes))
        late.append(mean_of(gains))
    return Verdict(
        "P4",
        "the accuracy of collective members does not depend on their number, and the gain of their ensemble saturates",
        (
            estimate("member accuracy a doubling of M", known(flat), -FLAT, FLAT),
            estimate(f"ensemble gain from M={most // 4} to {most}", known(late), -SATURATED, SATURATED),
        ),
        "the gain is ensemble accuracy less member accuracy",
    )


def sum_needs_small_steps(found: Results) -> Verdict:
    """P5: with gamma = M the largest stable step of the collective arm shrinks as 1 / M."""
    return Verdict(
        "P5",
        "the largest stable step of collective members shrinks as 1 / M when gradients are summed, and not at all "
        "when they are averaged",
        (
            estimate("exponent of M, sum", exponents(found, "largest-step"), -PROPORTIONAL[1], -PROPORTIONAL[0]),
            estimate("exponent of M, mean", exponents(found, "largest-step-mean"), -0.25, 0.25),
        ),
        "plain gradient descent; steps are known to a factor of 1.41",
    )


def exponents(results: Results, arm: str) -> list[float]:
    """Return for every seed the slope of the logarithm of the largest step over that of M."""
    lines = [results.line(arm, *PROBED["step"], seed, "value") for seed in results.seeds]
    return known(slope(list(map(math.log, line)), list(map(math.log, line.values()))) for line in lines)


def mean_needs_many_steps(results: Results) -> Verdict:
    """P6: with gamma = 1 the independent arm needs about M times as many steps."""
    width, numbers = PROBED["steps"]
    per_seed, ratios = [], dict[int, list[float]]()
    for seed in results.seeds:
        powers = []
        for models in numbers:
            mean, total = (results.score(Cell(arm, width, models, seed), "value") for arm in ("steps-mean", "steps"))
            if mean is not None and total is not None:
                powers.append(math.log(mean / total) / math.log(models))
                ratios.setdefault(models, []).append(mean / total)
        per_seed.append(mean_of(powers))
    listed = ", ".join(f"M={models}: {mean_of(values):.3g}" for models, values in ratios.items())
    return Verdict(
        "P6",
        "independent members need about M times as many steps when gradients are averaged instead of summed",
        (estimate("exponent of M in the ratio of steps", known(per_seed), *PROPORTIONAL),),
        f"times as many steps: {listed}" if listed else "",
    )


def switch_at_threshold(results: Results) -> Verdict:
    """P7: members begin to interact where the mean of factors is near (M N)^(-1/4)."""
    width, (models,) = PROBED[BETWEEN]
    expected = spike_threshold(models, results.neurons(width))
    switches = known(find_switch(results, seed) for seed in results.seeds)
    return Verdict(
        "P7",
        f"the largest eigenvalue of members' alignments leaves the bulk (is {OUT_OF_BULK:g} times that of mean 0) at a "
        "mean of factors near (M N)^(-1/4), blurred by depth",
        (estimate("mean at the switch over (M N)^(-1/4)", [switch / expected for switch in switches], *NEAR),),
        f"(M N)^(-1/4) = {expected:.3g}, switch at {mean_of(switches):.3g}" if switches else "no switch was seen",
    )


def find_switch(found: Results, seed: int) -> float | None:
    """Return the mean of factors at which the largest eigenvalue leaves the bulk, interpolated linearly."""
    width, (models,) = PROBED[BETWEEN]
    cells = {mean: Cell(between_name(mean), width, models, seed) for mean in found.means}
    there = [(mean, top) for mean, cell in cells.items() if (top := found.score(cell, "top_alignment")) is not None]
    if not there or there[0][0] != 0:
        return None
    goal = OUT_OF_BULK * there[0][1]
    for (before, low), (after, high) in pairwise(there):
        if low < goal <= high:
            return before + (goal - low) / (high - low) * (after - before)
    return None


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None without any."""
    there = known(values)
    return sum(there) / len(there) if there else None


PREDICTIONS: dict[Callable[[Results], Verdict], tuple[str, ...]] = {  # and the arms that each needs
    like_naive: ("independent", "naive"),
    train_falls_first: ("independent",),
    wider_hold_more: ("independent",),
    collective_saturates: ("collective",),
    sum_needs_small_steps: ("largest-step", "largest-step-mean"),
    mean_needs_many_steps: ("steps", "steps-mean"),
    switch_at_threshold: (between_name(0),),
}


def verdicts(record: Record) -> list[Verdict]:
    """Return all verdicts on a record; of those whose arms were not run there are no estimates."""
    results, outcomes = Results(record), []
    arms_run = {cell.arm for cell in results.cells}
    for predict, arms in PREDICTIONS.items():
        missing = tuple(f"the arm {arm.removesuffix('-0')}" for arm in arms if arm not in arms_run)
        verdict = predict(results)
        if predict is collective_saturates and not missing and max(results.models, default=0) < MIN_SATURATED:
            missing = (f"M of at least {MIN_SATURATED}",)
        note = f"needs {', '.join(missing)}"
        outcomes.append(replace(verdict, estimates=(), note=note, missing=missing) if missing else verdict)
    return outcomes


def undertrained(found: Results) -> str:
    """Return a warning if the widest separate networks are far from fitting their training examples; else empty."""
    cells = [cell for cell in found.cells if cell.arm == "naive"]
    widest = max((cell.width for cell in cells), default=0.0)
    values = known(found.score(cell, "member_train_accuracy") for cell in cells if cell.width == widest)
    mean = mean_of(values)
    if mean is None or mean >= TRAINED:
        return ""
    return (
        f"Undertrained: after {plural(found.setting.epochs, 'epoch')} separate networks of N = {found.neurons(widest)} "
        f"classify {percent(mean)} of their training examples correctly. The theory is of networks trained to the end: "
        "train for more epochs before you believe a verdict."
    )
