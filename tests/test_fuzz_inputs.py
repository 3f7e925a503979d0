"""A short form of the fuzz: some generated files and command lines, none of which may fail badly."""

import json
import subprocess
import sys

import fuzz_inputs
import pytest


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
