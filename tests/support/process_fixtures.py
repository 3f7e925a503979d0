"""Other processes for tests: one that holds a directory, several that begin at once, a worker and its launcher."""

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from murmuration.cli import main
from murmuration.runs import directory as runs
from murmuration.runs.manifest import Manifest
from murmuration.system.errors import Failure, Misuse
from murmuration.system.process_names import host_of, this_machine

LIMIT = 120  # seconds
HOLD = """
import sys
from pathlib import Path
from murmuration.runs import directory as runs
with runs.locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

WORKER = """
import sys, time
from pathlib import Path
from murmuration.runs.processes import ending_with_launcher
from murmuration.system.interrupts import Stopped, handled, stop

try:
    with handled(stop), ending_with_launcher():
        Path(sys.argv[1], "begun").touch()
        while True:
            time.sleep(0.01)
except Stopped as error:
    Path(sys.argv[1], f"stopped by {error.number}").touch()
"""

LAUNCHER = """
import os, signal, subprocess, sys, time
from pathlib import Path

subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], start_new_session=True)
while not Path(sys.argv[2], "begun").exists():
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen]:
    """A process that holds `tmp_path / "run"`."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "run")], **pipes)
    assert running.stdout is not None
    assert running.stdout.readline() == "held\n"
    yield running
    running.kill()
    running.communicate()


def assert_refused_by_holder(path: Path, holder: subprocess.Popen, command: Sequence[str], capsys: Any) -> None:
    """Assert that a command with this --out ends in one line that names the process that holds it."""
    code = main([*command, "--out", str(path)])
    message = capsys.readouterr().err
    assert code == 2
    host = host_of(this_machine())
    assert message.startswith(f"error: {path} is being written by process {holder.pid} on {host} since 20")
    assert message.endswith("): wait until it has ended\n")
    assert message.count("\n") == 1


def until(condition: Callable[[], bool], running: subprocess.Popen | None = None) -> None:
    """Wait for a condition; a process that should bring it about must not end before."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert running is None or running.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)


def create_at(path: str, start: float, results: multiprocessing.Queue) -> None:
    """Create a run at a moment; whether it was created goes to the results."""
    while time.time() < start:
        pass
    try:
        runs.create_run(Path(path), Manifest(entries={"creator": os.getpid()}))
        results.put(True)
    except (Misuse, Failure):
        results.put(False)


def created_at_once(path: Path, count: int) -> list[bool]:
    """Several processes create the same run at the same moment: whether each of them did."""
    context = multiprocessing.get_context("fork")
    results, start = context.Queue(), time.time() + 0.05
    creators = [context.Process(target=create_at, args=(str(path), start, results)) for _ in range(count)]
    for each in creators:
        each.start()
    won = [results.get(timeout=LIMIT) for _ in creators]
    for each in creators:
        each.join()
    return won
