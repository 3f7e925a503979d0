"""Lengthscales that validation examples choose: once each, never by the test split, and on the record."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import murmuration as mm
from murmuration.core.coupling import input_gradients
from murmuration.core.engines import assemble, engine, member_outputs
from murmuration.core.recipe import make_recipe
from murmuration.core.weights import POINT
from murmuration.data import Data
from murmuration.system.files import read_record
from murmuration.training import TrainSpec, run as training_run, tuning
from murmuration.training.plan import Plan

PLAN = Plan(members=2, epochs=1, batch_size=128, engine="loop", lr=3e-3)
GRID = (0.0, 0.4, 1.0)


@pytest.fixture(autouse=True)
def _three_alphas(monkeypatch):
    monkeypatch.setattr(input_gradients, "ALPHAS", GRID)
    monkeypatch.setattr(tuning, "SEVERITIES", (3,))


def alpha_of(spec: TrainSpec) -> float | str:
    """The alpha of the coupling that is trained with."""
    assert spec.recipe.coupling is not None
    space = spec.recipe.coupling.space
    assert isinstance(space, input_gradients.InputGradientSpace)
    return space.alpha


@pytest.fixture
def tried(monkeypatch) -> list[float | str]:
    """The alphas that were trained with, in order."""
    seen: list[float | str] = []
    real = {"tuning": tuning.train, "run": training_run.train}

    def noting(kind):
        def train(spec, *others):
            seen.append(alpha_of(spec))
            return real[kind](spec, *others)

        return train

    monkeypatch.setattr(tuning, "train", noting("tuning"))
    monkeypatch.setattr(training_run, "train", noting("run"))
    return seen


def fit(data: Data, coupling: str = "input-gradients:lengthscales=tuned", **others) -> mm.Ensemble:
    return mm.fit("mlp", data, recipe=make_recipe("forde-tuned", coupling=coupling), plan=PLAN, **others)


def bits(ensemble: mm.Ensemble) -> dict[str, torch.Tensor]:
    return ensemble.groups[0].population.to_tensors()


def same(a: mm.Ensemble, b: mm.Ensemble) -> bool:
    return all(torch.equal(bits(b)[name], tensor) for name, tensor in bits(a).items())


def test_the_lowest_score_wins(digits: Data, monkeypatch, tried):
    """Scores are made up: the middle one is best, and the ensemble is the one trained with it."""
    made_up = {0.0: 0.5, 0.4: 0.3, 1.0: math.inf}
    monkeypatch.setattr(tuning, "validation_nll", lambda spec, *others: made_up[alpha_of(spec)])
    ensemble = fit(digits, posthoc=None)
    assert tried == [*GRID, 0.4]
    assert ensemble.manifest.chosen == "0.4"
    assert ensemble.manifest.sweep == {"0": 0.5, "0.4": 0.3, "1": math.inf}
    tried.clear()
    explicit = fit(digits, "input-gradients:lengthscales=tuned,alpha=0.4", posthoc=None)
    assert tried == [0.4]  # once, with the alpha of its settings
    assert not explicit.manifest.sweep
    assert same(explicit, ensemble)


def test_scores_are_means_over_clean_and_corrupted_validation_examples(digits: Data):
    ensemble = fit(digits, posthoc=None)
    found = ensemble.manifest.sweep
    assert list(found) == ["0", "0.4", "1"]
    assert ensemble.manifest.chosen == min(found, key=found.get)
    exams = tuning.validation_inputs(digits)
    assert len(exams) == 4  # clean, speckle noise, blur, spatter; grey pictures have no colour to saturate
    assert torch.equal(exams[0], digits.val.prepared)
    chosen = ensemble.groups[0]
    with assemble(engine("loop"), chosen.module) as team:
        losses = []
        for x in exams:
            outputs = member_outputs(team, POINT, chosen.population, x)
            probs = outputs.softmax(-1).mean(0)[torch.arange(len(x)), digits.val.y]
            losses.append(-probs.log().mean().item())
    assert found[ensemble.manifest.chosen] == pytest.approx(sum(losses) / 4, rel=1e-5)


def test_the_test_split_is_never_looked_at(digits: Data):
    """With NaN in its place nothing changes."""
    poison = mm.Split(torch.full_like(digits.test.prepared, torch.nan), torch.full_like(digits.test.y, -1))
    clean, poisoned = fit(digits, posthoc=None), fit(replace(digits, test=poison), posthoc=None)
    assert clean.manifest.sweep == poisoned.manifest.sweep
    assert same(clean, poisoned)


def test_a_killed_sweep_goes_on_where_it_was(digits: Data, tmp_path: Path, tried):
    undisturbed = fit(digits, posthoc=None)
    tried.clear()

    def stop(text, done, total, record):
        if text.startswith("trying 1,"):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fit(digits, out=tmp_path / "run", progress=stop, posthoc=None)
    assert tried == [0.0, 0.4]
    stored = read_record(tmp_path / "run" / "sweep.json")
    assert stored == {key: undisturbed.manifest.sweep[key] for key in ("0", "0.4")}
    tried.clear()
    resumed = mm.resume(tmp_path / "run")
    assert tried == [1.0, float(resumed.manifest.chosen)]
    assert resumed.manifest.sweep == undisturbed.manifest.sweep
    assert same(resumed, undisturbed)
    written = json.loads((tmp_path / "run" / "run.json").read_text())
    assert written["sweep"] == undisturbed.manifest.sweep
    assert written["chosen"] == undisturbed.manifest.chosen
    again = mm.load(tmp_path / "run")
    assert again.manifest.chosen == written["chosen"]


def test_a_run_killed_after_its_sweep_does_not_repeat_it(digits: Data, tmp_path: Path, tried):
    def stop(text, done, total, record):
        if done == 5:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fit(digits, out=tmp_path / "run", progress=stop, checkpoint_seconds=0, posthoc=None)
    assert len(tried) == 4
    tried.clear()
    resumed = mm.resume(tmp_path / "run")
    assert tried == [float(resumed.manifest.chosen)]
    assert same(resumed, fit(digits, posthoc=None))


def test_one_member_has_nothing_to_choose(digits: Data, tried):
    ensemble = mm.fit("mlp", digits, recipe="forde-tuned", plan=replace(PLAN, members=1), posthoc=None)
    assert tried == ["auto"]
    assert ensemble.manifest.chosen is None


def test_an_alpha_under_which_all_members_diverge_is_not_chosen(digits: Data, monkeypatch):
    """The score of the first candidate is infinite, and the others are tried."""
    real = tuning.train

    def train(spec, *others):
        population = real(spec, *others)
        return population.take(torch.tensor([], dtype=torch.int64)) if alpha_of(spec) == 0.0 else population

    monkeypatch.setattr(tuning, "train", train)
    ensemble = fit(digits, posthoc=None)
    assert ensemble.manifest.sweep["0"] == math.inf
    assert ensemble.manifest.chosen in ("0.4", "1")


def test_inputs_without_corruptions_are_judged_as_they_are():
    x = torch.randn(60, 2, 5, 5, generator=torch.Generator().manual_seed(0))  # two channels: neither grey nor colour
    data = mm.open_data((x, (x.mean((1, 2, 3)) > 0).long()))
    exams = tuning.validation_inputs(data)
    assert len(exams) == 1
    assert torch.equal(exams[0], data.val.prepared)
