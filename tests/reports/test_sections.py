"""Sections: the numbers of the evaluation, in words that are right, and nothing without data."""

import math
from dataclasses import replace

import numpy as np
import pytest
import report_factories as made
from check_report import elements
from report_reading import figure, figures, tables
from score_factories import exact

from murmuration.data import ImagePreparation
from murmuration.evaluation import SetCoverage, score_predictions
from murmuration.evaluation.metrics import ExampleScores, Score, by_group, reliability
from murmuration.evaluation.shift import Cell
from murmuration.prediction.posthoc import PostHocConfig
from murmuration.prediction.posthoc.abstention import Abstention
from murmuration.prediction.posthoc.fit import PostHoc
from murmuration.prediction.predictive import Predictive
from murmuration.reports.findings import about_choice
from murmuration.reports.formatting import MISSING, interval, number, percent
from murmuration.reports.sections.abstention import abstention, risk_at, same_results
from murmuration.reports.sections.calibration import FEW, GREY, calibration, curve_of, reliability_figure
from murmuration.reports.sections.conformal import VERDICTS, conformal
from murmuration.reports.sections.groups import MOST_ROWS, WORSE, groups
from murmuration.reports.sections.scores import by_class, class_table, confusion, parity_figure, predictions
from murmuration.reports.sections.shift import (
    _left_out,
    by_severity,
    out_of_distribution,
    quartiles,
    shift,
    shift_curves,
    unlike_cifar,
)
from murmuration.reports.sections.summary import summary, winners
from murmuration.reports.sections.uncertainty import by_class_figure, histogram_of, uncertainty


@pytest.fixture(scope="module")
def pair():
    return made.report(made.full(made.classification, "sharp", distortion=2.0), made.full(made.classification, "plain"))


@pytest.mark.parametrize("section", [shift, out_of_distribution, groups, conformal, predictions])
def test_sections_are_empty_without_data(section) -> None:
    bare = made.evaluation_of(*made.classification_sample(60), "bare")
    assert section(made.report(bare)) == ""


def test_winners_are_the_best_of_at_least_two() -> None:
    assert winners({"a": 0.1, "b": 0.3, "c": math.nan}, "lower") == {"a"}
    assert winners({"a": 0.1, "b": 0.3}, "neutral") == set()
    assert winners({"a": 0.1}, "lower") == set()


def test_the_summary_shows_the_verdict_the_leader_and_its_scores(pair) -> None:
    page = summary(pair)
    assert pair.verdict[0] in page.replace("&#x27;", "'")
    leader = min(pair.evaluations, key=lambda each: float(each.scores["nll"]))
    assert pair.leader is leader
    assert percent(leader.scores["accuracy"]) in page
    assert f"{leader.name}, one of 2 recipes, was chosen on these same test examples" in page
    alone = summary(made.report(leader))
    assert number(leader.scores["nll"]) in alone
    assert f"without input {number(leader.baseline.scores['nll'])}" in alone


# Calibration


def test_bins_are_dots_by_count_not_joined_and_grey_when_few() -> None:
    confidence = np.array([0.55] * 4 + [0.95] * 60)
    probs = np.stack([confidence, 1 - confidence], axis=-1)
    labels = np.array([0, 1, 1, 0] + [0] * 57 + [1] * 3)
    found = made.evaluation_of(Predictive.from_probs(probs), labels, "one")
    _, dots = reliability_figure(found, 0, "x").data
    assert dots["mode"] == "markers"
    assert dots["x"] == pytest.approx([0.55, 0.95])
    assert dots["y"] == pytest.approx([0.5, 0.95])
    few, many = dots["marker"]["size"]
    assert (many / few) ** 2 == pytest.approx(60 / 4, rel=0.3)  # area by count, but at least five pixels
    assert dots["marker"]["color"] == [GREY, "var(--series-1)"]
    assert 4 < FEW <= 60


def test_before_and_after_are_one_figure_a_recipe(pair) -> None:
    drawn = figures(elements(calibration(pair)))
    assert list(drawn) == ["calibration-0", "calibration-1"]
    names = [trace.get("name") for trace in drawn["calibration-0"]["data"][1:]]
    assert names == ["before", "after"]
    before = pair.evaluations[0].before
    kept = reliability(before.columns)
    assert drawn["calibration-0"]["data"][1]["y"] == pytest.approx(kept.accuracy[kept.count > 0], abs=1e-6)


def test_the_gap_of_a_curve_is_the_calibration_error() -> None:
    found = made.classification(distortion=3.0)
    assert curve_of(found.examples).gap == pytest.approx(float(found.scores["ece"]), abs=1e-12)


def test_quantiles_of_a_regression_are_joined() -> None:
    _, before, after = reliability_figure(made.regression(distortion=0.5), 0, "x").data
    assert (before["mode"], after["mode"]) == ("lines+markers", "lines+markers")
    gaps = [
        curve_of(scores).gap
        for scores in (made.regression(distortion=0.5).before, made.regression(distortion=0.5).after)
    ]
    assert gaps[1] < gaps[0]


@pytest.mark.parametrize(("applied", "words"), [(True, "are those after it"), (False, "are those before it")])
def test_calibration_says_whether_it_is_applied(applied, words) -> None:
    asked = PostHocConfig("temperature:prior_std=0.5")
    assert words in calibration(made.report(made.classification(calibrated=applied, config=asked)))


def test_calibration_says_why_there_is_none() -> None:
    found = made.classification()
    assert found.posthoc is not None
    assert found.posthoc.choice is not None
    assert not found.posthoc.choice.kept
    page = calibration(made.report(found))
    assert (
        f"one: no calibrator is applied, decided on 100 validation examples; {about_choice(found.posthoc.choice)};"
        in page
    )
    kept = made.classification(distortion=3.0)
    assert "temperature scaling was applied: it lowers the held-out NLL by" in calibration(made.report(kept))


# By class


def test_the_confusion_matrix_holds_the_counts() -> None:
    found = made.classification()
    drawn = confusion(found, "x")
    assert drawn is not None
    counts = [[int(cell or 0) for cell in row] for row in drawn.data[0]["text"]]
    assert counts == found.confusion.tolist()
    right = int(np.trace(found.confusion))
    assert f"{300 - right} of 300 examples are off the diagonal" in drawn.label
    board = tables(class_table(found))[0]
    assert board[0] == ["Class", "Precision", "Recall", "F1", "Examples"]
    assert board[1][1].split(" | ")[0] == percent(found.class_scores[0].precision)
    assert sum(int(row[-1]) for row in board[1:]) == 300
    assert by_class(made.report(made.regression())) == ""


# Abstention


def rule(name: str, threshold: float, costs: tuple[float, ...] = ()) -> Abstention:
    return Abstention(name, "confidence", threshold, 0.05, "none", 100, costs)


def test_rules_that_do_the_same_share_a_row() -> None:
    pred, y = made.classification_sample(200)
    rules = (rule("cost", -math.inf, (1.0, 0.2)), rule("error-rate", 0.7), rule("risk-control", -math.inf))
    found = made.evaluation_of(pred, y, "one", PostHoc(None, (), rules, 0, 100))
    assert [[each.rule.name for each in group] for group in same_results(found)] == [
        ["cost", "risk-control"],
        ["error-rate"],
    ]
    board = tables(abstention(made.report(found)))[0]
    assert len(board) == 3
    assert board[1][1].split(" | ")[0] == "100.0 %"
    assert "the same on these examples" in board[1][0]
    assert "answers if confidence is at least 0.700" in board[2][0]
    answered = pred.confidence.numpy() >= 0.7
    assert board[2][1].split(" | ")[0] == percent(answered.mean())


def test_the_curve_is_read_at_the_coverage_that_reaches_a_fraction(pair) -> None:
    columns = pair.evaluations[0].examples.columns
    from murmuration.evaluation.metrics import risk_coverage

    curve = risk_coverage(columns)
    assert risk_at(curve, 1.0) == pytest.approx(1 - columns["correct"].mean())
    assert "abstention" in abstention(pair)


# Conformal sets


@pytest.mark.parametrize("verdict", ["under", "valid", "over"])
def test_the_page_shows_the_verdict_of_the_record(verdict, monkeypatch) -> None:
    found = made.classification()
    monkeypatch.setattr(SetCoverage, "verdict", verdict)
    rows = tables(conformal(made.report(found)))[0][1:]
    assert {row[3] for row in rows} == {VERDICTS[verdict]}


def test_coverage_of_every_method_and_subset_is_on_the_page(pair) -> None:
    page = conformal(pair)
    cells = {part for board in tables(page) for row in board for cell in row for part in cell.split(" | ")}
    for each in pair.evaluations:
        for found in each.coverage:
            assert percent(found.coverage) in cells
            assert number(found.size) in cells
    drawn = figure(page, "conformal-subsets-0")
    assert drawn["data"][0]["x"] == [0.9, 0.9]
    assert drawn["layout"]["yaxis"]["ticktext"] == ["class a", "class b", "class c", "class d"]


# Uncertainty


def test_histograms_span_the_values_and_count_each_once() -> None:
    values = np.array([0.0, 0.5, 1.0, 1.0])
    edges, counts = histogram_of(values, {"right": values < 1, "wrong": values == 1})
    assert (edges[0], edges[-1]) == (0.0, 1.0)
    assert (counts["right"].sum(), counts["wrong"].sum()) == (2, 2)


def test_only_ensembles_have_an_epistemic_part() -> None:
    both = made.report(made.classification("three"), made.classification("alone", members=1))
    drawn = figures(elements(uncertainty(both)))
    assert set(drawn) == {"uncertainty-0", "uncertainty-1", "uncertainty-classes-0"}
    series = by_class_figure(both.evaluations[0], "x").data  # type: ignore[union-attr]
    rows = both.evaluations[0].class_uncertainty
    assert series[1]["x"] == pytest.approx([float(row.scores["epistemic"]) for row in rows], rel=1e-5)


# Shift


def test_boxes_are_the_quartiles_and_the_line_joins_the_means(pair) -> None:
    drawn = shift_curves(pair, "nll", "x")
    assert drawn is not None
    found = pair.evaluations[1].shift
    boxes, line = drawn.data[2:4]
    for place, severity in enumerate((1, 3, 5)):
        values = [float(cell.scores["nll"]) for cell in found.cells if cell.severity == severity]
        expected = np.percentile(values, [0, 25, 50, 75, 100])
        names = ("lowerfence", "q1", "median", "q3", "upperfence")
        assert [boxes[name][place] for name in names] == pytest.approx(expected, rel=1e-5)
        assert line["y"][place + 1] == pytest.approx(np.mean(values), rel=1e-5)
    assert line["y"][0] == pytest.approx(float(found.clean["nll"]))


def test_recipes_stand_side_by_side_around_their_severity(pair) -> None:
    drawn = shift_curves(pair, "accuracy", "x")
    assert drawn is not None
    first, second = drawn.data[0], drawn.data[2]
    for severity, left, right in zip((1, 3, 5), first["x"], second["x"], strict=True):
        assert (left + right) / 2 == pytest.approx(severity)
        assert right - left > (first["width"] + second["width"]) / 2  # no overlap
    assert [trace.get("name") for trace in (drawn.data[1], drawn.data[3])] == ["sharp", "plain"]


def test_quartiles_by_hand() -> None:
    assert list(quartiles(np.array([4.0, 1.0, 3.0, 2.0])).values()) == [1.0, 1.75, 2.5, 3.25, 4.0]


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    cells = tuple(Cell(name, 1, {"accuracy": exact(v)}) for name, v in (("a", 0.5), ("b", math.nan), ("c", 0.7)))
    found = made.shift_result("classification", cells=cells)
    assert by_severity(found, "accuracy")[1].tolist() == [0.5, 0.7]
    assert "1 of 3 values are not finite" in shift(made.report(made.classification(shift=found)))


def test_a_member_alone_has_no_mutual_information_under_shift() -> None:
    found = made.shift_result("classification")
    page = shift(
        made.report(made.classification("alone", members=1, shift=found), made.classification("three", shift=found))
    )
    board = tables(page)[0]
    place = [head.strip() for head in board[0]].index("cMI")
    assert board[1][place] == MISSING
    assert board[2][place] != MISSING


def test_every_number_under_shift_is_in_its_table(pair) -> None:
    page = shift(pair)
    cells = {part for board in tables(page) for row in board for cell in row for part in cell.split(" | ")}
    for cell in pair.evaluations[0].shift.cells:
        for name in ("nll", "ece"):
            assert number(cell.scores[name]) in cells
            assert interval(cell.scores[name]) in cells
    assert "approximate motion blur" in page
    assert "Corruptions called approximate" in page
    fog = page[page.index(">fog<") :]
    assert "--depth:" in fog


# Out-of-distribution inputs


def test_the_best_detection_is_marked_by_direction() -> None:
    found = made.classification(ood=(made.ood_result(by=1.0),))
    board = tables(out_of_distribution(made.report(found)))[0]
    assert board[0] == ["Uncertainty", "AUROC ↑", "AUPR ↑", "FPR95 ↓"]
    detections = found.ood[0].detections
    best = max(detections, key=lambda key: float(detections[key].auroc))
    for row, (key, each) in zip(board[1:], detections.items(), strict=True):
        assert row[1].split(" | ")[0].strip(" ★") == number(each.auroc)
        assert ("★" in row[1]) == (key == best)


def test_detections_of_several_recipes_share_rows_of_dots(pair) -> None:
    page = out_of_distribution(pair)
    first, second = figure(page, "ood-0-auroc")["data"]
    assert first["x"] == pytest.approx(
        [float(d.auroc) for d in pair.evaluations[0].ood[0].detections.values()], rel=1e-5
    )
    assert [(a + b) / 2 for a, b in zip(first["y"], second["y"], strict=True)] == pytest.approx([0, 1])
    bars = figure(page, "ood-0-0-entropy")["data"]
    assert [trace["name"].split(" (")[0] for trace in bars] == ["test", "noise"]


# Groups


def test_groups_are_drawn_around_the_overall_value_and_the_worse_are_named() -> None:
    pred, y = made.classification_sample(200)
    labels = np.where(np.arange(200) < 50, (pred.predicted.numpy() + 1) % 4, y)
    found = made.evaluation_of(pred, labels, "one")
    found = replace(found, groups={"site": by_group(found.examples, np.where(np.arange(200) < 50, "a", "b"))})
    page = groups(made.report(found))
    guide = figure(page, "groups-0")["data"][0]
    assert guide["x"][0] == pytest.approx(float(found.scores["accuracy"]), rel=1e-5)
    rows = tables(page)[0]
    assert [row[0].split(" | ")[0] for row in rows] == ["site", "all examples", "a", "b"]
    assert WORSE in rows[2][0]
    assert WORSE not in rows[3][0]
    assert rows[2][1] == "50"


def test_of_many_groups_the_largest_are_drawn_and_all_are_listed() -> None:
    found = made.classification()
    first = by_group(found.examples, np.zeros(300))[0]
    many = [replace(first, value=f"u{n}", examples=100 - n) for n in range(MOST_ROWS + 5)]
    page = groups(made.report(replace(found, groups={"user": many})))
    assert figure(page, "groups-0")["layout"]["yaxis"]["ticktext"] == [f"u{n}" for n in range(MOST_ROWS)]
    assert len(tables(page)[0]) == 2 + len(many)  # the head and all examples
    assert f"the {MOST_ROWS} largest groups" in page


# Regression


def test_predictions_stand_against_their_targets() -> None:
    found = made.regression()
    line, points = parity_figure(found, 0, "x").data
    assert points["x"] == pytest.approx(found.examples.columns["target"], rel=1e-5)
    assert points["y"] == pytest.approx(found.examples.columns["predicted"], rel=1e-5)
    assert points["error_y"]["array"] == pytest.approx(found.examples.columns["total_std"], rel=1e-4)
    assert line["x"] == line["y"]


def test_several_targets_have_no_parity() -> None:
    pred, y = made.regression_sample(60, targets=2)
    found = made.evaluation_of(pred, y, "two")
    assert predictions(made.report(found)) == ""
    assert isinstance(score_predictions([(pred, y)]).uncalibrated, ExampleScores)
    assert isinstance(found.scores["rmse"], Score)


@pytest.mark.parametrize(
    ("shape", "official", "told"),
    [
        ((1, 28, 28), None, "on images of 28 x 28 pixels in grey they can be much weaker"),
        ((3, 64, 48), None, "on images of 64 x 48 pixels they can be much weaker"),
        ((3, 32, 32), None, ""),
        ((1, 28, 28), "CIFAR-10-C", ""),
    ],
)
def test_strengths_of_corruptions_are_said_to_be_those_for_cifar(shape, official, told: str) -> None:
    found = made.shift_result("classification")
    one = made.classification(shift=replace(found, suite=replace(found.suite, official=official)))
    channels = (0.0,) * shape[0]
    preparation = ImagePreparation(shape, 255.0, channels, tuple(1.0 for _ in channels))
    report = made.report(replace(one, eval_set=replace(one.eval_set, preparation=preparation)))
    assert unlike_cifar(report) == told.removeprefix("on images of ").removesuffix(" they can be much weaker")
    notes = _left_out(report, [])
    assert told in notes if told else "CIFAR-10-C" not in notes
