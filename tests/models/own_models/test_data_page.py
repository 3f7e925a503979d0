"""The programs of the page on data run."""

import documented_commands as documented
import pytest

WHOLE = [
    program for program in documented.page_programs(documented.ROOT / "docs" / "data.md") if "words" not in program
]


@pytest.mark.filterwarnings("ignore:not calibrated")
def test_programs_of_the_page_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    for program in WHOLE:
        exec(program, found)
    assert found["again"].members == 3
    assert found["ensemble"].manifest.plan["batch_size"] == 32
