"""Signals to the program itself: a checkpoint, one line on how to go on, the conventional exit code."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_fixtures import assert_refused
from process_fixtures import until

import murmuration as mm

pytest_plugins = ["cli_fixtures"]
USUAL = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # a shell may have told its programs to ignore it
PLAN = {"members": 2, "epochs": 60, "batch_size": 32, "seed": 0}


def started(path: Path) -> subprocess.Popen:
    """`murmur train`, in its training when this returns."""
    plan = [word for name, value in PLAN.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = ["train", "two-moons", "--net", "mlp", *plan, "--out", str(path), "--checkpoint-seconds", "0"]
    call = [
        sys.executable,
        "-c",
        f"{USUAL}; import runpy; runpy.run_module('murmuration', run_name='__main__')",
        *words,
    ]
    running = subprocess.Popen(call, stderr=subprocess.PIPE, text=True)
    until((path / "checkpoints" / "latest.json").exists, running)
    return running


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda value: str(value),
)
def test_a_signal_ends_training_with_a_checkpoint(number, code, tmp_path: Path):
    path = tmp_path / "run"
    running = started(path)
    running.send_signal(number)
    _, told = running.communicate()
    assert (running.returncode, told) == (code, f"interrupted: continue with murmur resume {path}\n")
    assert sorted(file.name for file in path.iterdir() if file.name != "history.jsonl") == ["checkpoints", "run.json"]
    if number == signal.SIGTERM:
        whole = mm.fit("mlp", "two-moons", **PLAN, posthoc=None)
        resumed = mm.resume(path)
        mine, theirs = (each.groups[0].population.to_tensors() for each in (whole, resumed))
        assert all(mine[name].equal(theirs[name]) for name in mine)


def test_a_negative_time_between_checkpoints_is_refused(murmur, tmp_path: Path):
    ended = murmur("train", "two-moons", "--checkpoint-seconds", "-1", "--out", tmp_path / "run")
    assert_refused(ended, 2, ("--checkpoint-seconds -1.0", "not negative"))
    assert not (tmp_path / "run").exists()
