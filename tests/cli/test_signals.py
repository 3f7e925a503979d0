"""Signals to the program itself: a checkpoint, one line on how to go on, the conventional exit code."""

import signal
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from cli_fixtures import assert_refused
from process_fixtures import until

import murmuration as mm
from murmuration.cli import main
from murmuration.runs import processes as distributed
from murmuration.system.errors import Failure
from murmuration.system.interrupts import IMPORTS, Stopped, handled, stop, take_stopped

pytest_plugins = ["cli_fixtures"]
# A shell may have told its programs to ignore hang-ups, and those in the background to ignore interrupts.
USUAL = (
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    "signal.signal(signal.SIGINT, signal.default_int_handler)"
)
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


STARTING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "murmuration.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from murmuration.__main__ import main
sys.exit(main())
"""


def test_ctrl_c_before_the_program_is_imported_is_quiet():
    done = subprocess.run([sys.executable, "-c", STARTING, "list", "recipes"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_signal_inside_an_import_waits_for_its_end(tmp_path: Path, monkeypatch):
    """An extension module that is interrupted while it is initialised would print a traceback, or abort."""
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(10**6):\n    pass\nwhole = True\n"
    (tmp_path / "interrupted_module.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("murmuration.system.interrupts.USUAL", (signal.getsignal(signal.SIGINT),))
    with pytest.raises(Stopped), handled(stop):
        until(lambda: import_module("interrupted_module") is None)
    assert sys.modules.pop("interrupted_module").whole


def test_an_interrupt_that_another_error_hides_is_an_interrupt(monkeypatch, capsys):
    """As where a signal comes while an extension module reads a file, and it says that the file cannot be read."""

    def read(arguments):
        try:
            stop(signal.SIGTERM, None)
        except KeyboardInterrupt:
            raise Failure("members.safetensors is not a readable safetensors file") from None

    monkeypatch.setattr("murmuration.cli.program._run", read)
    assert main(["list", "recipes"]) == 143
    assert capsys.readouterr().err.startswith("interrupted: repeat the command, or ")
    monkeypatch.undo()
    assert main(["list", "nothing"]) == 2  # the next command knows nothing of it


def test_a_signal_that_waits_for_an_import_is_an_interrupt_of_the_command_that_fails(monkeypatch, capsys):
    """As where one of several processes, which were all told to stop, is gone, and this one imports a package."""

    def read(arguments):
        stop(signal.SIGINT, SimpleNamespace(f_code=SimpleNamespace(co_filename=IMPORTS)))
        raise Failure("another process has stopped")

    monkeypatch.setattr("murmuration.system.interrupts.threading.Timer", Held)
    monkeypatch.setattr("murmuration.cli.program._run", read)
    assert main(["list", "recipes"]) == 130
    assert capsys.readouterr().err.startswith("interrupted: repeat the command, or ")
    Held.made[-1]()  # the signal would be sent again now, to whoever called the command


def test_a_signal_that_waits_for_an_import_ends_with_a_finished_command(monkeypatch):
    def read(arguments):
        stop(signal.SIGINT, SimpleNamespace(f_code=SimpleNamespace(co_filename=IMPORTS)))
        return 0

    monkeypatch.setattr("murmuration.system.interrupts.threading.Timer", Held)
    monkeypatch.setattr("murmuration.cli.program._run", read)
    assert main(["list", "recipes"]) == 0
    Held.made[-1]()  # nothing: it is forgotten


class Held:
    """A timer whose function is called by the test."""

    made: ClassVar[list] = []

    def __init__(self, seconds, function, arguments):
        self.made.append(partial(function, *arguments))

    def start(self):
        pass


def test_a_signal_while_an_error_is_told_is_not_heard(monkeypatch, capsys):
    def read(arguments):
        raise Failure("the error")

    def message(error, arguments):
        signal.raise_signal(signal.SIGINT)
        return str(error)

    monkeypatch.setattr("murmuration.system.interrupts.USUAL", (signal.getsignal(signal.SIGINT), stop))
    monkeypatch.setattr("murmuration.cli.program._run", read)
    monkeypatch.setattr("murmuration.cli.program._message", message)
    assert main(["list", "recipes"]) == 1
    assert capsys.readouterr().err == "error: the error\n"


@pytest.mark.parametrize("call", [2, 3], ids=["before the line on the error", "after the command"])
def test_a_signal_at_the_end_of_a_command_has_its_code(call, monkeypatch, capsys):
    calls = []

    def take():
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGTERM)
        return []

    def fails(arguments):
        raise Failure("the error")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("murmuration.system.interrupts.USUAL", (before, stop))
    monkeypatch.setattr("murmuration.cli.program._run", fails)
    monkeypatch.setattr("murmuration.cli.program.take_stopped", take)
    try:
        assert main(["list", "recipes"]) == (1 if call == 2 else 143)
    finally:
        take_stopped()
    assert capsys.readouterr().err == "error: the error\n"
    assert signal.getsignal(signal.SIGTERM) is before


def test_processes_that_were_told_to_stop_do_not_meet_over_an_error(monkeypatch):
    """The others are stopped too, anywhere: the collective operations of two processes would not match."""

    def fails():
        raise Failure("the error")

    met = []
    monkeypatch.setattr(distributed, "agree", lambda facts, error: met.append(error))
    take_stopped()
    with pytest.raises(Failure):
        distributed.refusing_together(fails)()
    with pytest.raises(Stopped):
        stop(signal.SIGINT, None)
    with pytest.raises(Failure):
        distributed.refusing_together(fails)()
    assert len(met) == 1
    assert take_stopped() == [signal.SIGINT]


def test_the_package_imports_nothing_before_the_program_handles_ctrl_c():
    code = "import sys; sys.path[:0] = sys.argv[1:]; import murmuration; print('typing' in sys.modules)"
    root = str(Path(mm.__file__).parents[1])
    done = subprocess.run([sys.executable, "-S", "-c", code, root], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_negative_time_between_checkpoints_is_refused(murmur, tmp_path: Path):
    ended = murmur("train", "two-moons", "--checkpoint-seconds", "-1", "--out", tmp_path / "run")
    assert_refused(ended, 2, ("--checkpoint-seconds -1.0", "not negative"))
    assert not (tmp_path / "run").exists()


INTERRUPTED_IMPORT = """
import signal, sys
from murmuration.__main__ import main

class Interrupt:
    def find_spec(self, name, *more):
        if name == "murmuration.training.plan":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
main()
"""


def test_ctrl_c_while_the_program_is_imported_ends_quietly():
    words = [sys.executable, "-c", f"{USUAL}\n{INTERRUPTED_IMPORT}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_an_interrupt_after_the_page_of_an_audit_is_written(tmp_path: Path, murmur, monkeypatch) -> None:
    file, page = tmp_path / "a.csv", tmp_path / "a.html"
    file.write_text("prob_0,prob_1,label\n" + "0.3,0.7,1\n0.8,0.2,0\n" * 4)
    command = ("audit", file, "--out", page)

    def interrupted(*_: object) -> None:
        assert page.exists()
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr("murmuration.cli.results.show_scores", interrupted)
        ended = murmur(*command)
    assert (ended.code, ended.err) == (143, "interrupted: nothing was written\n")
    assert not page.exists()
    assert murmur(*command).code == 0
    first = page.stat().st_ino
    with monkeypatch.context() as patch:
        patch.setattr("murmuration.cli.results.show_scores", interrupted)
        ended = murmur(*command, "--force")
    assert (ended.code, ended.err) == (143, f"interrupted: {page} is written\n")
    assert page.stat().st_ino != first
    assert murmur(*command, "--force").code == 0
