"""The programs of the pages on networks of one's own, on their weights and on logging run."""

import documented_commands as documented
import pytest


@pytest.mark.filterwarnings("ignore:not calibrated")
def test_programs_of_the_page_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # they write a log
    found: dict = {}
    for page in ("own-networks.md", "own-weights.md", "logging.md"):
        for program in documented.page_programs(documented.ROOT / "docs" / page):
            exec(program, found)
    assert found["heads"].groups[0].population.fixed.keys() == {"body.0.weight", "body.0.bias"}
    assert found["tuned"].manifest.net["init_from"] == {"source": "Net", "reset": ["head"]}
    assert found["ten_classes"].predict(found["x"]).outputs.shape == (3, 200, 10)
    assert len(found["ensemble"].history) == 2
    assert list((tmp_path / "runs" / "tensorboard").iterdir())
