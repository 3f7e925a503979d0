"""Sentences: planted situations, the numbers in them, and silence where there is nothing to report."""

import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import report_factories as made
from prediction_factories import classification_sample, regression_sample

from murmuration.data import ArrayPreparation, Split
from murmuration.evaluation import EvalSet, Evaluation, OodResult, ShiftResult, ShiftSuite, score_predictions
from murmuration.evaluation.metrics import Detection, PairedTest, Score, by_group, holm, score_detection
from murmuration.prediction.posthoc.abstention import Abstention
from murmuration.prediction.posthoc.calibration import Temperature
from murmuration.prediction.posthoc.conformal import SetRule
from murmuration.prediction.posthoc.fit import Choice, PostHoc, fit_posthoc
from murmuration.prediction.predictive import Predictive
from murmuration.reports.findings import (
    ONE_TRAINING,
    Difference,
    about_abstention,
    about_calibrator,
    about_choice,
    about_coverage,
    about_draws,
    about_groups,
    about_ood,
    about_shift,
    advice,
    differences,
    findings,
    recommended,
    summed_up,
    verdict,
)
from murmuration.reports.formatting import interval, number, percent
from murmuration.runs.manifest import Manifest

NOTHING = ArrayPreparation((0,), (), ())
SUITE = ShiftSuite(("fog",))


def assessed(pred: Predictive, y: np.ndarray, posthoc: PostHoc | None = None, **fields) -> Evaluation:
    """The assessment of made-up predictions, with a posthoc that may be planted too."""
    found = score_predictions([(pred, y)], posthoc)
    classes = tuple("abcd") if pred.task == "classification" else ()
    eval_set = EvalSet("made up", pred.task, Split(pred.mean, pred.mean), classes, NOTHING)  # type: ignore[arg-type]
    applied = fields.get("calibrated", False)
    evaluation = found.view(applied)
    views = {} if posthoc is None else {"posthoc": posthoc, "before": found.uncalibrated, "after": found.calibrated}
    return Evaluation("one", eval_set, evaluation, evaluation.scores(), **{**views, **fields})


def calibrated_by(temperature: float) -> PostHoc:
    return PostHoc(Temperature(temperature), (), (), 100, 0)


# Calibration


@pytest.mark.parametrize(("applied", "words"), [(False, "would lower"), (True, "is applied and lowers")])
def test_the_overconfident_are_told_what_would_help(applied, words):
    found = assessed(*classification_sample(800, distortion=3.0), calibrated_by(3.0), calibrated=applied)
    old, new = (number(view.scores()["nll"]) for view in (found.before, found.after))  # type: ignore[union-attr]
    assert about_calibrator(found, "mine") == (
        f"calibration of mine by temperature (every logit divided by 3) {words} the NLL from {old} to {new}."
    )
    assert float(old) > float(new)


@pytest.mark.parametrize(("applied", "words"), [(False, "would raise"), (True, "is applied, but raises")])
def test_a_calibrator_that_harms_is_called_so(applied, words):
    found = assessed(*classification_sample(800), calibrated_by(3.0), calibrated=applied)
    told = about_calibrator(found, "mine")
    assert words in told
    assert told.endswith("it does not help here.")


@pytest.mark.parametrize(("applied", "words"), [(False, "would"), (True, "is applied, though it does")])
def test_what_chance_explains_is_called_chance(applied, words):
    found = assessed(*classification_sample(200), calibrated_by(1.01), calibrated=applied)
    assert about_calibrator(found, "mine") == (
        f"calibration of mine by temperature {words} not change the NLL measurably."
    )


# Coverage


def planted_sets(threshold: float, taught: int = 1000) -> PostHoc:
    return PostHoc(None, (SetRule("lac", 0.9, threshold, taught, 4),), (), 0, taught)


def by_label(y: np.ndarray) -> dict[str, np.ndarray]:
    return {f"class {name}": np.flatnonzero(y == k) for k, name in enumerate("abcd")}


def test_sets_that_fail_one_class_name_it_with_its_coverage():
    """Class a is never given more than 0.05, so that no set of ours holds it."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 400)
    probs = np.full((400, 4), 0.05)
    probs[np.arange(400), np.where(y == 0, 1, y)] = 0.85
    found = assessed(Predictive.from_probs(probs), y, planted_sets(0.5), subsets=by_label(y))
    held = (y != 0).mean()
    assert about_coverage(found, "mine") == (
        f"prediction sets of mine contain 1 class on average and cover {percent(held)} (target 90.0 %), but too few "
        "for class a (0.0 %)."
    )


def test_sets_that_hold_are_reported_without_alarm():
    pred, y = classification_sample(600)
    found = assessed(pred, y, planted_sets(0.97), subsets=by_label(y))
    told = about_coverage(found, "mine")
    assert f"cover {percent(found.coverage[0].coverage)} (target 90.0 %)" in told
    assert "too few" not in told
    assert "under-coverage" not in told


def test_sets_that_fail_everywhere_are_said_to():
    pred, y = classification_sample(600)
    found = assessed(pred, y, planted_sets(0.05))
    assert found.coverage[0].coverage < 0.8
    assert about_coverage(found, "mine").endswith("(target 90.0 %): under-coverage by more than noise.")


def test_what_few_examples_taught_may_fall_short_by_chance():
    """Sets that hold 0.84: too few for a rule that thousands taught, no wonder for one that twenty did."""
    pred = Predictive.from_probs(np.tile([[0.7, 0.1, 0.1, 0.1]], (600, 1)))
    y = (np.arange(600) % 25 < 4).astype(int)  # 16 % are not in the set {a}
    many, few = (about_coverage(assessed(pred, y, planted_sets(0.5, taught=taught)), "mine") for taught in (10_000, 20))
    told = "prediction sets of mine contain 1 class on average and cover 84.0 % (target 90.0 %)"
    assert few == f"{told}, within noise for sets fitted on 20 validation examples."
    assert many == f"{told}: under-coverage by more than noise."


def test_no_more_than_three_failing_groups_are_named():
    rng = np.random.default_rng(1)
    y = np.zeros(500, dtype=int)
    probs = np.where(rng.random((500, 1)) < 0.5, [[0.97, 0.01, 0.01, 0.01]], [[0.01, 0.97, 0.01, 0.01]])
    parts = {f"site {k}": np.arange(100 * k, 100 * k + 100) for k in range(5)}
    told = about_coverage(assessed(Predictive.from_probs(probs), y, planted_sets(0.5), subsets=parts), "mine")
    assert told.endswith(" and 2 more.")
    assert told.count("site ") == 3


def test_intervals_without_end_are_explained():
    pred, y = regression_sample(30)
    posthoc = fit_posthoc(pred, y)
    endless = replace(posthoc.conformal[0], thresholds=(np.inf,), coverage=0.99)
    found = assessed(pred, y, replace(posthoc, conformal=(endless,)))
    assert (
        about_coverage(found, "mine")
        == "there were too few validation examples (15) for quantile intervals of mine with coverage 99.0 %."
    )


def test_intervals_are_reported_as_such():
    pred, y = regression_sample(400)
    found = assessed(pred, y, fit_posthoc(pred, y))
    share = percent(found.coverage[0].coverage)
    assert about_coverage(found, "mine") == f"conformal intervals of mine cover {share} of the targets (target 90.0 %)."


# Abstention


def planted_rule(threshold: float, name: str = "cost", costs: tuple[float, ...] = (1.0, 0.2)) -> PostHoc:
    return PostHoc(None, (), (Abstention(name, "confidence", threshold, 0.2, "none", 100, costs),), 0, 100)


def test_what_declining_gains_is_told_in_error_rates():
    pred, y = classification_sample(500)
    sure, wrong = pred.confidence.numpy(), pred.predicted.numpy() != y
    told = about_abstention(assessed(pred, y, planted_rule(0.6)), "mine")
    assert told == (
        f"abstaining on the {percent((sure < 0.6).mean())} least certain inputs takes the error rate of mine from "
        f"{percent(wrong.mean())} to {percent(wrong[sure >= 0.6].mean())}."
    )
    assert wrong[sure >= 0.6].mean() < wrong.mean()


@pytest.mark.parametrize("threshold", [-np.inf, np.inf])
def test_a_rule_that_declines_nothing_or_all_is_passed_over(threshold):
    assert about_abstention(assessed(*classification_sample(100), planted_rule(threshold)), "mine") == ""


def test_rules_of_other_kinds_are_passed_over():
    assert about_abstention(assessed(*classification_sample(100), planted_rule(0.6, "error-rate", ())), "mine") == ""


# Groups


def test_worse_groups_are_named_and_no_others():
    pred, y = classification_sample(600)
    site = np.array(list("nsew"))[np.arange(600) % 4]
    labels = np.where(site == "n", (pred.predicted.numpy() + 1) % 4, y)  # always wrong there
    found = assessed(pred, labels)
    found = replace(found, groups={"site": by_group(found.examples, site)})
    assert about_groups(found, "mine") == (
        "Accuracy of mine is worse than for the rest, by more than noise, for site n (0); over all it is "
        f"{number(found.scores['accuracy'])}."
    )
    alike = assessed(pred, y)
    assert about_groups(replace(alike, groups={"site": by_group(alike.examples, site)}), "mine") == ""


def test_many_worse_groups_are_counted():
    pred, _ = classification_sample(1000, seed=1)
    site = np.array(list("abcdefghij"))[np.arange(1000) % 10]
    labels = np.where(site < "f", (pred.predicted.numpy() + 1) % 4, pred.predicted.numpy())
    found = assessed(pred, labels)
    found = replace(found, groups={"site": by_group(found.examples, site)})
    assert "for site a (0), site b (0), site c (0) and 2 more groups; over all it is 0.500." in about_groups(found, "m")


# Shift


def exact(**values: float) -> dict[str, Score]:
    return {name: Score(value, value, value) for name, value in values.items()}


def test_shift_tells_the_fall_the_worst_and_the_calibration():
    shift = ShiftResult(
        ShiftSuite(("fog", "snow"), (1, 5)),
        100,
        clean=exact(accuracy=0.98, ece=0.012),
        cells=(),
        by_type={"fog": exact(accuracy=0.81, ece=0.1), "snow": exact(accuracy=0.55, ece=0.3)},
        by_severity={1: exact(accuracy=0.9, ece=0.05), 5: exact(accuracy=0.41, ece=0.327)},
        pooled=exact(accuracy=0.68, ece=0.2),
    )
    assert about_shift(assessed(*classification_sample(50), shift=shift), "mine") == (
        "under corruption the accuracy of mine goes from 0.980 to 0.410 at severity 5; snow hurts most (0.550). Its "
        "calibration error goes from 0.0120 to 0.327."
    )


def test_of_numbers_the_largest_error_is_the_worst():
    shift = ShiftResult(
        ShiftSuite(("noise", "drift"), (3,)),
        100,
        clean=exact(rmse=1.5),
        cells=(),
        by_type={"noise": exact(rmse=2.5), "drift": exact(rmse=9.0)},
        by_severity={3: exact(rmse=5.75)},
        pooled=exact(rmse=5.75),
    )
    assert about_shift(assessed(*regression_sample(50), shift=shift), "mine") == (
        "under corruption the RMSE of mine goes from 1.50 to 5.75 at severity 3; drift hurts most (9.00)."
    )


# Foreign inputs


def told_apart(by: float, seed: int = 0) -> Detection:
    """A detection of normal scores whose means differ."""
    rng = np.random.default_rng(seed)
    return score_detection(rng.standard_normal(300), by + rng.standard_normal(300))


def foreign(**detections: Detection) -> Evaluation:
    return assessed(*classification_sample(50), ood=(OodResult("noise", 300, detections, {}),))


def test_the_best_uncertainty_is_named_and_the_misled_ones_too():
    good, bad = told_apart(2.0), told_apart(-1.0)
    assert about_ood(foreign(entropy=told_apart(1.0), energy=good, mutual_information=bad), "mine") == [
        f"mine detects noise best by energy (AUROC {number(good.auroc)}); mutual information would call it more "
        "familiar than the test examples."
    ]
    assert about_ood(foreign(entropy=good), "mine") == [
        f"mine detects noise best by entropy (AUROC {number(good.auroc)})."
    ]


@pytest.mark.parametrize("by", [0.0, -1.0])
def test_what_nothing_notices_is_not_called_noticed(by):
    best, bad = told_apart(by), told_apart(-2.0)
    (told,) = about_ood(foreign(entropy=best, energy=bad), "mine")
    assert told.startswith(f"mine does not detect noise: the best AUROC is {number(best.auroc)}, by entropy; ")
    misled = "energy" if by == 0 else "entropy, energy"
    assert told.endswith(f"; {misled} would call it more familiar than the test examples.")


# The verdict


def planted(a: np.ndarray, b: np.ndarray) -> list[Evaluation]:
    """Two evaluations of two classes whose log-probabilities of the label are given."""
    found = []
    for name, log_prob in (("a", a), ("b", b)):
        right = np.exp(log_prob)
        pred = Predictive.from_probs(np.stack([right, 1 - right], axis=-1))
        found.append(replace(assessed(pred, np.zeros(len(right), dtype=int)), name=name))
    return found


def test_a_lead_within_noise_says_how_many_more_examples_would_tell():
    """The paired difference d with standard error s over N examples: (2.80 s / d)^2 N in all, for a power of 0.8."""
    rng = np.random.default_rng(0)
    a = -0.3 - 0.2 * rng.random(100)
    b = a + 0.15 * rng.standard_normal(100).clip(-1.5, 1.5) - 0.003
    pair = planted(a, np.minimum(b, -0.01))
    (test,) = [each for each in differences(pair) if each.test.name == "nll"]
    assert test.by_chance
    error = (test.test.difference.high - test.test.difference.low) / (2 * 1.959964)
    needed = 100 * ((1.959964 + 0.841621) * error / abs(float(test.test.difference))) ** 2 - 100
    assert test.more_examples == pytest.approx(needed, abs=1)
    nothing, first, second, *_ = verdict(pair, differences(pair))
    assert nothing.startswith(
        "a is no better than always 'a', a prediction without input that knows these test examples"
    )  # all labels are of class a
    assert first.startswith("No clear winner: ")
    assert "within the noise of 100 test examples" in first
    assert "more test examples would show it" in second
    assert number(abs(float(test.test.difference))) in second


def test_more_examples_are_those_of_a_power_calculation():
    """1,000 samples of the size it names: 80 % are significant, within 4 standard errors of 1.3 %."""
    difference = Score(0.05, 0.05 - 1.96 * 0.1, 0.05 + 1.96 * 0.1)  # one standard error is 0.1, of 100 examples
    found = Difference("a", "b", "lower", PairedTest("nll", difference, 0.6, ""), 100)
    total = 100 + found.more_examples  # type: ignore[operator]
    rng = np.random.default_rng(0)
    z = rng.normal(0.05, 0.1 * np.sqrt(100 / total), 1000) / (0.1 * np.sqrt(100 / total))
    assert abs((np.abs(z) > 1.96).mean() - 0.8) < 0.052


def test_a_clear_lead_is_a_recommendation():
    pair = planted(np.full(200, -0.1), -0.5 - 0.1 * np.random.default_rng(1).random(200))
    _, first, second, last = verdict(pair, differences(pair))
    assert first.startswith("Use a: its NLL is 0.4")
    assert first.endswith("more than the noise of 200 test examples (p < 0.001).")
    assert second.startswith("a classifies 100.0 % of 200 test examples correctly")
    assert last == ONE_TRAINING
    (test,) = [each for each in differences(pair) if each.test.name == "nll"]
    assert test.more_examples is None


@pytest.mark.parametrize("order", [1, -1])
def test_a_lead_under_corruption_is_part_of_the_verdict(order):
    """The mean over examples of the planted differences, 0.2, and an interval of 1.96 standard errors around it."""
    rng = np.random.default_rng(2)
    plain, gain = rng.normal(1.0, 0.3, (400, 1)), rng.normal(0.2, 0.5, (400, 1))
    pair = [
        replace(
            each, shift=ShiftResult(SUITE, 400, {}, (), {}, {}, {"nll": Score(sums.mean(), 0, 1)}, sums={"nll": sums})
        )
        for each, sums in zip(planted(np.full(400, -0.1), np.full(400, -0.1)), (plain, plain - gain), strict=True)
    ][::order]
    assert recommended(pair, differences(pair)).name == "b"
    _, first, second, _ = verdict(pair, differences(pair))
    size, low, high = re.match(
        r"Use b: under corruption its NLL is ([\d.]+) lower than that of a \(95 % interval ([\d.]+) to ([\d.]+)\), "
        r"more than the noise of the examples \(p < 0.001\); on the clean 400 test examples "
        r"(?:its lead over a|the lead of a over it) is within noise\.$",
        first,
    ).groups()
    assert second.startswith("b classifies")
    error = gain.std() / 20
    assert float(size) == pytest.approx(gain.mean(), abs=1e-3)
    assert float(low) == pytest.approx(gain.mean() - 1.96 * error, abs=0.15 * error)
    assert float(high) == pytest.approx(gain.mean() + 1.96 * error, abs=0.15 * error)


def test_no_difference_at_all_asks_for_no_examples():
    pair = planted(np.full(50, -0.1), np.full(50, -0.1))
    assert all(each.more_examples is None for each in differences(pair))
    assert verdict(pair, differences(pair))[1].startswith("No clear winner")


def test_one_recipe_alone_is_told_its_score_and_calibration():
    first, second, third = verdict([assessed(*classification_sample(300, distortion=2.0))], [])
    assert first.startswith("one classifies ")
    assert second.startswith("It is better than the class frequencies, a prediction without input")
    assert third.startswith("It is overconfident by")
    numbers = verdict([assessed(*regression_sample(300))], [])
    assert numbers[0].startswith("one has a root mean square error of ")
    assert ", R\u00b2 0." in numbers[0]
    assert numbers[1].startswith("It is better than the mean target, a prediction without input")


@pytest.mark.parametrize(
    ("confidence", "right", "told"),
    [
        (0.99, 24, "agrees with its accuracy within noise"),
        (0.6, 24, "underconfident by 40.0"),
        (0.9, 12, "overconfident by 40.0"),
    ],
)
def test_no_verdict_on_confidence_without_evidence(confidence, right, told):
    """24 of 24 right at a confidence of 0.99 have no spread, and a calibrated model has that four times in five."""
    probs = np.tile([confidence, 1 - confidence], (24, 1))
    found = assessed(Predictive.from_probs(probs), np.where(np.arange(24) < right, 0, 1))
    assert told in verdict([found], [])[2]


def test_findings_name_both_and_then_their_differences():
    pair = planted(np.full(200, -0.1), -0.5 - 0.1 * np.random.default_rng(1).random(200))
    tests = differences(pair)
    told, size = findings(pair, tests), number(next(test for test in tests if test.test.name == "nll").size)
    assert told[0].startswith("a is ")
    assert told[-1] == "a and b have the same Accuracy."
    assert " ".join((*verdict(pair, tests), *told)).count(size) == 1  # of the NLL, in the verdict alone
    turned = findings(pair[::-1], differences(pair[::-1]))
    assert turned[0].startswith("a is ")  # the recommended one first, whatever the order


# All of them


def test_where_nothing_was_looked_at_nothing_is_said():
    assert advice(assessed(*classification_sample(100)), "mine") == []
    assert advice(assessed(*regression_sample(100)), "mine") == []


def test_sentences_come_in_the_order_of_the_report():
    pred, y = classification_sample(600, distortion=2.0)
    posthoc = fit_posthoc(*classification_sample(400, distortion=2.0, seed=1))
    found = assessed(pred, y, posthoc, ood=foreign(entropy=told_apart(1.0)).ood)
    told = advice(found, "mine")
    assert [text.split()[0] for text in told] == ["calibration", "prediction", "abstaining", "mine"]
    assert all("\n" not in text and text.endswith(".") for text in told)


def test_p_values_of_many_recipes_are_corrected():
    pred, y = classification_sample(200)
    worse = [Predictive.from_probs(pred.mean.numpy() * (1 - k / 40) + k / 160) for k in range(4)]
    found = [replace(assessed(each, y), name=name) for name, each in zip("abcd", worse, strict=True)]

    def p_values(some: list[Evaluation]) -> list[float]:
        return [each.test.p_value for each in differences(some) if each.test.name == "nll"]

    alone = [p for pair in combinations(found, 2) for p in p_values(list(pair))]
    assert len(alone) == 6
    np.testing.assert_allclose(p_values(found), holm(alone))
    assert p_values(found) != alone


@pytest.mark.parametrize(
    ("kept", "gain", "sentence"),
    [
        (False, 0.0521, "not applied to it: its gain in held-out NLL, 0.0521 ± 0.0250, is not significant (p = 0.11)"),
        (False, -0.0521, "not applied to it: it raises the held-out NLL by 0.0521 ± 0.0250"),
        (False, 0.0, "not applied to it: it does not change the held-out NLL"),
        (True, 0.0521, "applied to it: it lowers the held-out NLL by 0.0521 ± 0.0250"),
    ],
)
def test_the_choice_of_a_calibrator_is_one_sentence(kept, gain, sentence) -> None:
    choice = Choice("temperature", kept, prior_std=1.0, gain=gain, error=0.025, p_value=0.11)
    assert about_choice(choice, "it") == f"temperature scaling was {sentence}"


# Headlines beside predictions without input


def two_classes(strength: float, counts: tuple[int, int] = (380, 20), **fields) -> Evaluation:
    """Right odds of 'no' and 'yes' for inputs that differ by a strength; of strength 0 the frequencies, with noise."""
    rng, y = np.random.default_rng(0), np.repeat([0, 1], counts)
    x, prior = rng.normal(size=len(y)) + strength * y, np.log(counts[1] / counts[0])
    odds = prior + (strength * x - strength**2 / 2 if strength else x)
    second = 1 / (1 + np.exp(-odds))
    pred = Predictive.from_probs(np.stack([1 - second, second], axis=-1))
    found = assessed(pred, y, **fields)
    return replace(found, eval_set=replace(found.eval_set, classes=("no", "yes")))


def test_a_useless_model_on_imbalanced_classes_is_called_so_first():
    found = two_classes(0.0)
    assert float(found.scores["accuracy"]) >= 0.94
    first, second, third = verdict([found], [])
    assert first.startswith(
        "one is no better than always 'no', a prediction without input that knows these test examples: NLL "
    )
    auroc, balanced = found.scores["auroc"], found.scores["balanced_accuracy"]
    precision = number(found.scores["average_precision"])
    shares = f"{precision} where chance has 0.0500"
    by_class = f"{percent(balanced)} ({interval(balanced, percent)})"
    assert second == (
        f"one tells 'yes' from 'no' with an AUROC of {number(auroc)} (95 % interval {interval(auroc)}), average "
        f"precision {shares}, and balanced accuracy {by_class}, on 400 test examples."
    )
    assert "confidence" in third


def test_a_class_that_is_never_predicted_is_named():
    found = two_classes(2.0)
    columns = {**found.examples.columns, "predicted": np.zeros_like(found.examples.columns["predicted"])}
    first = verdict([replace(found, examples=replace(found.examples, columns=columns))], [])[0]
    assert first.endswith("It never predicts 'yes' (20 examples): decide by a threshold on the probability.")
    assert "never" not in verdict([found], [])[0]


def test_the_rarer_class_is_named_wherever_it_stands():
    found = two_classes(2.0)
    turned = replace(found, eval_set=replace(found.eval_set, classes=("yes", "no")))
    assert "'yes' from 'no' with an AUROC" in verdict([found], [])[0]
    columns = found.examples.columns
    flipped = {**columns, "label": 1 - columns["label"], "positive_prob": 1 - columns["positive_prob"]}
    turned = replace(turned, examples=replace(found.examples, columns=flipped))
    assert verdict([turned], [])[0] == verdict([found], [])[0]


def test_a_good_model_is_compared_with_no_input_too():
    first, second, _ = verdict([two_classes(3.0)], [])
    assert first.startswith("one tells 'yes' from 'no' with an AUROC of 0.9")
    assert second.startswith("It is better than always 'no', a prediction without input")
    assert "95 % interval \u2212" in second


def test_the_leader_of_a_comparison_must_beat_no_input():
    pair = [replace(two_classes(0.0), name="a"), replace(two_classes(0.0), name="b")]
    assert verdict(pair, differences(pair))[0].startswith("a is no better than always 'no'")


def test_a_class_of_few_examples_is_named_with_counts_and_a_remedy():
    """Sets of one class that never hold the rare one, and class-wise sets that hold every class."""
    probs = np.tile([0.97, 0.03], (200, 1))
    y = (np.arange(200) >= 198).astype(int)
    found = assessed(Predictive.from_probs(probs), y, PostHoc(None, (SetRule("lac", 0.9, 0.5, 1000, 2),), (), 0, 1000))
    found = replace(found, subsets={"class no": np.flatnonzero(y == 0), "class yes": np.flatnonzero(y == 1)})
    assert about_coverage(found, "mine").endswith(", but too few for class yes (0 of 2).")
    columns = found.before.columns | {"covered_mondrian": np.arange(200) != 199, "size_mondrian": np.ones(200)}
    found = replace(found, before=replace(found.before, columns=columns))
    assert about_coverage(found, "mine").endswith(
        ", but too few for class yes (0 of 2); sets by mondrian (--conformal mondrian), with a threshold for each "
        "class, cover 1 of 2 of it."
    )


# One sentence instead of two that contradict each other


SIZE = "0.0500 \u00b1 0.0200"


def left_out(gain: float) -> PostHoc:
    return PostHoc(Temperature(1.0), (), (), 90, 90, Choice("temperature", False, 0.5, gain, 0.02, 0.11))


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (0.05, f"there the gain of temperature scaling in held-out NLL, {SIZE}, is not significant (p = 0.11)"),
        (-0.05, "there temperature scaling raises the held-out NLL by 0.0500 \u00b1 0.0200"),
        (0.0, "there temperature scaling does not change the held-out NLL"),
    ],
)
def test_what_is_overconfident_says_why_nothing_corrects_it(gain, words):
    found = assessed(*classification_sample(800, distortion=3.0), left_out(gain))
    *_, last = verdict([found], [])
    assert last.startswith("It is overconfident by ")
    assert last.endswith(f"; 90 validation examples do not show it: {words}, so it was not applied.")
    assert not any("temperature" in text for text in findings([found]))


def test_a_calibrator_that_nothing_asked_for_is_no_finding():
    found = assessed(*classification_sample(800), left_out(-0.05))
    *_, last = verdict([found], [])
    assert last == "Its mean confidence agrees with its accuracy within noise."
    assert not any("temperature" in text for text in findings([found]))


# Many pairs


def difference(a: str, b: str, value: float, p_value: float, name: str = "nll") -> Difference:
    return Difference(a, b, "lower", PairedTest(name, Score(value, value - 0.1, value + 0.1), p_value, ""), 100)


def test_pairs_within_noise_are_one_sentence_and_clear_ones_grouped():
    tests = [
        *(difference("a", "b", -0.2, 0.001), difference("a", "c", -0.3, 0.001), difference("b", "c", -0.1, 0.3)),
        *(difference(x, y, 0.01, 0.8, "corrupted_nll") for x, y in (("a", "b"), ("a", "c"), ("b", "c"))),
    ]
    assert summed_up(tests) == [
        "NLL, by more than the noise of the examples: a is better than b (by 0.200), c (by 0.300).",
        "The other 4 differences between two recipes are within the noise of the examples (p from 0.3).",
    ]
    assert summed_up(tests[2:]) == [
        "All 4 differences between two recipes are within the noise of the examples (p from 0.3)."
    ]


def test_draws_that_are_alike_are_flagged():
    pred, y = classification_sample(200, members=4)
    ensemble = replace(assessed(pred, y), name="deep-ensemble")
    spread = pred.probs.mean(0, keepdim=True) + 0.02 * (pred.probs - pred.probs.mean(0, keepdim=True))
    alike = replace(assessed(Predictive.from_probs(spread), y), name="swag")
    drawn = made.trained([], Manifest(origins=[0, 0, 0, 0]))
    swag = replace(alike, ensemble=drawn)
    (sentence,) = [text for text in (about_draws(e, [ensemble, swag]) for e in (ensemble, swag)) if text]
    own, other = (number(e.scores["mutual_information"]) for e in (swag, ensemble))
    assert sentence == (
        "the draws of swag are alike, so its epistemic uncertainty says nothing: its mutual information is "
        f"{own}, that of deep-ensemble {other}."
    )
    different = replace(assessed(pred, y), name="swag", ensemble=drawn)
    assert about_draws(different, [ensemble, different]) == ""
    assert about_draws(replace(swag, ensemble=None), [ensemble, swag]) == ""  # members of its own
