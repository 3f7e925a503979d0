"""Sentences of advice: planted situations, the numbers in them, and silence where nothing is to be said."""

from dataclasses import replace

import numpy as np
import pytest
from prediction_factories import classification_sample, regression_sample

from murmuration.data import ArrayPreparation, Split
from murmuration.evaluation import EvalSet, Evaluation, OodResult, ShiftResult, ShiftSuite, score_predictions
from murmuration.metrics import Detection, Score, by_group, score_detection
from murmuration.posthoc.abstention import Abstention
from murmuration.posthoc.calibration import Temperature
from murmuration.posthoc.conformal import SetRule
from murmuration.posthoc.fit import PostHoc, fit_posthoc
from murmuration.predictive import Predictive
from murmuration.reports.advice import (
    about_calibrator,
    about_declining,
    about_foreign,
    about_groups,
    about_sets,
    about_shift,
    advice,
)
from murmuration.reports.wording import number, percent

NOTHING = ArrayPreparation((0,), (), ())


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


@pytest.mark.parametrize(("applied", "words"), [(False, "would change"), (True, "is applied, though it changes")])
def test_what_chance_explains_is_called_chance(applied, words):
    found = assessed(*classification_sample(200), calibrated_by(1.01), calibrated=applied)
    assert about_calibrator(found, "mine") == (
        f"calibration of mine by temperature {words} the NLL by no more than chance explains."
    )


# Sets


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
    assert about_sets(found, "mine") == (
        f"the sets of 1.00 classes that mine gives hold the truth {percent(held)} of the time, 90.0 % promised, but "
        "less often than promised for class a (0.0 %)."
    )


def test_sets_that_hold_are_reported_without_alarm():
    pred, y = classification_sample(600)
    found = assessed(pred, y, planted_sets(0.97), subsets=by_label(y))
    told = about_sets(found, "mine")
    assert f"hold the truth {percent(found.coverage[0].coverage)} of the time, 90.0 % promised." in told
    assert "less often" not in told
    assert "fewer" not in told


def test_sets_that_fail_everywhere_are_said_to():
    pred, y = classification_sample(600)
    found = assessed(pred, y, planted_sets(0.05))
    assert found.coverage[0].coverage < 0.8
    assert about_sets(found, "mine").endswith("90.0 % promised, fewer than promised by more than chance explains.")


def test_what_few_examples_taught_may_fall_short_by_chance():
    """Sets that hold 0.84: too few for a rule that thousands taught, no wonder for one that twenty did."""
    pred = Predictive.from_probs(np.tile([[0.7, 0.1, 0.1, 0.1]], (600, 1)))
    y = (np.arange(600) % 25 < 4).astype(int)  # 16 % are not in the set {a}
    many, few = (about_sets(assessed(pred, y, planted_sets(0.5, taught=taught)), "mine") for taught in (10_000, 20))
    assert few == "the sets of 1.00 classes that mine gives hold the truth 84.0 % of the time, 90.0 % promised."
    assert many == few.removesuffix(".") + ", fewer than promised by more than chance explains."


def test_no_more_than_three_failing_groups_are_named():
    rng = np.random.default_rng(1)
    y = np.zeros(500, dtype=int)
    probs = np.where(rng.random((500, 1)) < 0.5, [[0.97, 0.01, 0.01, 0.01]], [[0.01, 0.97, 0.01, 0.01]])
    parts = {f"site {k}": np.arange(100 * k, 100 * k + 100) for k in range(5)}
    told = about_sets(assessed(Predictive.from_probs(probs), y, planted_sets(0.5), subsets=parts), "mine")
    assert told.endswith(" and 2 more.")
    assert told.count("site ") == 3


def test_intervals_without_end_are_explained():
    pred, y = regression_sample(30)
    posthoc = fit_posthoc(pred, y)
    endless = replace(posthoc.conformal[0], thresholds=(np.inf,), coverage=0.99)
    found = assessed(pred, y, replace(posthoc, conformal=(endless,)))
    assert (
        about_sets(found, "mine") == "there were too few examples for quantile intervals of mine that promise 99.0 %."
    )


def test_intervals_are_reported_as_such():
    pred, y = regression_sample(400)
    found = assessed(pred, y, fit_posthoc(pred, y))
    share = percent(found.coverage[0].coverage)
    assert (
        about_sets(found, "mine")
        == f"the conformal intervals that mine gives hold the truth {share} of the time, 90.0 % promised."
    )


# Declining


def planted_rule(threshold: float, name: str = "cost", costs: tuple[float, ...] = (1.0, 0.2)) -> PostHoc:
    return PostHoc(None, (), (Abstention(name, "confidence", threshold, 0.2, "none", 100, costs),), 0, 100)


def test_what_declining_gains_is_told_in_error_rates():
    pred, y = classification_sample(500)
    sure, wrong = pred.confidence.numpy(), pred.predicted.numpy() != y
    told = about_declining(assessed(pred, y, planted_rule(0.6)), "mine")
    assert told == (
        f"declining the {percent((sure < 0.6).mean())} that mine is least sure of takes the error rate among its "
        f"answers from {percent(wrong.mean())} to {percent(wrong[sure >= 0.6].mean())}."
    )
    assert wrong[sure >= 0.6].mean() < wrong.mean()


@pytest.mark.parametrize("threshold", [-np.inf, np.inf])
def test_a_rule_that_declines_nothing_or_all_is_passed_over(threshold):
    assert about_declining(assessed(*classification_sample(100), planted_rule(threshold)), "mine") == ""


def test_rules_of_other_kinds_are_passed_over():
    assert about_declining(assessed(*classification_sample(100), planted_rule(0.6, "error-rate", ())), "mine") == ""


# Groups


def test_worse_groups_are_named_and_no_others():
    pred, y = classification_sample(600)
    site = np.array(list("nsew"))[np.arange(600) % 4]
    labels = np.where(site == "n", (pred.predicted.numpy() + 1) % 4, y)  # always wrong there
    found = assessed(pred, labels)
    found = replace(found, groups={"site": by_group(found.examples, site)})
    assert about_groups(found, "mine") == (
        "Accuracy of mine is worse than for the rest, by more than chance explains, for site n (0); over all it is "
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
    assert about_foreign(foreign(entropy=told_apart(1.0), energy=good, mutual_information=bad), "mine") == [
        f"mine notices noise best by energy (AUROC {number(good.auroc)}); mutual information would call it more "
        "familiar than the test examples."
    ]
    assert about_foreign(foreign(entropy=good), "mine") == [
        f"mine notices noise best by entropy (AUROC {number(good.auroc)})."
    ]


@pytest.mark.parametrize("by", [0.0, -1.0])
def test_what_nothing_notices_is_not_called_noticed(by):
    best, bad = told_apart(by), told_apart(-2.0)
    (told,) = about_foreign(foreign(entropy=best, energy=bad), "mine")
    assert told.startswith(f"mine does not notice noise: by entropy, the best, the AUROC is {number(best.auroc)}; ")
    misled = "energy" if by == 0 else "entropy, energy"
    assert told.endswith(f"; {misled} would call it more familiar than the test examples.")


# All of them


def test_where_nothing_was_looked_at_nothing_is_said():
    assert advice(assessed(*classification_sample(100)), "mine") == []
    assert advice(assessed(*regression_sample(100)), "mine") == []


def test_sentences_come_in_the_order_of_the_report():
    pred, y = classification_sample(600, distortion=2.0)
    posthoc = fit_posthoc(*classification_sample(400, distortion=2.0, seed=1))
    found = assessed(pred, y, posthoc, ood=foreign(entropy=told_apart(1.0)).ood)
    told = advice(found, "mine")
    assert [text.split()[0] for text in told] == ["calibration", "the", "declining", "mine"]
    assert all("\n" not in text and text.endswith(".") for text in told)
