"""Predictions without input: closed forms of their scores, where they come from, and when a model beats them."""

import json
import math

import numpy as np
import pytest
import report_factories as made
import torch
from scipy.stats import norm

import murmuration as mm
from murmuration.evaluation.baseline import EVALUATED, TRAINING
from murmuration.prediction.predictive import Predictive
from murmuration.runs.manifest import Manifest

COUNTS = (60, 30, 10)


def labelled(counts: tuple[int, ...] = COUNTS) -> np.ndarray:
    return np.repeat(np.arange(len(counts)), counts)


def guess(y: np.ndarray, strength: float, classes: int = 3) -> Predictive:
    """Probabilities that favour the true class by a strength."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(len(y), classes)) + strength * np.eye(classes)[y]
    return Predictive.from_probs(torch.tensor(logits).softmax(-1).numpy())


def test_frequencies_have_the_entropy_as_nll_and_gini_impurity_as_brier() -> None:
    """On examples with the same frequencies."""
    y = labelled()
    baseline = made.evaluation_of(guess(y, 2.0), y, "one").baseline
    shares = np.array(COUNTS) / 100
    assert float(baseline.scores["nll"]) == pytest.approx(-(shares * np.log(shares)).sum(), rel=1e-6)
    assert float(baseline.scores["brier"]) == pytest.approx(1 - (shares**2).sum(), rel=1e-6)
    assert float(baseline.scores["accuracy"]) == 0.6
    assert float(baseline.scores["balanced_accuracy"]) == pytest.approx(1 / 3)
    assert (baseline.name, baseline.source) == ("the class frequencies", EVALUATED)
    rare = labelled((90, 10))
    assert made.evaluation_of(guess(rare, 2.0, 2), rare, "one").baseline.name == "always 'a'"


def test_frequencies_of_the_training_split_are_scored_by_their_cross_entropy() -> None:
    y, counts = labelled(), (1, 1, 2)
    ensemble = made.trained([], Manifest(data={"class_counts": list(counts)}))
    baseline = made.evaluation_of(guess(y, 2.0), y, "one", ensemble=ensemble).baseline
    expected = -(np.array(COUNTS) / 100 * np.log(np.array(counts) / 4)).sum()
    assert float(baseline.scores["nll"]) == pytest.approx(expected, rel=1e-6)
    assert (baseline.name, baseline.source, baseline.counts) == ("the class frequencies", TRAINING, counts)


def test_the_mean_and_spread_of_training_targets_are_a_gaussian() -> None:
    y = np.random.default_rng(0).normal(3.0, 2.0, 50)
    ensemble = made.trained([], Manifest(data={"target_moments": [[1.0], [4.0]]}))
    found = made.evaluation_of(Predictive.from_moments(y[None, :, None] + 0.1, 0.5), y, "one", ensemble=ensemble)
    scores = found.baseline.scores
    assert float(scores["nll"]) == pytest.approx(-norm.logpdf(y, 1.0, 4.0).mean(), rel=1e-6)
    assert float(scores["rmse"]) == pytest.approx(math.sqrt(((y - 1.0) ** 2).mean()), rel=1e-6)
    z = (y - 1.0) / 4.0
    crps = 4.0 * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / math.sqrt(math.pi))  # Gneiting & Raftery 2007
    assert float(scores["crps"]) == pytest.approx(crps.mean(), rel=1e-5)
    assert found.baseline.is_beaten
    assert set(found.baseline.differences) == {"crps", "nll"}


def test_a_run_stores_what_the_baseline_needs() -> None:
    data = mm.open_data((np.arange(60.0)[:, None], 3.0 * np.arange(60.0)), test=0.2)
    ensemble = mm.fit("mlp", data, members=1, epochs=1)
    y = data.train.y.numpy()
    assert ensemble.manifest.data["target_moments"] == [[y.mean()], [pytest.approx(y.std())]]
    baseline = mm.evaluate(ensemble, data).baseline
    assert (baseline.source, baseline.name) == (TRAINING, "the mean target")


@pytest.mark.parametrize(("strength", "beaten"), [(0.0, False), (3.0, True)])
def test_a_model_must_be_better_by_more_than_the_noise(strength: float, beaten: bool) -> None:
    y = labelled()
    found = made.evaluation_of(guess(y, strength), y, "one")
    baseline = found.baseline
    assert baseline.is_beaten is beaten
    difference = float(found.scores["nll"]) - float(baseline.scores["nll"])
    assert float(baseline.differences["nll"]) == pytest.approx(difference, abs=1e-9)
    assert (baseline.differences["nll"].high < 0) is beaten
    record = json.loads(json.dumps(found.to_json()))["baseline"]
    assert (record["beaten"], record["counts"]) == (beaten, list(COUNTS))
    assert record["metrics"]["nll"]["value"] == float(baseline.scores["nll"])


def test_a_constant_target_is_no_division_by_zero() -> None:
    y = np.full(30, 5.0)
    found = made.evaluation_of(Predictive.from_moments(np.full((1, 30, 1), 5.1), 0.5), y, "one")
    assert math.isfinite(float(found.baseline.scores["nll"]))
    assert not found.baseline.is_beaten


@pytest.mark.parametrize(("counts", "imbalanced"), [((50, 10), True), ((50, 11), False), ((50, 0), False)])
def test_classes_are_imbalanced_from_one_to_five(counts: tuple[int, int], imbalanced: bool) -> None:
    y = labelled(counts)
    found = made.evaluation_of(guess(y, 1.0, 2), y, "one")
    assert found.imbalanced is imbalanced
    assert (found.shown_in("summary")[0] == "accuracy") is not imbalanced
