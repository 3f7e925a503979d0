"""scikit-learn estimators: its own checks, the bits of `mm.fit`, tables in and out, storage, meta-estimators."""

import io
import pickle
import re
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris, make_blobs, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import murmuration as mm
from murmuration.prediction.posthoc.fit import fit_posthoc
from murmuration.sklearn import EnsembleClassifier, EnsembleRegressor, Interval, Uncertainty
from murmuration.system.errors import Misuse

FAST: dict[str, Any] = {"net": "mlp", "recipe": "deep-ensemble", "members": 2, "epochs": 10, "lr": 0.02}
FAST |= {"batch_size": 32, "early_stopping": False, "random_state": 0}
NETS = {"members": 2, "epochs": 2, "lr": 0.01, "batch_size": 32}  # the same for `mm.fit`
SMALL = "mlp:hidden=16"
MINIBATCHES = "minibatch training: repeated rows make other batches than weighted ones"
EXPECTED = {f"check_sample_weight_equivalence_on_{kind}_data": MINIBATCHES for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [EnsembleClassifier(**FAST), EnsembleRegressor(**FAST)], expected_failed_checks=lambda estimator: EXPECTED
)
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def classes(rows: int = 160) -> tuple[pd.DataFrame, pd.Series]:
    x, y = make_blobs(rows, n_features=3, centers=3, cluster_std=4.0, random_state=0)
    names = pd.Series(np.array(["9", "10", "100"])[y], name="kind", index=range(7, rows + 7))
    return pd.DataFrame(x, columns=["a", "b", "c"], index=names.index), names


def quantities(rows: int = 200, targets: int = 1) -> tuple[pd.DataFrame, np.ndarray]:
    x, y = make_regression(rows, n_features=3, n_targets=targets, noise=20.0, random_state=0)
    return pd.DataFrame(x, columns=["a", "b", "c"]), y


def classifier(**changes: Any) -> EnsembleClassifier:
    return EnsembleClassifier(**{**NETS, "net": SMALL, "random_state": 3, **changes})


def regressor(**changes: Any) -> EnsembleRegressor:
    return EnsembleRegressor(**{**NETS, "net": SMALL, "random_state": 3, **changes})


def test_members_have_the_bits_of_fit() -> None:
    table, kinds = classes()
    ours = classifier(net=None).fit(table, kinds).ensemble_
    assert torch.equal(ours.predict(table).outputs, mm.fit(None, (table, kinds), seed=3, **NETS).predict(table).outputs)
    table, values = quantities()
    named = table.set_axis(["x0", "x1", "x2"], axis=1)
    array = regressor(net=None, lr=None, batch_size=None, early_stopping=True).fit(table.to_numpy(), values).ensemble_
    reference = mm.fit(None, (named, values), seed=3, members=2, epochs=2, patience=10)
    assert torch.equal(array.predict(named).outputs, reference.predict(named).outputs)
    assert array.manifest.plan == reference.manifest.plan


def test_all_rows_train_or_validate() -> None:
    table, kinds = classes()
    examples = classifier(validation_fraction=0.25).fit(table, kinds).ensemble_.manifest.data["examples"]
    assert examples == {"train": 120, "val": 40, "test": 0}


def test_probabilities_stand_in_the_order_of_the_classes() -> None:
    table, kinds = classes()
    model = classifier(epochs=20).fit(table, kinds)
    assert model.classes_.tolist() == ["10", "100", "9"]
    by_name = model.ensemble_.predict(table).to_pandas()
    assert np.array_equal(model.predict_proba(table), by_name[["prob_10", "prob_100", "prob_9"]].to_numpy())
    assert np.array_equal(model.predict(table), by_name["predicted"])
    sets = model.set_output(transform="pandas").predict_set(table, 0.9)
    assert list(sets) == ["10", "100", "9"]
    assert sets.index.equals(table.index)
    held = by_name["set_90"].str.split("|")
    assert [list(sets.columns[row]) for row in sets.to_numpy()] == [sorted(each) for each in held]


@pytest.mark.parametrize("labels", [lambda y: y == "9", lambda y: y.astype(int), lambda y: y.astype(float), list])
def test_labels_of_any_kind(labels: Any) -> None:
    table, kinds = classes(80)
    y = labels(kinds)
    model = classifier().fit(table, y)
    assert np.array_equal(model.classes_, np.unique(y))
    assert set(model.ensemble_.names) in ({"9", "10", "100"}, {"True", "False"})
    assert np.isin(model.predict(table), model.classes_).all()


def test_rows_of_weight_zero_are_left_out() -> None:
    table, kinds = classes()
    weight = np.where(kinds == "9", 0.0, 2.0)
    ours, without = classifier().fit(table, kinds, sample_weight=weight), table[kinds != "9"]
    assert ours.classes_.tolist() == ["10", "100"]
    reference = classifier().fit(without, kinds[kinds != "9"], sample_weight=2.0)
    assert np.array_equal(ours.predict_proba(table), reference.predict_proba(table))


def test_class_weights_multiply_sample_weights() -> None:
    table, kinds = classes()
    kinds[:40] = "9"
    weight = np.linspace(0.5, 1.5, len(kinds))
    ours = classifier(class_weight="balanced").fit(table, kinds, sample_weight=weight)
    both = weight * compute_sample_weight("balanced", kinds)
    reference = mm.fit(SMALL, (table, kinds), weight=both, seed=3, **NETS)
    assert torch.equal(ours.ensemble_.predict(table).outputs, reference.predict(table).outputs)


def test_intervals_of_any_coverage() -> None:
    table, values = quantities()
    model = regressor(epochs=20).fit(table, values)
    assert isinstance(model.predict_interval(table), Interval)
    ensemble, pred = model.ensemble_, model.predictive(table)
    low, high = model.predict_interval(table, coverage=0.9)
    assert np.array_equal(np.stack([low, high]), np.stack(ensemble.posthoc.conformal[0].regions(pred))[..., 0])
    held_out = mm.open_data(table.assign(y=values), target="y", task="regression", val=0.15, test=0.0).val
    config = replace(mm.PostHocConfig(), coverage=0.6, conformal="absolute")
    rule = ensemble.fit_posthoc(held_out, config=config).posthoc.conformal[0]
    some = model.predict_interval(table, coverage=0.6, method="absolute")
    assert np.array_equal(np.stack(some), np.stack(rule.regions(pred))[..., 0])
    assert (some.high - some.low).mean() < (high - low).mean()
    frame = model.set_output(transform="pandas").predict_interval(table[5:8])
    assert list(frame) == ["low", "high"]
    assert frame.index.tolist() == [5, 6, 7]
    assert list(clone(model).fit(table, values).predict_interval(table)) == ["low", "high"]  # kept by clones


@pytest.mark.parametrize("recipe", ["deep-ensemble", "mixed"])
def test_rules_of_folds_are_fitted_out_of_fold(recipe: str) -> None:
    table, values = quantities(60)
    chosen = mm.make_recipe(recipe, models=("ridge",)) if recipe == "mixed" else recipe
    model = regressor(recipe=chosen, folds=2, members=1).fit(table, values, sample_weight=np.linspace(0.5, 1, 60))
    known = model.ensemble_.posthoc.conformal
    again = fit_posthoc(*model._validation, mm.PostHocConfig()).conformal  # the same examples and predictions
    assert [rule.method for rule in again] == [rule.method for rule in known]
    assert np.allclose([rule.threshold for rule in again], [rule.threshold for rule in known], rtol=1e-5)
    low, high = model.predict_interval(table, 0.5)
    assert (high - low).mean() < np.subtract(*model.predict_interval(table, 0.9)[::-1]).mean()


def test_sets_without_calibration() -> None:
    table, kinds = classes()
    plain = classifier(settings={"posthoc": None}).fit(table, kinds)
    assert plain.ensemble_.posthoc is None
    reference = classifier(calibrate="none").fit(table, kinds)
    assert np.array_equal(plain.predict_set(table), reference.predict_set(table))
    assert reference.ensemble_.posthoc.rule_examples == 24


def test_uncertainties_add_up() -> None:
    table, values = quantities()
    of_values = regressor().fit(table, values).predict_uncertainty(table)
    assert isinstance(of_values, Uncertainty)
    assert np.allclose(of_values.aleatoric**2 + of_values.epistemic**2, of_values.total**2)
    model = regressor().fit(table, values)
    mean, std = model.predict(table, return_std=True)
    assert np.array_equal(std, of_values.total)
    assert np.array_equal(mean, model.predict(table))
    table, kinds = classes()
    of_classes = classifier().fit(table, kinds).predict_uncertainty(table)
    assert np.allclose(of_classes.aleatoric + of_classes.epistemic, of_classes.total)
    assert (of_classes.epistemic > 0).all()


def test_several_targets() -> None:
    table, values = quantities(targets=2)
    targets = pd.DataFrame(values, columns=["a", "height"])  # of which one is also the name of an input
    model = regressor().fit(table, targets)
    assert model.predict(table).shape == model.predict_uncertainty(table).total.shape == (200, 2)
    frame = model.set_output(transform="pandas").predict_interval(table)
    assert list(frame) == ["low_a_", "high_a_", "low_height_", "high_height_"]
    assert np.array_equal(model.predict(table), regressor().fit(table, values).predict(table))


def test_missing_values_and_categories() -> None:
    table, kinds = classes()
    holes = table.mask(np.random.default_rng(0).random(table.shape) < 0.2)
    array = classifier().fit(holes.to_numpy(), kinds)
    assert np.isfinite(array.predict_proba(holes.to_numpy())).all()
    assert np.array_equal(classifier().fit(holes, kinds).predict_proba(holes), array.predict_proba(holes.to_numpy()))
    assert np.isfinite(classifier().fit(table.to_numpy(), kinds).predict_proba(holes.to_numpy())).all()
    mixed = holes.assign(colour=np.where(table["a"] > 0, "red", None), constant=1.0, on=table["b"] > 0)
    model = classifier().fit(mixed, kinds)
    assert model.n_features_in_ == 6
    assert model.feature_names_in_.tolist() == list(mixed)
    with pytest.warns(UserWarning, match="valid feature names"):
        assert np.array_equal(model.predict_proba(mixed.to_numpy()), model.predict_proba(mixed))


def own_net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"net": own_net()},
        {"net": own_net, "settings": {"likelihood": mm.Focal(3)}},
        {"net": "mlp:embed=piecewise", "recipe": mm.make_recipe("tabm"), "epochs": None, "steps": 9},
    ],
)
def test_a_stored_estimator_predicts_the_same(changes: dict[str, Any]) -> None:
    table, kinds = classes()
    model, file = classifier(**changes).fit(table, kinds), io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    again = joblib.load(file)
    assert np.array_equal(again.predict_proba(table), model.predict_proba(table))
    assert np.array_equal(again.predict_set(table, 0.7), model.predict_set(table, 0.7))
    assert again.feature_names_in_.tolist() == ["a", "b", "c"]
    held = pickle.loads(pickle.dumps(model)).__getstate__()["ensemble_"]
    assert "run.json" in zipfile.ZipFile(io.BytesIO(held)).namelist()
    assert not hasattr(clone(model), "ensemble_")


def test_within_pipelines_and_searches() -> None:
    table, kinds = classes()
    table["colour"] = np.where(table["a"] > 0, "red", "green")
    columns = make_column_transformer(
        (StandardScaler(), ["a", "b", "c"]), (OneHotEncoder(sparse_output=False), ["colour"])
    )
    search = GridSearchCV(
        make_pipeline(columns, classifier(epochs=5)), {"ensembleclassifier__n_estimators": [2, 3]}, cv=2
    )
    search.set_params(estimator__ensembleclassifier__members=None)
    assert search.fit(table, kinds).best_estimator_[-1].ensemble_.members in (2, 3)
    assert search.best_score_ > 0.4
    scores = cross_val_score(classifier(epochs=5), table, kinds, cv=2, scoring="neg_log_loss")
    assert np.isfinite(scores).all()
    calibrated = CalibratedClassifierCV(classifier(epochs=5), cv=2).fit(table, kinds)
    assert calibrated.predict_proba(table).shape == (160, 3)


def test_wrapped_by_mapie() -> None:
    regression = pytest.importorskip("mapie.regression")
    classification = pytest.importorskip("mapie.classification")
    table, values = quantities()
    split = regression.SplitConformalRegressor(regressor().fit(table[:100], values[:100]), prefit=True)
    low, high = split.conformalize(table[100:], values[100:]).predict_interval(table[100:])[1][:, :, 0].T
    assert np.mean((low <= values[100:]) & (values[100:] <= high)) >= 0.9  # the rows of the threshold themselves
    crossed = regression.CrossConformalRegressor(regressor(), cv=2).fit_conformalize(table, values)
    assert crossed.predict_interval(table)[1].shape == (200, 2, 1)
    table, kinds = classes()
    sets = classification.SplitConformalClassifier(classifier().fit(table, kinds), prefit=True)
    assert sets.conformalize(table, kinds).predict_set(table)[1].shape == (160, 3, 1)


def test_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[1] / "docs" / "sklearn.md").read_text()
    found: dict[str, Any] = {}
    for program in re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE):
        exec(program.replace("members=5", "net='linear', members=2, epochs=2"), found)
    assert (found["low"] < found["high"]).all()


def test_settings_of_fit() -> None:
    model = EnsembleRegressor("linear", n_estimators=3, early_stopping=False, settings={"schedule": "constant"})
    drawn = clone(model).set_params(random_state=np.random.RandomState(0)).fit_settings()
    again = clone(model).set_params(random_state=np.random.RandomState(0)).fit_settings()
    assert drawn == again == {"members": 3, "patience": None, "schedule": "constant", "seed": drawn["seed"]}
    assert model.set_params(random_state=5, early_stopping=True).fit_settings()["seed"] == 5
    assert model.fit_settings()["patience"] == 10
    assert model.set_params(patience=2).fit_settings()["patience"] == 2
    assert EnsembleClassifier(members=4, n_estimators=4).fit_settings()["members"] == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_estimators": 3}, "members=2 and n_estimators=3 are the same: give one of them"),
        ({"early_stopping": False, "patience": 2}, "early_stopping=False and patience=2: leave one of them out"),
        ({"early_stopping": "auto"}, "early_stopping='auto': expected True, False or None"),
        ({"validation_fraction": 0.0}, "validation_fraction=0.0: need a number between 0 and 1"),
        ({"settings": {"lr": 1}}, "settings={'lr': ...}: expected keywords that the estimator does not have"),
        ({"settings": {"seed": 1}}, "settings={'seed': ...}: expected keywords that the estimator does not have"),
        ({"settings": {"colour": 1}}, "unknown keyword of fit 'colour'"),
        ({"recipe": "deep-ensembl"}, "unknown recipe 'deep-ensembl': did you mean 'deep-ensemble'?"),
        ({"members": 0}, "members=0: need a whole number, at least 1"),
    ],
)
def test_settings_that_are_refused(changes: dict[str, Any], message: str) -> None:
    table, kinds = classes(30)
    with pytest.raises(mm.Misuse) as caught:
        classifier(**changes).fit(table, kinds)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_inputs_that_are_refused() -> None:
    table, kinds = classes(40)
    model = classifier().fit(table, kinds)
    with pytest.raises(mm.Misuse, match="column 'a' is infinite in row 1: expected finite numbers"):
        classifier().fit(table.assign(a=np.inf), kinds)
    with pytest.raises(mm.Misuse, match="40 rows of one class, 9: expected at least two classes"):
        classifier().fit(table, ["9"] * 40)
    with pytest.raises(ValueError, match="y should be a 1d array"):
        classifier().fit(table, np.eye(40, 3, dtype=int))
    with pytest.raises(ValueError, match="0 sample"):
        model.predict(table[:0])
    with pytest.raises(ValueError, match="same order as they were in fit"):
        model.predict(table[["c", "b", "a"]])
    with pytest.raises(mm.Misuse, match="6 validation rows: intervals and sets need 20; give folds=5"):
        model.predict_set(table)
    with pytest.raises(mm.Misuse, match="unknown output 'polars': Known: default, pandas"):
        model.set_output(transform="polars")
    more, kinds = classes()
    with pytest.raises(mm.Misuse, match=r"coverage=1\.2: need a number between 0 and 1"):
        classifier().fit(more, kinds).predict_set(more, 1.2)
    with pytest.raises(mm.Misuse, match="unknown conformal method 'quantile': Known: aps, lac, mondrian, raps"):
        classifier().fit(more, kinds).predict_set(more, method="quantile")


def test_a_row_has_the_same_prediction_alone():
    model = EnsembleRegressor(**FAST).fit(X := np.random.default_rng(0).normal(size=(60, 3)), X[:, 0] ** 2)  # noqa: N806
    alone = np.concatenate([model.predict(X[[row]]) for row in range(20)])
    np.testing.assert_allclose(alone, model.predict(X)[:20], rtol=1e-7, atol=1e-7)  # as scikit-learn asks
    assert len(model.predictive(X[:3]).to_pandas()) == 3


def test_settings_that_would_do_nothing_are_refused() -> None:
    X, y = load_diabetes(return_X_y=True)  # noqa: N806
    for settings, message in (
        ({"epochs": 2, "steps": 20}, "epochs=2 and steps=20: a run has one length"),
        ({"net": "ridge", "lr": 0.1}, "lr=0.1 with ridge, which is not a network: leave lr out"),
        ({"folds": 3, "validation_fraction": 0.3}, "folds=3 and validation_fraction=0.3: every row validates"),
        ({"settings": "x"}, "settings='x': expected a dict"),
        ({"recipe": 3}, "recipe=3: expected a name"),
        ({"random_state": -3}, "random_state=-3: need a whole number"),
    ):
        with pytest.raises(mm.Misuse, match=message):
            EnsembleRegressor(**settings).fit(X, y)
    assert EnsembleRegressor(net="ridge", calibrate=False).fit(X, y).ensemble_.posthoc.calibrator is None


def test_intervals_without_ends_are_warned_of() -> None:
    X, y = load_diabetes(return_X_y=True)  # noqa: N806
    model = EnsembleRegressor(net="ridge", random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="intervals of coverage 0.99 are infinite: there are too few validation rows"):
        assert np.isneginf(model.predict_interval(X[:5], coverage=0.99).low).all()


def test_log_probabilities_and_tags() -> None:
    X, y = load_iris(return_X_y=True)  # noqa: N806
    model = EnsembleClassifier(net="logistic", random_state=0).fit(X, y)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert model.__sklearn_tags__().input_tags.categorical


def test_three_rows_are_enough() -> None:
    X, y = load_diabetes(return_X_y=True)  # noqa: N806
    with pytest.warns(UserWarning, match="not calibrated"):
        assert EnsembleRegressor(members=1, epochs=1).fit(X[:3], y[:3]).predict(X[:3]).shape == (3,)
    with pytest.warns(UserWarning, match="not calibrated: 15 examples, and it takes 20"):
        EnsembleRegressor(members=1, epochs=1, folds=3).fit(X[:15], y[:15])


@pytest.mark.parametrize("kind", [list, pd.Series, lambda labels: np.array(labels, dtype=object)])
def test_texts_among_numbers_are_refused_in_one_line(kind) -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(mm.Misuse, match="labels hold the text 'yes' and also 0"):
        mm.EnsembleClassifier(members=1, epochs=1).fit(x, kind(["yes", 0] * 20))


def test_a_grid_of_recipes_has_one_number_of_members() -> None:
    """A recipe of one member is trained with one and a note, as `murmur compare` does."""
    x, y = make_blobs(60, centers=2, cluster_std=4.0, random_state=0)
    grid = GridSearchCV(
        EnsembleClassifier("mlp", members=2, epochs=1, random_state=0), {"recipe": ["deep-ensemble", "single"]}, cv=2
    )
    with pytest.warns(UserWarning, match="single is trained with its own number of members, 1 instead of 2"):
        grid.fit(x, y)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()
    trained = {}
    for recipe in ("single", "deep-ensemble"):
        trained[recipe] = clone(grid.estimator).set_params(recipe=recipe).fit(x, y).ensemble_.members
    assert trained == {"single": 1, "deep-ensemble": 2}


def test_texts_as_targets_of_a_regression_are_refused():
    with pytest.raises(Misuse, match="y holds 'hi': expected numbers; EnsembleClassifier takes labels"):
        EnsembleRegressor("mlp:hidden=4", members=1).fit(np.zeros((3, 2)), ["1", "hi", "2"])


def test_a_search_raises_every_note_once_and_the_next_search_again():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=60), "key": [f"C{row}" for row in range(60)]})
    y = np.where(table.a > 0, "yes", "no")
    softmax = nn.Sequential(nn.Linear(1, 2), nn.Softmax(-1))
    grid = GridSearchCV(EnsembleClassifier(members=2, epochs=1), {"net": ["mlp", softmax]}, cv=3)
    for search in (lambda: grid.fit(table, y), lambda: cross_val_score(grid.estimator, table, y, cv=2)):
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            search()
        ours = [note for note in notes if "left out" in str(note.message) or "softmax" in str(note.message)]
        assert {note.filename for note in notes} == {__file__}
        assert sum("'key'" in str(note.message) for note in ours) == 1
        assert sum("not calibrated" in str(note.message) for note in notes) == 1
    assert len(ours) == 1  # the second search has no softmax
