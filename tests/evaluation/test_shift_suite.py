"""Which corruptions of which examples: official arrays as they are, and requests that make no sense."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.data import Split
from murmuration.data.preparation import fit_images
from murmuration.evaluation import EvalSet, ShiftSuite, evaluate_shift
from murmuration.prediction.ensemble import Ensemble
from murmuration.system.errors import Misuse


@pytest.mark.parametrize("each", [12, 30])
def test_official_arrays_are_scored_as_they_are(tmp_path: Path, each):
    """As many images as the evaluation set has, or another number."""
    rng = np.random.default_rng(0)
    pixels = {name: rng.integers(0, 256, (5 * each, 6, 6, 3)).astype(np.uint8) for name in ("fog", "frost")}
    labels = np.tile(rng.integers(0, 3, each), 5)
    for name, values in {**pixels, "labels": labels}.items():
        np.save(tmp_path / f"{name}.npy", values)
    preparation = fit_images(pixels["fog"], 255.0, "standardise")
    split = Split(preparation.apply(pixels["fog"][:12]), torch.from_numpy(labels[:12]))
    eval_set = EvalSet("six", "classification", split, ("a", "b", "c"), preparation)
    ensemble = Ensemble.from_models([nn.Sequential(nn.Flatten(), nn.Linear(108, 3)) for _ in range(2)])
    found = evaluate_shift(ensemble, eval_set, ShiftSuite(("frost", "fog"), (1, 4), official=str(tmp_path)))
    for cell in found.cells:
        rows = slice((cell.severity - 1) * each, cell.severity * each)
        alone = mm.score(
            ensemble.predict(preparation.apply(pixels[cell.corruption][rows]), prepared=True), labels[rows]
        )
        for name, score in cell.scores.items():
            assert float(score) == pytest.approx(float(alone[name]), rel=1e-9)
    assert found.examples == each
    assert found.to_json()["source"] == str(tmp_path)
    ten = evaluate_shift(ensemble, eval_set, ShiftSuite(("fog",), (2,), examples=10, official=str(tmp_path)))
    rows = slice(each, each + 10)
    alone = mm.score(ensemble.predict(preparation.apply(pixels["fog"][rows]), prepared=True), labels[rows])
    assert float(ten.pooled["nll"]) == pytest.approx(float(alone["nll"]), rel=1e-9)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"names": ()}, r"corruptions \[\]: expected one or more names, each once"),
        ({"names": ("fog", "fog")}, r"corruptions \['fog', 'fog'\]: expected"),
        ({"severities": ()}, "no severity given"),
        ({"severities": (0,)}, "severity 0: expected an integer from 1 to 5"),
        ({"severities": (1, 1)}, r"severities \[1, 1\]: expected each once"),
        ({"examples": 0}, "examples=0: expected at least 1"),
        ({"examples": -5}, "examples=-5: expected at least 1"),
    ],
)
def test_what_cannot_be_tried_is_refused(fields, message):
    with pytest.raises(Misuse, match=message):
        ShiftSuite(**{"names": ("fog",), **fields})
