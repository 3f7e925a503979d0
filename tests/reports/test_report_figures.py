"""What the figures and sentences say, against numbers worked out by hand."""

import math

import numpy as np
import pytest
import report_samples

from murmuration.errors import Misuse
from murmuration.metrics.scores import MEASURES
from murmuration.reports import (
    DataCard,
    Entry,
    Field1D,
    Field2D,
    Histogram,
    Parity,
    Reliability,
    Report,
    RiskCoverage,
)
from murmuration.reports.canvas import numbers, thin, to_json
from murmuration.reports.dot_plots import dots, whiskers
from murmuration.reports.figures import histogram, reliability, risk_coverage, training
from murmuration.reports.pictures import agreement, field_1d, parity
from murmuration.reports.sections import _risk_at
from murmuration.reports.summary import _about_trust, best, leader
from murmuration.reports.wording import meaning, number


def report_of(*entries: Entry, task: str = "classification") -> Report:
    return Report("t", task, DataCard("d"), entries)  # type: ignore[arg-type]


def test_whiskers_reach_from_the_value_to_both_ends() -> None:
    bars = whiskers([0.5, 0.2, 0.3], [0.4, math.nan, 0.35], [0.8, 0.3, 0.4])
    assert bars["arrayminus"] == pytest.approx([0.1, 0, 0])  # no interval; an end above the value
    assert bars["array"] == pytest.approx([0.3, 0, 0.1])


def test_dots_place_each_entry_on_its_row() -> None:
    figure = dots(report_samples.classification(), "nll", "x")
    assert [trace["x"] for trace in figure.data] == [[0.1012], [0.0712]]
    assert [trace["y"] for trace in figure.data] == [[0], [1]]
    assert figure.title == "NLL, lower is better"


def test_reliability_drops_empty_bins_and_says_its_mean_gap() -> None:
    record = Reliability([0.1, math.nan, 0.9], [0.2, math.nan, 0.6], count=[3, 0, 5])
    figure = reliability(Entry("a", reliability=record), 0, "x")
    assert figure is not None
    assert figure.data[1]["x"] == [0.1, 0.9]
    assert figure.data[2]["y"] == [3, 5]
    assert "0.200 from the diagonal on average over 2 bins" in figure.label  # (0.1 + 0.3) / 2


def test_sides_of_a_quantile_curve_are_not_called_coverage() -> None:
    record = Reliability([0.05, 0.95], [0.1, 0.8], kind="quantile")
    figure = reliability(Entry("a", reliability=record), 0, "x")
    assert figure is not None
    assert figure.layout["xaxis"]["title"]["text"] == "predicted quantile"


@pytest.mark.parametrize(
    ("record", "task", "sentence"),
    [
        (
            Reliability([0.6, 0.9], [0.5, 0.9], count=[1, 3]),
            "classification",
            "2.5 percentage points higher than its",
        ),
        (
            Reliability([0.6, 0.9], [0.8, 0.9], count=[1, 1]),
            "classification",
            "10.0 percentage points lower than its",
        ),
        (
            Reliability([0.5, 0.9], [0.5, 0.8], kind="interval"),
            "regression",
            "Its 90.0 % intervals held the truth 80.0 %",
        ),
        (
            Reliability([0.05, 0.95], [0.1, 0.8], kind="quantile"),
            "regression",
            "Its 90.0 % intervals held the truth 70.0 %",
        ),
    ],
)
def test_sentence_on_trust(record: Reliability, task: str, sentence: str) -> None:
    entry = Entry("a", reliability=record)
    assert sentence in _about_trust(report_of(entry, task=task), entry)


def test_risk_in_the_table_is_that_of_the_smallest_sufficient_coverage() -> None:
    coverage, risk = [0.25, 0.5, 0.75, 1.0], [0.0, 0.1, 0.2, 0.3]
    assert [_risk_at(coverage, risk, share) for share in (0.5, 0.6, 1.0)] == [0.1, 0.2, 0.3]
    assert math.isnan(_risk_at([0.5], [0.1], 0.9))


def test_long_curves_are_thinned_with_both_ends_kept() -> None:
    curve = RiskCoverage(np.arange(1, 10_001) / 10_000, np.arange(10_000) / 20_000)
    figure = risk_coverage(report_of(Entry("a", risk_coverage=curve)), "x")
    assert figure is not None
    assert len(figure.data[0]["x"]) == 300
    assert (figure.data[0]["x"][0], figure.data[0]["x"][-1]) == (0.0001, 1.0)
    assert len(set(thin(10_000, 300))) == 300


def test_histogram_scales_each_group_to_one_and_keeps_its_counts() -> None:
    figure = histogram(Entry("a"), Histogram("entropy", [0, 1, 3], {"right": [30, 10], "wrong": [1, 3]}), "x")
    assert [trace["y"] for trace in figure.data] == [[0.75, 0.25], [0.25, 0.75]]
    assert figure.data[0]["customdata"] == [30, 10]
    assert figure.data[0]["x"] == [0.5, 2.0]
    assert [trace["name"] for trace in figure.data] == ["right (40)", "wrong (4)"]


def test_training_separates_members_by_gaps_and_frozen_ones_by_trace() -> None:
    rows = [{"epoch": e, "val_nll": [1.0 / e, 2.0 / e, 3.0 / e], "ensemble": {"val_nll": 0.5 / e}} for e in (1, 2)]
    figure = training(Entry("a", history=rows, frozen={1: "diverged"}), "val_nll", 0, "x")
    assert figure is not None
    members, frozen, together = figure.data
    assert members["x"] == [1, 2, None, 1, 2, None]
    assert members["y"] == [1.0, 0.5, None, 3.0, 1.5, None]
    assert (frozen["name"], frozen["y"]) == ("frozen members", [2.0, 1.0, None])
    assert together["y"] == [0.5, 0.25]


@pytest.mark.parametrize(("last", "kind"), [(0.05, "log"), (0.5, None), (-1.0, None)])
def test_wide_positive_curves_get_a_logarithmic_axis(last: float, kind: str | None) -> None:
    rows = [{"epoch": 1, "train_loss": [1.0]}, {"epoch": 2, "train_loss": [last]}]
    figure = training(Entry("a", history=rows), "train_loss", 0, "x")
    assert figure is not None
    assert figure.layout["yaxis"].get("type") == kind


def test_agreement_blanks_the_diagonal_and_leaves_the_record_alone() -> None:
    matrix = np.array([[1.0, 0.8], [0.8, 1.0]])
    figure = agreement(Entry("a", agreement=matrix), "x")
    assert figure is not None
    assert figure.data[0]["z"] == [[None, 0.8], [0.8, None]]
    assert matrix[0, 0] == 1.0
    assert "0.800 on average" in figure.label


def test_outer_band_adds_variances() -> None:
    figure = field_1d(Entry("a"), Field1D([0.0], [1.0], [3.0], [4.0]), "x")
    assert figure.data[0]["y"] == [11.0, -9.0]  # 1 plus and minus twice the root of 9 + 16
    assert figure.data[1]["y"] == [9.0, -7.0]


def test_best_follows_the_direction_and_reports_ties() -> None:
    entries = [Entry(n, scores={"nll": (v, 0, 1), "mine": (v, 0, 1)}) for n, v in (("a", 1.0), ("b", 2.0), ("c", 1.0))]
    report = Report("t", "classification", DataCard("d"), tuple(entries), directions={"mine": "higher"})
    assert best(report, "nll") == {"a", "c"}
    assert best(report, "mine") == {"b"}
    assert best(report_of(*entries), "mine") == set()


def test_the_leader_is_chosen_by_nll_before_accuracy() -> None:
    sharp = Entry("sharp", scores={"accuracy": (0.99, 0, 1), "nll": (0.5, 0, 1)})
    honest = Entry("honest", scores={"accuracy": (0.98, 0, 1), "nll": (0.1, 0, 1)})
    entry, score = leader(report_of(sharp, honest))
    assert (entry.name, score) == ("honest", "nll")


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_every_score_of_the_library_has_words_and_the_same_direction(task: str) -> None:
    for name, measure in MEASURES[task].items():  # type: ignore[index]
        assert measure.meaning.endswith(".")
        assert meaning(name).better == ("" if measure.better == "neutral" else measure.better)


@pytest.mark.parametrize("value", [0.98765, -12.345, 1234.5, 0.001, 0.0009996, 99.96, 5.6e-7])
def test_numbers_are_within_half_a_unit_of_the_third_digit(value: float) -> None:
    shown = float(number(value).replace(",", "").replace("\u2212", "-"))
    assert abs(shown - value) <= 0.5 * 10 ** (math.floor(math.log10(abs(value))) - 2) * (1 + 1e-9)


def test_json_holds_no_sign_that_ends_a_script_and_no_nan() -> None:
    text = to_json({"a": ["</script>", "\u2028", np.float32("nan"), np.int64(3), np.array([1.5, np.inf])]})
    assert text == '{"a":["\\u003c/script\\u003e","\\u2028",null,3,[1.5,null]]}'
    assert numbers([None, 1]) == [None, 1.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Reliability([0.1], [0.1, 0.2]), r"columns of different lengths \(promised 1, observed 2\)"),
        (lambda: Reliability([0.1], [0.1], kind="intervl"), "did you mean 'interval'"),  # type: ignore[arg-type]
        (lambda: Histogram("entropy", [0, 1], {"right": [1, 2]}), "group 'right' has 2 counts for 2 edges"),
        (lambda: Entry("a", scores={"nll": 0.1}), "score 'nll' of 'a' is 0.1; give"),  # type: ignore[dict-item]
        (
            lambda: Entry("a", agreement=np.zeros((2, 3))),
            r"agreement of 'a' has shape \(2, 3\); give a square",
        ),
        (lambda: Field2D([0, 1], [0], np.zeros((2, 1))), r"values of shape \(2, 1\) on a grid of 1 y by 2 x"),
        (lambda: report_of(), "a report without entries: give at least one Entry"),
        (lambda: report_of(Entry("a"), Entry("a")), "two entries are named 'a'"),
        (lambda: report_of(Entry("a"), task="clasification"), "did you mean 'classification'"),
        (
            lambda: report_of(Entry("a", reliability=Reliability([0.1], [0.1])), task="regression"),
            "is of kind 'confidence' in a report on regression; give kind='interval' or 'quantile'",
        ),
    ],
)
def test_records_refuse_what_cannot_be(make: object, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        make()  # type: ignore[operator]


def test_parity_without_a_finite_number_still_draws() -> None:
    figure = parity(Entry("a"), Parity([math.nan], [math.nan]), 0, "x")
    assert figure.data[0]["x"] == [0.0, 1.0]
    assert figure.data[1]["y"] == [None]
