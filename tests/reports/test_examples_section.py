"""Examples and the input space are shown as the library computes them, in the units of the source."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import murmuration as mm
from murmuration.evaluation import eval_set_of, evaluate_ensemble
from murmuration.reports import report_of
from murmuration.reports.sections.examples import given_row, row_of, uncertain_examples
from murmuration.reports.sections.input_space import (
    LineField,
    PlaneField,
    common_reach,
    field_of,
    line_figure,
    plane_figure,
)


def houses() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(100, 20, 60), "town": ["Aix", "Nice", "Eze"] * 20})
    table["age"] = np.where(np.arange(60) % 7 == 0, np.nan, rng.integers(1, 90, 60))
    return table.assign(price=3 * table["size"])


def test_rows_are_shown_as_they_were():
    table = houses()
    preparation = mm.open_data(table, target="price").preparation
    for i, x in enumerate(preparation.apply(table)):
        shown = row_of(preparation, x)
        assert shown["size"] == pytest.approx(table["size"][i], rel=1e-5)
        assert shown["town"] == table["town"][i]
        assert shown["age"] == ("missing" if np.isnan(table["age"][i]) else pytest.approx(table["age"][i], rel=1e-5))


@pytest.fixture(scope="module")
def digits_evaluated():
    data = mm.open_data("digits")
    return evaluate_ensemble(mm.fit("mlp", data, members=3, epochs=2, posthoc=None), data)


def test_examples_are_the_least_certain(digits_evaluated):
    test = digits_evaluated.eval_set.split
    predictive = digits_evaluated.ensemble.predict(test.x)
    examples = uncertain_examples(digits_evaluated)
    order = predictive.entropy.argsort(descending=True)[:10].tolist()
    assert [example.index for example in examples] == order
    for example in examples:
        votes = predictive.probs[:, example.index].argmax(-1).tolist()
        assert example.votes == {str(digit): votes.count(digit) for digit in sorted(set(votes))}
        assert example.label == str(int(test.y[example.index]))
        raw = digits_evaluated.eval_set.preparation.pixels_of(test.prepared[example.index][None])[0]
        np.testing.assert_array_equal(example.image, raw)


def test_streaming_changes_no_score(digits_evaluated, monkeypatch):
    monkeypatch.setattr("murmuration.data.streamed.MOST_ROWS", 50)
    again = evaluate_ensemble(digits_evaluated.ensemble, digits_evaluated.eval_set)
    assert again.scores["nll"] == pytest.approx(digits_evaluated.scores["nll"], rel=1e-6)  # float32 outputs
    np.testing.assert_array_equal(again.examples.columns["label"], digits_evaluated.examples.columns["label"])


def test_members_average_to_the_score_of_members(digits_evaluated):
    for name in ("accuracy", "nll", "brier"):
        mean = np.mean([member[name] for member in digits_evaluated.member_scores])
        assert mean == pytest.approx(float(digits_evaluated.scores[f"member_{name}"]), rel=1e-12)


def test_lines_and_planes():
    sine = mm.open_data("x-sin-x")
    line = field_of(evaluate_ensemble(mm.fit("mlp", sine, members=2, epochs=1, posthoc=None), sine))
    assert isinstance(line, LineField)
    assert sorted(line.train_x) == pytest.approx(sorted(sine.train.prepared[:, 0].tolist()))
    moons = mm.open_data("two-moons")
    ensemble = mm.fit("mlp", moons, members=2, epochs=1, posthoc=None)
    plane = field_of(evaluate_ensemble(ensemble, moons))
    assert isinstance(plane, PlaneField)
    corner = torch.tensor([[plane.x[3], plane.y[7]]])
    assert plane.values[7, 3] == pytest.approx(ensemble.predict(corner, prepared=True).entropy.item(), abs=1e-6)
    assert (
        field_of(
            evaluate_ensemble(
                mm.fit("mlp", mm.open_data("iris"), members=1, epochs=1, posthoc=None), mm.open_data("iris")
            )
        )
        is None
    )


def test_a_line_in_a_table_keeps_its_units():
    table = pd.DataFrame({"hours": np.arange(60.0), "score": 2 * np.arange(60.0)})
    data = mm.open_data(table, target="score")
    line = field_of(evaluate_ensemble(mm.fit("mlp", data, members=1, epochs=1, posthoc=None), data))
    assert isinstance(line, LineField)
    np.testing.assert_allclose(line.train_y, 2 * np.asarray(line.train_x), rtol=1e-4, atol=1e-4)


def test_findings_on_confidence():
    data = mm.open_data("five-gaussians")

    class Sure(torch.nn.Module):
        """Always class 0, with certainty: right a fifth of the time."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(50.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.eye(5)[0] * self.scale * torch.ones(len(x), 1)

    report = report_of([evaluate_ensemble(mm.Ensemble.from_models([Sure(), Sure()]), eval_set_of(data), "sure")])
    assert report.verdict[0].startswith("sure is no better than the class frequencies, a prediction without input")
    assert report.verdict[2] == (
        "It is overconfident by 80.0 percentage points: mean confidence 100.0 %, accuracy 20.0 %."
    )
    assert not any("overconfident" in each for each in report.notes)  # it is said once
    assert (
        report.notes[0] == "Averaging 2 members leaves the NLL of the ensemble at 22.1: they add little to one alone."
    )


def test_outer_band_adds_variances() -> None:
    field = LineField(np.array([0.0]), np.array([1.0]), np.array([3.0]), np.array([4.0]))
    figure = line_figure("a", field, "x")
    assert figure.data[0]["y"] == [11.0, -9.0]  # 1 plus and minus twice the root of 9 + 16
    assert figure.data[1]["y"] == [9.0, -7.0]


def test_a_plane_is_named_after_its_recipe_and_points_after_their_classes() -> None:
    points = np.array([[0.0, 0.0], [1.0, 1.0]])
    field = PlaneField(np.array([0, 1]), np.array([0]), np.array([[0.2, 0.4]]), points=points, labels=[0, 1])
    drawn = plane_figure("recipe", field, ("cat", "dog"), "x")
    assert (drawn.title, drawn.label) == ("recipe", "Entropy of recipe over the plane of inputs")
    assert [trace["name"] for trace in drawn.data] == ["entropy", "cat", "dog"]


def test_fields_share_one_scale_and_a_wide_one_is_cut() -> None:
    narrow = LineField(*map(np.array, ([0.0, 1.0], [0.0, 1.0], [0.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.0, 2.0])))
    wide = replace(narrow, epistemic_std=np.array([100.0, 0.5]))
    assert common_reach([narrow]) == (-1.0, 2.0)
    assert common_reach([narrow, wide]) == (-3.0, 5.0)  # the targets' range of two, and one and a half of it beyond
    axes = np.array([0, 1]), np.array([0])
    maps = [PlaneField(*axes, np.array([[0.2, 0.4]])), PlaneField(*axes, np.array([[0.1, math.nan]]))]
    assert common_reach(maps) == (0.0, 0.4)
    assert common_reach([]) is None


def test_rows_of_tables_are_shown_as_they_were_given() -> None:
    days = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")
    table = pd.DataFrame({"day": days, "size": [np.nan if i % 3 == 0 else float(i) for i in range(60)]})
    found = eval_set_of(mm.open_data(table.assign(y=np.arange(60.0)), target="y"))
    for place in range(len(found.split)):
        given = found.split.x.iloc[place]
        assert given_row(found, place) == {"day": given["day"], "size": given.fillna("missing")["size"]}
    assert given_row(eval_set_of(mm.open_data("digits")), 0) == {}
