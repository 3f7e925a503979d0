"""Predictions as files, from Python; the commands' tests cover formats and streaming."""

import numpy as np
import pandas as pd
import pytest

import murmuration as mm


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
