"""`murmur continual`, as a user would: a split, drifting tables, killed and resumed, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from check_report import report_check

from murmuration.applications.continual import harness
from murmuration.cli import main

SMALL = [
    *("--epochs", "1", "--couplings", "2", "--hidden", "8", "--settle", "1", "--members", "2"),
    *("--examples", "40", "--batch-size", "20"),
]


def write_tables(folder: Path) -> list[str]:
    """Two months of a table whose columns drift."""
    generator, paths = np.random.default_rng(0), []
    for month, shift in (("january", 0.0), ("february", 3.0)):
        rows = generator.normal(size=(60, 2)) + shift
        lines = [f"{a:.3f},{b:.3f},{'high' if a > shift else 'low'}" for a, b in rows]
        paths.append(folder / f"{month}.csv")
        paths[-1].write_text("\n".join(["a,b,kind", *lines]) + "\n")
    return [str(path) for path in paths]


def scores(path: Path) -> dict:
    record = json.loads((path / "metrics.json").read_text())
    for method in record["methods"].values():
        del method["seconds"]
    return {**record, "run": None}


def test_a_split_leaves_scores_and_a_page(tmp_path: Path, capsys) -> None:
    path = tmp_path / "run"
    methods = "hcl-fr,lda,adam,joint"
    assert main(["continual", "split:digits:2x2", "--method", methods, "--out", str(path), *SMALL]) == 0
    printed = capsys.readouterr().out
    assert "hcl-fr" in printed
    assert "final accuracy" in printed
    assert report_check(path / "report.html") == []
    page = (path / "report.html").read_text()
    for words in ("Accuracy matrix", "Detection of changes", "Generated inputs", "Memory", "matrix-joint"):
        assert words in page
    assert page.count("<img ") >= 8
    record = json.loads((path / "metrics.json").read_text())
    assert list(record["methods"]) == methods.split(",")
    assert record["methods"]["lda"]["accuracy"]["accuracy"][0][1] is None
    assert not list(path.rglob("step-*"))
    assert json.loads((path / "run.json").read_text())["status"] == "complete"


def test_drifting_tables_killed_and_resumed(tmp_path: Path, capsys, monkeypatch) -> None:
    words = ["continual", *write_tables(tmp_path), "--target", "kind", "--method", "hcl-gr,replay", *SMALL]
    assert main([*words, "--out", str(tmp_path / "whole"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scenario"] == "domain"
    save, calls = harness.save, []

    def interrupted(*given) -> None:
        save(*given)
        calls.append(given)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(harness, "save", interrupted)
    path = tmp_path / "killed"
    assert main([*words, "--out", str(path)]) == 130
    assert f"continue with murmur resume {path}" in capsys.readouterr().err
    assert main(["resume", str(path)]) == 0
    assert scores(path) == scores(tmp_path / "whole")
    assert main(["evaluate", str(path)]) == 2
    assert "holds a stream of tasks" in capsys.readouterr().err


def test_images_are_learned_by_a_flow_of_images(tmp_path: Path) -> None:
    path = tmp_path / "run"
    words = ["continual", "split:digits:2x2", "--flow", "image", "--method", "hcl-fr", "--told"]
    assert main([*words, "--out", str(path), *SMALL, "--json"]) == 0
    record = json.loads((path / "metrics.json").read_text())["methods"]["hcl-fr"]
    assert (record["told"], record["detection"]) == (True, None)
    assert "Generated inputs" in (path / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["split:digits:6x2"], "asks for 12 classes, and the data has 10"),
        (["digits"], "'digits' is one data set, which is one task: write split:DATA:5x2"),
        (["split:digits:5x1"], "task 1 (0) has one class, 0"),
        (["split:digits:5x2", "--method", "hcl"], "unknown method 'hcl': did you mean 'hcl-"),
        (["split:digits:5x2", "--method", "lda,lda"], "expected at least one, each once"),
        (["split:digits:5x2", "--flow", "glow"], "unknown flow 'glow'"),
        (["split:digits:5x2", "--order", "1,x"], "--order 1,x: expected numbers of tasks"),
        (["split:digits:5x2", "--order", "1,2"], "--order 1,2 leaves out task 3"),
        (["split:digits:5x2", "--scenario", "both"], "unknown scenario 'both'"),
        (["split:wine:1x2", "--flow", "image"], "--flow image for inputs that are not images"),
        (["split:digits:5x2", "--epochs", "0"], "--epochs 0: need a whole number"),
        (["split:digits:5x2", "--settle", "0"], "--settle 0: means of the data need"),
        (["split:digits:5x2", "--net", "small-cn"], "unknown net 'small-cn'"),
        (["split:digits:5x2", "--lr", "0"], "--lr 0: expected a positive number"),
    ],
)
def test_bad_requests_are_refused_in_one_line(words: list[str], message: str, tmp_path: Path, capsys) -> None:
    method = [] if "--method" in words else ["--method", "hcl-fr,adam"]
    assert main(["continual", *words, *method, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "run").exists()
