"""Every bad request ends with the right code and one line, and leaves nothing behind."""

import errno
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cli_fixtures import SMALL, assert_refused, tree
from torch import nn

import murmuration as mm
from murmuration.cli import program
from murmuration.system.files import write_record

pytest_plugins = ["cli_fixtures"]


def table(folder: Path, text: str) -> str:
    (folder / "given.csv").write_text(text)
    return "given.csv"


def rows(*, labels: str = "ab", fifth: str = "4") -> str:
    """A table of 40 rows whose labels take turns; `fifth` is the feature of row 5."""
    lines = [f"{fifth if i == 4 else i},{labels[i % len(labels)]}" for i in range(40)]
    return "x,y\n" + "\n".join(lines) + "\n"


def empty(folder: Path) -> str:
    return table(folder, "")


def one_class(folder: Path) -> str:
    return table(folder, rows(labels="a"))


def infinite(folder: Path) -> str:
    return table(folder, rows(fifth="inf"))


def sound(folder: Path) -> str:
    return table(folder, rows())


def cut_idx(folder: Path) -> str:
    (folder / "given").mkdir()
    for part in ("train", "t10k"):
        images = bytes((0, 0, 8, 3)) + struct.pack(">3I", 30, 4, 4) + bytes(30 * 16 - 7)
        labels = bytes((0, 0, 8, 1)) + struct.pack(">I", 30) + bytes(30)
        (folder / "given" / f"{part}-images-idx3-ubyte").write_bytes(images)
        (folder / "given" / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    return "given"


def cut_cifar(folder: Path) -> str:
    (folder / "given").mkdir()
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (folder / "given" / name).write_bytes(bytes(3073 * 4 - 5))
    return "given"


def objects(folder: Path) -> str:
    np.savez(folder / "given.npz", x=np.array([{"a": 1}, None] * 20, dtype=object), y=np.arange(40) % 2)
    return "given.npz"


def holds_a_run(folder: Path) -> str:
    (folder / "out" / "run").mkdir(parents=True)
    (folder / "out" / "run" / "run.json").write_text("{}")
    return "two-moons"


def holds_something(folder: Path) -> str:
    (folder / "out" / "run").mkdir(parents=True)
    (folder / "out" / "run" / "thesis.tex").write_text("mine")
    return "two-moons"


def moons(folder: Path) -> str:
    return "two-moons"


def nothing(folder: Path) -> str:
    return "missing.csv"


BAD = [  # what the data is, further words, the code, words of the message
    (nothing, (), 2, ("missing.csv", "no file or folder")),
    (lambda folder: "two-mons", (), 2, ("unknown data 'two-mons'", "did you mean 'two-moons'")),
    (empty, ("--target", "y"), 2, ("given.csv", "empty")),
    (sound, ("--target", "z"), 2, ("'z'", "x, y")),
    (sound, (), 2, ("--target NAME",)),
    (one_class, ("--target", "y"), 2, ("every row has the label 'a'", "two classes")),
    (infinite, ("--target", "y"), 2, ("column 'x' is infinite in row 5", "finite")),
    (cut_idx, (), 1, ("images-idx3-ubyte", "expected 496 bytes, got 489")),
    (cut_cifar, (), 1, ("data_batch_1.bin",)),
    (objects, (), 2, ("given.npz", "x")),
    (holds_a_run, (), 2, ("already holds a run", "murmur resume")),
    (holds_something, (), 2, ("not an empty directory",)),
    (moons, ("--members", "0"), 2, ("--members 0", "at least 1")),
    (moons, ("--members", "two"), 2, ("--members two", "integer")),
    (moons, ("--epochs", "0"), 2, ("--epochs 0", "at least 1")),
    (moons, ("--seed", "-1"), 2, ("--seed -1",)),
    (moons, ("--lr", "nan"), 2, ("--lr nan", "positive")),
    (moons, ("--momentum", "2"), 2, ("--momentum 2", "less than 1")),
    (moons, ("--weight-decay", "inf", "--decay", "coupled"), 2, ("--weight-decay inf", "not negative")),
    (moons, ("--schedule", "steps:0=1,9=x"), 2, ("steps:0=1,9=x", "numbers not understood")),
    (moons, ("--net", "mlp:hidden=1x99999999999"), 2, ("hidden=1x99999999999", "at most 1000 layers")),
    (moons, ("--size", "\u00b2"), 2, ("--size \u00b2", "expected a number of pixels such as 64")),
    (moons, ("--size", "9" * 30), 2, ("expected a number of pixels such as 64", "up to 10,000")),
    (moons, ("--recipe", "deep-ensmble"), 2, ("unknown recipe 'deep-ensmble'", "did you mean 'deep-ensemble'")),
    (moons, ("--net", "mpl"), 2, ("unknown net 'mpl'", "did you mean 'mlp'")),
    (moons, ("--net", "small-cnn"), 2, ("small-cnn takes images", "use mlp")),
    (moons, ("--sharing", "al"), 2, ("--sharing", "'al'", "own")),
    (moons, ("--optimiser", "adm"), 2, ("'adm'", "did you mean 'adam'")),
    (moons, ("--optimizer", "adamw", "--decay", "coupled"), 2, ("--optimizer adamw", "write --optimizer adam")),
    (moons, ("--schedule", "cosin"), 2, ("'cosin'", "did you mean 'cosine'")),
    (moons, ("--schedule", "halve:x"), 2, ("halve:x", "halve:10")),
    (moons, ("--decay", "l2"), 2, ("unknown decay 'l2'", "coupled, decoupled")),
    (moons, ("--engine", "stack"), 2, ("'stack'", "did you mean 'stacked'")),
    (moons, ("--device", "cuda:77"), 2, ("--device cuda:77", "write --device cpu")),
    (moons, ("--device", "gpu"), 2, ("--device gpu", "write --device cpu")),
    (moons, ("--augment", "flip"), 2, ("--augment flip", "images")),
    (lambda folder: "digits", ("--augment", "flop"), 2, ("'flop'", "did you mean 'flip'")),
    (moons, ("--noise-std", "0.1"), 2, ("--noise-std 0.1", "regression")),
    (lambda folder: "x-sin-x", ("--noise-std", "-1"), 2, ("--noise-std -1", "positive")),
    (moons, ("--target", "y"), 2, ("--target y", "leave it out")),
    (moons, ("--task", "regress"), 2, ("unknown task 'regress'", "regression")),
    (moons, ("--prepare", "units"), 2, ("unknown prepare 'units'", "'unit'")),
    (moons, ("--membrs", "3"), 2, ("unknown option --membrs", "--members")),
    (moons, ("extra",), 2, ("extra",)),
]


@pytest.mark.parametrize(("make", "more", "code", "words"), BAD)
def test_train_refuses(murmur, tmp_path, monkeypatch, make, more, code, words):
    source = make(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    assert_refused(murmur("train", source, *SMALL, "--out", "out/run", *more), code, words)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--recipes", "single,deep"), ("unknown recipe 'deep'",)),
        (("--recipes", "single"), ("--recipes single alone", "need two names")),
        (("--recipes", "single,single"), ("'single' twice",)),
        (("--recipes", "single,forde:lr=3"), ("unknown setting", "'lr'", "coupling", "members")),
        (("--recipes", "single,forde:coupling=output"), ("--coupling", "'output'", "did you mean 'outputs'")),
        (("--recipes", "single,forde:members=0"), ("forde:members=0", "a whole number, at least 1")),
        (("--recipes", "forde,single:members=2"), ("single:members=2", "single has no number of members")),
        (("--recipes", "single,forde:members=2,members=3"), ("a setting twice",)),
        (("--net", "small-cnn"), ("small-cnn takes images",)),
        (("--members", "0"), ("--members 0",)),
    ],
)
def test_compare_refuses(murmur, tmp_path, more, words):
    ended = murmur("compare", "two-moons", *SMALL, "--out", tmp_path / "a" / "b", *more)
    assert_refused(ended, 2, words)
    assert tree(tmp_path) == {}


@pytest.fixture
def copied(moons_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(moons_run, tmp_path / "run"))


def cut(file: str):
    def damage(run: Path) -> None:
        content = (run / file).read_bytes()
        (run / file).write_bytes(content[: len(content) // 2])

    return damage


def without(part: str):
    def damage(run: Path) -> None:
        record = json.loads((run / "run.json").read_text())
        record.pop(part)
        write_record(run / "run.json", record)

    return damage


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (cut("members.safetensors"), 1, ("members.safetensors", "damaged")),
        (cut("run.json"), 1, ("run.json", "not valid JSON")),
        (lambda run: (run / "members.safetensors").unlink(), 1, ("members.safetensors", "missing")),
        (lambda run: (run / "run.json").unlink(), 1, ("run.json is missing", "other files of a run")),
        (without("format"), 1, ("format None",)),
        (without("plan"), 1, ("run.json has no 'plan'", "damaged")),
        (shutil.rmtree, 2, ("no run at", "does not exist")),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "resume", "predict"])
def test_damaged_runs(murmur, copied, tmp_path, damage, code, words, command):
    damage(copied)
    before = tree(tmp_path)
    more = ("two-moons", "--out", tmp_path / "p.csv") if command == "predict" else ()
    assert_refused(murmur(command, copied, *more), code, words)
    assert tree(tmp_path) == before


def test_unfinished_runs_name_the_way_on(murmur, copied):
    record = json.loads((copied / "run.json").read_text())
    write_record(copied / "run.json", {**record, "status": "training"})
    assert_refused(murmur("evaluate", copied), 2, (f"murmur resume {copied}",))


def test_labels_outside_the_classes(murmur, moons_run, tmp_path):
    np.savez(tmp_path / "other.npz", x=np.zeros((4, 2)), y=np.array([0, 1, 7, 0]))
    ended = murmur("evaluate", moons_run, "--on", tmp_path / "other.npz")
    assert_refused(ended, 2, ("label '7' (row 3)", "0, 1"))


def test_inputs_of_another_shape(murmur, moons_run, tmp_path):
    np.savez(tmp_path / "wide.npz", x=np.zeros((4, 3)))
    ended = murmur("predict", moons_run, tmp_path / "wide.npz", "--out", tmp_path / "p.csv")
    assert_refused(ended, 2, ("(3,)", "(2,)"))
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("predict", "{run}", "two-moons", "--out", "p.txt"), ("p.txt", ".csv or .parquet or .npz")),
        (("predict", "{run}", "two-moons", "--out", "no/p.csv"), ("the folder no does not exist",)),
        (("predict", "{run}", "two-moons", "--out", "p.csv", "--per-member"), ("--per-member", "p.npz")),
        (("predict", "{run}", "two-moons", "--per-member"), ("--per-member without a file: write --out FILE.npz",)),
        (("predict", "{run}"), ("DATA is missing",)),
        (("evaluate", "{run}", "--out", "found.txt"), ("found.txt", ".json or .html")),
        (("evaluate", "{run}", "--target", "y"), ("--target y", "--on")),
        (("list", "recipe"), ("unknown list 'recipe'", "did you mean 'recipes'")),
        (("trian",), ("unknown command 'trian'", "did you mean 'train'")),
    ],
)
def test_words_that_make_no_command(murmur, moons_run, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    assert_refused(murmur(*(word.format(run=moons_run) for word in words)), 2, told)
    assert tree(tmp_path) == {}


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*anything: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("command", ["train", "compare"])
def test_full_disk_before_training(murmur, tmp_path, command):
    ended = murmur(command, "two-moons", *SMALL, "--out", tmp_path / "run")
    assert_refused(ended, 1, ("cannot write", "the disk is full"))
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("name", ["p.csv", "p.parquet", "p.npz"])
def test_full_disk_while_predicting(murmur, moons_run, tmp_path, full_disk, name):
    ended = murmur("predict", moons_run, "two-moons", "--out", tmp_path / name)
    assert_refused(ended, 1, (name, "the disk is full"))
    assert tree(tmp_path) == {}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of a megabyte; skipped where it cannot be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    call = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(call, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_real_disk_that_is_full(murmur, small_disk):
    """Members take 0.7 MB, a checkpoint four times as much, a report several MB."""
    wide = ("--net", "mlp:hidden=128x2", "--members", "10", "--epochs", "1", "--engine", "loop")
    call = ("train", "two-moons", *wide, "--out", small_disk / "run")
    assert_refused(murmur(*call, "--checkpoint-seconds", "0", "--json"), 1, ("checkpoints/", "the disk is full"))
    assert list(small_disk.iterdir()) == []
    ended = murmur(*call, "--json")
    assert_refused(ended, 1, ("report.html: the disk is full", "the run is complete", "murmur evaluate"))
    assert mm.load(small_disk / "run").members == 10


def test_memory_that_is_not_there(murmur, monkeypatch, tmp_path):
    def fail(*given, **named):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"
            " allocate 4294967296 bytes. Error code 12 (Cannot allocate memory)"
        )

    monkeypatch.setattr("murmuration.fit", fail)
    ended = murmur("train", "two-moons", *SMALL, "--out", tmp_path / "run")
    assert_refused(ended, 1, ("not enough memory: 4 GiB at once", "--stream"))
    assert not (tmp_path / "run").exists()


def test_net_of_the_wrong_width(tmp_path):
    with pytest.raises(mm.Misuse, match=r"outputs \(2, 7\) for 2 inputs: the data needs \(2, 2\)"):
        mm.fit(nn.Linear(2, 7), "two-moons", out=tmp_path / "run", posthoc=None)
    assert tree(tmp_path) == {}


def test_library_messages_are_written_in_flags(murmur, moons_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ownnet.py").write_text("")
    for name in ("ownnet", "nowhere"):
        told = (f"unknown net '{name}'", "write --net package.module:factory")
        assert_refused(murmur("train", "two-moons", "--net", name), 2, told)
    told = ("already holds a run: choose another --out DIR, or continue it with murmur resume",)
    assert_refused(murmur("train", "two-moons", "--out", moons_run), 2, told)
    table(tmp_path, "row,x,y\n" + "".join(f"{i},{i % 7},{'ab'[i % 2]}\n" for i in range(60)))
    words = ("train", "given.csv", "--target", "y", *SMALL, "--out", "run", "--json")
    ended = murmur(*words, "--val", "0", "--drop", "row")
    assert_refused(ended, 2, ("training needs some; give --val a share",))
    program._say_note(list(words), "leave it out with drop='row'")
    assert capsys.readouterr().err == "note: leave it out with --drop row\n"
