import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import murmuration as mm
from murmuration.data import Data
from murmuration.runs import directory as runs, locks
from murmuration.runs.manifest import Manifest
from murmuration.system import process_names
from murmuration.system.files import read_tensors, write_bytes, write_record, write_tensors
from murmuration.training.plan import Plan

PLAN = Plan(members=2, epochs=3, batch_size=64, engine="loop", lr=3e-3)


class Killed(Exception):  # noqa: N818
    pass


def killed_after(steps: int):
    """A show that stops the run as abruptly as Python allows."""

    def show(text, done, total, record):
        if done >= steps:
            raise Killed

    return show


def bits(ensemble: mm.Ensemble) -> dict[str, torch.Tensor]:
    return ensemble.groups[0].population.to_tensors()


def same(a: mm.Ensemble, b: mm.Ensemble) -> bool:
    mine, theirs = bits(a), bits(b)
    return mine.keys() == theirs.keys() and all(torch.equal(theirs[key], tensor) for key, tensor in mine.items())


def test_what_was_saved_is_loaded(tmp_path: Path, digits: Data):
    ensemble = mm.fit("small-cnn", digits, plan=PLAN, out=tmp_path / "run", epochs=1, posthoc=None)
    again = mm.load(tmp_path / "run")
    assert same(ensemble, again)
    assert torch.equal(again.predict(digits.test.x).outputs, ensemble.predict(digits.test.x).outputs)
    assert again.history == ensemble.history
    assert not list((tmp_path / "run").rglob("*.partial"))
    again.save(tmp_path / "copy")
    assert same(ensemble, mm.load(tmp_path / "copy"))


@pytest.mark.parametrize("steps", [1, 19, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (18, 20, 40))])
@pytest.mark.parametrize(
    "engine", ["loop", *(pytest.param(name, marks=pytest.mark.slow) for name in ("stacked", "threads"))]
)
def test_a_killed_run_ends_as_if_nothing_had_happened(tmp_path: Path, digits: Data, steps, engine, normalised_net):
    plan = replace(PLAN, engine=engine, patience=2, epochs=3)
    undisturbed = mm.fit(normalised_net, digits, plan=plan, posthoc=None)
    with pytest.raises(Killed):
        mm.fit(
            normalised_net,
            digits,
            plan=plan,
            out=tmp_path / "run",
            progress=killed_after(steps),
            checkpoint_seconds=0,
            posthoc=None,
        )
    resumed = mm.resume(tmp_path / "run", net=normalised_net, checkpoint_seconds=0)
    assert same(undisturbed, resumed)
    assert resumed.history == undisturbed.history
    assert same(undisturbed, mm.load(tmp_path / "run", net=normalised_net))


def test_a_finished_run_is_not_trained_again(tmp_path: Path, moons: Data):
    ensemble = mm.fit("mlp", moons, plan=PLAN, out=tmp_path / "run", epochs=1, posthoc=None)
    before = (tmp_path / "run" / "members.safetensors").stat().st_mtime_ns
    assert same(ensemble, mm.resume(tmp_path / "run"))
    assert (tmp_path / "run" / "members.safetensors").stat().st_mtime_ns == before


def test_changed_data_is_noticed(tmp_path: Path):
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    with pytest.raises(Killed):
        mm.fit("mlp", (x, y), plan=PLAN, out=tmp_path / "run", progress=killed_after(1), posthoc=None)
    with pytest.raises(mm.Misuse, match="give it again in Python, as data="):
        mm.resume(tmp_path / "run")
    with pytest.raises(mm.Failure, match="has changed since the run was trained"):
        mm.resume(tmp_path / "run", data=(x + 1e-3, y))
    assert mm.resume(tmp_path / "run", data=(x, y)).members == 2


@pytest.fixture
def run(tmp_path: Path, moons: Data) -> Path:
    mm.fit("mlp", moons, plan=PLAN, out=tmp_path / "run", epochs=1, posthoc=None)
    return tmp_path / "run"


def test_a_directory_that_holds_a_run_is_left_alone(run: Path, moons: Data):
    before = sorted((file.name, file.stat().st_mtime_ns) for file in run.iterdir())
    with pytest.raises(mm.Misuse, match=r"already holds a run: choose another out=\.\.\., or .* mm\.resume\("):
        mm.fit("mlp", moons, plan=PLAN, out=run, posthoc=None)
    assert sorted((file.name, file.stat().st_mtime_ns) for file in run.iterdir()) == before


DAMAGE = {
    "members cut short": (
        lambda run: (run / "members.safetensors").write_bytes(b"x" * 20),
        "members.safetensors has changed since it was written",
    ),
    "members missing": (lambda run: (run / "members.safetensors").unlink(), "members.safetensors is missing"),
    "manifest broken": (lambda run: (run / "run.json").write_text("{"), "run.json is not valid JSON"),
    "manifest of another format": (
        lambda run: (run / "run.json").write_text('{"format": 99}'),
        "format 99, expected 2",
    ),
    "no manifest": (
        lambda run: (run / "run.json").unlink(),
        "run.json is missing, and .* holds other files of a run: restore it",
    ),
    "nothing at all": (lambda run: shutil.rmtree(run), "the directory does not exist"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(run: Path, kind):
    harm, message = DAMAGE[kind]
    harm(run)
    with pytest.raises((mm.Failure, mm.Misuse), match=message):
        mm.load(run)


def test_members_of_another_architecture_are_refused(run: Path):
    manifest = json.loads((run / "run.json").read_text())
    manifest["net"] = {"module": "MyNet"}
    write_record(run / "run.json", manifest)
    with pytest.raises(mm.Misuse, match="a module of your own: give it again as net="):
        mm.load(run)
    with pytest.raises(mm.Misuse, match="holds members of another architecture"):
        mm.load(run, net=torch.nn.Linear(2, 2))


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch):
    write_bytes(tmp_path / "file", b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(mm.Failure, match="the disk is full"):
        write_bytes(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_leaves_no_run_behind(tmp_path: Path, moons: Data, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(mm.Failure, match="the disk is full"):
        mm.fit("mlp", moons, plan=PLAN, out=tmp_path / "deep" / "run", posthoc=None)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_at_the_end_leaves_what_can_be_continued_or_nothing(tmp_path: Path, moons: Data, monkeypatch):
    import murmuration.runs.directory as runs

    write = runs.files.write_tensors

    def full(path, tensors):
        if path.name == "members.safetensors":
            raise mm.Failure(f"cannot write {path}: the disk is full")
        write(path, tensors)

    monkeypatch.setattr(runs.files, "write_tensors", full)
    with pytest.raises(mm.Failure, match="the disk is full"):
        mm.fit("mlp", moons, plan=PLAN, epochs=1, out=tmp_path / "deep" / "run", posthoc=None)
    assert not (tmp_path / "deep").exists()
    with pytest.raises(mm.Failure, match="the disk is full"):
        mm.fit("mlp", moons, plan=PLAN, epochs=1, out=tmp_path / "run", checkpoint_seconds=0, posthoc=None)
    monkeypatch.setattr(runs.files, "write_tensors", write)
    assert mm.resume(tmp_path / "run").members == 2


def test_tensors_come_back_as_they_were(tmp_path: Path):
    tensors = {"a": torch.randn(3, 4).t(), "b": torch.tensor([True, False]), "c": torch.zeros(0)}
    write_tensors(tmp_path / "t.safetensors", tensors)
    again = read_tensors(tmp_path / "t.safetensors")
    assert all(torch.equal(again[key], tensor) for key, tensor in tensors.items())


def test_a_run_that_cannot_be_saved_leaves_its_siblings_alone(tmp_path: Path, moons, monkeypatch):
    """Its own directory goes, and the folder above it only if nothing else was written there meanwhile."""
    from murmuration.training import fitting

    def full(*arguments):
        raise mm.Failure("the disk is full")

    def neighbour(message, done, total, record):
        (tmp_path / "runs" / "sibling").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(fitting.runs, "save_members", full)
    for show, left in ((fitting.show_nothing, False), (neighbour, True)):
        with pytest.raises(mm.Failure, match="the disk is full"):
            mm.fit(
                "mlp", moons, members=1, epochs=1, out=tmp_path / "runs" / "deep" / "mine", progress=show, posthoc=None
            )
        assert not (tmp_path / "runs" / "deep").exists()
        assert (tmp_path / "runs").exists() == left


def test_discarding_a_run_removes_only_what_it_wrote(tmp_path: Path):
    """Files by name and empty directories: a sibling run and files of others stay."""
    mine, sibling = tmp_path / "runs" / "mine" / "first", tmp_path / "runs" / "theirs"
    runs.create_run(sibling, Manifest())
    with runs.new_run(mine):
        runs.create_run(mine, Manifest())
        for name in (*runs.WRITTEN, f".{runs.MEMBERS}.7.partial"):
            (mine / name).touch()
        (mine / runs.CHECKPOINTS).mkdir()
        (mine / runs.CHECKPOINTS / "step-000000001.safetensors").touch()
        runs.discard_run(mine)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["theirs"]
    assert (sibling / runs.MANIFEST).exists()
    for foreign in ("notes.txt", f"{runs.CHECKPOINTS}/notes.txt"):
        with runs.new_run(mine):
            runs.create_run(mine, Manifest())
            (mine / foreign).parent.mkdir(exist_ok=True)
            (mine / foreign).touch()
            runs.discard_run(mine)
        assert [path for path in mine.rglob("*") if path.is_file()] == [mine / foreign]
        (mine / foreign).unlink()
        shutil.rmtree(mine)


def test_a_run_leaves_files_of_others_in_its_directories(digits: Data, tmp_path: Path):
    folder = tmp_path / "run" / runs.CHECKPOINTS

    def leave_notes(message: str, done: int, total: int, record: dict | None) -> None:
        if folder.exists():
            (folder / "notes.txt").touch()

    mm.fit("mlp", digits, recipe="single", epochs=2, out=tmp_path / "run", progress=leave_notes, checkpoint_seconds=0)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def killed_lock(path: Path, empty: bool) -> None:
    """The lock of a process that is not running any more."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    record = {**locks.describe_holder(empty), "started": None}
    (path / f"{locks.PREFIX}{process_names.this_machine()}.{ended.pid}").write_text(json.dumps(record))


def test_a_half_made_directory_of_a_killed_run_is_begun_anew(tmp_path: Path):
    """Files that a run writes go by name, where the killed process had found the directory empty; others stay."""
    path = tmp_path / "run"
    path.mkdir()
    for name in (runs.BACKBONE, f".{runs.MANIFEST}.7.partial"):
        (path / name).touch()
    killed_lock(path, empty=True)
    runs.create_run(path, Manifest())
    assert [file.name for file in path.iterdir()] == [runs.MANIFEST]


@pytest.mark.parametrize(("name", "empty"), [("notes.txt", True), (runs.MEMBERS, False)])
def test_files_that_may_be_of_others_are_not_removed(tmp_path: Path, name, empty):
    path = tmp_path / "run"
    path.mkdir()
    (path / name).touch()
    killed_lock(path, empty)
    with pytest.raises(mm.Misuse, match="exists and is not an empty directory"):
        runs.create_run(path, Manifest())
    assert [file.name for file in path.iterdir()] == [name]


def test_nothing_is_removed_through_links(tmp_path: Path, digits: Data):
    """Folders of a run may be links to a larger disk, where other runs have files of the same names."""
    path, scratch = tmp_path / "run", tmp_path / "scratch"
    mm.fit("mlp", digits, recipe="single", epochs=1, out=path, progress=False)
    scratch.mkdir()
    others = ["0-0.skops", runs.LATEST, "step-000000007.safetensors"]
    for name in others:
        (scratch / name).touch()
    for folder in (runs.CHECKPOINTS, runs.TRAJECTORY, runs.MODELS):
        (path / folder).symlink_to(scratch)
    with runs.locked(path):
        pass
    runs.remove_files(path)
    assert sorted(file.name for file in scratch.iterdir()) == others


def test_only_names_of_checkpoints_are_removed(tmp_path: Path, digits: Data):
    path = tmp_path / "run"
    mm.fit("mlp", digits, recipe="single", epochs=1, out=path, progress=False)
    (path / runs.CHECKPOINTS).mkdir()
    others = ("step-000000003.safetensors", "step-000000003-1-of-2.safetensors", "step-4.safetensors")
    for name in ("step-best.safetensors", *others):
        (path / runs.CHECKPOINTS / name).touch()
    with runs.locked(path):
        pass
    assert [file.name for file in (path / runs.CHECKPOINTS).iterdir()] == ["step-best.safetensors"]


def test_checkpoints_behind_a_link_replace_those_of_their_own_run(tmp_path: Path, digits: Data):
    path, scratch = tmp_path / "run", tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "step-000000000.safetensors").touch()  # of another run
    counts = []

    def link(message: str, done: int, total: int, record: dict | None) -> None:
        if path.exists() and not (path / runs.CHECKPOINTS).exists():
            (path / runs.CHECKPOINTS).symlink_to(scratch)
        counts.append(len(list(scratch.glob(runs.STEPS))))

    mm.fit("mlp", digits, recipe="single", epochs=4, out=path, progress=link, checkpoint_seconds=0)
    assert max(counts) <= 3
    assert (scratch / "step-000000000.safetensors").exists()


def test_a_command_that_was_killed_begins_its_copy_again(tmp_path: Path, monkeypatch):
    """`merge`, `drop-members` and `save` write copies: theirs goes, that of another command or a longer one stays."""
    path = tmp_path / "run"

    def killed(command: str, empty: bool = True) -> None:
        shutil.rmtree(path, ignore_errors=True)
        runs.create_run(path, Manifest())
        for name in runs.EVALUATED:
            (path / name).touch()
        killed_lock(path, empty)
        (lock,) = locks.holders(path)
        lock.file.write_text(json.dumps({**lock.about, "command": command}))

    killed(locks.command_line())
    with runs.new_run(path, repeated=True):
        assert [file.name for file in path.iterdir()] == [locks.own_file(path).name]
    for command, empty, repeated in [("other", True, True), (locks.command_line(), False, True), ("", True, False)]:
        killed(command or locks.command_line(), empty)
        with pytest.raises(mm.Misuse, match="already holds a run"), runs.new_run(path, repeated=repeated):
            pass
        assert (path / runs.MANIFEST).exists()


def test_a_copy_that_fails_is_removed(tmp_path: Path):
    path = tmp_path / "run"

    def fail() -> None:
        with runs.new_run(path, repeated=True):
            runs.create_run(path, Manifest())
            (path / "metrics.json").touch()
            raise mm.Failure("no report")

    with pytest.raises(mm.Failure, match="no report"):
        fail()
    assert not path.exists()
