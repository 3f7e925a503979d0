"""The section on shift: boxes and lines, tables and pictures, against numbers worked out by hand."""

import base64
import io
import math

import numpy as np
import pytest
import trust_samples
from PIL import Image
from report_reading import figure, figures, tables
from trust_samples import alone, exact

from murmuration.reports import Report
from murmuration.reports.check import elements
from murmuration.reports.shift_section import shift
from murmuration.reports.trust_figures import by_severity, quartiles, shift_curves
from murmuration.reports.trust_records import Shift, ShiftPoint, Trust
from murmuration.reports.wording import MISSING, interval, number


def shift_of(report: Report, place: int) -> Shift:
    trust = report.entries[place].trust
    assert trust is not None
    assert trust.shift is not None
    return trust.shift


def one_shift(*points: ShiftPoint, clean: float = 0.9) -> Report:
    return alone(Trust(Shift("", {"accuracy": exact(clean)}, points, {}, {})))


def test_boxes_are_the_quartiles_of_numpy_and_the_line_joins_the_means() -> None:
    report = trust_samples.classification()
    drawn = shift_curves(report, "nll", "x")
    assert drawn is not None
    found = shift_of(report, 1)
    boxes, line = drawn.data[2:4]
    for place, severity in enumerate((1, 2, 3, 4, 5)):
        values = [point.scores["nll"][0] for point in found.points if point.severity == severity]
        assert len(values) == 19
        expected = np.percentile(values, [0, 25, 50, 75, 100])
        names = ("lowerfence", "q1", "median", "q3", "upperfence")
        assert [boxes[name][place] for name in names] == pytest.approx(expected, rel=1e-5)  # six digits are written
        assert line["y"][severity] == pytest.approx(sum(values) / 19, rel=1e-5)
    assert line["y"][0] == pytest.approx(found.clean["nll"][0])


def test_entries_stand_side_by_side_around_their_severity() -> None:
    drawn = shift_curves(trust_samples.classification(), "accuracy", "x")
    assert drawn is not None
    first, second = drawn.data[0], drawn.data[2]
    for severity, left, right in zip((1, 2, 3, 4, 5), first["x"], second["x"], strict=True):
        assert (left + right) / 2 == pytest.approx(severity)
        assert right - left > (first["width"] + second["width"]) / 2  # no overlap
        assert right + second["width"] / 2 < severity + 0.5  # nor with the next severity
    assert [trace.get("name") for trace in (drawn.data[1], drawn.data[3])] == ["deep-ensemble", "forde"]
    assert first["line"]["color"] != second["line"]["color"]
    assert drawn.data[1]["marker"]["symbol"] != drawn.data[3]["marker"]["symbol"]


def test_quartiles_by_hand() -> None:
    assert quartiles(np.array([4.0, 1.0, 3.0, 2.0])) == {
        "lowerfence": 1.0,
        "q1": 1.75,
        "median": 2.5,
        "q3": 3.25,
        "upperfence": 4.0,
    }


def test_one_corruption_at_one_severity() -> None:
    page = shift(one_shift(ShiftPoint("fog", 3, {"accuracy": (0.7, 0.65, 0.75)})))
    boxes, line = figure(page, "shift-0")["data"]
    assert boxes["x"] == [3.0]
    assert boxes["q1"] == boxes["median"] == boxes["q3"] == [0.7]
    assert (line["x"], line["y"]) == ([0, 3], [0.9, 0.7])
    assert tables(page)[0] == [
        ["Corruption", "Severity 3", "Mean"],
        ["none (clean)", MISSING, "0.900"],
        ["fog", "0.700 | 0.650 to 0.750", MISSING],
        ["all corruptions", "0.700", MISSING],
    ]


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    points = [ShiftPoint(name, 1, {"accuracy": exact(v)}) for name, v in (("a", 0.5), ("b", math.nan), ("c", 0.7))]
    report = one_shift(*points)
    found = shift_of(report, 0)
    assert by_severity(found, "accuracy")[1].tolist() == [0.5, 0.7]
    page = shift(report)
    assert figure(page, "shift-0")["data"][1]["y"] == [0.9, 0.6]
    assert "1 of 3 values are not finite" in page


def test_means_given_with_an_interval_are_preferred() -> None:
    points = (ShiftPoint("a", 1, {"accuracy": exact(0.5)}),)
    given = Shift("", {}, points, {}, {}, by_severity={1: {"accuracy": (0.5, 0.4, 0.6)}})
    assert tables(shift(alone(Trust(given))))[0][-1] == ["all corruptions", "0.500 | 0.400 to 0.600", MISSING]


def test_colour_of_a_cell_grows_with_its_distance_from_the_clean_value() -> None:
    points = [ShiftPoint("fog", place, {"accuracy": exact(value)}) for place, value in ((1, 0.9), (2, 0.7), (3, 0.5))]
    page = shift(one_shift(*points))
    fog = page[page.index(">fog<") : page.index(">all corruptions<")]
    assert [part.split('"')[0] for part in fog.split("--depth:")[1:]] == ["0%", "50%", "100%"]


def test_pooled_table_names_marks_and_shows_the_clean_value() -> None:
    board = tables(shift(trust_samples.classification()))[0]
    assert board[0] == ["Recipe", "cA ↑", "cNLL ↓", "cECE ↓", "cBrier ↓", "cMI "]
    found = shift_of(trust_samples.classification(), 1)
    nll = found.pooled["nll"]
    clean = number(found.clean["nll"][0])
    assert board[2][2] == f"{number(nll[0])}★ | {interval(nll)} | clean {clean}"
    assert "★" not in board[1][2]


def test_sheet_is_shown_pixel_by_pixel_with_words() -> None:
    (shown,) = [each for each in elements(shift(trust_samples.classification())) if each.tag == "img"]
    decoded = np.asarray(Image.open(io.BytesIO(base64.b64decode(shown.attributes["src"].split(",")[1]))))
    assert np.array_equal(decoded, trust_samples.sheet(19))
    assert shown.attributes["alt"].startswith("Test pictures under the corruptions gaussian noise, shot noise")


def test_regression_draws_its_scores_and_the_promise() -> None:
    page = shift(trust_samples.regression())
    drawn = figures(elements(page))
    assert len(drawn) == 4
    promised = drawn["shift-3"]["data"][-1]
    assert (promised["name"], promised["y"]) == ("promised", [0.9, 0.9])
    assert tables(page)[0][0] == ["Recipe", "cRMSE ↓", "cNLL ↓", "cCRPS ↓", "Coverage, 90 %, corrupted "]
    assert "widens its intervals" in page
