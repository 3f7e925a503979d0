"""What the numbers amount to, in plain sentences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from murmuration.evaluation import Evaluation
from murmuration.evaluation.shift import paired_shift
from murmuration.metrics import Comparison, paired_test, shown_in
from murmuration.metrics.scores import measure_of
from murmuration.reports.advice import advice
from murmuration.reports.wording import meaning, number, percent

DOUBT = 0.05  # a p-value from here on says that chance may explain a difference
PROMISE = 0.9


@dataclass(frozen=True)
class Difference:
    """One score of two ensembles on the same examples: a - b, and whether chance may explain it."""

    a: str
    b: str
    better: str  # "higher" or "lower"
    test: Comparison

    @property
    def by_chance(self) -> bool:
        return not self.test.p_value < DOUBT

    @property
    def sentence(self) -> str:
        label, value = meaning(self.test.name).label, self.test.difference
        size = number(abs(float(value)))
        chance = "p < 0.001" if self.test.p_value < 0.001 else f"p = {self.test.p_value:.2g}"
        if self.by_chance:
            return f"{self.a} and {self.b} differ in {label} by {size}: within noise ({chance})."
        ahead, behind = (self.a, self.b) if (value > 0) == (self.better == "higher") else (self.b, self.a)
        return (
            f"{ahead} has the better {label}: {size} {self.better} than {behind}, more than chance explains ({chance})."
        )

    def to_json(self) -> dict[str, Any]:
        return {"a": self.a, "b": self.b, **self.test.to_json(), "by_chance": self.by_chance, "sentence": self.sentence}


def differences(evaluations: Sequence[Evaluation]) -> list[Difference]:
    """The paired tests of every two ensembles that sat the same eval_set, and under the same corruptions."""
    task = evaluations[0].eval_set.task
    return [
        Difference(a.name, b.name, measure_of(score, task).better, test)
        for a, b in combinations(evaluations, 2)
        for score in shown_in("compared", task)
        for test in tests_of(a, b, score)
    ]


def tests_of(a: Evaluation, b: Evaluation, score: str) -> list[Comparison]:
    """The paired test of one score, and of its mean over corruptions where both were corrupted."""
    clean = paired_test(a.examples, b.examples, score)
    if a.shift is None or b.shift is None or score not in a.shift.sums:
        return [clean]
    shifted = paired_shift(a.shift, b.shift, score, a.eval_set.task)
    return [clean, replace(shifted, name=f"corrupted_{score}")]


def leading(evaluations: Sequence[Evaluation], tests: Sequence[Difference]) -> list[Difference]:
    """The tests in which the ensemble with the lowest NLL takes part: enough to judge its lead."""
    first = min(evaluations, key=lambda each: float(each.scores["nll"])).name
    return [test for test in tests if first in (test.a, test.b)]


def findings(evaluations: Sequence[Evaluation], tests: Sequence[Difference] = ()) -> tuple[str, ...]:
    """Sentences on every ensemble, then on the differences between them."""
    alone = [text for each in evaluations for text in about(each, named=len(evaluations) > 1)]
    return (*alone, *(difference.sentence for difference in leading(evaluations, tests)))


def about(evaluation: Evaluation, named: bool) -> list[str]:
    """Sentences on one ensemble: whether to trust its confidence, what its members add, which of them fell."""
    who = evaluation.name if named else "the ensemble" if len(evaluation.examples.agreement) > 1 else "the model"
    trust = about_confidence if evaluation.eval_set.task == "classification" else about_intervals
    texts = [
        trust(evaluation, who),
        about_members(evaluation, who),
        *advice(evaluation, who),
        about_weights(evaluation, named),
        *about_trouble(evaluation),
    ]
    return [text if named and text.startswith(who) else text[:1].upper() + text[1:] for text in texts if text]


def about_confidence(evaluation: Evaluation, who: str) -> str:
    """Whether confidence is higher or lower than accuracy by more than the noise of so many examples."""
    columns = evaluation.examples.columns
    gaps = columns["confidence"] - columns["correct"]
    gap, noise = float(gaps.mean()), 1.96 * float(gaps.std()) / math.sqrt(len(gaps))
    if abs(gap) <= noise:
        return f"{who} is about as often right as it is confident: any difference is within noise."
    sure, right = (percent(float(columns[name].mean())) for name in ("confidence", "correct"))
    manner = "over" if gap > 0 else "under"
    points = f"{100 * abs(gap):.1f} percentage points"
    return f"{who} is {manner}confident by {points}: {sure} sure on average, and right {right} of the time."


def about_intervals(evaluation: Evaluation, who: str) -> str:
    """Whether the 90 % intervals hold what they promise."""
    held = evaluation.scores["coverage_90"]
    told = f"the 90 % intervals of {who} held {percent(float(held))} of the truths"
    if held.low <= PROMISE <= held.high:
        return f"{told}, as promised within noise."
    return f"{told}: they are too {'narrow' if held < PROMISE else 'wide'}."


def about_members(evaluation: Evaluation, who: str) -> str:
    """What averaging the members gains, if anything."""
    members = len(evaluation.examples.agreement)
    if members == 1:
        return ""
    alone, together = (number(float(evaluation.scores[name])) for name in ("member_nll", "nll"))
    one = "draw" if evaluation.draws > 1 else "member"  # of a network whose weights are left to chance
    if alone == together:
        return f"averaging {members} {one}s leaves the NLL of {who} at {together}: they add little to one alone."
    return f"averaging {members} {one}s lowers the NLL of {who} from {alone} (a {one} alone) to {together}."


def about_weights(evaluation: Evaluation, named: bool) -> str:
    """What became of weights that are distributions."""
    found = evaluation.weights.finding if evaluation.weights is not None else ""
    return f"{evaluation.name}: {found}" if found and named else found


def about_trouble(evaluation: Evaluation) -> list[str]:
    return [
        f"member {member} of {evaluation.name} stopped early: {text}." for member, text in evaluation.failures.items()
    ]
