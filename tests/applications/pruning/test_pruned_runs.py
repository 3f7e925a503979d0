"""Runs pruned into runs: the old one untouched, masks kept for good, and the test split without a say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pruning_factories import PLAN, holds_zeros, masks, population, pruned_run, trained

import murmuration as mm
from murmuration.applications.pruning import Pruning, plan_pruning, prune
from murmuration.applications.pruning.runs import CurvePoint, largest_sparsity, validation_scores
from murmuration.core.recipe import make_recipe
from murmuration.data import Data, Split
from murmuration.evaluation.metrics import Score
from murmuration.runs.directory import read_run

LEVELS = (0.0, 0.5, 0.85, 0.95)
SETTINGS = {"epochs": 2, "batch_size": 64, "posthoc": mm.PostHocConfig()}


@pytest.fixture(autouse=True)
def _few_levels(monkeypatch):
    monkeypatch.setattr("murmuration.applications.pruning.runs.LEVELS", LEVELS)


@pytest.fixture(scope="module")
def home(tmp_path_factory, moons: Data) -> Path:
    """Finished runs on two-moons, which a run can open again by itself."""
    path = tmp_path_factory.mktemp("runs")
    for name in ("deep-ensemble", "bayes", "batch-ensemble"):
        trained(moons, name, out=path / name, **SETTINGS)
    return path


def files(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def same_bits(a: mm.Ensemble, b: mm.Ensemble) -> bool:
    mine, theirs = population(a).to_tensors(), population(b).to_tensors()
    return mine.keys() == theirs.keys() and all(torch.equal(tensor, theirs[key]) for key, tensor in mine.items())


EVERY = pytest.mark.parametrize("name", ["deep-ensemble", "bayes", "batch-ensemble"])


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("finetune", [0, 1])
def test_a_pruned_run_is_a_run_and_the_old_one_is_as_it_was(name, finetune, home: Path, tmp_path: Path, moons: Data):
    before = files(home / name)
    made = pruned_run(home / name, tmp_path / "out", Pruning(sparsity=0.8), finetune=finetune)
    assert files(home / name) == before
    assert holds_zeros(made)
    again = mm.load(tmp_path / "out")
    assert same_bits(again, made)
    assert torch.equal(again.predict(moons.test.x).outputs, made.predict(moons.test.x).outputs)
    assert again.posthoc is not None
    fresh = replace(again, posthoc=None).fit_posthoc(moons.val, config=mm.PostHocConfig())
    assert again.posthoc == fresh.posthoc  # fitted to what is left
    assert again.manifest.entries["pruning"]["reached"] == pytest.approx(0.8, abs=1e-3)
    assert again.manifest.plan["epochs"] == (finetune or 2)
    deeper = pruned_run(tmp_path / "out", tmp_path / "deeper", Pruning(sparsity=0.9), finetune=finetune)
    assert all(bool((masks(deeper)[key] <= mask).all()) for key, mask in masks(made).items())
    assert holds_zeros(deeper)


@pytest.mark.slow
@EVERY
def test_a_killed_fine_tuning_goes_on(name: str, home: Path, tmp_path: Path):
    class Killed(Exception):  # noqa: N818
        pass

    def show(text, done, total, record):
        if done >= 5:
            raise Killed

    found = plan_pruning(home / name, Pruning(sparsity=0.8))
    undisturbed = prune(found, tmp_path / "whole", finetune=2)
    with pytest.raises(Killed):
        prune(found, tmp_path / "run", finetune=2, show=show)
    resumed = mm.resume(tmp_path / "run")
    assert same_bits(resumed, undisturbed)
    assert holds_zeros(resumed)
    assert resumed.manifest.entries["pruning"] == undisturbed.manifest.entries["pruning"]
    assert (
        mm.load(tmp_path / "run").manifest.entries["pruning"]["finetuned"]
        == undisturbed.manifest.entries["pruning"]["finetuned"]
    )


@pytest.mark.slow
def test_fine_tuning_does_not_warm_the_kl_up_again(home: Path, tmp_path: Path):
    """The first of eight epochs counts the whole KL, as the last epoch of training did."""
    made = pruned_run(home / "bayes", tmp_path / "run", Pruning(sparsity=0.5), finetune=8)
    assert made.recipe.weights == replace(mm.load(home / "bayes").recipe.weights, kl_warmup=0.0)
    again = pruned_run(tmp_path / "run", tmp_path / "again", Pruning(sparsity=0.6), finetune=1)
    assert again.recipe.weights == made.recipe.weights


def test_a_run_stopped_before_its_members_were_written_was_never_begun(home: Path, tmp_path: Path, monkeypatch):
    def never(path, progress):
        raise InterruptedError

    monkeypatch.setattr("murmuration.runs.checkpoints.save_checkpoint", never)
    with pytest.raises(mm.Failure, match="cannot write"):
        pruned_run(home / "bayes", tmp_path / "run", Pruning(sparsity=0.8), finetune=1)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_fine_tuning_uses_the_rate_that_is_asked_for(home: Path, tmp_path: Path):
    made = pruned_run(home / "bayes", tmp_path / "run", Pruning(sparsity=0.5), finetune=1, lr=1e-9)
    still = pruned_run(home / "bayes", tmp_path / "still", Pruning(sparsity=0.5))
    assert made.manifest.plan["lr"] == 1e-9
    assert pruned_run(home / "bayes", tmp_path / "usual", Pruning(sparsity=0.5), finetune=1).manifest.plan["lr"] == 0.01
    for key, tensor in population(still).own.items():
        torch.testing.assert_close(population(made).own[key], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@EVERY
def test_the_record_says_what_the_run_is(name: str, home: Path, tmp_path: Path, moons: Data):
    made = pruned_run(home / name, tmp_path / "run", Pruning(sparsity=0.85), finetune=1)
    record = json.loads(json.dumps(read_run(tmp_path / "run").entries["pruning"]))
    assert record == json.loads(json.dumps(made.manifest.entries["pruning"]))
    assert [point["asked"] for point in record["curve"]] == list(LEVELS)
    at = record["curve"][LEVELS.index(0.85)]
    assert {key: at[key] for key in ("accuracy", "nll")} == record["pruned"]
    assert record["curve"][0]["accuracy"]["value"] == float(
        validation_scores(mm.load(home / name), moons.val)["accuracy"]
    )
    assert record["finetuned"]["nll"]["value"] == float(
        validation_scores(replace(made, posthoc=None), moons.val)["nll"]
    )
    assert all(a["nonzero"] >= b["nonzero"] for a, b in zip(record["curve"], record["curve"][1:], strict=False))
    assert (record["rule"], record["scope"], record["chosen"]) == ("magnitude", "global", False)


def curve(*accuracies: float) -> list[CurvePoint]:
    pairs = zip(LEVELS, accuracies, strict=False)
    return [CurvePoint(level, level, 1, {"accuracy": Score(a, a, a), "nll": Score(1.0, 1, 1)}) for level, a in pairs]


def test_the_farthest_level_comes_before_the_first_that_loses_too_much():
    assert largest_sparsity(curve(0.9, 0.91, 0.895, 0.89, 0.95), 0.005) == LEVELS[2]  # luck further out does not count
    assert largest_sparsity(curve(0.9, 0.89), 0.001) == 0.0
    assert largest_sparsity(curve(0.9, 0.9, 0.9), 0.0) == LEVELS[2]
    rising = [CurvePoint(s, s, 1, {"rmse": Score(r, r, r)}) for s, r in ((0.0, 2.0), (0.5, 2.1), (0.9, 3.0))]
    assert largest_sparsity(rising, 0.06) == 0.5
    assert largest_sparsity(rising, 0.04) == 0.0
    with pytest.raises(mm.Misuse, match="tolerance=-1"):
        largest_sparsity(rising, -1)


def test_validation_chooses_and_the_test_split_has_no_say(home: Path, monkeypatch, moons: Data):
    found = plan_pruning(home / "deep-ensemble", tolerance=0.02)
    assert found.chosen
    assert found.pruning.sparsity == largest_sparsity(found.curve, 0.02)
    poisoned = replace(moons, test=Split(torch.full_like(moons.test.prepared, torch.nan), moons.test.y[:0]))
    monkeypatch.setattr("murmuration.training.fitting.reopen", lambda manifest, data, *rest: poisoned)
    blind = plan_pruning(home / "deep-ensemble", tolerance=0.02)
    assert blind.pruning == found.pruning
    assert [point.to_json() for point in blind.curve] == [point.to_json() for point in found.curve]
    deaf = replace(moons, val=Split(moons.val.prepared[:0], moons.val.y[:0]))
    monkeypatch.setattr("murmuration.training.fitting.reopen", lambda manifest, data, *rest: deaf)
    with pytest.raises(mm.Misuse, match="no validation examples to choose"):
        plan_pruning(home / "deep-ensemble")
    assert plan_pruning(home / "deep-ensemble", Pruning(sparsity=0.5)).curve == []


def test_log_alpha_has_a_usual_threshold(home: Path):
    found = plan_pruning(home / "bayes", Pruning("log-alpha"))
    assert (found.pruning.threshold, found.chosen) == (3.0, False)


def test_numbers_are_pruned_too(tmp_path: Path):
    trained(mm.open_data("x-sin-x"), make_recipe("bayes"), out=tmp_path / "run", epochs=1)
    made = pruned_run(tmp_path / "run", tmp_path / "out", Pruning("snr", sparsity=0.5), finetune=1)
    assert set(made.manifest.entries["pruning"]["pruned"]) == {"rmse", "nll"}
    assert holds_zeros(made)


def test_nets_and_data_of_the_caller_s_own(tmp_path: Path, digits: Data, normalised_net):
    """Batch-norm statistics of the old run do not move with the new one."""
    data = (digits.train.prepared[:160], digits.train.y[:160])
    mm.fit(normalised_net, data, plan=PLAN, out=tmp_path / "run")
    found = plan_pruning(tmp_path / "run", Pruning(sparsity=0.5), net=normalised_net, data=data)
    before = {name: tensor.clone() for name, tensor in found.ensemble.groups[0].population.to_tensors().items()}
    made = prune(found, tmp_path / "out", finetune=1)
    assert holds_zeros(made)
    assert not torch.equal(population(made).buffers["norm.running_mean"], before["buffers/norm.running_mean"])
    after = found.ensemble.groups[0].population.to_tensors()
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())
    assert same_bits(mm.load(tmp_path / "out", net=normalised_net), made)


REFUSED = [({"finetune": -1}, "finetune=-1"), ({"lr": 0.1}, "without finetune"), ({"compact": True}, "add structured")]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=lambda each: str(each)[:20])
def test_what_cannot_be_is_refused_before_anything_is_written(given, words: str, home: Path, tmp_path: Path):
    with pytest.raises(mm.Misuse, match=words):
        pruned_run(home / "bayes", tmp_path / "out", Pruning(sparsity=0.5), **given)
    assert not (tmp_path / "out").exists()


def test_a_frozen_body_is_pruned_and_not_fine_tuned(home: Path, tmp_path: Path, moons: Data):
    chosen = make_recipe("last-layer-ensemble", sharing=f"backbone:frozen={home / 'deep-ensemble'}")
    trained(moons, chosen, out=tmp_path / "run")
    assert holds_zeros(pruned_run(tmp_path / "run", tmp_path / "out", Pruning(sparsity=0.5)))
    with pytest.raises(mm.Misuse, match="frozen backbone"):
        pruned_run(tmp_path / "run", tmp_path / "tuned", Pruning(sparsity=0.5), finetune=1)
