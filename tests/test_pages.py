from pathlib import Path

import pages
import pytest


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda p: p.name)
def test_tables_are_those_of_the_records(page: Path):
    text = page.read_text()
    assert "<!-- table " in text
    assert pages.with_tables(text) == text, f"{page.name} is stale: run python benchmarks/pages.py"


def test_a_row_says_what_the_record_says():
    record = {
        "task": "classification",
        "net": "mlp",
        "plan": {"epochs": 3},
        "metrics": {key: {"value": 0.5, "low": 0.4, "high": 0.6} for key in ("accuracy", "nll", "ece")},
        "members": [{"accuracy": 0.4}, {"accuracy": 0.5}],
        "cost": {"seconds": 90.0, "members": 2},
    }
    row = pages.runs_table({"a": record}).splitlines()[-1]
    assert row == (
        "| a | mlp | 2 | 3 | accuracy 0.5 (0.4 to 0.6), nll 0.5 (0.4 to 0.6), ece 0.5 (0.4 to 0.6) "
        "| accuracy 0.45 | 1.5 min |"
    )
