"""Scaled mixtures against closed forms, finite differences and the known factors of their targets."""

import math

import numpy as np
import pytest
import torch
from calibration_factories import gaussian_mixture, mean_loss

from murmuration.likelihoods import Gaussian
from murmuration.prediction.posthoc.calibration import fit_calibrator
from murmuration.prediction.posthoc.std_scaling import MemberStdScaling, StdScaling, scaled_loss
from murmuration.prediction.predictive import Predictive


def one_member(inputs: int = 50) -> tuple[Predictive, torch.Tensor]:
    rng = np.random.default_rng(1)
    mean, std = rng.normal(size=(1, inputs, 1)), 0.1 + rng.random((1, inputs, 1))
    return Predictive.from_moments(mean, std), torch.from_numpy(rng.normal(size=inputs))


def std_loss(pred: Predictive, y: torch.Tensor, log_factors: torch.Tensor) -> tuple[float, torch.Tensor]:
    return scaled_loss(pred, y, log_factors, lambda part, target: target - part.mean)


def test_one_member_has_a_closed_form() -> None:
    pred, y = one_member()
    z = (y[:, None] - pred.member_mean[0]) / pred.member_var[0].sqrt()
    expected = z.square().mean().sqrt().item()
    assert expected > 1.5
    assert fit_calibrator("temperature", pred, y).factors[0] == pytest.approx(expected, rel=1e-9)
    assert fit_calibrator("member_temperature", pred, y).factors[0][0] == pytest.approx(expected, rel=1e-14)


def test_a_known_stretch_is_recovered_for_each_target() -> None:
    pred, y = gaussian_mixture(factor=1.6)
    fitted = fit_calibrator("temperature", pred, y)
    slopes = [std_loss(pred, y, torch.log(torch.tensor([f, 1.6], dtype=torch.float64)))[1][0] for f in (1.59, 1.61)]
    curvature = ((slopes[1] - slopes[0]) / math.log(1.61 / 1.59)).item()
    error = 1.6 / math.sqrt(len(y) * curvature)
    assert error < 0.05
    assert all(abs(factor - 1.6) < 4 * error for factor in fitted.factors)


def test_the_loss_and_its_slope_are_those_of_the_predictive() -> None:
    pred, y = gaussian_mixture(factor=0.7, inputs=200)
    at = torch.log(torch.tensor([1.3, 0.8], dtype=torch.float64))
    constant = math.log(2 * math.pi)  # half of it for each of two targets
    value, slope = std_loss(pred, y, at)
    assert value + constant == pytest.approx(mean_loss(StdScaling((1.3, 0.8))(pred), y), abs=1e-12)
    for k in range(2):
        step = 1e-5 * torch.eye(2).double()[k]
        ahead, behind = (mean_loss(StdScaling(tuple((at + s * step).exp().tolist()))(pred), y) for s in (1, -1))
        assert slope[k].item() == pytest.approx((ahead - behind) / 2e-5, abs=1e-9)


def test_the_slope_is_zero_and_the_loss_lower_at_the_fitted_factors() -> None:
    pred, y = gaussian_mixture(factor=0.5, inputs=500)
    fitted = fit_calibrator("temperature", pred, y)
    assert (
        std_loss(pred, y, torch.tensor(fitted.factors, dtype=torch.float64).log())[1].abs().max() < 1.1e-6
    )  # where the search rests
    assert mean_loss(fitted(pred), y) < mean_loss(pred, y) - 0.1


def test_a_stretch_multiplies_every_spread_and_keeps_the_mean() -> None:
    pred, _ = gaussian_mixture(factor=1.0, inputs=20)
    scaled = StdScaling((2.0, 0.5))(pred)
    squares = torch.tensor([4.0, 0.25], dtype=torch.float64)
    torch.testing.assert_close(scaled.mean, pred.mean, atol=1e-14, rtol=0)
    torch.testing.assert_close(scaled.aleatoric_var, squares * pred.aleatoric_var, atol=1e-13, rtol=0)
    torch.testing.assert_close(scaled.epistemic_var, squares * pred.epistemic_var, atol=1e-13, rtol=0)
    distance = torch.tensor([2.0, 0.5], dtype=torch.float64) * (pred.quantile(0.9) - pred.mean)
    torch.testing.assert_close(scaled.quantile(0.9), pred.mean + distance, atol=1e-9, rtol=0)


def test_each_members_noise_is_its_own_closed_form() -> None:
    pred, y = gaussian_mixture(factor=1.4, inputs=300)
    fitted = fit_calibrator("member_temperature", pred, y)
    z = (y - pred.member_mean) / pred.member_var.sqrt()
    np.testing.assert_allclose(fitted.factors, z.square().mean(1).sqrt(), rtol=1e-14)
    calibrated = fitted(pred)
    assert torch.equal(calibrated.member_mean, pred.member_mean)
    assert (calibrated.member_log_prob(y).mean(1) >= pred.member_log_prob(y).mean(1)).all()
    for factor in (0.99, 1.01):
        off = MemberStdScaling(tuple(tuple(factor * f for f in row) for row in fitted.factors))
        assert (off(pred).member_log_prob(y).mean(1) < calibrated.member_log_prob(y).mean(1)).all()


def test_members_count_by_their_weights() -> None:
    pred, y = gaussian_mixture(factor=1.3, inputs=300, targets=1)
    repeated = pred.select([0] * 5 + [1] * 3 + [2] * 2)
    alike = Predictive(repeated.outputs, repeated.likelihood)
    expected = fit_calibrator("temperature", alike, y).factors
    assert fit_calibrator("temperature", pred, y).factors == pytest.approx(expected, rel=1e-6)


def test_outputs_of_networks_are_stretched_in_the_targets_units() -> None:
    net = Predictive(torch.tensor([[[0.0], [1.0]], [[2.0], [3.0]]]), Gaussian(0.5, shift=(10.0,), scale=(2.0,)))
    scaled = StdScaling((3.0,))(net)
    assert scaled.member_mean.tolist() == [[[6.0], [8.0]], [[18.0], [20.0]]]
    assert scaled.member_var.sqrt().unique().tolist() == [1.5]


def test_without_any_error_the_factor_stops_at_its_smallest() -> None:
    pred, _ = one_member()
    fitted = fit_calibrator("temperature", pred, pred.mean)
    assert fitted.factors[0] == pytest.approx(1e-4)
