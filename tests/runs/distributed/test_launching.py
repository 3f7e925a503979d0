"""Processes that a launcher has started: refusals of one line, signals, and workers that are killed."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from process_fixtures import LAUNCHER, WORKER, until
from safetensors.torch import load_file

import murmuration as mm
from murmuration.cli import main
from murmuration.runs.checkpoints import load_checkpoint
from murmuration.runs.processes import difference

KILLED_ONCE = """
import os, signal, sys
import torch
torch.set_num_threads(1)
import murmuration as mm
from murmuration.runs.processes import process_group

def show(text, done, total, record):
    if done == 30 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)

with process_group():
    mm.fit("mlp", "digits", members=3, epochs=2, batch_size=64, engine="loop", posthoc=None, out=sys.argv[1],
           checkpoint_seconds=0, progress=show)
"""

STOPPED = """
import os, signal, sys
from murmuration.cli import main
from murmuration.training.run import ProgressCallback

report = ProgressCallback.after_step

def after_step(self, progress):
    if progress.state.step == 25 and os.environ["RANK"] == "0":
        os.kill(os.getppid(), signal.SIGTERM)
    report(self, progress)

ProgressCallback.after_step = after_step
sys.exit(main(sys.argv[1:]))
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def launched(monkeypatch):
    """The environment of the first of two processes, the other of which never comes."""
    port = free_port()
    settings = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return port


def refused(capsys, *arguments: str) -> tuple[int, str]:
    """The exit code of a command and its one line."""
    code = main(list(arguments))
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return code, lines[0]


@pytest.mark.slow
def test_a_missing_process_is_waited_for_and_then_named(launched, monkeypatch, capsys, tmp_path: Path):
    monkeypatch.setenv("MURMUR_RANK_TIMEOUT", "1")
    code, line = refused(capsys, "train", "digits", "--out", str(tmp_path / "run"))
    assert code == 1
    assert line.startswith(f"error: not all 2 processes came to 127.0.0.1:{launched} in time: start the missing ones")
    assert not (tmp_path / "run").exists()


def test_a_port_in_use_is_named(launched, capsys, tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", launched))
        taken.listen()
        code, line = refused(capsys, "train", "digits", "--out", str(tmp_path / "run"))
    assert code == 1
    assert (
        line
        == f"error: 127.0.0.1:{launched} is in use: choose another port with torchrun --master-port, or MASTER_PORT"
    )


def test_a_launcher_that_has_ended_is_not_waited_for(launched, monkeypatch, capsys, tmp_path: Path):
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    code, line = refused(capsys, "train", "digits", "--out", str(tmp_path / "run"))
    assert (code, line) == (1, f"error: the launcher at 127.0.0.1:{launched} has ended: start it again")


@pytest.mark.slow
def test_a_process_ends_with_its_launcher(tmp_path: Path):
    subprocess.run([sys.executable, "-c", LAUNCHER, WORKER, str(tmp_path)], check=False)
    until((tmp_path / "stopped by 15").exists)


def test_other_commands_are_refused(launched, capsys):
    code, line = refused(capsys, "list", "recipes")
    assert code == 2
    assert "several processes are for murmur train and murmur resume" in line


def test_a_timeout_that_is_no_number_is_refused(launched, monkeypatch, capsys):
    monkeypatch.setenv("MURMUR_RANK_TIMEOUT", "soon")
    code, line = refused(capsys, "train", "digits")
    assert code == 2
    assert line == "error: MURMUR_RANK_TIMEOUT=soon: need a number of seconds such as 600"


def test_only_the_first_process_speaks(launched, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    assert main(["list", "recipes"]) == 2
    assert capsys.readouterr() == ("", "")


def test_parts_of_a_batch_need_processes():
    with pytest.raises(mm.Misuse, match=r"ranks_per_member=2 in one process: start 2 with torchrun"):
        mm.fit("mlp", "two-moons", members=1, ranks_per_member=2)


def test_a_difference_is_one_setting_or_the_whole():
    assert difference("data", "a1", "b2", 1) == "rank 1 has other data (b2) than rank 0 (a1)"
    assert difference("net", {"name": "mlp"}, {}, 1) == "rank 1 has a network with name=None, and rank 0 with name=mlp"


def torchrun(*arguments: str) -> tuple[int, str]:
    """The exit code of two processes, and what they wrote to standard error."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "bound"), [("deep-ensemble", 0.0), ("forde", 2e-5)])
def test_two_launchers_of_one_process_each_are_as_one_process(recipe, bound, tmp_path: Path):
    """As on two machines: each has a launcher of its own, and they meet at a port of the first."""
    small = ("--net", "mlp:hidden=8", "--members", "3", "--epochs", "2", "--batch-size", "256", "--engine", "loop")
    words = ["-m", "murmuration", "train", "two-moons", "--recipe", recipe, *small, "--out"]
    port, environment = free_port(), {**os.environ, "OMP_NUM_THREADS": "1"}
    running = []
    for node in range(2):
        call = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        call += ["--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port)]
        call += ["--local-addr", f"127.0.0.{node + 1}", *words, str(tmp_path / "two")]
        running.append(subprocess.Popen(call, env=environment, stderr=subprocess.PIPE, text=True))
    errors = [each.communicate()[1] for each in running]
    assert [each.returncode for each in running] == [0, 0], errors
    one = [sys.executable, *words, str(tmp_path / "one")]
    subprocess.run(one, env=environment, check=True, capture_output=True)
    found, expected = (load_file(tmp_path / name / "members.safetensors") for name in ("two", "one"))
    assert found.keys() == expected.keys()
    assert max(float((found[name] - expected[name]).abs().max()) for name in expected) <= bound


@pytest.mark.slow
def test_models_that_are_no_networks_are_refused_in_one_line(tmp_path: Path):
    words = ("train", "two-moons", "--net", "random-forest", "--out", str(tmp_path / "run"))
    code, errors = torchrun("-m", "murmuration", *words)
    assert code != 0
    own = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert own == ["error: random-forest in 2 processes, which is not a network: start one process, without torchrun"]
    assert "murmuration/" not in errors
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_networks_and_models_have_the_bits_of_one_process(tmp_path: Path):
    pytest.importorskip("skops")
    small = ("--net", "mlp:hidden=8", "--members", "2", "--epochs", "2", "--batch-size", "256", "--engine", "loop")
    words = ("-m", "murmuration", "train", "two-moons", "--recipe", "mixed", *small, "--out")
    code, errors = torchrun(*words, str(tmp_path / "two"))
    assert code == 0, errors[-2000:]
    one = [sys.executable, *words, str(tmp_path / "one")]
    subprocess.run(one, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True)
    for name in ("members.safetensors", "posthoc.json", "history.jsonl"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes(), name
    two, alone = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("two", "one"))
    assert two["weights"] == alone["weights"]


@pytest.mark.slow
def test_sigterm_to_torchrun_writes_a_checkpoint(tmp_path: Path):
    path, script = tmp_path / "run", tmp_path / "program.py"
    script.write_text(STOPPED)
    settings = ["--net", "mlp", "--members", "3", "--epochs", "300", "--batch-size", "64", "--engine", "loop"]
    code, errors = torchrun(str(script), "train", "digits", *settings, "--out", str(path))
    assert code != 0
    assert errors.count("interrupted: ") == 1
    assert f"continue with murmur resume {path}" in errors
    progress = load_checkpoint(path)
    assert progress is not None
    assert 25 <= progress.state.step < 300
    assert progress.state.population.members == 3
    assert len(list((path / "checkpoints").glob("*.safetensors"))) == 2


@pytest.mark.slow
def test_a_killed_worker_is_started_again_and_continues(tmp_path: Path):
    script = tmp_path / "program.py"
    script.write_text(KILLED_ONCE)
    code, errors = torchrun("--max-restarts", "1", str(script), str(tmp_path / "run"))
    assert code == 0, errors[-2000:]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    whole = mm.fit("mlp", "digits", members=3, epochs=2, batch_size=64, engine="loop", posthoc=None)
    torch.set_num_threads(threads)
    found = mm.load(tmp_path / "run").groups[0].population.to_tensors()
    assert all(torch.equal(found[key], t) for key, t in whole.groups[0].population.to_tensors().items())
