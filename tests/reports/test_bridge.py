"""What a report says of an ensemble is what the library computes, in the units of the source."""

import numpy as np
import pandas as pd
import pytest
import torch

import murmuration as mm
from murmuration.evaluation import eval_set_of, evaluate_ensemble
from murmuration.reports import Field1D, Field2D
from murmuration.reports.bridge import report_of
from murmuration.reports.examples import row, uncertain_examples
from murmuration.reports.landscape import field_of


def houses() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(100, 20, 60), "town": ["Aix", "Nice", "Eze"] * 20})
    table["age"] = np.where(np.arange(60) % 7 == 0, np.nan, rng.integers(1, 90, 60))
    return table.assign(price=3 * table["size"])


def test_rows_are_shown_as_they_were():
    table = houses()
    preparation = mm.open_data(table, target="price").preparation
    for i, x in enumerate(preparation.apply(table)):
        shown = row(preparation, x)
        assert shown["size"] == pytest.approx(table["size"][i], rel=1e-5)
        assert shown["town"] == table["town"][i]
        assert shown["age"] == ("missing" if np.isnan(table["age"][i]) else pytest.approx(table["age"][i], rel=1e-5))


@pytest.fixture(scope="module")
def digits_assessed():
    data = mm.open_data("digits")
    return evaluate_ensemble(mm.fit("mlp", data, members=3, epochs=2), data)


def test_examples_are_the_least_certain(digits_assessed):
    test = digits_assessed.eval_set.split
    predictive = digits_assessed.ensemble.predict(test.x)
    examples = uncertain_examples(digits_assessed)
    order = predictive.entropy.argsort(descending=True)[:12].tolist()
    assert [example.index for example in examples] == order
    for example in examples:
        votes = predictive.probs[:, example.index].argmax(-1).tolist()
        assert example.votes == {str(digit): votes.count(digit) for digit in sorted(set(votes))}
        assert example.label == str(int(test.y[example.index]))
        raw = digits_assessed.eval_set.preparation.pixels_of(test.x[example.index][None])[0]
        np.testing.assert_array_equal(example.image, raw)


def test_streaming_changes_no_score(digits_assessed, monkeypatch):
    monkeypatch.setattr("murmuration.ensemble.STREAM", 50)
    monkeypatch.setattr("murmuration.evaluation.eval_set.STREAM", 50)
    monkeypatch.setattr(mm.Ensemble.stream, "__defaults__", (50,))
    again = evaluate_ensemble(digits_assessed.ensemble, digits_assessed.eval_set)
    assert again.scores["nll"] == pytest.approx(digits_assessed.scores["nll"], rel=1e-6)  # float32 outputs
    np.testing.assert_array_equal(again.examples.columns["label"], digits_assessed.examples.columns["label"])


def test_members_average_to_the_score_of_members(digits_assessed):
    for name in ("accuracy", "nll", "brier"):
        mean = np.mean([member[name] for member in digits_assessed.member_scores])
        assert mean == pytest.approx(float(digits_assessed.scores[f"member_{name}"]), rel=1e-12)


def test_lines_and_planes():
    sine = mm.open_data("x-sin-x")
    line = field_of(evaluate_ensemble(mm.fit("mlp", sine, members=2, epochs=1), sine))
    assert isinstance(line, Field1D)
    assert sorted(line.train_x) == pytest.approx(sorted(sine.train.x[:, 0].tolist()))
    moons = mm.open_data("two-moons")
    ensemble = mm.fit("mlp", moons, members=2, epochs=1)
    plane = field_of(evaluate_ensemble(ensemble, moons))
    assert isinstance(plane, Field2D)
    corner = torch.tensor([[plane.x[3], plane.y[7]]])
    assert plane.values[7, 3] == pytest.approx(ensemble.predict(corner).entropy.item(), abs=1e-6)
    assert (
        field_of(evaluate_ensemble(mm.fit("mlp", mm.open_data("iris"), members=1, epochs=1), mm.open_data("iris")))
        is None
    )


def test_a_line_in_a_table_keeps_its_units():
    table = pd.DataFrame({"hours": np.arange(60.0), "score": 2 * np.arange(60.0)})
    data = mm.open_data(table, target="score")
    line = field_of(evaluate_ensemble(mm.fit("mlp", data, members=1, epochs=1), data))
    assert isinstance(line, Field1D)
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
    assert report.notes[0] == (
        "The ensemble is overconfident by 80.0 percentage points: "
        "100.0 % sure on average, and right 20.0 % of the time."
    )
    assert (
        report.notes[1] == "Averaging 2 members leaves the NLL of the ensemble at 22.1: they add little to one alone."
    )
