"""A short form of the fuzz of the Python API: no call fails badly, and the judge knows right from wrong."""

import json
import subprocess
import sys

import fuzz_api
import fuzz_values
import pytest
import torch


@pytest.mark.slow
def test_no_call_fails_badly(tmp_path):
    """The script itself, which works in a folder of its own."""
    call = [sys.executable, fuzz_api.__file__, "--cases", "150", "--record", str(tmp_path / "fuzz.json")]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    record = json.loads((tmp_path / "fuzz.json").read_text())
    assert (done.returncode, record["bad"]) == (0, []), done.stderr
    assert sum(counts.get("right", 0) for counts in record["kinds"].values()) >= 20
    assert sum(sum(counts.values()) for counts in record["kinds"].values()) == 150


@pytest.mark.parametrize(
    ("expected", "answer", "verdict"),
    [
        (fuzz_values.SAME, [1.0, 2.0], "right"),
        (fuzz_values.SAME, [1.0, 2.1], "wrong"),
        (fuzz_values.SAME, [1.0], "wrong"),
        (fuzz_values.REFUSE, [1.0, 2.0], "wrong"),
        (fuzz_values.REFUSE, [float("nan"), 2.0], "right"),
        (fuzz_values.ANY, [7.0], "right"),
    ],
)
def test_the_judge_of_answers(expected, answer, verdict):
    assert fuzz_api.judged(expected, torch.tensor(answer), torch.tensor([1.0, 2.0]), "here")[0] == verdict


def test_what_must_be_refused_is_wrong_if_it_is_accepted():
    assert fuzz_api.judged(fuzz_values.REFUSE, None, None, "here") == ("wrong", "here: accepted")
