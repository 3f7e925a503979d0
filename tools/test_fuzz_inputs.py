"""A short form of the fuzz: some generated files and command lines, none of which may fail badly."""

import json
import subprocess
import sys
from contextlib import nullcontext

import fuzz_commands
import fuzz_inputs
import numpy as np
import pytest

from murmuration.system.errors import Failure, Misuse


@pytest.mark.slow
def test_no_generated_file_or_command_line_fails_badly(tmp_path):
    """The script itself, so that cases are forked from a process without threads of autograd."""
    call = [sys.executable, fuzz_inputs.__file__, "--cases", "80", "--record", str(tmp_path / "fuzz.json")]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    record = json.loads((tmp_path / "fuzz.json").read_text())
    assert (done.returncode, record["bad"]) == (0, []), done.stderr
    accepted = sum(counts.get("accepted", 0) for counts in record["kinds"].values())
    assert 20 <= accepted <= 70
    assert set(record["kinds"]) == set(fuzz_inputs.KINDS)


def test_a_case_is_the_same_every_time():
    assert fuzz_inputs.run_case(3) == fuzz_inputs.run_case(3)


def test_every_command_is_among_those_that_are_changed():
    assert {fuzz_commands.command_of(base) for base in fuzz_commands.BASES} == set(fuzz_commands.parsers())


@pytest.mark.parametrize("name", list(fuzz_commands.parsers()))
def test_values_of_every_option_can_be_drawn(name):
    rng = np.random.default_rng(0)
    for parameter in fuzz_commands.parsers()[name].params:
        assert all(isinstance(fuzz_commands.value_for(rng, parameter), str) for _ in range(5))


@pytest.mark.parametrize(
    ("code", "err", "files", "reason"),
    [
        (0, "", ["new/run.json"], None),
        (2, "error: no\n", [], None),
        (1, "error: KeyError: 'x' (run again with MURMUR_DEBUG=1 for the traceback)\n", [], "an internal error"),
        (2, "error: no\n", ["new"], "left behind"),
        (2, "error: no\nerror: and no\n", [], "2 lines of error"),
        (-6, "", [], "exit code -6"),
        (1, "Traceback (most recent call last)\n", [], "a traceback"),
    ],
)
def test_the_judge_of_commands(code, err, files, reason, tmp_path):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text('{"status": "complete"}')
    expected = pytest.raises(AssertionError, match=reason) if reason else pytest.raises((Misuse, Failure))
    with expected if reason or code else nullcontext():
        fuzz_commands.check_command(["train"], code, "", err, tmp_path, set())
