"""The programs of the pages on data run."""

import documented_commands as documented
import pytest


@pytest.mark.filterwarnings("ignore:not calibrated")
@pytest.mark.parametrize("page", ["data.md", "datasets.md", "trained-networks.md", "importance.md"])
def test_programs_of_the_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    programs = documented.page_programs(documented.ROOT / "docs" / page)
    for program in programs:
        if "words" not in program:  # of which the page has no data
            exec(program, found)
    if page == "datasets.md":
        assert found["ensemble"].manifest.plan["batch_size"] == 32
    elif page == "trained-networks.md":
        assert found["again"].members == 3
    elif page == "importance.md":
        assert found["importance"].frame()["column"].tolist() == ["size", "age"]
        assert found["curve"].mean.shape == found["curve"].std.shape == (20, 1)
    else:
        assert found["ensemble"].predict(found["x"][:5]).mean.shape == (5, 2)
