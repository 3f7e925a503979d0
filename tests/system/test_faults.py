"""Faults of file operations, brought by the library of the fault drill: what is written again is whole, and alone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fault_drill
import pytest

TOOLS = Path(__file__).parents[2] / "tools"
FAULTS = [(kind, at) for kind in ("kill before", "kill after", "torn write", "power loss") for at in (0.1, 0.5, 0.9)]
FAULTS += [("full disk", 0.5), ("I/O error", 0.3), ("SIGTERM", 0.4), ("SIGINT", 0.7)]
WRITE = """
import json, os, signal, sys
from functools import partial
from pathlib import Path
import torch
from fault_drill import KINDS, Ended, arm, operations, wrong_end
from murmuration.runs import directory as runs
from murmuration.runs.manifest import Manifest
from murmuration.system.errors import Failure
from murmuration.system.interrupts import Stopped, handled, stop

def write(path):
    with runs.creating(path, repeated=True):
        tensors = {"w": torch.arange(2000.0), "b": torch.ones(3)}
        runs.save_members(path, tensors, Manifest(), [{"epoch": 1, "loss": 0.5}])

def forked(folder, kind, number):
    '''Write under a fault, in a process of its own; returns how that ended.'''
    process = os.fork()
    if process:
        return Ended(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), (folder / "err.txt").read_text())
    code = 70
    try:
        os.dup2(os.open(folder / "err.txt", os.O_WRONLY | os.O_CREAT), 2)
        arm(folder, kind, number)
        with handled(stop):
            write(folder / "sweep" / "run")
        code = 0
    except Stopped as stopped:
        os.write(2, b"interrupted: here\\n")
        code = 128 + stopped.number
    except Failure as error:
        os.write(2, f"error: {error}\\n".encode())
        code = 1
    finally:
        os._exit(code)

def files(path):
    return {str(file.relative_to(path)): file.read_bytes().hex() if file.is_file() else "" for file in path.rglob("*")}

def case(folder):
    (folder / "sweep").mkdir(parents=True)
    return folder

base = Path(sys.argv[1])
torch.set_num_threads(1)
assert forked(case(base / "whole"), 0, 0).code == 0
words, whole = operations(base / "whole"), files(base / "whole" / "sweep")
wrong, came = [], 0
for name, share in json.loads(sys.argv[2]):
    places = [n for n, word in enumerate(words, 1) if name != "torn write" or word == "write"]
    folder = case(base / f"{name} {share}")
    ended = forked(folder, KINDS[name], places[int(share * len(places))])
    came += "fault" in operations(folder)
    wrong += [f"{name} {share}: {text}" for text in [wrong_end(name, ended)] if text]
    if files(folder / "sweep") != whole:
        again = forked(folder, 0, 0)
        wrong += [f"{name} {share}: again {again}"] * (again.code != 0 or files(folder / "sweep") != whole)
print(json.dumps([came, wrong, sorted(whole)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a preloaded library counts the file operations: on Linux alone")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles the library that brings the faults")
def test_a_run_that_met_a_fault_is_written_again_and_leaves_nothing_over(tmp_path: Path):
    library = fault_drill.built_library(tmp_path)
    (tmp_path / "cases").mkdir()
    paths = os.pathsep.join([str(TOOLS), str(TOOLS.parent), os.environ.get("PYTHONPATH", "")])
    settings = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", WRITE, str(tmp_path / "cases"), json.dumps(FAULTS)]
    done = subprocess.run(words, capture_output=True, text=True, env=settings, check=False)
    assert done.returncode == 0, done.stderr
    came, wrong, names = json.loads(done.stdout)
    assert came == len(FAULTS)
    assert wrong == []
    assert names == ["run", "run/history.jsonl", "run/members.safetensors", "run/run.json"]
