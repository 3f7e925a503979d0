"""A calibrator of your own: one number that moves the logit of the second of two classes.

A calibrator is a frozen dataclass whose fields are the fitted numbers, and a row of `CALIBRATORS`. Training then fits
it on validation examples, keeps it if it helps held-out ones, and stores it with the run; a program that loads the run
registers it first.

    python examples/own_calibrator.py
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

import murmuration as mm
from murmuration.prediction.posthoc import CALIBRATORS
from murmuration.prediction.posthoc.calibration import CalibrationMethod
from murmuration.prediction.posthoc.calibrator import Calibrator


@dataclass(frozen=True)
class Shifted(Calibrator):
    """The logit of class 1 plus a number."""

    shift: float
    name: ClassVar[str] = "shifted"
    valid: ClassVar[tuple[float, float]] = (-10.0, 10.0)  # range of the fields; 1e-9 to 1e9 if left out

    @property
    def about(self) -> str:
        return f"logit of class 1 plus {self.shift:.3g}"

    def __call__(self, pred: mm.Predictive) -> mm.Predictive:
        return pred if self.shift == 0 else pred.with_logits(pred.logits + torch.tensor([0.0, self.shift]))

    @classmethod
    def identity(cls, pred: mm.Predictive) -> "Shifted":
        return cls(0.0)


def fit_shift(pred: mm.Predictive, y: Tensor) -> Shifted:
    """The shift of highest likelihood on a grid."""
    grid = [Shifted(k / 10) for k in range(-50, 51)]
    return max(grid, key=lambda calibrator: calibrator(pred).log_prob(y).mean().item())


ROW = CalibrationMethod("shift of a logit", {"classification": (Shifted, fit_shift)}, settings=())


def main(quick: bool = False) -> dict[str, float]:
    """The NLL with the second class weighted ten times in training, without and with the shift, about -log 10."""
    CALIBRATORS["shifted"] = ROW
    try:
        generator = torch.Generator().manual_seed(0)
        labels = torch.arange(2000) % 2
        inputs = torch.randn(2000, 2, generator=generator) + labels.unsqueeze(1)  # two classes that overlap
        data = mm.open_data((inputs, labels))
        loss, config = mm.Categorical(2, class_weight=(1.0, 10.0)), mm.PostHocConfig(calibrate="shifted")
        ensemble = mm.fit("mlp", data, members=2 if quick else 5, epochs=10, likelihood=loss, posthoc=config)
        x, y = data.test.x, data.test.y
        plain, shifted = (float(mm.score(ensemble.predict(x, calibrated=on), y)["nll"]) for on in (False, True))
        print(f"{ensemble.posthoc.calibrator.about}: NLL {plain:.3f} -> {shifted:.3f}")
        return {"plain": plain, "shifted": shifted, "shift": ensemble.posthoc.calibrator.shift}
    finally:
        del CALIBRATORS["shifted"]  # a program would keep it; a test should leave nothing behind


if __name__ == "__main__":
    main()
