"""Evaluations in sentences: the verdict, what each recipe is worth, and whether differences are more than noise."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist
from typing import Any

from torch import Tensor

from murmuration.evaluation import Evaluation, SetCoverage
from murmuration.evaluation.baseline import TRAINING
from murmuration.evaluation.coverage import mean_score
from murmuration.evaluation.metrics import PairedTest, describe, holm, paired_test, shown_in
from murmuration.evaluation.metrics.comparison import MIN_GROUP_EXAMPLES
from murmuration.evaluation.metrics.intervals import LEVEL
from murmuration.evaluation.metrics.scores import measure_of
from murmuration.evaluation.shift import paired_shift
from murmuration.evaluation.two_classes import average_precision, rarer_class
from murmuration.prediction.posthoc.fit import Choice
from murmuration.reports.extension import report_sections
from murmuration.reports.formatting import interval, number, percent, plural, words_of
from murmuration.system.errors import listed

SIGNIFICANT = 0.05  # a difference with a p-value from here on is within noise
NOISE = "the noise of the examples"  # that paired tests are about
ONE_TRAINING = (
    "One training seed: differences are between these trained networks, not between methods (--seeds 0,1,2 tries more)."
)
DECIDING = "nll"  # chooses the leading recipe: it scores the whole predictive distribution
POWER = 0.8  # probability that so many examples would show a difference
LISTED = 3  # groups or classes that a sentence names
MOST_MORE = 100  # times as many examples are not worth a sentence
NOMINAL = 0.9
SCALING = ("temperature", "vector", "matrix")  # calibrators that are named with the word scaling
CLASS_WISE = "mondrian"  # conformal sets with a threshold for each class
ALIKE = 0.02  # of the epistemic uncertainty of an ensemble: draws with less add nothing
BASELINE = "(baseline)"  # ends the names of baselines in a comparison
CORRECTED = "P-values are corrected for the number of pairs by Holm's method."
WORTH_SAYING = 0.03  # distance of a coverage from its target that is explained even if it is noise


@dataclass(frozen=True)
class Difference:
    """One score of two recipes on the same examples: a - b, and whether noise may explain it."""

    a: str
    b: str
    better: str  # "higher" or "lower"
    test: PairedTest
    examples: int

    @property
    def by_chance(self) -> bool:
        return not self.test.p_value < SIGNIFICANT

    @property
    def size(self) -> float:
        return abs(float(self.test.difference))

    @property
    def more_examples(self) -> int | None:
        """About how many more examples would show a difference of this size, from its standard error.

        A paired difference d with standard error s from N examples is found significant with probability 0.8 once
        |d| = (1.96 + 0.84) s, and s falls as 1 / sqrt(N). None if it is significant already, or exactly 0.
        """
        z = NormalDist()
        error = (self.test.difference.high - self.test.difference.low) / (2 * z.inv_cdf((1 + LEVEL) / 2))
        if not self.by_chance or not self.size or not error > 0:
            return None
        ratio = (z.inv_cdf((1 + LEVEL) / 2) + z.inv_cdf(POWER)) * error / self.size
        return max(1, math.ceil(self.examples * (ratio**2 - 1)))

    @property
    def chance(self) -> str:
        return "p < 0.001" if self.test.p_value < 0.001 else f"p = {self.test.p_value:.2g}"

    @property
    def label(self) -> str:
        """The score in words."""
        clean = self.test.name.removeprefix("corrupted_")
        return describe(clean).label + ("" if clean == self.test.name else " under corruption")

    @property
    def order(self) -> tuple[str, str]:
        """The recipe with the better value, and the other."""
        a_leads = (self.test.difference > 0) == (self.better == "higher")
        return (self.a, self.b) if a_leads else (self.b, self.a)

    @property
    def sentence(self) -> str:
        if self.size == 0:
            return f"{self.a} and {self.b} have the same {self.label}."
        if self.by_chance:
            within = f"within {NOISE} ({self.chance})"
            return f"{self.a} and {self.b} differ in {self.label} by {number(self.size)}: {within}."
        ahead, behind = self.order
        words = f"{number(self.size)} {self.better} than {behind}"
        return f"{ahead} has the better {self.label}: {words}, more than {NOISE} ({self.chance})."

    def to_json(self) -> dict[str, Any]:
        derived = {"by_chance": self.by_chance, "more_examples": self.more_examples, "sentence": self.sentence}
        return {"a": self.a, "b": self.b, **self.test.to_json(), **derived}


def differences(evaluations: Sequence[Evaluation]) -> list[Difference]:
    """Return the paired tests of every two recipes on the same examples, and under the same corruptions.

    The p-values of one score are corrected together by the method of Holm: the best of many recipes leads by luck too.
    """
    task = evaluations[0].task
    tests = [
        Difference(a.name, b.name, measure_of(score, task).better, test, a.examples.inputs)
        for a, b in combinations(evaluations, 2)
        for score in shown_in("compared", task)
        for test in tests_of(a, b, score)
    ]
    corrected: dict[str, Iterator[float]] = {
        name: iter(holm([d.test.p_value for d in tests if d.test.name == name]).tolist())
        for name in {difference.test.name for difference in tests}
    }
    return [replace(d, test=replace(d.test, p_value=next(corrected[d.test.name]))) for d in tests]


def tests_of(a: Evaluation, b: Evaluation, score: str) -> list[PairedTest]:
    """Return the paired test of one score, and of its mean over corruptions where both were corrupted."""
    clean = paired_test(a.examples, b.examples, score)
    if a.shift is None or b.shift is None or score not in a.shift.sums:
        return [clean]
    return [clean, replace(paired_shift(a.shift, b.shift, score, a.task), name=f"corrupted_{score}")]


def verdict(evaluations: Sequence[Evaluation], tests: Sequence[Difference]) -> tuple[str, ...]:
    """Return which recipe to use, whether its lead is more than noise, and how many more examples would tell.

    What is no better than predictions without input comes first.
    """
    if len(evaluations) == 1:
        only = evaluations[0]
        beside = against_nothing(only, "it" if only.baseline.is_beaten else only.name)
        sentences = [quality(only), first_upper(beside)] if only.baseline.is_beaten else [beside, quality(only)]
        return *sentences, first_upper(trust(only, "it"))
    use = recommended(evaluations, tests)
    beside = against_nothing(use, use.name)
    sentences = [*lead(evaluations, tests), quality(use)]
    sentences = [*sentences, beside] if use.baseline.is_beaten else [beside, *sentences]
    return *sentences, *([] if use.eval_set.audited else [ONE_TRAINING])


def lead(evaluations: Sequence[Evaluation], tests: Sequence[Difference]) -> list[str]:
    """Return which of several recipes to use, and how sure that is."""
    leader = min(evaluations, key=lambda item: float(item.scores[DECIDING]))
    against = rivals(leader, tests)
    close = {name: test for name, test in against.items() if test.by_chance}
    label, examples = describe(DECIDING).label, f"{leader.examples.inputs:,} {words_of(leader.eval_set).examples}"
    shifted = lead_under_corruption(evaluations, tests)
    if not close:
        name, test = min(against.items(), key=lambda item: item[1].size)
        words = f"its {label} is {number(test.size)} lower than that of {name}"
        first = f"Use {leader.name}: {words}, more than the noise of {examples} ({test.chance})."
        return [first, *(item.sentence for item in shifted)]
    if shifted and shifted[0].clear and shifted[0].leader.name in (leader.name, *close):
        use = recommended(evaluations, tests)
        first = f"Use {use.name}: under corruption its {label} is {shifted[0].text}"
        others = [name for name in close if use is leader or name == use.name]
        clean = f"its lead over {' and '.join(others)} is" if use is leader else f"the lead of {leader.name} over it is"
        return [f"{first}; on the clean {examples} {clean} within noise."]
    name, test = max(close.items(), key=lambda item: item[1].size)
    words = f"{leader.name} has the lowest {label}, but its lead over {' and '.join(close)} is within the noise"
    sentences = [f"No clear winner: {words} of {examples} ({test.chance}).", *(item.sentence for item in shifted)]
    if test.more_examples is not None and test.more_examples <= MOST_MORE * test.examples:
        large = f"If the difference from {name} is as large as it looks ({number(test.size)}), about"
        more = f"{int(float(f'{test.more_examples:.2g}')):,} more {words_of(leader.eval_set).examples}"
        sentences.append(f"{large} {more} would show it.")
    return sentences


def against_nothing(evaluation: Evaluation, who: str) -> str:
    """Say whether predictions are better than those without input, by proper scores on the same examples."""
    baseline = evaluation.baseline
    name, difference = next(iter(baseline.differences.items()))
    known = "" if baseline.source == TRAINING else f" that knows these {words_of(evaluation.eval_set).examples}"
    without = f"{baseline.name}, a prediction without input{known}"
    values = f"{number(evaluation.scores[name])} against {number(baseline.scores[name])}"
    ends = f"(difference {number(difference)}, 95 % interval {interval(difference)})"
    scored = f"{describe(name).label} {values} {ends}"
    if baseline.is_beaten:
        return f"{who} is better than {without}: {scored}."
    though = [describe(other).label for other in baseline.beaten]
    other = f"; by {' and '.join(though)} it is better" if though else ""
    return f"{who} is no better than {without}: {scored}{other}."


def rivals(leader: Evaluation, tests: Sequence[Difference]) -> dict[str, Difference]:
    """Return the tests of the deciding score between a recipe and every other, by the other's name."""
    deciding = [test for test in tests if leader.name in (test.a, test.b) and test.test.name == DECIDING]
    return {test.b if test.a == leader.name else test.a: test for test in deciding}


def recommended(evaluations: Sequence[Evaluation], tests: Sequence[Difference]) -> Evaluation:
    """Return the recipe with the lowest NLL or, within noise of it, the clear leader under corruption."""
    if len(evaluations) == 1:  # of predictions alone, which may have no scores
        return evaluations[0]
    leader = min(evaluations, key=lambda lead: float(lead.scores[DECIDING]))
    close = [name for name, test in rivals(leader, tests).items() if test.by_chance]
    shifted = [lead.leader for lead in lead_under_corruption(evaluations, tests) if lead.clear]
    return shifted[0] if shifted and shifted[0].name in close else leader


@dataclass(frozen=True)
class ShiftLead:
    """The recipe with the lowest NLL under corruption, and its lead over the next in words."""

    leader: Evaluation
    text: str
    clear: bool  # whether the lead is more than noise

    @property
    def sentence(self) -> str:
        return f"Under corruption the {describe(DECIDING).label} of {self.leader.name} is {self.text}."


def lead_under_corruption(evaluations: Sequence[Evaluation], tests: Sequence[Difference]) -> list[ShiftLead]:
    """Return the lead under corruption with its interval; nothing where no two recipes were corrupted."""
    shifted = [test for test in tests if test.test.name == f"corrupted_{DECIDING}"]
    corrupted = [(float(item.shift.pooled[DECIDING]), item) for item in evaluations if item.shift is not None]
    if not shifted:
        return []
    _, leader = min(corrupted, key=lambda item: item[0])
    test = min([test for test in shifted if leader.name in (test.a, test.b)], key=lambda item: item.size)
    ends = test.test.difference.low, test.test.difference.high
    other, (low, high) = (test.a, ends) if leader.name == test.b else (test.b, (-ends[1], -ends[0]))
    size = f"{number(test.size)} lower than that of {other}"
    noise = f"{'within' if test.by_chance else 'more than'} {NOISE}"
    text = f"{size} (95 % interval {number(low)} to {number(high)}), {noise} ({test.chance})"
    return [ShiftLead(leader, text, not test.by_chance)]


def quality(evaluation: Evaluation) -> str:
    """Return the headline score with its interval, in a sentence.

    Where classes are imbalanced, accuracy is mostly that of the large class: ranking and balanced accuracy stand first.
    """
    name, examples = evaluation.name, f"{evaluation.examples.inputs:,} {words_of(evaluation.eval_set).examples}"
    for section in report_sections(evaluation):
        name = f"{name}, {section.qualifier(evaluation.manifest.entries[section.key])},"
    scores = evaluation.scores
    if evaluation.task != "classification":
        error = f"{number(scores['rmse'])} on {examples} (95 % interval {interval(scores['rmse'])})"
        share = f", R\u00b2 {number(scores['r2'])} ({interval(scores['r2'])})" if "r2" in scores else ""
        return f"{name} has a root mean square error of {error}{share}."
    accuracy = scores["accuracy"]
    if not evaluation.imbalanced:
        return (
            f"{name} classifies {percent(accuracy)} of {examples} correctly "
            f"(95 % interval {interval(accuracy, percent)})."
        )
    balanced = scores["balanced_accuracy"]
    by_class = f"balanced accuracy {percent(balanced)} ({interval(balanced, percent)})"
    if "auroc" not in scores:
        correct = f"{percent(accuracy)} of them are classified correctly"
        return f"{name} has {by_class} on {examples}; {correct}.{never_predicted(evaluation)}"
    rare = rarer_class(evaluation)
    other = next(name for name in evaluation.classes if name != rare.name)
    ranking = f"an AUROC of {number(scores['auroc'])} (95 % interval {interval(scores['auroc'])})"
    found = f"average precision {number(average_precision(evaluation))} where chance has {number(rare.share)}"
    scored = f"{ranking}, {found}, and {by_class}, on {examples}"
    return f"{name} tells '{rare.name}' from '{other}' with {scored}.{never_predicted(evaluation)}"


def never_predicted(evaluation: Evaluation) -> str:
    """Say which classes no example is predicted to be of, though some are; "" if there is none."""
    missed = [row for row in evaluation.class_scores if row.examples and not row.predicted]
    if not missed:
        return ""
    names = listed([f"'{row.name}' ({row.examples:,} examples)" for row in missed], 5)
    return f" It never predicts {names}: decide by a threshold on the probability."


def held_out(evaluation: Evaluation, word: str) -> str:
    """Name the rows that post-hoc steps of an audit are evaluated on, after a preposition; "" for a test split."""
    if not evaluation.eval_set.audited or evaluation.before is None:
        return ""
    return f" {word} {evaluation.before.inputs:,} {words_of(evaluation.eval_set).held_out}"


def first_upper(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def findings(evaluations: Sequence[Evaluation], tests: Sequence[Difference] = ()) -> tuple[str, ...]:
    """Return sentences on every recipe, the recommended one first, then on the differences between them.

    Of more than two recipes, those on the others say only whether they are calibrated, what failed, and whether their
    draws differ at all.
    """
    first, named, more_than_two = recommended(evaluations, tests), len(evaluations) > 1, len(evaluations) > 2
    others = [text for e in evaluations if e is not first for text in about(e, named, brief=more_than_two)]
    alike = [text for e in evaluations if (text := about_draws(e, evaluations))]
    said = " ".join(lead(evaluations, tests)) if named and tests else ""  # in the verdict
    unsaid = [test for test in tests if test.test.name != DECIDING or number(test.size) not in said]
    pairs = summed_up(tests) if more_than_two else [test.sentence for test in unsaid]
    far = outside_sentence(first)
    found = (*about(first, named), *([far] if far else ()), *alike, *others, *pairs)
    return (*found, CORRECTED) if more_than_two else found


def summed_up(tests: Sequence[Difference]) -> list[str]:
    """Return a sentence for every score in which recipes differ clearly, and one for all pairs that do not."""
    sentences, close = [], [test for test in tests if test.by_chance]
    for name in dict.fromkeys(test.test.name for test in tests):
        clear = [test for test in tests if test.test.name == name and not test.by_chance]
        behind: dict[str, list[str]] = {}
        for test in clear:
            ahead, other = test.order
            behind.setdefault(ahead, []).append(f"{other} (by {number(test.size)})")
        if clear:
            words = "; ".join(f"{ahead} is better than {', '.join(others)}" for ahead, others in behind.items())
            sentences.append(f"{first_upper(clear[0].label)}, by more than {NOISE}: {words}.")
    if close:
        least = min(test.test.p_value for test in close)
        how_many = f"{'The other' if sentences else 'All'} {plural(len(close), 'difference')}"
        sentences.append(f"{how_many} between two recipes are within {NOISE} (p from {least:.2g}).")
    return sentences


def about_draws(evaluation: Evaluation, evaluations: Sequence[Evaluation]) -> str:
    """Return that the draws of a recipe are alike, compared with the members of an ensemble of independent networks."""
    kind = "mutual_information" if evaluation.classes else "epistemic_std"
    others = {e.name: float(e.scores[kind]) for e in evaluations if e.predictions > 1 and not is_drawn(e)}
    if not is_drawn(evaluation) or not others:
        return ""
    name = "deep-ensemble" if "deep-ensemble" in others else max(others, key=lambda other: others[other])
    own, reference = float(evaluation.scores[kind]), others[name]
    ratio = (own / reference) ** (1 if evaluation.classes else 2) if reference > 0 else 1.0
    if ratio >= ALIKE:
        return ""
    label = describe(kind).label.lower()
    values = f"{label} is {number(own)}, that of {name} {number(reference)}"
    return f"the draws of {evaluation.name} are alike, so its epistemic uncertainty says nothing: its {values}."


def is_drawn(evaluation: Evaluation) -> bool:
    """Return whether several predictions come from one trained network: draws, or points of its path."""
    trained = evaluation.manifest.origins
    return evaluation.predictions > 1 and (
        evaluation.draws > 1 or (trained is not None and len({*trained}) < len(trained))
    )


def outside_sentence(evaluation: Evaluation) -> str:
    """Say how many examples have inputs outside of the training range; "" if none has, or ranges are not known."""
    ensemble, x = evaluation.ensemble, evaluation.eval_set.split.prepared
    if ensemble is None or ensemble.ranges is None or not isinstance(x, Tensor):
        return ""
    count = int((ensemble.ranges.outside(x)[0] > 0).sum())
    examples = f"{count:,} of {len(x):,} {words_of(evaluation.eval_set).examples}"
    return f"{examples} have inputs beyond the training range, unknown or newly missing." if count else ""


def about(evaluation: Evaluation, named: bool, *, brief: bool = False) -> list[str]:
    """Return sentences on one recipe: calibration, gain of averaging, post-hoc steps, shift, OOD, failed members.

    Of one recipe alone the verdict has said whether it is calibrated.
    """
    is_ensemble = evaluation.predictions > 1 and not evaluation.eval_set.audited
    who = evaluation.name if named else "the ensemble" if is_ensemble else "the model"
    on_weights = evaluation.weights.finding if evaluation.weights is not None else ""
    more = [
        about_members(evaluation, who),
        *advice(evaluation, who),
        f"{evaluation.name}: {on_weights}" if on_weights and named else on_weights,
        *(section.finding(evaluation.manifest.entries[section.key], who) for section in report_sections(evaluation)),
    ]
    texts = [
        trust(evaluation, who) if named else "",
        *([] if brief else more),
        *(f"member {member} of {evaluation.name} failed: {text}." for member, text in evaluation.failures.items()),
    ]
    return [text if named and text.startswith(who) else first_upper(text) for text in texts if text]


def trust(evaluation: Evaluation, who: str) -> str:
    """Return whether confidence or predictive intervals are right within noise, and if not, why nothing corrects it."""
    right, sentence = (about_confidence if evaluation.task == "classification" else about_intervals)(evaluation, who)
    posthoc = evaluation.posthoc
    if right or posthoc is None or posthoc.choice is None or posthoc.choice.kept or evaluation.after is not None:
        return f"{sentence}."
    examples = f"{posthoc.calibrator_examples:,} {words_of(evaluation.eval_set).fitted}"
    return f"{sentence}; {without_calibrator(posthoc.choice, examples)}."


def without_calibrator(choice: Choice, examples: str) -> str:
    """Say why the examples that a calibrator is chosen by did not ask for one."""
    method = choice.method.replace("_", " ")
    method = f"{method} scaling" if choice.method in SCALING else method
    size = f"{number(abs(choice.gain))} \u00b1 {number(choice.error)}"
    if choice.gain > 0:
        gain = f"there the gain of {method} in held-out NLL, {size}, is not significant (p = {choice.p_value:.2g})"
        return f"{examples} do not show it: {gain}, so it was not applied"
    change = f"raises the held-out NLL by {size}" if choice.gain else "does not change the held-out NLL"
    return f"{examples} do not show it: there {method} {change}, so it was not applied"


def about_confidence(evaluation: Evaluation, who: str) -> tuple[bool, str]:
    """Return whether confidence agrees with accuracy within the noise of so many examples, and the sentence.

    The noise is at least that of a calibrated model: examples that are all right have no variance of their own.
    """
    columns = evaluation.examples.columns
    confidence = columns["confidence"]
    gaps = confidence - columns["correct"]
    variance = max(float(gaps.var()), float((confidence * (1 - confidence)).mean()))
    gap, noise = float(gaps.mean()), 1.96 * math.sqrt(variance / len(gaps))
    if abs(gap) <= noise:
        whose = "its mean confidence" if who == "it" else f"the mean confidence of {who}"
        return True, f"{whose} agrees with its accuracy within noise"
    sure, right = (percent(float(columns[name].mean())) for name in ("confidence", "correct"))
    manner = "over" if gap > 0 else "under"
    points = f"{100 * abs(gap):.1f} percentage points"
    return False, f"{who} is {manner}confident by {points}: mean confidence {sure}, accuracy {right}"


def about_intervals(evaluation: Evaluation, who: str) -> tuple[bool, str]:
    """Return whether the 90 % predictive intervals cover 90 % of the targets within noise, and the sentence."""
    covered = evaluation.scores["coverage_90"]
    whose = "its 90 % predictive intervals" if who == "it" else f"the 90 % predictive intervals of {who}"
    sentence = f"{whose} cover {percent(float(covered))} of the targets"
    if covered.low <= NOMINAL <= covered.high:
        return True, f"{sentence}, which is 90 % within noise"
    return False, f"{sentence}: they are too {'narrow' if covered < NOMINAL else 'wide'}"


def about_members(evaluation: Evaluation, who: str) -> str:
    """Return what averaging the members gains, if anything."""
    members = evaluation.predictions
    if members == 1:
        return ""
    columns = evaluation.uncalibrated.columns
    single, together = (number(-float(columns[name].mean())) for name in ("expected_log_prob", "log_prob"))
    one = "draw" if evaluation.draws > 1 else "member"
    before = " before calibration" if evaluation.uncalibrated is not evaluation.examples else ""
    if single == together:
        effect = f"leaves the NLL of {who} at {together}{before}: they add little to one alone."
        return f"averaging {members} {one}s {effect}"
    return f"averaging {members} {one}s lowers the NLL of {who}{before} from {single} (a {one} alone) to {together}."


def advice(evaluation: Evaluation, who: str) -> list[str]:
    """Return sentences on the calibrator, conformal sets, abstention, groups, shift and OOD inputs."""
    topics = (about_calibrator, about_coverage, about_abstention, about_groups, about_shift)
    return [text for text in (*(about(evaluation, who) for about in topics), *about_ood(evaluation, who)) if text]


def about_calibrator(evaluation: Evaluation, who: str) -> str:
    """Say whether the calibrator helps on examples that it was not fitted on; `trust` says why none is applied."""
    posthoc, before, after = evaluation.posthoc, evaluation.before, evaluation.after
    if posthoc is None or posthoc.calibrator is None or before is None or after is None:
        return ""
    test = paired_test(after, before, "nll")
    old, new, on = number(before.scores()["nll"]), number(after.scores()["nll"]), held_out(evaluation, "on")
    subject, applied = f"calibration of {who} by {posthoc.calibrator.name.replace('_', ' ')}", evaluation.calibrated
    if test.p_value >= SIGNIFICANT:
        effect = "is applied, though it does" if applied else "would"
        return f"{subject} {effect} not change the NLL{on} measurably."
    if test.difference > 0:
        effect = "is applied, but raises" if applied else "would raise"
        return f"{subject} {effect} the NLL{on} from {old} to {new}: it does not help here."
    effect = "is applied and lowers" if applied else "would lower"
    amount = f"from {old} to {new}" if old != new else f"by {number(-float(test.difference))} to {new}"
    return f"{subject} ({posthoc.calibrator.about}) {effect} the NLL{on} {amount}."


def about_choice(choice: Choice, who: str = "") -> str:
    """Say why a calibrator was applied or not, in one sentence without its full stop."""
    method = f"{choice.method} scaling" if choice.method in SCALING else choice.method.replace("_", " ")
    subject = f"{method} was {'' if choice.kept else 'not '}applied{f' to {who}' if who else ''}"
    size = f"{number(abs(choice.gain))} ± {number(choice.error)}"
    if number(abs(choice.gain)) == "0.00" or not choice.gain:
        return f"{subject}: it does not change the held-out NLL"
    if choice.kept:
        return f"{subject}: it lowers the held-out NLL by {size}"
    if choice.gain > 0:
        return f"{subject}: its gain in held-out NLL, {size}, is not significant (p = {choice.p_value:.2g})"
    return f"{subject}: it raises the held-out NLL by {size}"


def about_coverage(evaluation: Evaluation, who: str) -> str:
    """Return coverage of the primary conformal sets, and the subsets where it is too low."""
    posthoc = evaluation.posthoc
    if posthoc is None or not posthoc.conformal or not evaluation.coverage:
        return ""
    own = [coverage for coverage in evaluation.coverage if coverage.method == posthoc.conformal[0].method]
    overall, nominal = own[0], percent(own[0].nominal)
    fitted = words_of(evaluation.eval_set).fitted
    if not math.isfinite(overall.size):
        examples = f"too few {fitted} ({overall.calibration_examples})"
        return f"there were {examples} for {overall.method} intervals of {who} with coverage {nominal}."
    if evaluation.classes:
        size = plural(1, "class") if number(overall.size) == "1.00" else f"{number(overall.size)} classes"
        sentence = f"prediction sets of {who} contain {size} on average and cover {percent(overall.coverage)}"
    else:
        sentence = f"conformal intervals of {who} cover {percent(overall.coverage)} of the targets"
    sentence = f"{sentence}{held_out(evaluation, 'of')} (target {nominal})"
    failing = sorted((part for part in own[1:] if part.verdict == "under"), key=lambda part: float(part.coverage))
    if failing:
        named = ", ".join(f"{subset.subset} ({covered_share(subset)})" for subset in failing[:LISTED])
        more = f" and {len(failing) - LISTED} more" if len(failing) > LISTED else ""
        return f"{sentence}, but too few for {named}{more}{class_sets(evaluation, failing)}."
    if overall.verdict == "under":
        return f"{sentence}: under-coverage by more than noise."
    if overall.verdict == "over" and evaluation.classes and float(overall.size) < 1.05:
        return f"{sentence}: the classifier is more accurate than the target, so sets cannot shrink further."
    if overall.verdict == "valid" and abs(overall.coverage - overall.nominal) >= WORTH_SAYING:
        kind = "sets" if evaluation.classes else "intervals"
        return f"{sentence}, within noise for {kind} fitted on {overall.calibration_examples} {fitted}."
    return f"{sentence}{': more than the target asks for' if overall.verdict == 'over' else ''}."


def covered_share(coverage: SetCoverage) -> str:
    """Return the share of covered examples, as a count where there are few."""
    if coverage.examples >= MIN_GROUP_EXAMPLES:
        return percent(coverage.coverage)
    return f"{round(coverage.coverage * coverage.examples)} of {coverage.examples}"


def class_sets(evaluation: Evaluation, failing: Sequence[SetCoverage]) -> str:
    """Propose sets with a threshold for each class, with their coverage of the class that is worst covered."""
    subset = next((part for part in failing if part.subset in evaluation.subsets), None)
    columns = evaluation.before.columns if evaluation.before is not None else {}
    if subset is None or not subset.subset.startswith("class ") or subset.method == CLASS_WISE:
        return ""
    if f"covered_{CLASS_WISE}" not in columns:
        return ""
    rows = evaluation.subsets[subset.subset]
    share = covered_share(replace(subset, coverage=mean_score(columns[f"covered_{CLASS_WISE}"][rows], proportion=True)))
    return f"; sets by {CLASS_WISE} (--conformal {CLASS_WISE}), with a threshold for each class, cover {share} of it"


def about_abstention(evaluation: Evaluation, who: str) -> str:
    """Return what the abstention rule by cost gains."""
    result = next((rule for rule in evaluation.abstention if rule.rule.name == "cost"), None)
    if result is None or evaluation.task != "classification":
        return ""
    scores = evaluation.after or evaluation.before or evaluation.examples
    everything, abstained = 1 - float(scores.columns["correct"].mean()), 1 - float(result.answered)
    if abstained == 0 or not float(result.risk) < everything or percent(everything) == percent(result.risk):
        return ""
    inputs = f"the {percent(abstained)} least certain{held_out(evaluation, 'of') or ' inputs'}"
    change = f"from {percent(everything)} to {percent(result.risk)}"
    return f"abstaining on {inputs} takes the error rate of {who} {change}."


def about_groups(evaluation: Evaluation, who: str) -> str:
    """Return which groups are worse off by more than noise."""
    score = shown_in("brief", evaluation.task)[0]
    worse = [
        f"{column} {group.value} ({number(group.scores[score])})"
        for column, groups in evaluation.groups.items()
        for group in groups
        if group.worse
    ]
    if not worse:
        return ""
    more = f" and {len(worse) - LISTED} more groups" if len(worse) > LISTED else ""
    where = f"for {', '.join(worse[:LISTED])}{more}; over all it is {number(evaluation.scores[score])}"
    return f"{describe(score).label} of {who} is worse than for the rest, by more than noise, {where}."


def about_shift(evaluation: Evaluation, who: str) -> str:
    """Return how far the main score falls, which corruption hurts most, and whether confidence follows."""
    shift = evaluation.shift
    if shift is None:
        return ""
    score = shown_in("brief", evaluation.task)[0]
    higher = measure_of(score, evaluation.task).better == "higher"
    last = max(shift.by_severity)
    worst = (min if higher else max)(shift.by_type, key=lambda name: float(shift.by_type[name][score]))
    label = describe(score).label
    change = f"from {number(shift.clean[score])} to {number(shift.by_severity[last][score])} at severity {last}"
    sentence = f"under corruption the {label if label.isupper() else label.lower()} of {who} goes {change}"
    if len(shift.by_type) > 1 and (shift.by_type[worst][score] < shift.clean[score]) == higher:
        sentence += f"; {worst} hurts most ({number(shift.by_type[worst][score])})"
    if evaluation.task != "classification":
        return f"{sentence}."
    errors = f"from {number(shift.clean['ece'])} to {number(shift.by_severity[last]['ece'])}"
    return f"{sentence}. Its calibration error goes {errors}."


def about_ood(evaluation: Evaluation, who: str) -> list[str]:
    """Return which uncertainty detects each OOD set best, and which are misled by it."""
    texts = []
    for result in (scored for scored in evaluation.ood if scored.detections):
        best = max(result.detections, key=lambda name: float(result.detections[name].auroc))
        misled = [describe(key).label.lower() for key, d in result.detections.items() if d.auroc.high < 0.5]
        caveat = f"; {', '.join(misled)} would call it more familiar than the test examples" if misled else ""
        auroc, name = result.detections[best].auroc, describe(best).label.lower()
        sentence = f"{who} detects {result.name} best by {name} (AUROC {number(auroc)})"
        if auroc.low <= 0.5:
            sentence = f"{who} does not detect {result.name}: the best AUROC is {number(auroc)}, by {name}"
        texts.append(f"{sentence}{caveat}.")
    return texts
