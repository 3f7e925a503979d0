"""Robust scaling, smooth clipping and the quantile transform, against scikit-learn and closed forms."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from sklearn.preprocessing import QuantileTransformer, RobustScaler

import murmuration as mm
from murmuration.data.preparation import fewest_rows, fit_array, fit_table, preparation_from_json
from murmuration.data.scaling import fit_scaling, smooth_clip, smooth_unclip
from murmuration.prediction.export import preparation_module

ROWS = 400


@pytest.fixture
def values() -> np.ndarray:
    """Skewed, discrete, mostly zero and constant columns (N, 5)."""
    draw = np.random.default_rng(0)
    rare = np.where(draw.random(ROWS) < 0.1, draw.exponential(50, ROWS), 0.0)
    columns = [draw.normal(5, 2, ROWS), draw.lognormal(0, 2, ROWS), draw.integers(0, 4, ROWS), rare, np.full(ROWS, 3.5)]
    return np.stack(columns, axis=1)


def test_robust_scaling_is_scikit_learn_s_clipped(values):
    plain = values[:, :3]  # scikit-learn divides a column of equal quartiles by 1
    expected = RobustScaler().fit_transform(plain)
    found = fit_scaling(values, "robust", "x").exact(values)
    np.testing.assert_allclose(found[:, :3], expected / np.sqrt(1 + (expected / 3) ** 2), rtol=1e-12, atol=1e-12)
    assert np.abs(found).max() < 3


def test_a_column_of_equal_quartiles_is_divided_by_half_its_range(values):
    rare, found = values[:, 3], fit_scaling(values, "robust", "x").exact(values)
    half = 0.5 * (rare.max() - rare.min())
    np.testing.assert_allclose(found[:, 3], smooth_clip(rare / half), rtol=1e-12)
    assert (found[:, 4] == 0).all()


def test_smooth_clipping_is_the_identity_near_zero_and_inverts():
    z = np.linspace(-50, 50, 101)
    np.testing.assert_allclose(smooth_unclip(smooth_clip(z)), z, rtol=1e-9)
    assert smooth_clip(np.array([1e-4]))[0] == pytest.approx(1e-4, rel=1e-8)
    assert smooth_clip(np.array([1e9]))[0] == pytest.approx(3.0)
    assert smooth_clip(np.array([3.0]))[0] == pytest.approx(3 / np.sqrt(2))


def test_the_quantile_transform_is_scikit_learn_s(values):
    """1e-6: scikit-learn's bound on probabilities is smaller than ours by one rounding.

    Scikit-learn sends the smallest and the largest value to -5.2 and 5.2 even if most rows have it: zeros of a column
    that is mostly zero. Here they get the middle of their probabilities, as equal values between the ends do.
    """
    count = ROWS // 30
    theirs = QuantileTransformer(n_quantiles=count, output_distribution="normal", subsample=None).fit(values)
    ours = fit_scaling(values, "quantile", "x")
    np.testing.assert_allclose(np.array(ours.quantiles).T, theirs.quantiles_, rtol=1e-12)
    new = np.concatenate([values, values[:50] * 1.7 - 2])  # also outside the range of training
    inner = (new > values.min(0)) & (new < values.max(0))
    inner[:, :2] = True  # no ties
    np.testing.assert_allclose(ours.exact(new)[inner], theirs.transform(new)[inner], atol=1e-6)
    assert inner.mean() > 0.5
    zero, levels = ours.exact(values)[values[:, 3] == 0, 3], np.array(ours.quantiles[3])
    assert zero == pytest.approx(norm.ppf(0.5 * ((levels == 0).sum() - 1) / (len(levels) - 1)))
    inside = ours.exact(values)[:, :2]
    np.testing.assert_allclose(
        ours.invert(ours.exact(values))[:, :2], values[:, :2], atol=1e-3
    )  # EDGE times the widest step
    assert np.abs(inside).max() < 5.2


@pytest.mark.parametrize("way", ["standardise", "robust", "quantile"])
def test_preparations_are_exact_after_json_and_as_modules(way, values):
    array = fit_array(values, tuple("abcde"), way)
    again = preparation_from_json(json.loads(json.dumps(array.to_json())))
    assert again == array
    assert torch.equal(again.apply(values), array.apply(values))
    module = preparation_module(array, torch.float32)
    torch.testing.assert_close(module(torch.from_numpy(values)), array.apply(values), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(array.scaling.invert(array.scaling.exact(values)), values, atol=1e-3)


@pytest.mark.parametrize("way", ["robust", "quantile"])
def test_tables_have_missing_flags_and_the_scaling_of_present_values(way, values):
    table = pd.DataFrame(values[:, :2], columns=["a", "b"])
    table.loc[::7, "a"] = np.nan
    prepared = fit_table(table, way=way)
    found = prepared.apply(table).numpy()
    assert prepared.names == ("a", "a missing", "b")
    present = table["a"].dropna().to_numpy()
    alone = fit_scaling(present[:, None], way, "a")
    np.testing.assert_array_equal(found[~table["a"].isna(), 0], alone.apply(present[:, None])[:, 0])
    at_median = alone.apply(np.array([[np.median(present)]]))[0, 0]
    assert (found[table["a"].isna(), 0] == at_median).all()
    assert preparation_from_json(json.loads(json.dumps(prepared.to_json()))) == prepared


def test_rare_categories_and_unseen_ones_are_one_column():
    texts = ["common"] * 295 + ["rare"] * 2 + ["third"] * 3
    assert fewest_rows(300) == 3
    prepared = fit_table(pd.DataFrame({"c": texts, "x": np.arange(300.0) % 7}))
    assert prepared.names == ("c=common", "c=third", "c unseen", "x")
    new = pd.DataFrame({"c": ["rare", "never", "common", "third"], "x": [0.0] * 4})
    np.testing.assert_array_equal(prepared.apply(new)[:, :3], [[0, 0, 1], [0, 0, 1], [1, 0, 0], [0, 1, 0]])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["robust", "quantile"])
def test_a_run_prepares_as_it_was_trained(way, values, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ensemble = mm.fit("mlp", (values, values[:, 0]), prepare=way, members=2, epochs=1, out=tmp_path / "run")
    again = mm.load(tmp_path / "run")
    assert again.preparation == ensemble.preparation
    assert torch.equal(again.predict(values[:9]).outputs, ensemble.predict(values[:9]).outputs)


def test_images_and_series_are_refused():
    with pytest.raises(mm.Misuse, match="prepare='robust' is for tables"):
        mm.open_data((np.zeros((20, 8, 8), dtype=np.uint8), np.arange(20) % 2), prepare="robust")
    with pytest.raises(mm.Misuse, match="expected rows of numbers"):
        mm.open_data((np.random.default_rng(0).normal(size=(20, 2, 9)), np.arange(20) % 2), prepare="quantile")
