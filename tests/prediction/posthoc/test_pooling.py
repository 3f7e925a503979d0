"""Means that members must follow, and isotonic maps against scikit-learn's."""

import math

import numpy as np
import pytest
import torch
from calibration_factories import mean_loss, overconfident, random_logits, tempered
from sklearn.isotonic import IsotonicRegression

from murmuration.likelihoods import Categorical
from murmuration.prediction.posthoc.calibration import (
    Isotonic,
    PoolTemperature,
    Temperature,
    fit_calibrator,
    interpolate,
    largest_lambda,
    with_mean,
)
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse


def weighted_members(inputs: int = 500, classes: int = 5) -> Predictive:
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    return Predictive(random_logits(3, inputs, classes, seed=3), Categorical(classes), weights)


def some_means(pred: Predictive) -> dict[str, torch.Tensor]:
    """New means (N, K): sharper, softer, unrelated, and with classes that became impossible."""
    mean = pred.mean
    unrelated = random_logits(1, *mean.shape, seed=9)[0].softmax(-1)
    some_zero = torch.where(mean < mean.median(-1, keepdim=True).values, 0.0, mean)
    one_hot = torch.eye(mean.shape[-1], dtype=torch.float64)[mean.argmin(-1)]
    means = {
        "sharper": mean.square(),
        "softer": mean.sqrt(),
        "unrelated": unrelated,
        "zeros": some_zero,
        "sure": one_hot,
    }
    return {name: value / value.sum(-1, keepdim=True) for name, value in means.items()}


@pytest.mark.parametrize("kind", ["sharper", "softer", "unrelated", "zeros", "sure"])
def test_members_follow_any_mean_exactly(kind: str) -> None:
    pred = weighted_members()
    q = some_means(pred)[kind]
    moved = with_mean(pred, q)
    torch.testing.assert_close(moved.mean, q, atol=1e-14, rtol=0)
    torch.testing.assert_close(moved.probs.sum(-1), torch.ones(3, 500).double(), atol=1e-14, rtol=0)
    assert (moved.probs >= 0).all()
    assert moved.outputs.shape == pred.outputs.shape


def test_members_stay_where_the_mean_stays() -> None:
    pred = weighted_members()
    torch.testing.assert_close(with_mean(pred, pred.mean).probs, pred.probs, atol=1e-14, rtol=0)


def test_the_largest_lambda_by_hand() -> None:
    """Below the mean by (0.3, 0, 0.1) at most: 0.15 / 0.3 binds; the second input has room for all."""
    members = torch.tensor(
        [[[0.2, 0.5, 0.3], [0.5, 0.3, 0.2]], [[0.8, 0.1, 0.1], [0.5, 0.2, 0.3]]], dtype=torch.float64
    )
    mean = members.mean(0)
    q = torch.tensor([[0.15, 0.45, 0.4], [0.5, 0.25, 0.25]], dtype=torch.float64)
    torch.testing.assert_close(
        largest_lambda(members, mean, q), torch.tensor([0.5, 1.0], dtype=torch.float64), atol=1e-14, rtol=0
    )
    assert torch.equal(largest_lambda(members, mean, mean), torch.ones(2).double())


def test_members_keep_disagreeing_when_rare_classes_become_rarer() -> None:
    """Moving members without scaling them first would leave a hundredth of their mutual information."""
    pred = weighted_members(classes=10)
    rarer = torch.where(pred.mean < 1e-3, 0.0, pred.mean)
    moved = with_mean(pred, rarer / rarer.sum(-1, keepdim=True))
    assert moved.mutual_information.mean() > 0.95 * pred.mutual_information.mean()


def test_a_mean_of_another_shape_is_refused() -> None:
    with pytest.raises(Misuse, match=r"mean probabilities of shape \(500, 4\): expected \(500, 5\)"):
        with_mean(weighted_members(), torch.full((500, 4), 0.25))


def test_pool_temperature_is_the_temperature_of_the_pool() -> None:
    pred, y = overconfident(weights=[0.4, 0.3, 0.2, 0.1])
    fitted = fit_calibrator("pool_temperature", pred, y)
    pool = Predictive.from_probs(pred.mean)
    expected = fit_calibrator("temperature", pool, y)
    assert fitted.temperature == expected.temperature
    powers = pred.mean ** (1 / fitted.temperature)
    torch.testing.assert_close(fitted(pred).mean, powers / powers.sum(-1, keepdim=True), atol=1e-13, rtol=0)
    torch.testing.assert_close(fitted(pred).predicted, pred.predicted)
    assert mean_loss(fitted(pred), y) < mean_loss(pred, y)


def test_for_one_member_pooling_changes_nothing() -> None:
    pred, y = overconfident(members=1)
    pool, plain = (fit_calibrator(name, pred, y) for name in ("pool_temperature", "temperature"))
    assert pool.temperature == pytest.approx(plain.temperature, rel=1e-7)
    torch.testing.assert_close(PoolTemperature(2.0)(pred).probs, Temperature(2.0)(pred).probs, atol=1e-13, rtol=0)


def test_pooling_keeps_about_the_disagreement_that_tempering_leaves() -> None:
    pred, _ = tempered(1.0, members=4, inputs=1000)
    for temperature in (0.8, 1.3):
        pool, plain = (
            kind(temperature)(pred).mutual_information.mean().item() for kind in (PoolTemperature, Temperature)
        )
        assert pool == pytest.approx(plain, rel=0.15)


def test_isotonic_on_two_classes_is_isotonic_regression() -> None:
    pred, y = tempered(2.0, members=3, inputs=3000)
    binary = Predictive.from_probs(torch.stack([pred.probs[..., 0], 1 - pred.probs[..., 0]], -1))
    hits = (y == 0).double().numpy()
    fitted = fit_calibrator("isotonic", binary, 1 - hits)
    other = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(binary.mean[:, 0].numpy(), hits)
    np.testing.assert_allclose(fitted(binary).mean[:, 0], other.predict(binary.mean[:, 0].numpy()), atol=1e-12)
    fresh = Predictive.from_probs(np.stack([np.linspace(0, 1, 777), np.linspace(1, 0, 777)], -1))
    np.testing.assert_allclose(fitted(fresh).mean[:, 0], other.predict(np.linspace(0, 1, 777)), atol=1e-12)


def test_pooled_adjacent_violators_by_hand() -> None:
    """Hits 0, 1, 0, 1 at rising probabilities: the middle two pool to one half."""
    p = np.array([0.1, 0.3, 0.6, 0.8])
    fitted = fit_calibrator("isotonic", Predictive.from_probs(np.stack([1 - p, p], -1)), [0, 1, 0, 1])
    assert fitted.knots[1] == (pytest.approx((0.1, 0.3, 0.6, 0.8)), (0.0, 0.5, 0.5, 1.0))
    between = Predictive.from_probs([[0.8, 0.2], [0.3, 0.7], [0.95, 0.05]])
    np.testing.assert_allclose(fitted(between).mean[:, 1], [0.25, 0.75, 0.0], atol=1e-12)


def test_isotonic_never_worsens_a_class_on_its_own_examples() -> None:
    pred, y = overconfident()
    fitted = fit_calibrator("isotonic", pred, y)
    for k in range(3):
        hits = (y == k).double()
        maps = interpolate(pred.mean[:, k], fitted.knots[k])
        assert (maps - hits).square().mean() < (pred.mean[:, k] - hits).square().mean()
        assert maps.mean().item() == pytest.approx(hits.mean().item(), abs=1e-12)  # pooling keeps the mean


def test_where_every_class_would_be_impossible_the_mean_stays() -> None:
    half = ((0.0, 0.5, 1.0), (0.0, 0.0, 1.0))
    pred = Predictive.from_probs([[0.4, 0.3, 0.3], [0.75, 0.25, 0.0]])
    calibrated = Isotonic((half, half, half))(pred).mean
    np.testing.assert_allclose(calibrated, [[0.4, 0.3, 0.3], [1.0, 0.0, 0.0]], atol=1e-12)


def test_a_class_that_never_occurs_becomes_impossible() -> None:
    pred, y = overconfident()
    calibrated = fit_calibrator("isotonic", pred, y.clamp_max(1))(pred)
    assert calibrated.mean[:, 2].max() == pytest.approx(0, abs=1e-200)
    assert math.isfinite(mean_loss(calibrated, y))


def test_one_knot_is_a_constant() -> None:
    assert interpolate(torch.tensor([0.1, 0.9]), ((0.5,), (0.25,))).tolist() == [0.25, 0.25]
