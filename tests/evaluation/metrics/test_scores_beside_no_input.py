"""R2, the skill of CRPS and balanced accuracy: scores whose reference is a prediction without input."""

import numpy as np
import pytest
from prediction_factories import classification_sample, regression_sample
from sklearn.metrics import balanced_accuracy_score, r2_score

import murmuration as mm
from murmuration.evaluation.metrics import shown_in
from murmuration.evaluation.metrics.intervals import wilson
from murmuration.evaluation.metrics.no_input import balanced_interval, crps_without_input
from murmuration.prediction.predictive import Predictive


@pytest.mark.parametrize("targets", [1, 3])
def test_r2_is_that_of_scikit_learn(targets: int) -> None:
    rng = np.random.default_rng(targets)
    y = rng.normal(size=(80, targets)) * [1.0, 50.0, 0.01][:targets] + 1e4
    mean = y + rng.normal(size=y.shape) * y.std(0) * 0.5
    score = mm.score(Predictive.from_moments(mean[None], 1.0), y)["r2"]
    assert float(score) == pytest.approx(r2_score(y, mean), abs=1e-6)
    assert score.low < float(score) < score.high <= 1


def test_the_mean_explains_nothing_and_a_constant_target_has_no_r2() -> None:
    y = np.arange(20.0)
    mean = Predictive.from_moments(np.full((1, 20, 1), y.mean()), 1.0)
    assert float(mm.score(mean, y)["r2"]) == pytest.approx(0, abs=1e-12)
    assert {"r2", "crps_skill"}.isdisjoint(mm.score(mean, np.ones(20)))


def test_the_interval_of_r2_covers_the_variance_that_is_explained() -> None:
    """A signal of variance 1 with noise of variance 1, known exactly: R2 is 1 / 2."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(60):
        signal = rng.normal(size=150)
        predictive = Predictive.from_moments(signal[None, :, None], 1.0)
        score = mm.score(predictive, signal + rng.normal(size=150), resamples=200)["r2"]
        covered += score.low <= 0.5 <= score.high
    assert covered >= 51  # 95 % of 60 are 57; fewer than 51 has a probability below 0.01


def test_the_crps_without_input_is_half_the_mean_distance_of_targets() -> None:
    y = np.random.default_rng(0).integers(0, 5, 40).astype(float)
    distances = np.abs(y[:, None] - y[None])
    assert crps_without_input(y).mean() == pytest.approx(distances.mean() / 2)
    nudged = np.linspace(0.5, 1.5, 40)  # the derivative by the weights of the examples
    moved = (nudged[:, None] * nudged[None] * distances).sum() / nudged.sum() ** 2 / 2
    assert np.average(crps_without_input(y), weights=nudged) == pytest.approx(moved, rel=0.02)


def test_the_skill_compares_crps_with_that_of_the_targets_themselves() -> None:
    pred, y = regression_sample(200)
    scores, targets = mm.score(pred, y), np.asarray(y).ravel()
    reference = np.abs(targets[:, None] - targets[None]).mean() / 2
    assert float(scores["crps_skill"]) == pytest.approx(1 - float(scores["crps"]) / reference)


def test_balanced_accuracy_is_that_of_scikit_learn() -> None:
    pred, y = classification_sample(300)
    score = mm.score(pred, y)["balanced_accuracy"]
    assert float(score) == pytest.approx(balanced_accuracy_score(y, pred.predicted.numpy()))
    assert score.low < float(score) < score.high


def test_two_wrong_examples_of_a_class_leave_its_accuracy_open() -> None:
    label, correct = np.array([0] * 38 + [1] * 2), np.array([1] * 38 + [0] * 2)
    low, high = balanced_interval({"label": label, "correct": correct})
    ends = [wilson(np.array(right), np.array(total)) for right, total in ((38, 38), (0, 2))]
    assert low == pytest.approx(0.5 - (1 - float(ends[0][0])) / 2)  # only one of the two ends moves either way
    assert high == pytest.approx(0.5 + float(ends[1][1]) / 2)
    alone = balanced_interval({"label": np.zeros(10, int), "correct": np.arange(10) < 7})
    assert alone == pytest.approx(tuple(map(float, wilson(np.array(7), np.array(10)))))


def test_imbalanced_classes_are_led_by_scores_that_see_the_rare_one() -> None:
    names = shown_in("brief", "classification", imbalanced=True)
    assert names[:3] == ["auroc", "average_precision", "balanced_accuracy"]
    assert "accuracy" not in names
    assert shown_in("brief", "classification")[0] == "accuracy"
