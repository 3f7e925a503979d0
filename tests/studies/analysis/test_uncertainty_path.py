"""Uncertainty along training: the whole state of every checkpoint is read, and the last one is the run itself."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import murmuration as mm
from murmuration.core.weights.gaussian import STD_PARAM
from murmuration.studies import open_trajectory, uncertainty_path
from murmuration.studies.uncertainty import UncertaintyPath, fall_verdicts, uncertainties
from murmuration.system.errors import Misuse


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("uncertainty") / "run"
    mm.fit("mlp", "two-moons", recipe="bayes", epochs=3, trajectory="every-epoch", seed=0, out=path)
    return path


def test_the_last_checkpoint_is_the_run(run):
    ensemble, trajectory = mm.load(run, posthoc=False), open_trajectory(run)
    assert trajectory.ensemble_at is not None
    last = trajectory.ensemble_at(trajectory.steps[-1]).groups[0].population.own
    own = ensemble.groups[0].population.own
    assert any(name.endswith(STD_PARAM) for name in own)
    assert last.keys() == own.keys()
    assert all(torch.equal(last[name], own[name]) for name in own)


def test_the_path_holds_what_predictions_of_the_run_say(run):
    ensemble, data = mm.load(run, posthoc=False), mm.open_data("two-moons")
    path = uncertainty_path(ensemble, open_trajectory(run), data.test, train=data.train, draws=5)
    assert path.epoch.tolist() == [0, 1, 2, 3]
    predictive = ensemble.predict(data.test.prepared, draws=5, calibrated=False, prepared=True)
    found = uncertainties(predictive)
    assert path.aleatoric[-1] == pytest.approx(float(found["aleatoric"].mean()), rel=1e-6)
    assert path.epistemic[-1] == pytest.approx(float(found["epistemic"].mean()), rel=1e-6)
    assert path.test_score[-1] == pytest.approx(float(mm.score(predictive, data.test.y)["accuracy"]), abs=1e-6)
    assert path.nll[-1] == pytest.approx(float(mm.score(predictive, data.test.y)["nll"]), rel=1e-6)
    assert np.isfinite(path.kl).all()
    assert (path.median_std > 0).all()


def test_pieces_are_continued(run, tmp_path, monkeypatch):
    ensemble, data = mm.load(run, posthoc=False), mm.open_data("two-moons")
    options = {"train": data.train, "draws": 2, "folder": tmp_path / "pieces"}
    first = uncertainty_path(ensemble, open_trajectory(run), data.test, **options)
    monkeypatch.setattr("murmuration.studies.uncertainty.checkpoint", lambda *arguments: 1 / 0)
    again = uncertainty_path(ensemble, open_trajectory(run), data.test, **options)
    assert again.frame().equals(first.frame())


def test_uncertainty_is_the_trace_of_covariances():
    probs = torch.softmax(torch.randn(6, 8, 4, dtype=torch.float64), -1)
    predictive = mm.Predictive.from_probs(probs)
    found = uncertainties(predictive)
    assert torch.allclose(found["aleatoric"], predictive.aleatoric_covariance.diagonal(dim1=1, dim2=2).sum(1))
    total = predictive.total_covariance.diagonal(dim1=1, dim2=2).sum(1)
    assert torch.allclose(found["aleatoric"] + found["epistemic"], total)


def made(change: float) -> UncertaintyPath:
    rng, three = np.random.default_rng(0), np.zeros(3)
    ends = {kind: np.stack([three0 := rng.random(500), three0 + change]) for kind in ("aleatoric", "epistemic")}
    return UncertaintyPath(three, "accuracy", np.array([0.1, 0.5, 0.9]), *[three] * 7, ends)


def test_verdicts_follow_the_change():
    assert fall_verdicts([made(-0.1), made(-0.2), made(-0.15)])[0].word == "holds"
    assert fall_verdicts([made(0.1), made(0.2), made(0.15)])[0].word == "does not hold"
    noisy = made(0.0)
    noisy = replace(noisy, ends={k: v + np.random.default_rng(1).normal(0, 1, v.shape) for k, v in noisy.ends.items()})
    assert fall_verdicts([noisy])[0].word == "cannot tell"


def test_a_run_without_trajectory_or_draws_is_refused(run):
    ensemble, data = mm.load(run, posthoc=False), mm.open_data("two-moons")
    with pytest.raises(Misuse, match="--trajectory every-epoch"):
        uncertainty_path(ensemble, None, data.test, train=data.train)
