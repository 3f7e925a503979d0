"""A short fault drill, and the judgement of how commands end."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import fault_drill
import pytest
import safetensors.torch
import torch
from fault_drill import Ended, plain, wrong_end, wrong_launch
from fault_table import fault_table
from markdown_tables import table_rows

SHORT = "deep-ensemble;last-layer-ensemble;compare;calibrate;prune and fine-tune;superres;merge;predict npz"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles the library that brings the faults")
def test_a_short_drill_finds_no_defect(tmp_path: Path):
    """The program, so that processes are forked from one without threads."""
    record = tmp_path / "record.json"
    words = [str(tmp_path / "drill"), "--cases", "16", "--only", SHORT, "--record", str(record)]
    call = [sys.executable, fault_drill.__file__, *words]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(record.read_text())
    assert found["next"] == 16
    assert set(found["subjects"]) == set(SHORT.split(";"))
    assert sum(row["defects"] for row in found["subjects"].values()) == 0, done.stdout
    assert found["defects"] == dict.fromkeys(fault_drill.DEFECTS, 0)


@pytest.mark.parametrize(
    ("fault", "ended", "wrong"),
    [
        ("kill at a moment", Ended(-signal.SIGKILL, ""), False),
        ("SIGTERM", Ended(143, "interrupted: continue with murmur resume runs/x\n"), False),
        ("SIGTERM", Ended(130, "interrupted: continue with murmur resume runs/x\n"), True),
        ("SIGINT", Ended(130, "note: few examples\ninterrupted: nothing was written\n"), False),
        ("SIGINT", Ended(130, "interrupted: nothing was written\nmore\n"), True),
        ("full disk", Ended(1, "error: cannot write runs/x/run.json: the disk is full\n"), False),
        ("full disk", Ended(1, "Traceback (most recent call last):\n  the disk is full\n"), True),
        ("full disk", Ended(70, ""), True),
        ("power loss", Ended(-signal.SIGKILL, ""), False),
        ("I/O error", Ended(1, "error: cannot write runs/x/run.json: Input/output error\n"), False),
        ("I/O error", Ended(1, "Traceback (most recent call last):\n  OSError: Input/output error\n"), True),
        ("kill before", Ended(2, "error: p.csv exists already: choose another name, or add --force\n"), False),
        ("kill at a moment", Ended(0, ""), False),
        ("SIGINT", Ended(-signal.SIGINT, "Traceback:\n  File site.py\nKeyboardInterrupt\n"), False),
        ("SIGINT", Ended(1, "Fatal Python error: init_import_site\nTraceback:\nKeyboardInterrupt\n"), False),
        ("SIGTERM", Ended(1, "Fatal Python error: init_import_site\nTraceback:\nKeyboardInterrupt\n"), True),
        ("SIGINT", Ended(1, 'Traceback:\n  File "murmuration/__main__.py"\nKeyboardInterrupt\n'), True),
        ("SIGINT", Ended(-signal.SIGINT, 'Traceback:\n  File "murmuration/cli/a.py"\nKeyboardInterrupt\n'), True),
    ],
)
def test_how_a_command_may_end_under_a_fault(fault, ended, wrong):
    assert bool(wrong_end(fault, ended)) == wrong


@pytest.mark.parametrize(
    ("fault", "ended", "wrong"),
    [
        ("kill of the launcher", Ended(-signal.SIGKILL, "interrupted: continue with murmur resume runs/x\n"), False),
        ("kill of the launcher", Ended(1, ""), True),
        ("kill of a worker", Ended(1, "W1118 torchrun\nerror: another process has stopped, or did not\n"), False),
        ("kill of a worker", Ended(1, "error: no run at runs/x\n"), True),
        ("SIGTERM", Ended(1, "interrupted: a\ninterrupted: b\n"), True),
        ("SIGTERM", Ended(1, 'Traceback:\n  File "/x/murmuration/training/fitting.py", line 3\n'), True),
    ],
)
def test_how_launched_processes_may_end_under_a_fault(fault, ended, wrong):
    assert bool(wrong_launch(fault, ended)) == wrong


def test_processes_of_a_case_are_found_and_ended(tmp_path: Path, monkeypatch):
    words = [sys.executable, "-c", "print(1, flush=True); input()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    running = subprocess.Popen(words, env={**os.environ, fault_drill.TOKEN: str(tmp_path), "RANK": "0"}, **pipes)
    assert running.stdout is not None
    running.stdout.readline()
    assert fault_drill.processes(tmp_path, "RANK") == [running.pid]
    assert fault_drill.processes(tmp_path / "other") == []
    monkeypatch.setattr(fault_drill, "GRACE", 0)
    (tmp_path / "err.txt").touch()
    assert fault_drill.left_behind(tmp_path).startswith("1 processes stay behind")
    running.communicate()
    assert running.returncode == -signal.SIGKILL
    assert fault_drill.left_behind(tmp_path) == ""


def test_tensors_may_differ_by_a_bound():
    one, other = (safetensors.torch.save({"w": torch.full((2,), value)}) for value in (1.0, 1.00001))
    assert (
        fault_drill.differing({"a.safetensors": one, "run.json": 1}, {"a.safetensors": other, "run.json": 2}, 2e-5)
        == []
    )
    assert fault_drill.differing({"a.safetensors": one}, {"a.safetensors": other, "b": 1}, 1e-6) == [
        "b",
        "a.safetensors",
    ]


def test_times_and_digests_of_files_with_times_are_not_compared():
    one = {
        "verdict": ["single is the quickest to train (1.70 s)."],
        "seconds": 1.0,
        "step_seconds": {},
        "accuracy": [{"value": 0.5}],
        "record_sha256": "a",
        "metrics.json": "b",
    }
    assert plain(one) == {"accuracy": [{"value": 0.5}]}


def test_the_table_adds_up():
    row = {"cases": 2, "as program": 1, "defects": 0, "SIGTERM": 1, "SIGINT": 2, "power loss": 3, "flipped bit": 1}
    table = fault_table({"subjects": {"a": row, "b": row}})
    assert table_rows(table)[-1] == ["all", "4", "14", "0", "0", "6", "6", "0", "2", "0"]
