"""Members added to a run, dropped from it, and merged: the bits of a single run, or a refusal in one line."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import murmuration as mm
from murmuration.runs.directory import read_run
from murmuration.training.membership import by_turns, joined_history, read_members
from murmuration.training.plan import plan_from_json

SETTINGS = {"epochs": 2, "batch_size": 128, "seed": 3, "progress": False}


def tensors_of(ensemble: mm.Ensemble) -> dict[str, torch.Tensor]:
    return ensemble.groups[0].population.to_tensors()


def assert_same_members(mine: mm.Ensemble, other: mm.Ensemble, rows: slice = slice(None)) -> None:
    left, right = tensors_of(mine), tensors_of(other)
    assert set(left) == set(right)
    for name, tensor in left.items():
        assert torch.equal(tensor[rows], right[name][rows]), name


def without_ensemble(history: list[dict]) -> list[dict]:
    return [{key: value for key, value in record.items() if key != "ensemble"} for record in history]


CASES = [
    ("mlp", "deep-ensemble", 2, 1, {}),  # a stack of one is rounded otherwise
    ("mlp", "deep-ensemble", 2, 3, {"patience": 1, "lr": 0.05, "epochs": 4}),
    ("mlp", "packed", 2, 2, {}),
    ("mlp:dropout=0.2", "mc-dropout", 2, 2, {}),
    ("mlp", "multi-swag", 2, 1, {}),
    ("mlp", "csgmcmc", 2, 2, {"epochs": 8}),
    ("small-cnn", "swa", 1, 2, {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("net", "recipe", "members", "more", "settings"), CASES)
def test_added_members_are_those_of_one_larger_run(net, recipe, members, more, settings, tmp_path: Path):
    chosen = {**SETTINGS, "recipe": recipe, **settings}
    mm.fit(net, "digits", members=members, out=tmp_path / "run", **chosen)
    before = {file: file.read_bytes() for file in (tmp_path / "run").iterdir()}
    whole = mm.fit(net, "digits", members=members + more, **chosen)
    found = mm.add_members(tmp_path / "run", more, out=tmp_path / "more")
    assert_same_members(found, whole)
    assert found.manifest.origins == whole.manifest.origins
    assert plan_from_json(found.manifest.plan) == plan_from_json(whole.manifest.plan)
    assert found.history == without_ensemble(whole.history)
    assert found.posthoc == whole.posthoc
    assert {file: file.read_bytes() for file in (tmp_path / "run").iterdir()} == before
    again = mm.load(tmp_path / "more")
    data = mm.open_data("digits")
    assert torch.equal(again.predict(data.test.x).outputs, whole.predict(data.test.x).outputs)


def test_members_added_to_one_of_a_dense_network_are_those_of_a_larger_run(tmp_path: Path):
    """The first was alone and ran by the loop, which rounds otherwise than a stack; the others are exact."""
    mm.fit("mlp", "digits", recipe="single", out=tmp_path / "run", **SETTINGS)
    whole = mm.fit("mlp", "digits", members=3, **SETTINGS)
    found = mm.add_members(tmp_path / "run", 2, out=tmp_path / "more")
    assert_same_members(found, whole, slice(1, None))
    for name, tensor in tensors_of(found).items():
        assert torch.allclose(tensor[0], tensors_of(whole)[name][0], atol=1e-3)
    assert found.recipe == mm.make_recipe("deep-ensemble")


def test_merged_single_members_are_one_run_and_dropped_ones_are_gone(tmp_path: Path):
    parts = [tmp_path / f"part-{number}" for number in range(3)]
    for number, path in enumerate(parts):
        mm.fit("small-cnn", "digits", members=1, first_member=number, out=path, **SETTINGS)
    whole = mm.fit("small-cnn", "digits", members=3, **SETTINGS)
    found = mm.merge_runs(parts, out=tmp_path / "whole")
    assert_same_members(found, whole)
    assert found.posthoc == whole.posthoc
    assert found.manifest.merged["runs"] == [str(path) for path in parts]
    assert found.manifest.streams is None  # they are those of the plan
    fewer = mm.drop_members(tmp_path / "whole", [0], out=tmp_path / "fewer")
    again = mm.merge_runs(parts[1:], out=tmp_path / "again")
    assert_same_members(fewer, again)
    assert fewer.history == again.history
    assert len(fewer.history[0]["val_nll"]) == fewer.members == 2
    assert read_members(tmp_path / "fewer").streams == [(3, 1), (3, 2)]
    more = mm.add_members(tmp_path / "fewer", 1, out=tmp_path / "one-more")
    assert read_members(tmp_path / "one-more").streams == [(3, 1), (3, 2), (3, 3)]
    assert more.members == 3


def test_merge_refuses_what_differs_by_its_name(tmp_path: Path):
    small = {**SETTINGS, "epochs": 1, "members": 1}
    made = {
        "a": ("mlp", "two-moons", {}),
        "data": ("mlp", "x-sin-x", {}),
        "network": ("mlp:hidden=16x1", "two-moons", {"seed": 4}),
        "recipe": ("mlp", "two-moons", {"recipe": "swa", "seed": 4}),
        "preparation": ("mlp", "two-moons", {"prepare": "robust", "seed": 4}),
        "epochs": ("mlp", "two-moons", {"epochs": 2, "seed": 5}),
    }
    for name, (net, data, more) in made.items():
        mm.fit(net, data, out=tmp_path / name, **{**small, **more})
    for name in ("data", "network", "recipe", "preparation"):
        with pytest.raises(mm.Misuse, match=f"another .*{name}"):
            mm.merge_runs([tmp_path / "a", tmp_path / name], out=tmp_path / "out")
    with pytest.raises(mm.Misuse, match="both hold the member of seed 3 and number 0"):
        mm.merge_runs([tmp_path / "a", tmp_path / "a"], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.warns(UserWarning, match="different epochs: 1, 2"):
        mm.merge_runs([tmp_path / "a", tmp_path / "epochs"], out=tmp_path / "both")
    assert read_members(tmp_path / "both").streams == [(3, 0), (5, 0)]
    with pytest.raises(mm.Misuse, match=r"different settings \(epochs\)"):
        mm.add_members(tmp_path / "both", 1, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("recipe", "settings", "words"),
    [
        ("function-rde", {}, "repel each other during training"),
        ("batch-ensemble", {}, "share trained tensors"),
        ("deep-ensemble", {"batch_order": "split"}, "split the batches"),
        ("deep-ensemble", {"patience": 1, "stop_by": "ensemble"}, "stopped together"),
        ("deep-ensemble", {"same": "noise"}, "random streams in common"),
    ],
)
def test_members_that_depend_on_each_other_are_refused_by_the_reason(recipe, settings, words, tmp_path: Path):
    chosen = {**SETTINGS, "epochs": 1, "members": 2, "recipe": recipe, **settings}
    mm.fit("mlp", "two-moons", out=tmp_path / "run", **chosen)
    with pytest.raises(mm.Misuse, match=words):
        mm.add_members(tmp_path / "run", 1, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_numbers_of_members_to_drop_are_checked(tmp_path: Path):
    mm.fit("mlp", "two-moons", members=2, out=tmp_path / "run", **SETTINGS)
    for numbers, words in (
        ([2], "0 to 1"),
        ([0, 0], "twice"),
        ([0, 1], "not all"),
        ([], "give some"),
        ([-1], "at least"),
    ):
        with pytest.raises(mm.Misuse, match=words):
            mm.drop_members(tmp_path / "run", numbers, out=tmp_path / "out")


KILLED = """
import os, signal, sys
import murmuration as mm

def show(text, done, total, record):
    if done == 20:
        os.kill(os.getpid(), signal.SIGKILL)

mm.add_members(sys.argv[1], 1, out=sys.argv[2], checkpoint_seconds=0, show=show)
"""


@pytest.mark.slow
def test_a_killed_addition_leaves_the_run_and_goes_on(tmp_path: Path):
    run, out = tmp_path / "run", tmp_path / "more"
    mm.fit("small-cnn", "digits", members=1, out=run, **SETTINGS)
    before = {file: file.read_bytes() for file in run.iterdir()}
    done = subprocess.run([sys.executable, "-c", KILLED, str(run), str(out)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert read_run(out).status == "training"
    with pytest.raises(mm.Misuse, match="not finished"):
        mm.load(out)
    assert {file: file.read_bytes() for file in run.iterdir()} == before
    assert_same_members(mm.resume(out), mm.fit("small-cnn", "digits", members=2, **SETTINGS))


@pytest.mark.slow
def test_a_run_that_changed_while_members_were_added_is_refused(tmp_path: Path):
    mm.fit("mlp", "two-moons", members=2, out=tmp_path / "run", **SETTINGS)

    def change(text: str, done: int, total: int, record: dict | None) -> None:
        mm.fit("mlp", "two-moons", members=2, out=tmp_path / f"other-{done}", **{**SETTINGS, "seed": 9, "epochs": 1})
        other = (tmp_path / f"other-{done}" / "members.safetensors").read_bytes()
        (tmp_path / "run" / "members.safetensors").write_bytes(other)

    with pytest.raises(mm.Failure):
        mm.add_members(tmp_path / "run", 1, out=tmp_path / "more", show=change)


def test_members_of_several_points_take_turns():
    assert by_turns([0, 1, 0, 1, 2, 2]) == [0, 1, 4, 2, 3, 5]


def test_a_run_that_stopped_earlier_stays_at_its_last_scores():
    def record(epoch: int, loss: float) -> dict:
        return {"epoch": epoch, "lr": 0.1, "train_loss": [loss], "val_nll": [loss], "active": [True], "diverged": {}}

    short, long = [record(1, 0.5)], [record(1, 0.7), {**record(2, 0.6), "diverged": {"0": "loss nan"}}]
    first, second = joined_history([short, long], [1, 1])
    assert first["train_loss"] == [0.5, 0.7]
    assert second == {
        "epoch": 2,
        "lr": 0.1,
        "train_loss": [None, 0.6],
        "val_nll": [0.5, 0.6],
        "active": [False, True],
        "diverged": {"1": "loss nan"},
    }
