"""Models that are not networks: inputs, distributions, members, files, reports."""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import BayesianRidge, RidgeCV
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

import murmuration as mm
from murmuration.data import Data
from murmuration.likelihoods import Gaussian, HeteroscedasticGaussian
from murmuration.models.estimators.member import Layout, regression_outputs
from murmuration.models.estimators.table import BOTH, MODELS, estimator_class, models_for
from murmuration.system.errors import Failure, Misuse
from murmuration.system.files import digest_of, write_record

ROWS = 240
SKLEARN = [name for name, row in MODELS.items() if row.package == "sklearn"]


def made_table(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Numbers, categories and missing values that mean something, with a numeric and a categorical target."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.normal(size=rows), "c": rng.choice(list("xyz"), rows)})
    table.loc[rng.random(rows) < 0.2, "b"] = np.nan
    y = 2 * table.a + table.c.map({"x": 0.0, "y": 3.0, "z": -3.0}) + table.b.fillna(4)
    table["y"] = 1000 + 10 * (y + 0.3 * rng.normal(size=rows))
    table["k"] = pd.cut(y, [-np.inf, -1, 2, np.inf], labels=["low", "mid", "high"]).astype(str)
    return table


@pytest.fixture(scope="module")
def regression() -> Data:
    return mm.open_data(made_table().drop(columns="k"), target="y")


@pytest.fixture(scope="module")
def classification() -> Data:
    return mm.open_data(made_table().drop(columns="y"), target="k")


@pytest.fixture
def data_of(regression: Data, classification: Data):
    return {"regression": regression, "classification": classification}.__getitem__


def test_columns_are_read_back_from_prepared_inputs(regression: Data):
    layout = Layout.of(regression.preparation, regression.train.prepared.shape[1])
    columns, raw = layout.table(regression.train.prepared.numpy()), regression.train.x
    assert layout.categorical.tolist() == [False, False, True]
    np.testing.assert_array_equal(np.isnan(columns[:, 1]), raw.b.isna())
    assert np.corrcoef(columns[:, 0], raw.a)[0, 1] == pytest.approx(1)
    assert [list("xyz")[int(code)] for code in columns[:, 2]] == raw.c.tolist()
    unseen = regression.preparation.apply(pd.DataFrame({"a": [0.0], "b": [np.nan], "c": ["new"]}))
    assert layout.table(unseen.numpy())[0, 2] == 3


def test_arrays_are_columns_of_numbers():
    x = np.random.default_rng(0).normal(size=(40, 3))
    data = mm.open_data((x, x[:, 0]))
    layout = Layout.of(data.preparation, 3)
    np.testing.assert_array_equal(layout.table(data.train.prepared.numpy()), data.train.prepared.double().numpy())


@pytest.mark.slow
@pytest.mark.parametrize("name", SKLEARN)
def test_a_model_predicts_and_its_files_give_the_same_bits(name, data_of, tmp_path: Path):
    for task in MODELS[name].tasks:
        data = data_of(task)
        ensemble = mm.fit(name, data, out=tmp_path / task)
        pred = ensemble.predict(data.test)
        again = mm.load(tmp_path / task).predict(data.test)
        assert torch.equal(pred.outputs, again.outputs)
        assert torch.equal(pred.outputs, mm.fit(name, data).predict(data.test).outputs)
        scores = mm.score(pred, data.test.y)
        if task == "classification":
            assert scores["accuracy"] > 0.75
        else:
            assert scores["rmse"] < 0.6 * float(data.test.y.std())
        assert ensemble.members == 1
        assert ensemble.posthoc is not None


def test_boosting_is_scikit_learns_own(regression: Data):
    train, val, test = regression.train, regression.val, regression.test
    layout = Layout.of(regression.preparation, train.prepared.shape[1])
    shift, scale = float(train.y.mean()), float(train.y.std(correction=0))
    x, x_val, x_test = (layout.table(part.prepared.numpy()) for part in (train, val, test))
    y, y_val = (((part.y[:, 0].numpy() - shift) / scale) for part in (train, val))
    settings = {"max_iter": 500, "early_stopping": True, "n_iter_no_change": 20, "categorical_features": [2]}
    own = HistGradientBoostingRegressor(**settings).fit(x, y, X_val=x_val, y_val=y_val)
    pred = mm.fit("hist-gradient-boosting", regression, posthoc=None).predict(test)
    np.testing.assert_allclose(pred.mean[:, 0], shift + scale * own.predict(x_test), rtol=1e-6)
    residual = math.sqrt(np.mean((y_val - own.predict(x_val)) ** 2)) * scale
    np.testing.assert_allclose(pred.total_var.sqrt()[:, 0], residual, rtol=1e-5)


def test_the_spread_of_trees_is_scaled_to_the_validation_residuals(regression: Data):
    ensemble = mm.fit("random-forest", regression, posthoc=None)
    pred = ensemble.predict(regression.val)
    ratio = (regression.val.y - pred.mean).square() / pred.total_var
    assert float(ratio.mean()) == pytest.approx(1, rel=1e-4)
    assert float(pred.total_var.std()) > 0
    forest = ensemble.models[0].estimators[0]
    trees = np.stack([tree.predict(regression.val.prepared.numpy()) for tree in forest.estimators_])
    expected = trees.var(0) + 0.05**2
    np.testing.assert_allclose(pred.total_var[:, 0] / pred.total_var[0, 0], expected / expected[0], rtol=1e-4)


def test_probabilities_of_a_forest_are_never_zero(classification: Data):
    pred = mm.fit("random-forest", classification, posthoc=None).predict(classification.test)
    assert float(pred.mean.min()) >= 0.01 / 3 - 1e-7
    assert torch.isfinite(pred.log_prob(classification.test.y)).all()


def test_a_class_without_training_examples_has_no_probability(classification: Data):
    from dataclasses import replace

    rows = np.flatnonzero(classification.train.y.numpy() != 1)
    fewer = replace(classification, train=classification.train[rows])
    for name in ("logistic", "hist-gradient-boosting"):
        pred = mm.fit(name, fewer, posthoc=None).predict(classification.test)
        assert pred.mean.shape[1] == 3
        assert float(pred.mean[:, 1].max()) < 1e-9


def test_outputs_of_moments_mean_these_moments():
    mean, std = np.array([[-1.0], [0.5]]), np.array([[0.2], [3.0]])
    shift, scale = (5.0,), (2.0,)
    for inflation in (1.0, 1.3):  # is of networks, whose noise is that of training
        likelihood = HeteroscedasticGaussian(shift, scale, inflation=inflation)
        found = likelihood.distribution(regression_outputs(likelihood, mean, std).double())
        np.testing.assert_allclose(found.mean, 5 + 2 * mean, rtol=1e-6)
        np.testing.assert_allclose(found.std, 2 * std, rtol=1e-5)
    levels = mm.Quantiles((0.1, 0.5, 0.9), shift, scale)
    curves = levels.distribution(regression_outputs(levels, mean, std).double())
    np.testing.assert_allclose(curves.quantile(0.9), 5 + 2 * (mean + 1.2815516 * std), rtol=1e-6)
    known = Gaussian(0.7, shift, scale)
    assert float(known.distribution(regression_outputs(known, mean, std).double()).std[0, 0]) == pytest.approx(0.7)


def test_boosted_quantiles_cover_what_they_say():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, size=(1500, 1))
    y = x[:, 0] + np.exp(x[:, 0]) * rng.standard_normal(1500)
    data = mm.open_data((x, y))
    ensemble = mm.fit("hist-gradient-boosting", data, likelihood=mm.Quantiles((0.1, 0.5, 0.9)), posthoc=None)
    pred = ensemble.predict(data.test)
    low, high = (float((data.test.y <= pred.quantile(level)).double().mean()) for level in (0.1, 0.9))
    assert high - low == pytest.approx(0.8, abs=0.05 + 3 * math.sqrt(0.16 / len(data.test)))
    width = (pred.quantile(0.9) - pred.quantile(0.1))[:, 0]
    right = data.test.prepared[:, 0] > 0.5
    left = data.test.prepared[:, 0] < -0.5
    assert float(width[right].mean()) > 1.3 * float(width[left].mean())  # the truth: a factor of about 2


def test_several_members_are_bagged_and_several_targets_are_fitted(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(150, 2))
    data = mm.open_data((x, np.stack([x[:, 0], 5 * x[:, 1]], 1)))
    ensemble = mm.fit("ridge", data, members=3, seed=1, out=tmp_path / "run")
    pred = ensemble.predict(data.test)
    assert pred.outputs.shape[0] == ensemble.members == 3
    assert float(pred.epistemic_var.max()) > 0
    assert float((pred.mean - data.test.y).abs().max()) < 0.05
    assert torch.equal(pred.outputs, mm.load(tmp_path / "run").predict(data.test).outputs)
    assert not torch.equal(pred.outputs, mm.fit("ridge", data, members=3, seed=2).predict(data.test).outputs)


@pytest.mark.parametrize("name", ["ridge", "hist-gradient-boosting", "natural-boosting", "random-forest"])
def test_sample_weights_reach_the_models(name):
    x = np.random.default_rng(0).normal(size=(300, 1))
    light = np.arange(300) % 2 == 0
    y = np.where(light, -x[:, 0], x[:, 0])
    ensemble = mm.fit(name, (x, y), weight=np.where(light, 1e-6, 1.0), posthoc=None)
    low, high = ensemble.predict(np.array([[-1.0], [1.0]])).mean[:, 0].tolist()
    assert high - low > 1.5  # without weights about 0, without the light examples 2


def test_estimators_of_the_caller(regression: Data, classification: Data, tmp_path: Path):
    given = BayesianRidge()
    for number, (each, data) in enumerate([(given, regression), (GaussianNB(), classification)]):
        ensemble = mm.fit(each, data, out=tmp_path / str(number))
        pred = ensemble.predict(data.test)
        assert torch.equal(pred.outputs, mm.load(tmp_path / str(number)).predict(data.test).outputs)
        assert ensemble.recipe.name == type(each).__name__
    assert not hasattr(given, "coef_")  # a copy was fitted
    std = mm.fit(given, regression, posthoc=None).predict(regression.test).total_var.sqrt()
    assert float(std.std()) > 0  # its own


def test_the_report_and_the_record_take_them(regression: Data, classification: Data, tmp_path: Path):
    for data, name in ((regression, "hist-gradient-boosting"), (classification, "random-forest")):
        ensemble = mm.fit(name, data)
        found = mm.evaluate(ensemble, data, shift=True, ood={"far": data.test.x}, out=tmp_path / data.task)
        assert found.coverage
        assert json.dumps(found.to_json(), allow_nan=False)
        assert name in (tmp_path / data.task / "report.html").read_text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("logistic", "logistic is for classification, and the data is a regression: write ridge or"),
        (RandomForestClassifier(), "RandomForestClassifier is for classification"),
        (LinearSVC(), "LinearSVC is for classification"),
    ],
)
def test_models_of_another_task_are_refused(given, message, regression: Data):
    with pytest.raises(Misuse, match=message):
        mm.fit(given, regression)


def test_what_cannot_be_is_refused(regression: Data, classification: Data):
    with pytest.raises(Misuse, match="has no predict_proba: wrap it in CalibratedClassifierCV"):
        mm.fit(LinearSVC(), classification)
    with pytest.raises(Misuse, match="recipe forde is for networks, and ridge is none"):
        mm.fit("ridge", regression, recipe="forde")
    with pytest.raises(Misuse, match="leave likelihood="):
        mm.fit("logistic", classification, likelihood="focal")
    with pytest.raises(Misuse, match="features with ridge: they are for networks"):
        mm.fit("ridge", regression, pretrained=True)
    ensemble = mm.fit("ridge", regression)
    with pytest.raises(Misuse, match="member 0 is a ridge, not a network"):
        ensemble.member(0)
    with pytest.raises(Misuse, match="only networks can be one module"):
        ensemble.as_module()


class Foreign:
    """A type that no list names."""


def test_a_file_with_an_unlisted_type_is_refused_in_one_line(regression: Data, tmp_path: Path):
    import skops.io

    mm.fit("ridge", regression, out=tmp_path / "run")
    file = tmp_path / "run" / "models" / "0-0.skops"
    model = skops.io.load(file, trusted=[])
    model.extra = Foreign()
    skops.io.dump(model, file)
    with pytest.raises(Failure, match="has changed since the run was written"):
        mm.load(tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    manifest["models"][0]["files"][0]["sha256"] = digest_of(file)
    write_record(tmp_path / "run" / "run.json", manifest)
    with pytest.raises(Failure, match=r"holds the type .*Foreign, which is not listed: it is not loaded") as caught:
        mm.load(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_an_estimator_of_an_unlisted_type_is_not_stored(regression: Data, tmp_path: Path):
    class Own(RidgeCV):
        pass

    with pytest.raises(Misuse, match="Own, which is not stored: only listed types are"):
        mm.fit(Own(), regression, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [b"", b"PK nothing", b"\x80\x04N."])
def test_a_damaged_file_is_refused_in_one_line(content, regression: Data, tmp_path: Path):
    mm.fit("ridge", regression, out=tmp_path / "run")
    file = tmp_path / "run" / "models" / "0-0.skops"
    file.write_bytes(content)
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    manifest["models"][0]["files"][0]["sha256"] = digest_of(file)
    write_record(tmp_path / "run" / "run.json", manifest)
    with pytest.raises(Failure, match="is not a readable model") as caught:
        mm.load(tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "catboost"])
def test_other_packages_store_their_own_formats(name, data_of, tmp_path: Path):
    pytest.importorskip(name)
    for task in MODELS[name].tasks:
        data = data_of(task)
        likelihoods = (None, mm.Quantiles((0.1, 0.5, 0.9))) if task == "regression" else (None,)
        for number, likelihood in enumerate(likelihoods):
            out = tmp_path / f"{task}{number}"
            pred = mm.fit(name, data, likelihood=likelihood, out=out).predict(data.test)
            assert torch.equal(pred.outputs, mm.load(out).predict(data.test).outputs)
            assert mm.score(pred, data.test.y).get("rmse", 0) < 0.6 * float(data.test.y.double().std())


def test_a_missing_package_is_named(monkeypatch, regression: Data):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "xgboost" else find(name))
    with pytest.raises(Misuse, match="model xgboost needs the package xgboost: pip install xgboost"):
        mm.fit("xgboost", regression)


def test_the_table_is_complete():
    for name, row in MODELS.items():
        assert row.about
        assert set(row.tasks) <= {"classification", "regression"}, name
    assert models_for(("ridge", "logistic"), "regression") == ("ridge",)
    forests = [estimator_class("sklearn.ensemble", "RandomForest", task).__name__ for task in BOTH]
    assert forests == ["RandomForestClassifier", "RandomForestRegressor"]


def cut(estimator, name: str, damage: dict[str, int]):
    """A change of the first node of an estimator's first tree."""
    if name == "own":
        tree = estimator.estimators_[0, 0].tree_
    elif name == "random-forest":
        tree = estimator.estimators_[0].tree_
    else:
        nodes = estimator._predictors[0][0].nodes
        fields = {"left_child": "left", "right_child": "right", "feature": "feature_idx"}
        for field, value in damage.items():
            nodes[fields.get(field, field)][0] = value
        return
    state = tree.__getstate__()
    for field, value in damage.items():
        state["nodes"][field][0] = value
    tree.__setstate__(state)


@pytest.mark.parametrize("name", ["random-forest", "histograms", "own"])
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ({"left_child": 2**31 - 1}, "the left child of node 0"),
        ({"right_child": 0}, "the right child of node 0"),
        ({"feature": 1000}, "node 0 splits feature 1000 of 7"),
    ],
)
def test_a_tree_that_cannot_be_followed_is_damage(name, damage, problem, regression: Data, tmp_path: Path):
    import skops.io

    given = {"random-forest": RandomForestRegressor(3), "histograms": HistGradientBoostingRegressor(max_iter=3)}
    model = mm.fit(given.get(name, GradientBoostingRegressor(n_estimators=3)), regression, out=tmp_path / "run")
    file = tmp_path / "run" / "models" / "0-0.skops"
    estimator = model.models[0].estimators[0]
    mm.load(tmp_path / "run")
    cut(estimator, name, damage)
    file.write_bytes(skops.io.dumps(estimator))
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    manifest["models"][0]["files"][0]["sha256"] = digest_of(file)
    write_record(tmp_path / "run" / "run.json", manifest)
    with pytest.raises(
        Failure, match=rf"0-0.skops holds a tree that cannot be followed, {problem}.*: the run is damaged"
    ):
        mm.load(tmp_path / "run")
    if (name, problem) == ("random-forest", "the left child of node 0"):  # in a process of its own, which could crash
        load = f"import murmuration as mm; mm.load({str(tmp_path / 'run')!r}).predict([[0.0] * 7], prepared=True)"
        ended = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=False)
        assert ended.returncode == 1, ended.stderr
        assert "Failure: " in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("content", [np.zeros(3), {"a": 1}, LinearSVC()])
def test_a_file_that_holds_no_estimator_of_the_task_is_damage(content, classification: Data, tmp_path: Path):
    import skops.io

    mm.fit(GaussianNB(), classification, out=tmp_path / "run")
    file = tmp_path / "run" / "models" / "0-0.skops"
    file.write_bytes(skops.io.dumps(content))
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    manifest["models"][0]["files"][0]["sha256"] = digest_of(file)
    write_record(tmp_path / "run" / "run.json", manifest)
    with pytest.raises(Failure, match=r"0-0.skops holds a \w+ without predict_proba: the run is damaged"):
        mm.load(tmp_path / "run")
