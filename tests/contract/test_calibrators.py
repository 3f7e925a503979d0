"""A calibrator of the user: one class and one row of `CALIBRATORS` suffice, from the choice to an exported module."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

import murmuration as mm
from murmuration.data import Data
from murmuration.prediction.posthoc import CALIBRATORS, choose_calibrator, to_json
from murmuration.prediction.posthoc.calibration import CalibrationMethod
from murmuration.prediction.posthoc.calibrator import Calibrator
from murmuration.prediction.posthoc.fit import posthoc_from_json
from murmuration.prediction.predictive import Predictive


@dataclass(frozen=True)
class Softened(Calibrator):
    """Logits multiplied by a factor from a short list."""

    factor: float
    name: ClassVar[str] = "softened"

    @property
    def about(self) -> str:
        return f"logits times {self.factor:g}"

    def __call__(self, pred: Predictive) -> Predictive:
        return pred if self.factor == 1 else pred.with_logits(pred.logits * self.factor)

    @classmethod
    def identity(cls, pred: Predictive) -> "Softened":
        return cls(1.0)


@dataclass(frozen=True)
class Widened(Calibrator):
    """The noise of a regression multiplied by a factor from a short list."""

    factor: float
    name: ClassVar[str] = "softened"
    task: ClassVar[str] = "regression"

    @property
    def about(self) -> str:
        return f"noise times {self.factor:g}"

    def __call__(self, pred: Predictive) -> Predictive:
        return Predictive.from_moments(pred.member_mean, self.factor * pred.member_var.sqrt(), pred.weights)

    @classmethod
    def identity(cls, pred: Predictive) -> "Widened":
        return cls(1.0)


@dataclass(frozen=True)
class SoftenedLabels(Softened):
    """The same for several labels per input."""

    task: ClassVar[str] = "multi-label"


def smallest_loss(kind):
    """Return a fit function: the factor with the smallest loss on the fitting examples."""

    def fit(pred: Predictive, y: torch.Tensor) -> Calibrator:
        return min((kind(factor) for factor in (1.0, 0.5, 0.1, 3.0)), key=lambda c: -c(pred).log_prob(y).mean().item())

    return fit


@pytest.fixture
def softened(monkeypatch):
    kinds = (Softened, Widened, SoftenedLabels)
    row = CalibrationMethod("logits times a factor", {kind.task: (kind, smallest_loss(kind)) for kind in kinds}, ())
    monkeypatch.setitem(CALIBRATORS, "softened", row)


@pytest.fixture
def overconfident(moons: Data) -> mm.Ensemble:
    """Two networks whose logits are random and large: any loss falls when they are softened."""
    torch.manual_seed(0)
    nets = [torch.nn.Linear(2, 2) for _ in range(2)]
    for net in nets:
        torch.nn.init.normal_(net.weight, std=20.0)
    return mm.Ensemble.from_models(nets)


def test_it_is_chosen_saved_loaded_and_exported(softened, overconfident: mm.Ensemble, moons: Data, tmp_path: Path):
    x, y = moons.val.prepared, moons.val.y
    ensemble = overconfident.fit_posthoc(x, y, config=mm.PostHocConfig(calibrate="softened"))
    posthoc = ensemble.posthoc
    assert isinstance(posthoc.calibrator, Softened)
    assert posthoc.calibrator.factor < 1
    assert posthoc.choice.kept
    plain, calibrated = ensemble.predict(x, calibrated=False), ensemble.predict(x)
    assert torch.equal(calibrated.logits, plain.logits * posthoc.calibrator.factor)

    assert posthoc_from_json(json.loads(json.dumps(to_json(posthoc)))) == posthoc
    ensemble.save(tmp_path / "run")
    loaded = mm.load(tmp_path / "run", net=[torch.nn.Linear(2, 2)])
    assert loaded.posthoc == posthoc
    assert torch.equal(loaded.predict(x).outputs, calibrated.outputs)

    module = ensemble.as_module()
    torch.testing.assert_close(module(x)["mean"], calibrated.mean.float())
    exported = torch.export.export(module, (x,)).module()
    torch.testing.assert_close(exported(x)["mean"], calibrated.mean.float())


def test_a_number_outside_of_its_range_names_where_the_range_is_set():
    with pytest.raises(mm.Misuse, match=r"factor is -2.0, expected a number from 1e-09 to 1e\+09 \(Softened.valid\)"):
        Softened(-2.0)


def test_training_fits_it_by_name(softened, moons: Data, tmp_path: Path):
    config = mm.PostHocConfig(calibrate="softened")
    ensemble = mm.fit("mlp", moons, members=2, epochs=1, posthoc=config, out=tmp_path / "run")
    assert isinstance(ensemble.posthoc.calibrator, Softened)
    assert mm.load(tmp_path / "run").posthoc == ensemble.posthoc


@pytest.mark.parametrize("name", list(CALIBRATORS))
def test_the_identity_of_every_calibrator_changes_nothing(name):
    torch.manual_seed(0)
    outputs = torch.randn(3, 5, 4, dtype=torch.float64)
    predictives = {
        "classification": Predictive(outputs, mm.Categorical(4)),
        "multi-label": Predictive(outputs, mm.MultiLabel(4)),
        "regression": Predictive.from_moments(outputs, outputs.abs() + 0.1),
    }
    for task, (kind, _) in CALIBRATORS[name].fits.items():
        assert kind.identity(predictives[task])(predictives[task]) is predictives[task]


def test_without_a_gain_its_identity_is_applied(softened):
    torch.manual_seed(0)
    labels = torch.arange(60) % 2
    certain = Predictive.from_probs(torch.full((60, 2), 0.5))
    assert choose_calibrator("softened", certain, labels)[0] == Softened(1.0)


def test_regressions_and_labels_have_their_own_class(softened):
    torch.manual_seed(0)
    narrow = Predictive.from_moments(torch.zeros(2, 80, 1), 0.3)
    assert choose_calibrator("softened", narrow, torch.randn(80, 1))[0] == Widened(3.0)
    sure = Predictive(20 * torch.randn(2, 80, 3), mm.MultiLabel(3))
    calibrator, choice = choose_calibrator("softened", sure, torch.randint(2, (80, 3)))
    assert calibrator == SoftenedLabels(0.1)
    assert choice.kept
