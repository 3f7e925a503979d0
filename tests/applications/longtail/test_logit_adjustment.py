"""Post-hoc logit adjustment: identities, the formula, Bayes' rule under label shift, the choice of tau, runs."""

import json

import numpy as np
import pytest
import torch
from torch import Tensor

import murmuration as mm
from murmuration.prediction.posthoc.calibration import (
    TAUS,
    Calibrator,
    LogitAdjustment,
    calibrator_kinds,
    fit_calibrator,
)
from murmuration.system.records import from_json, to_json

FREQUENCIES = (0.9, 0.09, 0.01)


def predictions(members: int = 4, inputs: int = 50, seed: int = 0) -> mm.Predictive:
    logits = 2 * torch.randn(members, inputs, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return mm.Predictive(logits, mm.Categorical(3))


def shifted(count: int, frequencies: tuple[float, ...], seed: int) -> tuple[Tensor, Tensor]:
    """Labels (N,) of three unit Gaussians around corners, and the exact log p(y | x) (N, 3) at these frequencies."""
    generator = np.random.default_rng(seed)
    y = generator.choice(3, size=count, p=frequencies)
    x = generator.normal(size=(count, 3)) + 1.5 * np.eye(3)[y]
    log_density = torch.from_numpy(1.5 * x)  # up to a constant of x
    return torch.from_numpy(y), log_density


def test_tau_zero_is_the_identity_and_a_constant_changes_nothing() -> None:
    """Oracle 42 of the specification."""
    pred = predictions()
    assert LogitAdjustment(FREQUENCIES, 0.0)(pred) is pred
    moved = mm.Predictive(pred.outputs + 7.25, mm.Categorical(3))
    adjust = LogitAdjustment(FREQUENCIES, 1.0)
    torch.testing.assert_close(adjust(moved).probs, adjust(pred).probs, rtol=0, atol=1e-12)


def test_the_mean_of_members_is_divided_by_frequencies() -> None:
    pred, tau = predictions(), 1.3
    expected = pred.mean / torch.tensor(FREQUENCIES, dtype=torch.float64) ** tau
    found = LogitAdjustment(FREQUENCIES, tau)(pred)
    torch.testing.assert_close(found.mean, expected / expected.sum(-1, keepdim=True), rtol=0, atol=1e-12)
    assert found.probs.shape == pred.probs.shape
    one = mm.Predictive(pred.outputs[:1], mm.Categorical(3))
    expected = (one.outputs - tau * torch.tensor(FREQUENCIES, dtype=torch.float64).log()).softmax(-1)
    torch.testing.assert_close(LogitAdjustment(FREQUENCIES, tau)(one).probs, expected, rtol=0, atol=1e-12)


def test_equal_frequencies_change_nothing() -> None:
    pred = predictions()
    torch.testing.assert_close(LogitAdjustment((1 / 3,) * 3, 1.7)(pred).probs, pred.probs, rtol=0, atol=1e-12)


def test_exact_posteriors_become_those_of_equal_classes() -> None:
    _, log_density = shifted(500, FREQUENCIES, 0)
    trained = mm.Predictive(
        (log_density + torch.tensor(FREQUENCIES, dtype=torch.float64).log())[None], mm.Categorical(3)
    )
    torch.testing.assert_close(
        LogitAdjustment(FREQUENCIES, 1.0)(trained).mean, log_density.softmax(-1), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("tested", [FREQUENCIES, (1 / 3,) * 3])
def test_tau_is_chosen_by_balanced_error(tested: tuple[float, ...]) -> None:
    """Of exact posteriors the best tau is 1, on validation examples with the imbalance of training or without it."""
    y, log_density = shifted(6000, tested, 1)
    trained = mm.Predictive(
        (log_density + torch.tensor(FREQUENCIES, dtype=torch.float64).log())[None], mm.Categorical(3)
    )
    fitted = fit_calibrator("logit_adjustment", trained, y, counts=(900, 90, 10))
    assert fitted.frequencies == FREQUENCIES

    def balanced_error(tau: float) -> float:
        wrong = LogitAdjustment(FREQUENCIES, tau)(trained).predicted != y
        return float(np.mean([wrong[y == label].double().mean() for label in range(3)]))

    errors = [balanced_error(tau) for tau in TAUS]
    assert errors[TAUS.index(fitted.tau)] == pytest.approx(min(errors), abs=1e-12)
    assert fitted.tau == pytest.approx(1, abs=0.5)
    assert balanced_error(fitted.tau) < balanced_error(0) - 0.1
    assert fit_calibrator("logit_adjustment:tau=0.4", trained, y, counts=(900, 90, 10)).tau == 0.4


def test_records_and_refusals() -> None:
    pred, y = predictions(), torch.arange(50) % 3
    fitted = fit_calibrator("logit_adjustment:tau=1", pred, y, counts=(0, 90, 10))
    assert fitted.frequencies == (1 / 101, 90 / 101, 10 / 101)
    assert from_json(json.loads(json.dumps(to_json(fitted))), Calibrator, "calibrator", calibrator_kinds()) == fitted
    for text, message in {
        "logit_adjustment:power=1": "logit_adjustment has tau=1",
        "logit_adjustment:tau=-1": "not negative",
        "logit_adjustment:tau=much": "expected a number",
        "temperature:tau=1": "temperature has prior_std=1",
        "isotonic:tau=1": "isotonic has no settings",
    }.items():
        with pytest.raises(mm.Misuse, match=message):
            fit_calibrator(text, pred, y)
    with pytest.raises(mm.Misuse, match=r"counts of shape \(2,\) for 3 classes: expected one for each class"):
        fit_calibrator("logit_adjustment", pred, y, counts=(1, 2))


def test_a_run_is_adjusted_by_its_training_classes_although_validation_is_balanced() -> None:
    generator = np.random.default_rng(0)
    y = np.arange(600) % 2
    data = mm.open_data((generator.normal(size=(600, 2)) + y[:, None], y), imbalance=10, val=0.3)
    run = mm.fit("mlp", data, members=2, epochs=3, posthoc=mm.PostHocConfig(calibrate="logit_adjustment"))
    counts = data.train.y.bincount()
    assert run.manifest.data["class_counts"] == counts.tolist()
    assert run.posthoc is not None
    calibrator = run.posthoc.calibrator
    assert calibrator.frequencies == pytest.approx((counts / counts.sum()).tolist())
    recall = [
        [(pred.predicted == data.test.y)[data.test.y == k].double().mean().item() for k in range(2)]
        for pred in (run.predict(data.test, calibrated=False), run.predict(data.test))
    ]
    assert recall[1][1] > recall[0][1]  # of the rare class
