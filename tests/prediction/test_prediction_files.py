"""Predictions as files, from Python; the commands' tests cover formats and streaming."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import murmuration as mm
from murmuration.prediction.prediction_files import Predictions, plain_text, safe_text, write_predictions


@pytest.fixture(scope="module")
def moons():
    data = mm.open_data("two-moons")
    plan = mm.Plan(members=2, epochs=1, engine="loop", posthoc=mm.PostHocConfig())
    return data, mm.fit("mlp", data, plan=plan)


def test_a_table_holds_predictions_and_post_hoc_columns(moons, tmp_path):
    data, ensemble = moons
    found = mm.save_predictions(ensemble, data.test.prepared, tmp_path / "p.csv")
    table = pd.read_csv(tmp_path / "p.csv")
    assert (found.rows, found.members, len(table)) == (len(data.test.prepared), 2, len(data.test.prepared))
    assert {"predicted", "confidence", "prob_0", "prob_1", "set_90", "answered"} <= set(table)
    np.testing.assert_allclose(table["prob_1"], ensemble.predict(data.test.x).mean[:, 1], rtol=1e-8)


def test_members_need_an_archive(moons, tmp_path):
    data, ensemble = moons
    with pytest.raises(mm.Misuse, match=r"per_member=True with p\.csv.*write p\.npz"):
        mm.save_predictions(ensemble, data.test.prepared, tmp_path / "p.csv", per_member=True)
    with pytest.raises(mm.Misuse, match=r"suffix '\.txt'.*\.csv or \.parquet or \.npz"):
        mm.save_predictions(ensemble, data.test.prepared, tmp_path / "p.txt")
    mm.save_predictions(ensemble, data.test.prepared, tmp_path / "p.npz", per_member=True)
    with np.load(tmp_path / "p.npz") as found:
        assert found["member_probs"].shape == (2, len(data.test.prepared), 2)


@pytest.mark.parametrize("before", ["", " ", "\u00a0", "\ufeff", "\ufeff \u200b", "\t"])
@pytest.mark.parametrize("text", ["=1+1", "+a", "-a", "@SUM(A1)", "'=1", "'"])
def test_formulas_are_marked_after_blanks_and_invisible_characters(before: str, text: str) -> None:
    assert safe_text(before + text) == f"'{before}{text}"
    assert plain_text(safe_text(before + text)) == before + text


def test_formulas_in_cells_and_in_the_header_of_a_file_are_marked(tmp_path) -> None:
    probs = mm.Predictive.from_probs([[0.2, 0.8]])
    names = ("cat", "\u00a0=1+1")
    part = replace(probs, names=names, keys={" @name": np.array(["\ufeff=2"])})
    write_predictions(tmp_path / "p.csv", Predictions(iter([part]), 1, names, 1, keys=part.keys))
    header, cells = (tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()
    assert header.startswith("' @name,")
    assert cells.startswith("'\ufeff=2,'\u00a0=1+1,")
