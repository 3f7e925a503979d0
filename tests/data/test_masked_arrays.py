"""Numpy masked arrays: masked values are refused wherever arrays enter, an empty mask changes nothing."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.data import open_data
from murmuration.data.preparation import fit_table
from murmuration.evaluation.audit.predictions import open_predictions
from murmuration.prediction.prediction_files import save_predictions
from murmuration.sklearn import EnsembleClassifier, EnsembleRegressor
from murmuration.system.errors import Misuse

ROWS = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
VALUES = X.sum(1).astype(np.float64)
PROBS = np.stack([np.full(ROWS, 0.4), np.full(ROWS, 0.6)], 1)


def hiding(values: Any) -> np.ma.MaskedArray:
    """The values with the first one masked, and another one underneath."""
    masked = np.ma.array(values, mask=np.zeros(np.shape(values), dtype=bool))
    masked[(0,) * masked.ndim] = np.ma.masked
    return masked


@pytest.fixture(scope="module")
def ensemble() -> mm.Ensemble:
    return mm.fit("mlp", (X, Y), members=2, epochs=1, progress=False)


@pytest.fixture(scope="module")
def given() -> mm.Ensemble:
    torch.manual_seed(0)
    return mm.Ensemble.from_models([nn.Linear(3, 2) for _ in range(2)])


@pytest.fixture(scope="module")
def estimators() -> tuple[EnsembleClassifier, EnsembleRegressor]:
    settings: dict[str, Any] = {"members": 1, "epochs": 1, "random_state": 0}
    return EnsembleClassifier(**settings).fit(X, Y), EnsembleRegressor(**settings).fit(X, VALUES)


def refused(call: Callable[[], Any]) -> None:
    with pytest.raises(Misuse, match="masked value") as error:
        call()
    assert re.search(r"filled\(.*NaN", str(error.value))
    assert "\n" not in str(error.value)


def test_training_refuses_masked_inputs_targets_and_weights() -> None:
    refused(lambda: open_data((hiding(X), Y)))
    refused(lambda: open_data((X, hiding(Y))))
    refused(lambda: open_data((X, Y), weight=hiding(np.ones(ROWS))))
    refused(lambda: open_data((X, Y), groups=hiding(Y)))
    refused(lambda: open_data((X, Y), val=hiding(np.arange(9))))
    refused(lambda: open_data((pd.DataFrame(X, columns=list("abc")), hiding(Y))))
    refused(lambda: open_data(((hiding(X), X), Y)))
    refused(lambda: mm.fit("mlp", (hiding(X), Y), members=1, epochs=1, progress=False))


def test_prediction_refuses_masked_inputs(ensemble: mm.Ensemble, given: mm.Ensemble, tmp_path: Path) -> None:
    for model in (ensemble, given):
        refused(lambda model=model: model.predict(hiding(X)))
        refused(lambda model=model: model.stream(hiding(X)))
        refused(lambda model=model: model.predict(hiding(X), prepared=True))
        refused(lambda model=model: model.labelled((X, hiding(Y))))
        refused(lambda model=model: save_predictions(model, hiding(X), tmp_path / "p.csv"))
    refused(lambda: ensemble.predict([hiding(row) for row in X]))
    refused(lambda: ensemble.prepare(hiding(X)))


def test_predictives_and_scores_refuse_masked_numbers(ensemble: mm.Ensemble) -> None:
    pred, moments = ensemble.predict(X), mm.Predictive.from_moments(VALUES[None, :, None], 0.5)
    refused(lambda: mm.Predictive.from_probs(hiding(PROBS)))
    refused(lambda: mm.Predictive.from_probs([hiding(PROBS)]))
    refused(lambda: mm.Predictive.from_probs(PROBS[None], weights=hiding(np.ones(1))))
    refused(lambda: mm.Predictive.from_moments(hiding(VALUES[None, :, None]), 0.5))
    refused(lambda: mm.Predictive.from_moments(VALUES[None, :, None], hiding(np.ones((1, ROWS, 1)))))
    for call in (mm.score, lambda p, y: p.log_prob(y), lambda p, y: mm.audit(p, y)):
        refused(lambda call=call: call(pred, hiding(Y)))
        refused(lambda call=call: call(moments, hiding(VALUES)))
    refused(lambda: mm.fit_calibrator("temperature", pred, hiding(Y)))
    refused(lambda: mm.fit_conformal("lac", pred, hiding(Y)))
    refused(lambda: mm.fit_conformal("absolute", moments, hiding(VALUES)))
    refused(lambda: open_predictions(hiding(PROBS), labels=Y))
    refused(lambda: open_predictions(PROBS, labels=Y, groups={"site": hiding(Y)}))


def test_estimators_refuse_masked_arrays(estimators: tuple[EnsembleClassifier, EnsembleRegressor]) -> None:
    for estimator, y in zip(estimators, (Y, VALUES), strict=True):
        refused(lambda estimator=estimator: estimator.predict(hiding(X)))
        refused(lambda estimator=estimator, y=y: type(estimator)(members=1, epochs=1).fit(hiding(X), y))
        refused(lambda estimator=estimator, y=y: type(estimator)(members=1, epochs=1).fit(X, hiding(y)))
        refused(lambda e=estimator, y=y: type(e)(members=1, epochs=1).fit(X, y, sample_weight=hiding(np.ones(ROWS))))


def test_a_mask_without_masked_values_is_the_data(ensemble: mm.Ensemble, given: mm.Ensemble) -> None:
    x, y = np.ma.masked_invalid(X), np.ma.array(Y, mask=False)
    for model in (ensemble, given):
        assert torch.equal(model.predict(x).outputs, model.predict(X).outputs)
    pred = ensemble.predict(X)
    assert torch.equal(pred.log_prob(y), pred.log_prob(Y))
    assert open_data((x, y)).fingerprint == open_data((X, Y)).fingerprint


def test_missing_values_of_pandas_stay_missing_values() -> None:
    frame = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": hiding([-9999.0, 2.0, 3.0])})
    prepared = fit_table(frame).apply(frame)
    assert prepared[:, [1, 3]].tolist() == [[0, 1], [1, 0], [0, 0]]
