"""From what an assessment found to the records a report shows: the same numbers under plain names."""

from dataclasses import replace

import numpy as np
import pytest
from prediction_factories import classification_sample

import murmuration as mm
from murmuration.evaluation import (
    Evaluation,
    ShiftSuite,
    eval_set_of,
    evaluate_ensemble,
    evaluate_ood,
    evaluate_shift,
    in_distribution,
)
from murmuration.metrics import by_group, score_examples
from murmuration.posthoc import PostHocConfig
from murmuration.recipe import Plan
from murmuration.reports.curves import plain, triple
from murmuration.reports.trust_entries import group_of, trust_of

PLAN = Plan(
    members=2,
    epochs=2,
    batch_size=64,
    engine="loop",
    posthoc=PostHocConfig(error_cost=5.0, abstain_cost=1.0, max_error_rate=0.1),
)
TRIED = ShiftSuite(("contrast", "fog"), (1, 5), examples=100)


@pytest.fixture(scope="module")
def found(digits) -> Evaluation:
    ensemble = mm.fit("mlp", digits, plan=PLAN)
    first = evaluate_ensemble(ensemble, digits)
    shift = evaluate_shift(ensemble, first.eval_set, TRIED, posthoc=first.posthoc, calibrated=first.calibrated)
    foreign = evaluate_ood(
        ensemble, in_distribution(ensemble, eval_set_of(digits)), "upside down", digits.test.x.flip(2)
    )
    return replace(first, shift=shift, ood=(foreign,))


def test_every_set_and_rule_is_shown_with_its_numbers(found):
    trust = trust_of(found)
    assert len(trust.sets) == len(found.coverage) == 3 + 10 + 2
    for shown, each in zip(trust.sets, found.coverage, strict=True):
        assert (shown.method, shown.level, shown.where, shown.examples) == (
            each.method,
            0.9,
            each.subset,
            each.examples,
        )
        assert shown.coverage == triple(each.coverage)
    assert [rule.name for rule in trust.rules] == [
        "least cost: an error 5, abstaining 1",
        "at most 0.1 of the answers wrong",
        "at most 0.1 of all inputs answered wrongly",
    ]
    for shown, each in zip(trust.rules, found.abstention, strict=True):
        assert (shown.threshold, shown.note) == (each.rule.threshold, each.rule.guarantee)
        assert shown.answered == triple(each.answered)
    assert trust.rules[0].cost == triple(found.abstention[0].cost)
    assert np.isnan(trust.rules[1].cost).all()


def test_shift_is_shown_cell_by_cell_with_its_examples(found):
    shown = trust_of(found).shift
    assert shown.about == "2 corruptions, 2 severities, 100 examples"
    assert [(point.corruption, point.severity) for point in shown.points] == TRIED.cells
    assert shown.points[3].scores == plain(found.shift.cells[3].scores)
    assert shown.pooled == plain(found.shift.pooled)
    assert shown.by_severity[5] == plain(found.shift.by_severity[5])
    assert shown.sheet.shape[0] % 2 == 0  # a row for each of two corruptions
    assert shown.sheet_about
    official = replace(found, shift=replace(found.shift, suite=replace(TRIED, official="somewhere")))
    assert trust_of(official).shift.sheet is None  # type: ignore[union-attr]
    assert trust_of(official).shift.sheet_about == ""  # type: ignore[union-attr]


def test_calibration_is_shown_on_test_and_under_the_worst_shift(found):
    shown = trust_of(found).calibration
    assert (shown.method, shown.applied, shown.fitted_on) == ("temperature", True, found.posthoc.calibrator_examples)
    test, worst = shown.changes
    assert (test.where, worst.where) == ("test", "all corruptions, severity 5")
    assert test.scores_before["nll"] == triple(found.before.scores()["nll"])
    assert test.scores_after["nll"] == triple(found.after.scores()["nll"])
    value, low, high = worst.scores_after["nll"]
    assert value == pytest.approx(float(found.shift.by_severity[5]["nll"]), rel=1e-9)  # equally many in every cell
    assert np.isnan([low, high]).all()  # the same examples stand there twice
    assert (len(worst.before.low), len(worst.after.high)) == (0, 0)
    unguarded = replace(found, posthoc=None)
    assert trust_of(unguarded).calibration is None
    assert trust_of(unguarded).rules == ()


def test_foreign_inputs_are_shown_with_their_histograms(found):
    (shown,) = trust_of(found).foreign
    (each,) = found.ood
    assert (shown.name, shown.examples) == ("upside down", each.examples)
    assert {key: d.auroc for key, d in shown.detections.items()} == {
        key: triple(d.auroc) for key, d in each.detections.items()
    }
    assert [histogram.name for histogram in shown.histograms] == ["entropy", "mutual_information"]
    assert sum(shown.histograms[0].groups["upside down"]) == each.examples


def test_groups_are_shown_with_a_note_where_they_are_worse():
    pred, y = classification_sample(200)
    labels = np.where(np.arange(200) < 50, (pred.predicted.numpy() + 1) % 4, y)
    worse, rest = by_group(score_examples(pred, labels), np.where(np.arange(200) < 50, "a", "b"))
    shown = group_of("site", worse, "classification")
    assert (shown.column, shown.value, shown.examples) == ("site", "a", 50)
    assert shown.note == "worse than the rest by more than chance explains"
    assert list(shown.scores) == ["accuracy", "nll", "ece"]
    assert shown.scores["accuracy"][0] == 0.0
    assert group_of("site", rest, "classification").note == ""
