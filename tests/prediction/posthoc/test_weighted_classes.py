"""Classes that weigh unequally in training: the default calibrator undoes what that does to probabilities."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import murmuration as mm
from murmuration.prediction.posthoc import PostHocConfig, fit_posthoc
from murmuration.prediction.posthoc.calibration import Temperature, VectorScaling
from murmuration.prediction.predictive import Predictive

WEIGHTS = (0.5, 1.0, 8.0)


def weighted_sample(count: int = 400, seed: int = 0) -> tuple[Predictive, Predictive, np.ndarray]:
    """Right probabilities of three classes, those that weighted training learns, and labels."""
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(size=(1, count, 3)) + np.array([2.0, 1.0, -1.5]))
    right = logits.softmax(-1)
    learned = (logits + torch.tensor(WEIGHTS).log()).softmax(-1)
    y = np.array([rng.choice(3, p=p / p.sum()) for p in right[0].double().numpy()])
    return Predictive.from_probs(right), Predictive.from_probs(learned), y


def test_the_shift_of_the_weights_is_undone() -> None:
    right, learned, y = weighted_sample()
    with pytest.warns(UserWarning, match="calibrated by 'vector': training weighed classes unequally"):
        posthoc = fit_posthoc(learned, y, class_weights=WEIGHTS)
    assert isinstance(posthoc.calibrator, VectorScaling)
    assert posthoc.calibrator.factors == (1.0, 1.0, 1.0)  # what is left asks for no more
    np.testing.assert_allclose(posthoc.calibrator.shifts, -np.log(WEIGHTS))
    torch.testing.assert_close(posthoc.calibrated(learned).mean, right.mean, rtol=1e-4, atol=1e-5)
    assert posthoc.choice is not None
    assert posthoc.choice.kept
    assert posthoc.calibrator_name == "vector"


def test_a_temperature_could_not() -> None:
    right, learned, y = weighted_sample()
    nll = {}
    for method in ("temperature", "vector"):
        posthoc = fit_posthoc(learned, y, PostHocConfig(calibrate=method), class_weights=WEIGHTS)
        nll[method] = float(mm.score(posthoc.calibrated(learned), y)["nll"])
    best = float(mm.score(right, y)["nll"])
    assert nll["vector"] == pytest.approx(best, abs=1e-3)
    assert nll["temperature"] > best + 0.1


@pytest.mark.parametrize("weights", [None, (1.0, 1.05, 1.0), (2.0, 2.0, 2.0)])
def test_equal_weights_leave_the_default(weights) -> None:
    right, _, y = weighted_sample()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(fit_posthoc(right, y, class_weights=weights).calibrator, Temperature)


def imbalanced(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 3))
    return x, (rng.random(count) < 1 / (1 + np.exp(3.0 - 1.5 * x[:, 0]))).astype(int)


@pytest.mark.parametrize("by", ["class_weight", "likelihood"])
def test_weights_hardly_change_the_nll_of_new_rows(by: str) -> None:
    (x, y), (new_x, new_y) = imbalanced(600, 0), imbalanced(1000, 1)
    settings: dict[str, Any] = {"members": 1, "epochs": 15, "random_state": 0}
    plain = mm.EnsembleClassifier(**settings).fit(x, y)
    loss = {"settings": {"likelihood": mm.Categorical(2, class_weight="balanced")}}
    settings |= {"class_weight": "balanced"} if by == "class_weight" else loss
    with pytest.warns(UserWarning, match="calibrated by 'vector'"):
        weighted = mm.EnsembleClassifier(**settings).fit(x, y)
    nll = [-np.log(model.predict_proba(new_x)[np.arange(1000), new_y]).mean() for model in (plain, weighted)]
    assert nll[1] == pytest.approx(nll[0], abs=0.03)
    assert weighted.predict_proba(new_x)[:, 1].mean() == pytest.approx(new_y.mean(), abs=0.04)
    stored = weighted.ensemble_.manifest.data["class_weights"]
    counts = np.array(weighted.ensemble_.manifest.data["class_counts"])
    if by == "class_weight":
        assert stored[1] / stored[0] == pytest.approx(counts[0] / counts[1], rel=0.05)
    else:
        assert stored is None


def test_the_text_of_an_ensemble_says_that_the_identity_was_kept() -> None:
    nets = [torch.nn.Linear(2, 3) for _ in range(2)]
    right, _, _ = weighted_sample()
    posthoc = fit_posthoc(right, weighted_sample()[2])
    assert posthoc.choice is not None
    assert not posthoc.choice.kept
    ensemble = replace(mm.Ensemble.from_models(nets), posthoc=posthoc)
    assert "calibrator none (identity kept)" in repr(ensemble)
    assert "none (identity kept)" in ensemble._repr_html_()
    asked = fit_posthoc(right, weighted_sample()[2], PostHocConfig(calibrate="none"))
    assert "(identity kept)" not in repr(replace(ensemble, posthoc=asked))
