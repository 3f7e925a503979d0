"""Data without test rows, `--test none`: training, resuming, comparing, predicting; and what is said of the scores."""

import json
from pathlib import Path

import numpy as np
import pytest

import murmuration as mm
from murmuration.cli import main
from murmuration.evaluation import eval_set_of
from murmuration.system.errors import Misuse


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 2))
    rows = [f"{a:.4f},{b:.4f},{'yes' if a + b > 0 else 'no'}" for a, b in x]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["a,b,label", *rows]) + "\n")
    return path


def run(*words: str) -> int:
    try:
        return main([*map(str, words)]) or 0
    except SystemExit as left:
        return int(left.code or 0)


SMALL = ("--target", "label", "--net", "mlp", "--members", "2", "--epochs", "2", "--test", "none")


def test_all_rows_train_and_validate(table: Path) -> None:
    data = mm.open_data(table, target="label", test="none")
    assert (len(data.train), len(data.val), len(data.test)) == (216, 24, 0)
    assert data.held_out is data.val
    assert data.source is not None
    again = mm.open_data(**data.source)
    assert (len(again.train), len(again.test)) == (216, 0)
    with pytest.raises(Misuse, match=r"has no test examples: evaluate on \(x, y\) or other data"):
        eval_set_of(data)
    assert eval_set_of(data, validation=True).part == "validation"


def test_a_run_without_test_rows_says_what_its_scores_are(table: Path, tmp_path: Path, capsys) -> None:
    path = tmp_path / "run"
    assert run("train", table, *SMALL, "--out", path) == 0
    assert "24 validation examples of" in " ".join(capsys.readouterr().out.split())
    metrics = json.loads((path / "metrics.json").read_text())
    assert (metrics["data"]["part"], metrics["data"]["examples"]) == ("validation", 24)
    assert "calibration" not in metrics
    assert "conformal" not in metrics
    page = (path / "report.html").read_text()
    assert "There is no test split: all scores are of the validation examples, before calibration." in page
    assert "test examples" not in page.split("<main>")[1].split("</main>")[0]
    assert run("evaluate", path) == 2
    told = capsys.readouterr().err
    assert f"has no test examples: write murmur evaluate {path} --on FILE" in " ".join(told.split())
    assert run("evaluate", path, "--on", table, "--json") == 0
    assert run("resume", path, "--json") == 0
    assert json.loads((path / "metrics.json").read_text())["data"]["part"] == "validation"
    out = tmp_path / "predictions.csv"
    assert run("predict", path, table, "--out", out) == 0
    assert len(out.read_text().splitlines()) == 241


def test_recipes_are_compared_on_validation_rows(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "compared"
    assert run("compare", table, *SMALL, "--recipes", "single,deep-ensemble", "--out", path, "--json") == 0
    record = json.loads((path / "results.json").read_text())
    assert {each["data"]["part"] for each in record["results"].values()} == {"validation"}
    assert "There is no test split" in (path / "report.html").read_text()
