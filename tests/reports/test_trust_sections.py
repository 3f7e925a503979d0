"""What reports say of trust: every number of the records, in words that are right, and nothing without data."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import report_samples
import trust_samples
from report_reading import figure, figures, section_names, tables
from trust_samples import alone, exact

from murmuration.reports import DataCard, Entry, Histogram, Reliability, Report, render, report_check, write_report
from murmuration.reports.check import elements
from murmuration.reports.measured import Score
from murmuration.reports.shift_section import shift
from murmuration.reports.trust_figures import MOST_ROWS
from murmuration.reports.trust_records import (
    Calibration,
    Detection,
    Foreign,
    Group,
    Recalibrated,
    Rule,
    Sets,
    Shift,
    ShiftPoint,
    Trust,
)
from murmuration.reports.trust_sections import calibration, foreign, groups, rules, sets
from murmuration.reports.wording import interval, meaning, number, percent

NAN = math.nan
SECTIONS = (shift, foreign, calibration, sets, rules, groups)
IDS = ["calibration", "declining", "sets", "shift", "foreign", "groups"]
HOSTILE = "</script><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>\"'&"


@pytest.mark.parametrize("trust", [None, Trust()])
@pytest.mark.parametrize("section", SECTIONS)
def test_sections_are_empty_without_data(section: Callable[[Report], str], trust: Trust | None) -> None:
    assert section(alone(trust)) == ""


@pytest.fixture(scope="module")
def full() -> str:
    return render(trust_samples.classification())


@pytest.fixture(scope="module")
def text(full: str) -> str:
    return full.partition('<script id="plotly">')[0]


def test_full_reports_are_sound_and_in_order(full: str, tmp_path: Path) -> None:
    path = tmp_path / "trust.html"
    path.write_text(full, encoding="utf-8")
    assert report_check(path) == []
    assert [name for name in section_names(elements(full)) if name in IDS] == IDS
    write_report(path, trust_samples.regression())
    assert report_check(path) == []


def scores_of(record: Any) -> Iterator[Score]:
    """Every triple of numbers inside a record."""
    if isinstance(record, tuple) and len(record) == 3 and all(isinstance(each, float) for each in record):
        yield record
    elif dataclasses.is_dataclass(record):
        if not isinstance(record, Reliability | Histogram):
            yield from (score for each in dataclasses.fields(record) for score in scores_of(getattr(record, each.name)))
    elif isinstance(record, Mapping):
        yield from (score for each in record.values() for score in scores_of(each))
    elif isinstance(record, tuple):
        yield from (score for each in record for score in scores_of(each))


@pytest.mark.parametrize("make", [trust_samples.classification, trust_samples.regression])
def test_every_number_of_the_records_is_on_the_page(make: Callable[[], Report]) -> None:
    report = make()
    cells = {cell for section in SECTIONS for board in tables(section(report)) for row in board for cell in row}
    shown = {part.strip(" ★") for cell in cells for part in cell.split(" | ")}
    found = [score for entry in report.entries if entry.trust for score in scores_of(entry.trust)]
    assert len(found) > 100
    for score in found:
        if math.isfinite(score[0]):
            assert number(score[0]) in shown or percent(score[0]) in shown
            assert interval(score) in shown or " to ".join(percent(end) for end in score[1:]) in shown


def test_words_of_the_records_are_on_the_page(text: str) -> None:
    for words in (
        "19 corruptions, 5 severities, 360 test examples",
        "temperature scaling (every logit divided by 1.37), fitted on 288 examples",
        "Held with 90 % confidence for examples like the 288 it was chosen on.",
        "worse than the rest by more than chance explains",
        "fashion-mnist: 1,000 foreign examples",
        "approximate motion blur",
        "Corruptions called approximate are our own stand-ins",
    ):
        assert words in text


def test_best_detection_is_marked_by_direction() -> None:
    good, bad = (Detection(exact(a), exact(b), exact(c)) for a, b, c in ((0.9, 0.5, 0.2), (0.8, 0.6, 0.4)))
    page = foreign(alone(Trust(foreign=(Foreign("svhn", 10, {"entropy": good, "energy": bad}),))))
    assert tables(page)[0] == [
        ["Uncertainty", "AUROC ↑", "AUPR ↑", "FPR95 ↓"],
        ["Entropy", "0.900★", "0.500", "0.200★"],
        ["Energy", "0.800", "0.600★", "0.400"],
    ]
    assert not figures(elements(page))  # one recipe has nothing to be compared with


def test_detections_of_several_recipes_share_rows_of_dots() -> None:
    page = foreign(trust_samples.classification())
    first, second = figure(page, "foreign-0-dots")["data"]
    assert first["x"][:2] == pytest.approx([0.9, 0.87])
    assert second["x"][:2] == pytest.approx([0.93, 0.9])
    assert [(a + b) / 2 for a, b in zip(first["y"], second["y"], strict=True)] == pytest.approx(range(6))
    assert first["error_x"]["array"][0] == pytest.approx(0.011)
    bars = figure(page, "foreign-0-histogram-0-0")["data"]
    assert [trace["name"].split(" (")[0] for trace in bars] == ["familiar", "fashion-mnist"]


@pytest.mark.parametrize(("applied", "words"), [(True, "are those after it"), (False, "are those before it")])
def test_calibration_says_what_was_done_and_marks_the_better(applied: bool, words: str) -> None:
    change = Recalibrated("test", {"nll": exact(0.5), "ece": exact(0.01)}, {"nll": exact(0.4), "ece": exact(0.02)})
    page = calibration(alone(Trust(calibration=Calibration("temperature", "T = 1.4", 1288, applied, (change,)))))
    assert "one: temperature (T = 1.4), fitted on 1,288 examples that are not scored here." in page
    assert f"the other numbers of this report {words}" in page
    assert tables(page)[0] == [
        ["Where", "NLL ↓", "ECE ↓"],
        ["test | before", "0.500", "0.0100★"],
        ["test | after", "0.400★", "0.0200"],
    ]


def test_two_reliability_curves_in_one_figure() -> None:
    before, after = Reliability([0.5, NAN, 0.9], [0.4, NAN, 0.6]), Reliability([0.55], [0.5])
    change = Recalibrated("fog", {}, {}, before, after)
    page = calibration(alone(Trust(calibration=Calibration("t", "", 3, False, (change,)))))
    _, first, second = figure(page, "calibration-0-0")["data"]
    assert (first["name"], first["x"], first["y"]) == ("before", [0.5, 0.9], [0.4, 0.6])
    assert (second["name"], second["x"], second["y"]) == ("after", [0.55], [0.5])
    assert first["line"]["dash"] == "dash"
    assert "on average 0.200 before, 0.0500 after" in page  # (0.1 + 0.3) / 2


@pytest.mark.parametrize(
    ("verdict", "words"),
    [("under", "✗ under-coverage"), ("valid", "✓ as nominal, within noise"), ("over", "✓ over-coverage")],
)
def test_the_page_shows_the_verdict_of_the_record(verdict: str, words: str) -> None:
    page = sets(alone(Trust(sets=(Sets("aps", 0.9, "fog", (0.85, 0.82, 0.88), exact(1.5), 40, verdict),))))
    (board,) = tables(page)
    assert board[1][4] == words
    assert board[1][2] == "90 %"
    assert ("1 of 1 promises (fog)" in page) == (verdict == "under")
    assert "nan" not in page.lower()


def test_coverage_is_drawn_against_the_promise() -> None:
    drawn = figure(sets(trust_samples.classification()), "sets-1")
    promised, *series = drawn["data"]
    assert (promised["name"], promised["x"]) == ("promised 95 %", [0.95, 0.95])
    assert [trace["name"] for trace in series] == [
        *("deep-ensemble: adaptive sets", "deep-ensemble: score sets"),
        *("forde: adaptive sets", "forde: score sets"),
    ]
    assert drawn["layout"]["yaxis"]["ticktext"] == ["test", "digit=7", "digit=1", "fog, severity 5"]
    assert series[1]["x"][1] == pytest.approx(0.95 + 0.003 - 0.05)


@pytest.mark.parametrize(
    ("uncertainty", "threshold", "words"),
    [
        ("confidence", 0.83, "Confidence | at least 0.830"),
        ("entropy", 0.41, "Entropy | at most 0.410"),
        ("confidence", math.inf, "Confidence | never"),
        ("entropy", math.inf, "Entropy | always"),
    ],
)
def test_rules_say_on_which_side_of_the_threshold_they_answer(uncertainty: str, threshold: float, words: str) -> None:
    (board,) = tables(rules(alone(Trust(rules=(Rule("r", uncertainty, threshold, exact(0.8), exact(0.01)),)))))
    assert board[0] == ["Rule", "Where", "Answers if", "Answered", "Error among the answered"]  # no costs, no column
    assert board[1] == ["r", "test", words, "80.0 %", "1.0 %"]


def test_groups_are_drawn_around_the_overall_value() -> None:
    report = trust_samples.classification()
    drawn = figure(groups(report), "groups-0")
    lines = [trace for trace in drawn["data"] if trace["mode"] == "lines"]
    assert [line["x"][0] for line in lines] == pytest.approx([entry.scores["accuracy"][0] for entry in report.entries])
    assert lines[0]["line"]["dash"] != lines[1]["line"]["dash"]
    board = tables(groups(report))[0]
    assert [row[0] for row in board[:4]] == [
        "digit",
        "all examples | deep-ensemble",
        "all examples | forde",
        "0 | deep-ensemble",
    ]
    assert board[-1][-1] == "worse than the rest by more than chance explains"


def test_of_many_groups_the_largest_are_drawn_and_all_are_listed() -> None:
    many = tuple(Group("user", f"u{n}", 100 - n, {"accuracy": exact(0.5)}) for n in range(MOST_ROWS + 5))
    page = groups(alone(Trust(groups=many)))
    assert figure(page, "groups-0")["layout"]["yaxis"]["ticktext"] == [f"u{n}" for n in range(MOST_ROWS)]
    assert len(tables(page)[0]) == 2 + len(many)  # the head and all examples
    assert f"the {MOST_ROWS} largest groups" in page


def hostile() -> Report:
    """Every string of the records of trust, chosen by an enemy."""
    score = (0.5, 0.4, 0.6)
    curve = Reliability([0.5], [0.4])
    found = Shift(
        HOSTILE,
        {HOSTILE: score, "accuracy": score},
        (ShiftPoint(HOSTILE, 1, {HOSTILE: score, "accuracy": score}),),
        {HOSTILE: {HOSTILE: score, "accuracy": score}},
        {HOSTILE: score},
        trust_samples.sheet(1),
        sheet_about=HOSTILE,
    )
    other = Foreign(
        HOSTILE, 3, {HOSTILE: Detection(score, score, score)}, (Histogram(HOSTILE, [0, 1], {HOSTILE: [1]}),)
    )
    change = Recalibrated(HOSTILE, {HOSTILE: score}, {HOSTILE: score}, curve, curve)
    trust = Trust(
        found,
        (other,),
        Calibration(HOSTILE, HOSTILE, 3, True, (change,)),
        (Sets(HOSTILE, 0.9, HOSTILE, score, score),),
        (Rule(HOSTILE, HOSTILE, 0.1, score, score, score, HOSTILE, HOSTILE),),
        (Group(HOSTILE, HOSTILE, 3, {HOSTILE: score}, HOSTILE),),
    )
    entries = tuple(Entry(name, trust=trust) for name in (HOSTILE, "<script>alert(2)</script>"))
    return Report("t", "classification", DataCard("d"), entries)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    page = render(hostile())
    path = tmp_path / "hostile.html"
    path.write_text(page, encoding="utf-8")
    assert report_check(path) == []
    found = elements(page)
    assert set(IDS) <= set(section_names(found))
    assert "<script>alert" not in page
    assert [each.tag for each in found if each.tag == "img"] == ["img"]  # the sheet
    drawn = figures(found)
    shown = [trace.get("name", "") for each in drawn.values() for trace in each["data"]]
    shown += [tick for each in drawn.values() for tick in each["layout"]["yaxis"].get("ticktext", [])]
    assert any("&lt;" in name for name in shown)
    assert not any("<" in name for name in shown)


def test_reports_of_nothing_but_nan_are_sound(tmp_path: Path) -> None:
    none = (NAN, NAN, NAN)
    points = tuple(ShiftPoint("fog", severity, {"accuracy": none}) for severity in (1, 2))
    trust = Trust(
        Shift("", {"accuracy": none}, points, {}, {"accuracy": none}),
        (Foreign("a", 0, {"entropy": Detection(none, none, none)}),),
        Calibration("t", "", 0, True, (Recalibrated("test", {"nll": none}, {}, Reliability([NAN], [NAN])),)),
        (Sets("s", 0.9, "test", none, none),),
        (Rule("r", "entropy", NAN, none, none),),
        (Group("g", "v", 0, {"accuracy": none}),),
    )
    path = tmp_path / "nan.html"
    write_report(path, alone(trust))
    assert report_check(path) == []


def test_new_scores_have_words() -> None:
    names = "augrc brier_fair rmse_fair crps_fair energy max_probability logit_variance mahalanobis nearest_neighbours"
    for name in (*names.split(), "detection_aupr", "detection_auroc", "detection_fpr95"):
        assert meaning(name).reading.endswith(".")


def test_untouched_samples_have_no_section_on_trust(pages: dict[str, str]) -> None:
    assert not set(IDS) & set(section_names(elements(pages[report_samples.moons.__name__])))
