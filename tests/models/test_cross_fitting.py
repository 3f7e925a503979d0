"""Cross-fitting: folds, out-of-fold predictions, CV+ and jackknife+ against MAPIE, files."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, LeaveOneOut

import murmuration as mm
from murmuration.cli import main
from murmuration.data import Data
from murmuration.evaluation import evaluate_ensemble, held_out_set
from murmuration.prediction.posthoc.conformal import cross_intervals
from murmuration.reports.sections.examples import uncertain_examples
from murmuration.system.errors import Misuse
from murmuration.training.folds import fold_numbers, one_fold, out_of_fold, pooled

SMALL = {"members": 2, "epochs": 2, "engine": "loop"}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    found = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200)})
    return found.assign(y=100 + 10 * found.a + 2 * rng.normal(size=200))


@pytest.fixture(scope="module")
def data(table: pd.DataFrame) -> Data:
    return mm.open_data(table, target="y")


@pytest.mark.parametrize("method", ["plus", "minmax"])
@pytest.mark.parametrize(
    "splitter", [KFold(4, shuffle=True, random_state=0), LeaveOneOut()], ids=["folds", "jackknife"]
)
def test_intervals_are_those_of_mapie(method, splitter):
    mapie = pytest.importorskip("mapie.regression")
    rng = np.random.default_rng(1)
    x, new = rng.normal(size=(30, 2)), rng.normal(size=(7, 2))
    y = x[:, 0] + rng.normal(size=30)
    other = mapie.CrossConformalRegressor(LinearRegression(), confidence_level=0.8, method=method, cv=splitter)
    expected = other.fit_conformalize(x, y).predict_interval(new)[1][:, :, 0]
    folds, residuals, means = np.empty(30, dtype=int), np.empty((30, 1)), []
    for number, (train, held) in enumerate(splitter.split(x)):
        model = LinearRegression().fit(x[train], y[train])
        folds[held], residuals[held, 0] = number, np.abs(y[held] - model.predict(x[held]))
        means.append(model.predict(new)[:, None])
    low, high = cross_intervals(np.stack(means), folds, residuals, 0.8, method)
    np.testing.assert_allclose(low[:, 0], expected[:, 0], rtol=1e-10)
    np.testing.assert_allclose(high[:, 0], expected[:, 1], rtol=1e-10)


def test_too_few_examples_give_infinite_intervals_and_nonsense_is_refused():
    low, high = cross_intervals(np.zeros((2, 1, 1)), np.array([0, 1]), np.ones((2, 1)), 0.9)
    assert (low.item(), high.item()) == (-np.inf, np.inf)
    with pytest.raises(Misuse, match="unknown method of cross-fitted intervals 'base'"):
        cross_intervals(np.zeros((2, 1, 1)), np.array([0, 1]), np.ones((2, 1)), 0.9, "base")
    with pytest.raises(Misuse, match="outside"):
        cross_intervals(np.zeros((2, 1, 1)), np.array([0, 1]), np.ones((2, 1)), 1.5)


def test_folds_are_a_partition_of_all_but_the_test_examples(table: pd.DataFrame):
    data = mm.open_data(table.assign(y=np.where(table.a > 0.8, "rare", "usual")), target="y")
    pool = pooled(data)
    assert len(pool.train) == len(data.train) + len(data.val)
    numbers = fold_numbers(pool, 4, seed=0)
    counts = np.array([np.bincount(pool.train.y[numbers == fold], minlength=2) for fold in range(4)])
    assert (counts.max(0) - counts.min(0) <= 1).all()  # stratified
    part = one_fold(pool, numbers, 2)
    assert len(part.train) + len(part.val) == len(pool.train)
    together = torch.cat([part.train.prepared, part.val.prepared])
    assert torch.equal(together.sort(0).values, pool.train.prepared.sort(0).values)
    assert not np.array_equal(numbers, fold_numbers(pool, 4, seed=1))


def test_models_of_folds_are_calibrated_on_what_they_did_not_see(data: Data, tmp_path: Path):
    ensemble = mm.fit("ridge", data, folds=5, out=tmp_path / "run")
    assert ensemble.members == 5
    count = len(data.train) + len(data.val)
    assert ensemble.posthoc.calibrator_examples + ensemble.posthoc.rule_examples == count
    pool, record = pooled(data), ensemble.manifest.folds
    numbers = fold_numbers(pool, 5, seed=0)
    for fold, model in enumerate(ensemble.models):
        held = pool.train.prepared[numbers == fold]
        mean = model.likelihood.distribution(model.outputs(held).double()).mean
        expected = (mean - pool.train.y[numbers == fold]).abs()
        found = np.array(record["residuals"])[np.array(record["fold"]) == fold]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    loaded = mm.load(tmp_path / "run")
    assert torch.equal(loaded.predict(data.test).outputs, ensemble.predict(data.test).outputs)
    for method in ("plus", "minmax"):
        low, high = mm.cross_interval(loaded, data.test, coverage=0.9, method=method)
        again = mm.cross_interval(ensemble, data.test, coverage=0.9, method=method)
        np.testing.assert_array_equal(low, again[0])
        inside = (low <= data.test.y.numpy()) & (data.test.y.numpy() <= high)
        assert inside.mean() > 0.9 - 3 * np.sqrt(0.09 / len(inside))
        assert 4 < (high - low).mean() < 10  # 2 * 1.64 * 2 = 6.6


def test_networks_of_folds_are_one_ensemble(data: Data, tmp_path: Path):
    ensemble = mm.fit("mlp", data, folds=3, out=tmp_path / "run", **SMALL)
    assert (ensemble.members, len(ensemble.groups)) == (6, 3)
    assert len({next(ensemble.member(index).parameters()).sum().item() for index in range(6)}) == 6
    loaded = mm.load(tmp_path / "run")
    assert loaded.posthoc == ensemble.posthoc
    assert torch.equal(loaded.predict(data.test).outputs, ensemble.predict(data.test).outputs)
    again = mm.fit("mlp", data, folds=3, **SMALL)
    assert torch.equal(again.predict(data.test).outputs, ensemble.predict(data.test).outputs)
    assert ensemble.manifest.data["examples"]["train"] == len(data.train)
    pool = pooled(data)
    numbers = fold_numbers(pool, 3, seed=0)
    means = ensemble.predict(pool.train.prepared, calibrated=False, prepared=True).member_mean
    own = torch.stack([means[2 * fold : 2 * fold + 2].mean(0) for fold in range(3)])
    expected = (own[numbers, np.arange(len(numbers))] - pool.train.y).abs()
    found = np.empty((len(numbers), 1))
    found[np.concatenate([np.flatnonzero(numbers == fold) for fold in range(3)])] = ensemble.manifest.folds["residuals"]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    mm.evaluate(ensemble, data)


def test_a_mixture_of_folds_is_weighted_out_of_fold(data: Data, tmp_path: Path):
    recipe = mm.make_recipe("mixed", models=("ridge",))
    ensemble = mm.fit("mlp", data, recipe=recipe, folds=3, out=tmp_path / "run", **SMALL)
    weights = ensemble.manifest.selection["weights"]
    assert weights["ridge"] > 0.5  # a linear truth and two epochs
    assert len(ensemble.models) == 3
    assert sum(ensemble.weights) == pytest.approx(1)
    assert sum(ensemble.weights[6:]) == pytest.approx(weights["ridge"])
    loaded = mm.load(tmp_path / "run")
    assert loaded.recipe == recipe
    one, two = loaded.predict(data.test), ensemble.predict(data.test)
    assert torch.equal(one.outputs, two.outputs)
    assert torch.equal(one.member_weights, two.member_weights)
    low, high = mm.cross_interval(ensemble, data.test)
    assert (low < high).all()


def test_classes_have_sets_of_folds(table: pd.DataFrame):
    data = mm.open_data(table.assign(y=np.where(table.a > 0, "high", "low")), target="y")
    ensemble = mm.fit("logistic", data, folds=4)
    assert mm.score(ensemble.predict(data.test), data.test.y)["accuracy"] > 0.8
    assert ensemble.posthoc.conformal
    with pytest.raises(Misuse, match="train a regression with folds=5"):
        mm.cross_interval(ensemble, data.test)


def test_what_cannot_be_folded_is_refused(data: Data, table: pd.DataFrame):
    with pytest.raises(Misuse, match="folds=1: need a whole number, at least 2"):
        mm.fit("ridge", data, folds=1)
    with pytest.raises(Misuse, match="expected at most one fold for each"):
        mm.fit("ridge", data, folds=1000)
    grouped = mm.open_data(table.assign(g=np.arange(200) // 10), target="y", groups="g")
    with pytest.raises(Misuse, match="folds= with rows split by groups"):
        mm.fit("ridge", grouped, folds=3)


@pytest.mark.slow
@pytest.mark.parametrize("net", ["random-forest", "mlp"])
def test_without_test_rows_folds_are_evaluated_out_of_fold(net: str, tmp_path: Path, capsys):
    """The target is noise: on rows that it has trained on a forest has half of their standard deviation as RMSE."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(120, 4)), columns=list("abcd")).assign(y=rng.normal(size=120))
    table.to_csv(tmp_path / "noise.csv", index=False)
    run, words = tmp_path / "run", ["--folds", "3", "--members", "1", "--test", "none", "--json"]
    words += ["--epochs", "3"] if net == "mlp" else []
    assert main(["train", str(tmp_path / "noise.csv"), "--target", "y", "--net", net, *words, "--out", str(run)]) == 0
    found = json.loads(capsys.readouterr().out)
    ensemble, data = mm.load(run), mm.open_data(tmp_path / "noise.csv", target="y", test=0)
    predicted, examples = out_of_fold(ensemble, data)
    expected = float((predicted.mean - examples.y).square().mean().sqrt())
    assert found["metrics"]["rmse"]["value"] == pytest.approx(expected, rel=1e-6)
    assert found["data"]["part"] == "out-of-fold"
    assert len(examples) == 120
    if net == "random-forest":
        assert expected > 0.9 * table.y.std()
        assert float(np.sqrt(((ensemble.predict(table).mean[:, 0] - table.y.to_numpy()) ** 2).mean())) < 0.7 * expected
    assert main(["evaluate", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == found["metrics"]
    assert main(["evaluate", str(run), "--corruptions"]) == 2  # of rows that most members have trained on
    assert "evaluate it on other labelled rows" in capsys.readouterr().err
    shown = uncertain_examples(evaluate_ensemble(ensemble, held_out_set(ensemble, data)))[0]
    assert shown.member_predictions == predicted.member_mean[:, shown.index, 0].tolist()
    before = ensemble.posthoc
    assert main(["calibrate", str(run), "--json"]) == 0  # on the same predictions
    assert mm.load(run).posthoc == before
