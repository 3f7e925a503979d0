"""Temperatures against known ones, closed forms, and two other implementations."""

import math

import numpy as np
import pytest
import torch
from calibration_factories import mean_loss, overconfident, tempered

from murmuration.likelihoods import Categorical
from murmuration.prediction.posthoc import losses
from murmuration.prediction.posthoc.calibration import (
    PRIOR_STD,
    MemberTemperature,
    PoolTemperature,
    Temperature,
    VectorScaling,
    fit_calibrator,
    fit_temperature,
)
from murmuration.prediction.predictive import Predictive


def temperature_error(pred: Predictive, temperature: float) -> float:
    """The standard error of a fitted temperature: Fisher's information on 1 / T is the sum of Var_p(z) over inputs."""
    logits = pred.outputs[0]
    probs = (logits / temperature).softmax(-1)
    variance = (probs * logits.square()).sum(-1) - (probs * logits).sum(-1).square()
    return temperature**2 / variance.sum().sqrt().item()


@pytest.mark.parametrize("truth", [0.4, 1.0, 1.7, 5.0])
def test_a_known_temperature_is_recovered(truth: float) -> None:
    pred, y = tempered(truth)
    fitted = fit_calibrator("temperature", pred, y)
    assert isinstance(fitted, Temperature)
    assert abs(fitted.temperature - truth) < 4 * temperature_error(pred, truth)


def test_a_known_temperature_of_a_mixture_is_recovered() -> None:
    """Its standard error from the observed information: the second difference of the loss in T."""
    truth, h = 2.5, 0.05
    pred, y = tempered(truth, members=3)
    fitted = fit_calibrator("temperature", pred, y).temperature
    at = [len(y) * mean_loss(Temperature(t)(pred), y) for t in (fitted - h, fitted, fitted + h)]
    error = 1 / math.sqrt((at[0] - 2 * at[1] + at[2]) / h**2)
    assert 0.01 < error < 0.1
    assert abs(fitted - truth) < 4 * error


@pytest.mark.parametrize("prior_std", [PRIOR_STD, math.inf])
def test_the_slope_of_the_loss_is_that_of_the_prior_at_the_fitted_temperature(prior_std: float) -> None:
    pred, y = overconfident(weights=[0.4, 0.3, 0.2, 0.1])
    fitted = fit_temperature(pred, y, prior_std).temperature
    h = 1e-4
    slope = (mean_loss(Temperature(fitted + h)(pred), y) - mean_loss(Temperature(fitted - h)(pred), y)) / (2 * h)
    assert fitted > 1.2
    assert abs(slope + math.log(fitted) / (fitted * len(y) * prior_std**2)) < 1e-7  # far above h^2 and rounding / h
    assert prior_std < math.inf or fitted > fit_calibrator("temperature", pred, y).temperature


def test_one_temperature_keeps_the_classes_of_one_member_and_lowers_the_loss() -> None:
    pred, y = overconfident(members=1)
    calibrated = fit_calibrator("temperature", pred, y)(pred)
    assert torch.equal(calibrated.predicted, pred.predicted)
    assert mean_loss(calibrated, y) < mean_loss(pred, y) - 0.1


def test_for_one_member_the_two_temperatures_are_the_same() -> None:
    pred, y = overconfident(members=1)
    alone = fit_calibrator("member_temperature", pred, y)
    assert alone.temperatures == (fit_calibrator("temperature", pred, y).temperature,)
    assert torch.equal(alone(pred).outputs, fit_calibrator("temperature", pred, y)(pred).outputs)


def test_each_member_is_fitted_alone_and_its_mixture_is_underconfident() -> None:
    pred, y = tempered(1.0, members=4, inputs=4000)
    scaled = Predictive(pred.outputs * torch.tensor([1.0, 2.0, 0.5, 3.0])[:, None, None], pred.likelihood)
    fitted = fit_calibrator("member_temperature", scaled, y)
    alone = [fit_calibrator("temperature", scaled.select([s]), y).temperature for s in range(4)]
    assert fitted.temperatures == tuple(alone)
    members_before, members_after = -scaled.member_log_prob(y).mean(1), -fitted(scaled).member_log_prob(y).mean(1)
    assert (members_after <= members_before).all()
    assert fit_calibrator("temperature", fitted(scaled), y).temperature < 0.95  # the average has to be sharpened


def test_agreement_with_scikit_learn() -> None:
    calibration = pytest.importorskip("sklearn.calibration")
    if not hasattr(calibration, "_TemperatureScaling"):
        pytest.skip("scikit-learn before 1.8")
    pred, y = overconfident(members=1)
    other = calibration._TemperatureScaling().fit(pred.outputs[0].numpy(), y.numpy())
    assert fit_temperature(pred, y, math.inf).temperature == pytest.approx(1 / float(other.beta_), rel=1e-6)


def test_agreement_with_netcal() -> None:
    scaling = pytest.importorskip("netcal.scaling")
    pred, y = overconfident(members=1)
    other = scaling.TemperatureScaling()
    other.fit(pred.probs[0].numpy(), y.numpy())
    expected = other.transform(pred.probs[0].numpy())
    ours = fit_temperature(pred, y, math.inf)(pred).probs[0].numpy()
    np.testing.assert_allclose(ours, expected, atol=2e-4)  # it works in single precision


def test_members_count_by_their_weights() -> None:
    pred, y = overconfident(members=3)
    first_only = Predictive(pred.outputs, pred.likelihood, torch.tensor([1.0, 0.0, 0.0]))
    alone = fit_calibrator("temperature", pred.select([0]), y).temperature
    assert fit_calibrator("temperature", first_only, y).temperature == pytest.approx(alone, rel=1e-7)
    doubled = fit_calibrator("temperature", pred.select([0, 0, 1]), y).temperature
    weighted = Predictive(pred.outputs, pred.likelihood, torch.tensor([2 / 3, 1 / 3, 0.0], dtype=torch.float64))
    assert fit_calibrator("temperature", weighted, y).temperature == pytest.approx(doubled, rel=1e-7)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pred, y = overconfident()
    whole = {name: fit_calibrator(name, pred, y)(pred).probs for name in ("temperature", "vector", "isotonic")}
    monkeypatch.setattr(losses, "ELEMENTS", 1000)
    for name, probs in whole.items():
        torch.testing.assert_close(fit_calibrator(name, pred, y)(pred).probs, probs, atol=1e-6, rtol=0)


def test_no_mistakes_among_few_examples_hardly_sharpen() -> None:
    logits = torch.tensor([[[2.0, 0.0], [0.0, 2.0], [3.0, 0.0]]], dtype=torch.float64)
    pred, y = Predictive(logits, Categorical(2)), torch.tensor([0, 1, 0])
    assert fit_temperature(pred, y, math.inf).temperature == pytest.approx(0.02, rel=1e-3)  # the end of the range
    assert 0.8 < fit_temperature(pred, y).temperature < 1
    many = Predictive(logits.repeat(1, 2000, 1), Categorical(2))
    assert fit_temperature(many, y.repeat(2000)).temperature < 0.3  # 6,000 examples without a mistake are evidence


def test_labels_that_know_nothing_make_the_temperature_as_high_as_it_goes() -> None:
    pred, _ = tempered(1.0, inputs=2000)
    worst = pred.probs[0].argmin(-1)
    assert fit_calibrator("temperature", pred, worst).temperature == pytest.approx(50, rel=1e-3)


def test_given_zeros_count_as_small_probabilities_not_as_infinite_certainty() -> None:
    """A forest of ten trees often predicts 0 or 1; every tenth of these predictions is wrong."""
    probs = np.tile([[1.0, 0.0, 0.0]], (200, 1))
    probs[100:] = [0.6, 0.4, 0.0]
    y = np.zeros(200, dtype=int)
    y[:10], y[100:140] = 1, 1
    pred = Predictive.from_probs(probs)
    fitted = fit_temperature(pred, torch.from_numpy(y), math.inf)
    floor = np.log(np.maximum(probs, 1e-12))
    grid = np.exp(np.linspace(math.log(0.5), math.log(40), 4001))
    loss = [np.mean(np.log(np.exp(floor / t).sum(1)) - floor[range(200), y] / t) for t in grid]
    assert fitted.temperature == pytest.approx(grid[int(np.argmin(loss))], rel=1.2e-3)
    assert mean_loss(fitted(pred), torch.from_numpy(y)) < 0.7 * mean_loss(pred, torch.from_numpy(y))


def test_logits_of_minus_infinity_are_given_zeros() -> None:
    logits = torch.tensor([[1.0, 0.0, -math.inf], [0.0, 1.0, -math.inf], [1.0, 0.0, -math.inf]] * 5)[None]
    y = [0, 1, 1] * 5
    fitted = fit_calibrator("temperature", Predictive(logits, Categorical(3)), y)
    without = fit_calibrator("temperature", Predictive(logits[..., :2], Categorical(2)), y)
    assert math.isfinite(fitted.temperature)
    assert fitted.temperature == pytest.approx(without.temperature, rel=0.01)


def test_half_precision_is_raised_and_single_kept() -> None:
    logits = torch.tensor([[[1.0, 0.3]]])
    for given, kept in ((torch.float16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)):
        assert Temperature(3.0)(Predictive(logits.to(given), Categorical(2))).outputs.dtype == kept
    member = MemberTemperature((2.0,))(Predictive(logits, Categorical(2)))
    torch.testing.assert_close(member.outputs, logits / 2, atol=0, rtol=0)


def test_a_temperature_that_would_worsen_the_reported_loss_is_not_kept() -> None:
    """One mistake 590 nats deep outweighs 199 right answers, but is reported as 27.6: softening all would cost more."""
    logits = torch.tensor([[5.0, 0.0]] * 199 + [[590.0, 0.0]], dtype=torch.float64)[None]
    y = torch.tensor([0] * 199 + [1])
    pred = Predictive(logits, Categorical(2))
    assert losses.mixture_losses(pred, y, lambda z: z / 17).mean() < losses.mixture_losses(pred, y, lambda z: z).mean()
    assert fit_calibrator("temperature", pred, y) == Temperature(1.0)


def test_calibrators_that_change_nothing_leave_ties_as_they_are() -> None:
    """Half of 50 certain members for either class: a round trip through clipped logarithms would decide."""
    votes = np.random.default_rng(0).permuted(np.tile(np.arange(50)[:, None] % 2, (1, 200)), axis=0)
    pred = Predictive.from_probs(np.stack([votes, 1 - votes], axis=-1).astype(float))
    half = len(pred.outputs)
    for same in (
        Temperature(1.0),
        MemberTemperature((1.0,) * half),
        VectorScaling((1.0, 1.0), (0.0, 0.0)),
        PoolTemperature(1.0),
    ):
        assert torch.equal(same(pred).predicted, pred.predicted)
        assert torch.equal(same(pred).mean, pred.mean)
