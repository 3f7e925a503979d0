"""Vector scaling against known parameters, finite differences and the closed form of the penalty."""

import pytest
import torch
from calibration_factories import draw_labels, mean_loss, overconfident, random_logits

from murmuration.likelihoods import Categorical
from murmuration.prediction.posthoc.calibration import VectorScaling, fit_calibrator, vector_loss
from murmuration.prediction.predictive import Predictive

IDENTITY = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)


def test_the_slope_is_the_difference_quotient() -> None:
    pred, y = overconfident(inputs=200, weights=[0.4, 0.3, 0.2, 0.1])
    point = torch.tensor([0.7, 1.2, 0.4, 0.3, -0.5, 0.1], dtype=torch.float64)
    h = 1e-5
    for i in range(6):
        step = h * torch.eye(6).double()[i]
        ahead, behind = (vector_loss(pred, y, point + sign * step, IDENTITY)[0] for sign in (1, -1))
        assert vector_loss(pred, y, point, IDENTITY)[1][i].item() == pytest.approx((ahead - behind) / (2 * h), abs=1e-9)


def test_at_the_identity_the_loss_is_the_mixtures() -> None:
    pred, y = overconfident(weights=[0.4, 0.3, 0.2, 0.1])
    assert vector_loss(pred, y, IDENTITY, IDENTITY)[0] == pytest.approx(mean_loss(pred, y), abs=1e-12)


def test_the_fitted_point_has_no_slope_and_a_lower_loss() -> None:
    pred, y = overconfident(weights=[0.4, 0.3, 0.2, 0.1])
    fitted = fit_calibrator("vector", pred, y)
    point = torch.tensor(fitted.factors + fitted.shifts, dtype=torch.float64)
    assert vector_loss(pred, y, point, IDENTITY)[1].abs().max() < 1.1e-6  # where the search rests
    losses = [mean_loss(fit_calibrator(name, pred, y)(pred), y) for name in ("vector", "temperature")]
    assert losses[0] < losses[1] - 0.005  # one class is favoured, which no temperature can undo
    assert losses[1] < mean_loss(pred, y)


def test_known_factors_and_shifts_are_recovered() -> None:
    """Shifts count up to a constant, which the ridge sets so that they sum to zero; standard errors by the Hessian."""
    inputs = 20_000
    logits = random_logits(1, inputs, 3, seed=2)
    factors, shifts = (
        torch.tensor([0.5, 0.8, 1.5], dtype=torch.float64),
        torch.tensor([0.6, -0.2, -0.4], dtype=torch.float64),
    )
    truth = torch.cat([factors, shifts])
    pred = Predictive(logits, Categorical(3))
    y = draw_labels((logits[0] * factors + shifts).softmax(-1), 3)
    fitted = fit_calibrator("vector", pred, y)
    rows = [vector_loss(pred, y, truth + s * 1e-4 * e, IDENTITY)[1] for e in torch.eye(6).double() for s in (1, -1)]
    hessian = torch.stack([(a - b) / 2e-4 for a, b in zip(rows[::2], rows[1::2], strict=True)])
    centred = torch.block_diag(torch.eye(3), torch.eye(3) - 1 / 3).double()
    errors = (centred @ torch.linalg.inv(inputs * hessian) @ centred).diag().sqrt()
    found = torch.tensor(fitted.factors + fitted.shifts, dtype=torch.float64)
    assert sum(fitted.shifts) == pytest.approx(0, abs=1e-6)
    assert errors.max() < 0.05
    assert ((found - truth).abs() < 4 * errors).all()


def test_a_class_that_never_occurs_keeps_a_small_share() -> None:
    """In place of minus infinity: a share between a hundredth and ten divided by N."""
    pred, y = overconfident()
    calibrated = fit_calibrator("vector", pred, y.clamp_max(1))(pred)
    share = calibrated.mean[:, 2].mean().item()
    assert 0.01 / len(y) < share < 10 / len(y)


def test_a_sure_and_wrong_network_is_softened_although_its_probabilities_are_clipped() -> None:
    pred, y = overconfident(members=1, inputs=600)
    loud = Predictive(10 * pred.outputs, pred.likelihood)
    fitted = fit_calibrator("vector", loud, y)
    assert max(fitted.factors) < 0.1
    assert mean_loss(fitted(loud), y) == pytest.approx(mean_loss(fit_calibrator("vector", pred, y)(pred), y), abs=0.01)


def test_by_hand() -> None:
    pred = Predictive(torch.tensor([[[1.0, 2.0]], [[0.0, -1.0]]]), Categorical(2))
    calibrated = VectorScaling((2.0, 0.5), (0.25, -1.0))(pred)
    assert calibrated.outputs.tolist() == [[[2.25, 0.0]], [[0.25, -1.5]]]
