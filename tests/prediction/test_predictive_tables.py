"""Predictions as pandas tables, and short representations of what a user looks at."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import murmuration as mm

PLAN = {"members": 2, "epochs": 1, "engine": "loop"}


@pytest.mark.parametrize("source", ["breast-cancer", "diabetes"])
def test_a_table_has_the_columns_of_a_file(source: str, tmp_path: Path) -> None:
    data = mm.open_data(source)
    ensemble = mm.fit("mlp", data, **PLAN)
    mm.save_predictions(ensemble, data.test, tmp_path / "p.csv")
    expected, found = pd.read_csv(tmp_path / "p.csv"), ensemble.predict(data.test).to_pandas()
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-8)
    if source == "breast-cancer":
        assert set(found["predicted"]) <= {"malignant", "benign"}
        assert {"set_90", "answered", "prob_benign", "mutual_information"} <= set(found.columns)
    plain = ensemble.predict(data.test, calibrated=False).to_pandas()
    assert not {"set_90", "answered", "conformal_low_90"} & set(plain.columns)


def test_predictions_made_elsewhere_have_tables_too() -> None:
    probs = np.random.default_rng(0).dirichlet(np.ones(3), (4, 6))
    table = mm.Predictive.from_probs(probs).to_pandas()
    assert np.allclose(table[["prob_0", "prob_1", "prob_2"]], probs.mean(0))
    numbers = mm.Predictive.from_moments(np.zeros((4, 6, 2)), np.ones((4, 6, 2))).to_pandas()
    assert np.allclose(numbers["total_std_1"], 1)


def test_representations_are_short() -> None:
    data = mm.open_data("iris")
    ensemble = mm.fit("mlp", data, **PLAN)
    pred, found = ensemble.predict(data.test), mm.evaluate(ensemble, data)
    for each in (data, data.test, ensemble, pred, found):
        assert len(repr(each)) < 200
        assert len(repr(each).splitlines()) == 1
    for each in (data, ensemble, pred, found):
        assert each._repr_html_().startswith("<")
        assert len(each._repr_html_()) < 10_000
    assert repr(data) == "Data('iris', classification of 3 classes, inputs (4,), 105 train, 15 val, 30 test)"
    assert "setosa" in pred._repr_html_()
    assert "accuracy" in found._repr_html_().lower()
