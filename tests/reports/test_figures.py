"""Figures and numbers as text, against numbers worked out by hand."""

import math

import numpy as np
import pytest
from score_factories import exact

from murmuration.evaluation.metrics import Score, describe
from murmuration.reports.figures import (
    Series,
    axis,
    dot_rows,
    histogram,
    member_matrix,
    numbers,
    scale_of,
    thin,
    to_json,
    whiskers,
    with_guide,
)
from murmuration.reports.formatting import number


def test_whiskers_reach_from_the_value_to_both_ends() -> None:
    bars = whiskers([0.5, 0.2, 0.3], [0.4, math.nan, 0.35], [0.8, 0.3, 0.4])
    assert bars["arrayminus"] == pytest.approx([0.1, 0, 0])  # no interval; an end above the value
    assert bars["array"] == pytest.approx([0.3, 0, 0.1])


def test_rows_of_dots_stand_below_one_another() -> None:
    series = [Series("a", 0, {"x": Score(0.1, 0.0, 0.2), "y": exact(0.3)}), Series("b", 1, {"x": exact(0.5)})]
    drawn = dot_rows("n", "AUROC", ["x", "y"], series)
    first, second = drawn.data
    assert (first["x"], second["x"]) == ([0.1, 0.3], [0.5])
    assert (first["y"][0] + second["y"][0]) / 2 == pytest.approx(0)
    assert first["y"][1] == 1  # alone in its row
    assert first["error_x"]["array"] == pytest.approx([0.1, 0])
    assert drawn.layout["yaxis"]["ticktext"] == ["x", "y"]
    guided = with_guide(drawn, 0.9, "target 90 %")
    assert (guided.data[0]["x"], guided.data[0]["name"]) == ([0.9, 0.9], "target 90 %")
    assert with_guide(drawn, math.nan, "") is drawn


def test_axes_write_small_numbers_without_prefixes() -> None:
    assert axis()["exponentformat"] == "none"  # plotly would write 200µ


def test_long_curves_are_thinned_with_both_ends_kept() -> None:
    places = thin(10_000, 300)
    assert (places[0], places[-1], len(set(places))) == (0, 9_999, 300)


def test_histogram_scales_each_group_to_one_and_keeps_its_counts() -> None:
    figure = histogram("x", describe("entropy"), "t", [0, 1, 3], {"right": [30, 10], "wrong": [1, 3]})
    assert [trace["y"] for trace in figure.data] == [[0.75, 0.25], [0.25, 0.75]]
    assert figure.data[0]["customdata"] == [30, 10]
    assert figure.data[0]["x"] == [0.5, 2.0]
    assert [trace["name"] for trace in figure.data] == ["right (40)", "wrong (4)"]


def test_matrix_blanks_the_diagonal_and_leaves_the_record_alone() -> None:
    matrix = np.array([[1.0, 0.8], [0.8, 1.0]])
    figure = member_matrix("x", "t", "label", matrix, 0.5)
    assert figure.data[0]["z"] == [[None, 0.8], [0.8, None]]
    assert (figure.data[0]["zmin"], figure.data[0]["zmax"]) == (0.5, 1.0)
    assert matrix[0, 0] == 1.0


@pytest.mark.parametrize(("last", "kind"), [(0.05, "log"), (0.5, None), (-1.0, None)])
def test_wide_positive_curves_get_a_logarithmic_axis(last: float, kind: str | None) -> None:
    assert scale_of([1.0, last, math.nan]).get("type") == kind


@pytest.mark.parametrize("value", [0.98765, -12.345, 1234.5, 0.001, 0.0009996, 99.96, 5.6e-7])
def test_numbers_are_within_half_a_unit_of_the_third_digit(value: float) -> None:
    assert "e" not in number(value)
    shown = float(number(value).replace(",", "").replace("\u2212", "-"))
    assert abs(shown - value) <= 0.5 * 10 ** (math.floor(math.log10(abs(value))) - 2) * (1 + 1e-9)


def test_json_holds_no_sign_that_ends_a_script_and_no_nan() -> None:
    text = to_json({"a": ["</script>", "\u2028", np.float32("nan"), np.int64(3), np.array([1.5, np.inf])]})
    assert text == '{"a":["\\u003c/script\\u003e","\\u2028",null,3,[1.5,null]]}'
    assert numbers([None, 1]) == [None, 1.0]
