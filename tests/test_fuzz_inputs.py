"""A short form of the fuzz: some generated files and command lines, none of which may fail badly."""

import fuzz_inputs
import pytest


@pytest.mark.slow
def test_no_generated_file_or_command_line_fails_badly(tmp_path):
    record = fuzz_inputs.fuzz(80, 0, None, tmp_path / "fuzz.json")
    assert record["bad"] == []
    accepted = sum(counts.get("accepted", 0) for counts in record["kinds"].values())
    assert 20 <= accepted <= 70
    assert set(record["kinds"]) == set(fuzz_inputs.KINDS)


def test_a_case_is_the_same_every_time():
    assert fuzz_inputs.run_case(3) == fuzz_inputs.run_case(3)
