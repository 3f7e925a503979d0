"""The tables of the long-tail record: best rows first, intervals over seeds, differences of the same seeds."""

import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_tables import table_rows


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import longtail_table

    yield longtail_table
    for name in ("longtail_table", "table_text"):
        sys.modules.pop(name, None)


def run(training: str, seed: int, accuracy: float, few: float | None = None) -> dict[str, Any]:
    scores: dict[str, Any] = {"nll": 1 - accuracy, "all": [accuracy, accuracy - 0.01, accuracy + 0.01]}
    scores |= {} if few is None else {"few": [few, few - 0.02, few + 0.02]}
    settings = {"net": "mlp", "epochs": 30, "batch_size": 128, "lr": 2e-4}
    about = {"data": "c", "factor": 100.0, "seed": seed, "training": training, "examples": {"train": 1234}}
    return {**about, "settings": settings, "rows": {training: scores}}


def test_tables_of_two_seeds(tables: Any) -> None:
    """50 and 60 have the mean 55 and the half width 5 t(0.975, 1) = 63.5; one seed has its interval over examples."""
    plain, better = "cross-entropy", "balanced-softmax"
    runs = [run(plain, 0, 0.5, 0.1), run(plain, 1, 0.6, 0.1), run(better, 0, 0.7, 0.3), run("ride", 0, 0.55, 0.2)]
    text = tables.longtail_table({"runs": runs})
    assert text.splitlines()[:2] == [
        "**c, imbalance 100**: 1,234 training examples; mlp, 30 epochs, batches of 128, learning rate 0.0002; 2 seeds.",
        "",
    ]
    assert len(text.splitlines()) == 7
    assert table_rows(text) == [
        ["method", "all", "few", "NLL"],
        ["balanced-softmax (1 seed)", "**70.0 ± 1.0**", "**30.0 ± 2.0**", "**0.300**"],
        ["cross-entropy", "55.0 ± 63.5", "10.0 ± 0.0", "0.450 ± 0.635"],
        ["ride (1 seed)", "55.0 ± 1.0", "20.0 ± 2.0", "0.450"],
    ]
    both = [*runs, run(better, 1, 0.8, 0.3)]
    assert table_rows(tables.longtail_differences({"runs": both})) == [
        ["comparison", "all", "few"],
        ["the loss: balanced softmax, not cross-entropy", "**+20.0 ± 0.0**", "**+20.0 ± 0.0**"],
    ]


def test_the_table_leaves_out_groups_without_classes(tables: Any) -> None:
    assert "few" not in tables.longtail_table({"runs": [run("cross-entropy", 0, 0.5)]})
