"""Post-hoc steps of every preset: saved, loaded and resumed with the same bits, or refused."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import murmuration as mm
from murmuration.data import Data
from murmuration.prediction.posthoc import PostHocConfig
from murmuration.system.errors import Failure, Misuse
from murmuration.training.plan import Plan

PLAN = Plan(epochs=1, batch_size=64, engine="loop", posthoc=PostHocConfig("temperature:prior_std=0.5", 0.8, "aps"))
BOTH = pytest.mark.parametrize("preset", ["single", "deep-ensemble"])  # how members were trained has no say


def same_regions(a: mm.Ensemble, b: mm.Ensemble, data: Data) -> None:
    """Equal bits of predictions, sets and decisions."""
    assert a.posthoc is not None
    assert a.posthoc == b.posthoc
    one, other = a.predict(data.test.x), b.predict(data.test.x)
    assert torch.equal(one.outputs, other.outputs)
    kept, again = (each.posthoc.per_example(pred, data.test.y) for each, pred in ((a, one), (b, other)))
    assert kept.keys() == again.keys()
    for name in kept:
        np.testing.assert_array_equal(kept[name], again[name])


@BOTH
def test_predictions_before_the_calibrator_are_those_without_posthoc(preset, moons: Data, tmp_path: Path):
    with_steps = mm.fit("mlp", moons, recipe=preset, plan=PLAN)
    plain = mm.fit("mlp", moons, recipe=preset, plan=replace(PLAN, posthoc=None))
    raw = with_steps.predict(moons.test.x, calibrated=False)
    assert torch.equal(raw.outputs, plain.predict(moons.test.x).outputs)
    assert plain.posthoc is None
    changed = with_steps.predict(moons.test.x)
    assert not torch.equal(changed.outputs, raw.outputs)
    assert torch.equal(changed.outputs, with_steps.posthoc.calibrated(raw).outputs)
    same_regions(with_steps, plain.fit_posthoc(moons.val, config=PLAN.posthoc), moons)
    with_steps.save(tmp_path / "saved")
    same_regions(with_steps, mm.load(tmp_path / "saved"), moons)


@BOTH
def test_a_killed_run_has_the_posthoc_of_an_undisturbed_one(preset, moons: Data, tmp_path: Path):
    undisturbed = mm.fit("mlp", moons, recipe=preset, plan=PLAN, out=tmp_path / "whole")
    same_regions(undisturbed, mm.load(tmp_path / "whole"), moons)

    def stop(text, done, total, record):
        if done == 10:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        mm.fit("mlp", moons, recipe=preset, plan=PLAN, out=tmp_path / "run", progress=stop, checkpoint_seconds=0)
    assert not (tmp_path / "run" / "posthoc.json").exists()
    same_regions(undisturbed, mm.resume(tmp_path / "run"), moons)
    files = [(tmp_path / name / "posthoc.json").read_bytes() for name in ("whole", "run")]
    assert files[0] == files[1]


def test_a_plan_without_posthoc_has_no_posthoc(moons: Data, tmp_path: Path):
    ensemble = mm.fit("mlp", moons, plan=replace(PLAN, posthoc=None), out=tmp_path / "run")
    assert ensemble.posthoc is None
    assert not (tmp_path / "run" / "posthoc.json").exists()
    assert mm.load(tmp_path / "run").posthoc is None


def test_inputs_may_come_a_few_at_a_time(moons: Data):
    ensemble = mm.fit("mlp", moons, plan=PLAN)
    for calibrated in (True, False):
        parts = [pred.outputs for pred in ensemble.stream(moons.test.x, 64, calibrated=calibrated)]
        whole = ensemble.predict(moons.test.x, calibrated=calibrated).outputs
        torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "fitted"), [(60, False), (400, True)])
def test_too_few_validation_examples_end_no_training(rows, fitted, tmp_path: Path):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((rows, 2)))
    data = mm.open_data((x, (x[:, 0] > 0).long()))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ensemble = mm.fit("mlp", data, plan=PLAN, out=tmp_path / "run")
    assert (ensemble.posthoc is not None) == fitted
    expected = f"not calibrated: {len(data.val)} validation examples, and it takes 20"
    assert any(str(each.message).startswith(expected) for each in said) == (not fitted)
    assert (mm.load(tmp_path / "run").posthoc is not None) == fitted


def test_configs_that_cannot_be_met_are_refused_before_anything_is_made(tmp_path: Path):
    plan = replace(PLAN, posthoc=PostHocConfig("isotonic"))
    with pytest.raises(Misuse, match="unknown calibrator for regression 'isotonic'"):
        mm.fit("mlp", "x-sin-x", plan=plan, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_damaged_posthoc_are_named_by_their_file(moons: Data, tmp_path: Path):
    mm.fit("mlp", moons, plan=PLAN, out=tmp_path / "run")
    file = tmp_path / "run" / "posthoc.json"
    whole = json.loads(file.read_text())
    whole["conformal"][0]["coverage"] = 7
    for text in (file.read_text()[:-50], "[]", json.dumps(whole)):
        file.write_text(text)
        with pytest.raises(Failure) as caught:
            mm.load(tmp_path / "run")
        assert str(caught.value).startswith(str(file))
        assert "\n" not in str(caught.value)


def test_the_config_survives_the_manifest():
    from murmuration.training.plan import plan_from_json

    assert plan_from_json(json.loads(json.dumps(PLAN.to_json()))) == PLAN
    assert plan_from_json({**PLAN.to_json(), "posthoc": None}).posthoc is None
