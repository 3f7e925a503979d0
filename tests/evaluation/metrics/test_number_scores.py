"""Regression scores against quadrature, closed forms and simulations with a known truth."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torchmetrics.functional.regression import continuous_ranked_probability_score

from murmuration.evaluation.metrics import MEASURES, ExampleScores, columns, pit_curve, score, score_examples
from murmuration.prediction.predictive import Predictive


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tensors here are small: a second thread costs more than it brings, above all on a busy machine."""
    torch.set_num_threads(1)


def mixture(inputs: int = 200, targets: int = 1, seed: int = 0) -> tuple[Predictive, np.ndarray]:
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(3, inputs, targets))
    std = rng.uniform(0.3, 1.5, size=mean.shape)
    return Predictive.from_moments(mean, std, weights=[0.2, 0.3, 0.5]), rng.normal(size=(inputs, targets))


def true_model(inputs: int = 4000, seed: int = 0) -> tuple[Predictive, np.ndarray]:
    """A mixture of two, and targets drawn from that mixture."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(2, inputs, 1)) * 2
    member = rng.integers(2, size=inputs)
    y = mean[member, np.arange(inputs), 0] + 0.7 * rng.normal(size=inputs)
    return Predictive.from_moments(mean, 0.7), y


def test_crps_against_quadrature() -> None:
    pred, y = mixture(inputs=5)
    ours = columns(pred, y)["crps"]
    for i in range(5):
        means, stds = pred.member_mean[:, i, 0].numpy(), pred.member_var[:, i, 0].sqrt().numpy()

        def squared(x: float, means: np.ndarray = means, stds: np.ndarray = stds, i: int = i) -> float:
            cdf = float((pred.member_weights.numpy() * stats.norm.cdf(x, means, stds)).sum())
            return (cdf - (x >= y[i, 0])) ** 2

        expected = sum(integrate.quad(squared, *ends, epsabs=1e-10)[0] for ends in ((-15, y[i, 0]), (y[i, 0], 15)))
        assert ours[i] == pytest.approx(expected, abs=1e-8)


def test_crps_of_one_gaussian() -> None:
    """CRPS of N(m, s) at m is s (sqrt(2) - 1) / sqrt(pi); far away it is the distance minus s / sqrt(pi)."""
    pred = Predictive.from_moments([[[1.0], [1.0]]], 2.0)
    near, far = columns(pred, [1.0, 1001.0])["crps"]
    assert near == pytest.approx(2 * (math.sqrt(2) - 1) / math.sqrt(math.pi), abs=1e-12)
    assert far == pytest.approx(1000 - 2 / math.sqrt(math.pi), abs=1e-9)


def test_crps_of_sure_members_is_the_ensemble_crps() -> None:
    """With vanishing noise it becomes E|X - y| - E|X - X'| / 2 of the members, as torchmetrics computes it."""
    rng = np.random.default_rng(0)
    members, y = rng.normal(size=(6, 50)), rng.normal(size=50)
    ours = score(Predictive.from_moments(members[..., None], 1e-9), y)["crps"]
    theirs = continuous_ranked_probability_score(torch.tensor(members.T), torch.tensor(y))
    assert ours == pytest.approx(theirs.item(), abs=1e-8)


def test_scores_by_hand() -> None:
    """Means 0 and 2 with noise 1, targets 1 and 4: the mean is 1, errors 0 and 3."""
    pred = Predictive.from_moments([[[0.0], [0.0]], [[2.0], [2.0]]], 1.0)
    scores = score(pred, [1.0, 4.0])
    assert scores["rmse"] == pytest.approx(math.sqrt(9 / 2))
    assert scores["mae"] == pytest.approx(1.5)
    assert scores["member_rmse"] == pytest.approx(math.sqrt((1 + 1 + 16 + 4) / 4))
    assert scores["aleatoric_std"] == pytest.approx(1)
    assert scores["epistemic_std"] == pytest.approx(1)
    densities = [stats.norm.pdf([0, 2], y).mean() for y in (1.0, 4.0)]
    assert scores["nll"] == pytest.approx(-np.mean(np.log(densities)), abs=1e-12)
    assert scores["rmse"] ** 2 == pytest.approx(scores["member_rmse"] ** 2 - 1)  # the ambiguity is 1


def test_the_true_model_is_calibrated() -> None:
    pred, y = true_model()
    evaluation = score_examples(pred, y)
    scores = evaluation.scores()
    for level in (50, 90, 95):
        share = level / 100
        error = math.sqrt(share * (1 - share) / 4000)
        assert scores[f"coverage_{level}"] == pytest.approx(share, abs=4 * error)
    assert stats.kstest(evaluation.columns["pit"], "uniform").pvalue > 1e-3
    curve = pit_curve(evaluation.columns)
    np.testing.assert_allclose(curve.observed, curve.nominal, atol=4 * math.sqrt(0.25 / 4000))
    assert (curve.low < curve.observed).all()
    assert (curve.observed < curve.high).all()


def test_coverage_flags_agree_with_the_intervals() -> None:
    pred, y = true_model(inputs=500)
    table = columns(pred, y)
    low, high = (end.squeeze(-1).numpy() for end in pred.interval(0.9))
    np.testing.assert_array_equal(table["inside_90"], (low <= y) & (y <= high))
    np.testing.assert_allclose(table["interval_width"], high - low, atol=1e-12)


def test_several_targets_are_averaged() -> None:
    pred, y = mixture(targets=2)
    both = columns(pred, y)
    outputs = pred.outputs
    single = []
    for k in range(2):
        one = Predictive.from_moments(outputs[..., k : k + 1], outputs[..., 2 + k : 3 + k], weights=[0.2, 0.3, 0.5])
        single.append(columns(one, y[:, k]))
    for name in ("squared_error", "absolute_error", "crps", "interval_width", "inside_50"):
        np.testing.assert_allclose(both[name], (single[0][name] + single[1][name]) / 2, atol=1e-12)
    assert both["pit"].shape == (2, 200)
    np.testing.assert_allclose(both["pit"][1], single[1]["pit"], atol=1e-14)


def test_chunks_equal_the_whole_and_agreement_is_the_correlation() -> None:
    pred, y = mixture(targets=2)
    shifted = Predictive.from_moments(pred.member_mean + 1e6, pred.member_var.sqrt(), weights=[0.2, 0.3, 0.5])
    whole = score_examples(shifted, y + 1e6)
    parts = zip(shifted.batches(90), torch.tensor(y + 1e6).split(90), strict=True)
    chunked = ExampleScores.from_chunks(parts)
    for name, values in whole.columns.items():
        np.testing.assert_allclose(values, chunked.columns[name], atol=1e-12, err_msg=name)
    expected = np.mean([np.corrcoef(pred.member_mean[..., k].numpy()) for k in range(2)], axis=0)
    np.testing.assert_allclose(whole.agreement, expected, atol=1e-8)
    np.testing.assert_allclose(chunked.agreement, expected, atol=1e-8)


def test_every_number_lies_in_its_interval() -> None:
    scores = score(*mixture())
    assert list(scores) == [name for name in MEASURES["regression"] if name != "pinball"]  # which quantiles have
    for name, number in scores.items():
        lowest, highest = MEASURES["regression"][name].bounds
        assert lowest <= number.low <= number <= number.high <= highest, name
