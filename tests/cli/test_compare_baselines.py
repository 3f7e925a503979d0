"""Baselines of `murmur compare` on a table: rows on the screen, in the record and in the report."""

import json
from pathlib import Path

import pandas as pd
import pytest
from check_report import report_check
from cli_fixtures import SMALL, write_table

pytest_plugins = ["cli_fixtures"]


@pytest.mark.slow
def test_a_table_is_compared_with_baselines_and_other_models_are_runs(murmur, tmp_path: Path):
    write_table(tmp_path / "t.csv")
    words = ("compare", tmp_path / "t.csv", "--target", "y", "--recipes", "single,deep-ensemble", *SMALL)
    ended = murmur(*words, "--out", tmp_path / "cmp")
    assert ended.code == 0, ended.err
    for name in ("ridge (baseline)", "hist-gradient-boosting", "no input:", "the mean target"):
        assert name in ended.out
    record = json.loads((tmp_path / "cmp" / "results.json").read_text())
    names = ["single", "deep-ensemble", "ridge (baseline)", "hist-gradient-boosting (baseline)"]
    assert list(record["results"]) == names
    scores = {name: record["results"][name]["metrics"]["rmse"]["value"] for name in names}
    assert scores["ridge (baseline)"] < 1.3 < scores["single"]
    page = (tmp_path / "cmp" / "report.html").read_text()
    assert "ridge (baseline)" in page
    assert report_check(tmp_path / "cmp" / "report.html") == []
    file = tmp_path / "cmp" / "ridge-baseline" / "models" / "0-0.skops"
    before = file.stat().st_mtime_ns
    again = murmur(*words, "--out", tmp_path / "cmp", "--json")
    assert file.stat().st_mtime_ns == before
    found = json.loads(again.out)["results"]
    assert found["ridge (baseline)"]["metrics"] == record["results"]["ridge (baseline)"]["metrics"]
    changed = murmur(*words, "--out", tmp_path / "cmp", "--baselines", "none")
    assert changed.code == 2
    assert "baselines differs" in changed.err
    run = tmp_path / "cmp" / "ridge-baseline"
    assert murmur("predict", run, tmp_path / "t.csv", "--out", tmp_path / "p.csv").code == 0
    assert len(pd.read_csv(tmp_path / "p.csv")) == 300
    assert murmur("evaluate", run, "--json").code == 0


def test_a_model_is_trained_by_name(murmur, tmp_path: Path):
    write_table(tmp_path / "t.csv")
    ended = murmur("train", tmp_path / "t.csv", "--target", "y", "--net", "ridge", "--out", tmp_path / "run", "--json")
    assert ended.code == 0, ended.err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "complete"
    assert "ridge" in murmur("list", "models").out


def test_folds_are_trained_by_an_option(murmur, tmp_path: Path):
    write_table(tmp_path / "t.csv")
    words = ("train", tmp_path / "t.csv", "--target", "y", "--folds", 3, *SMALL, "--out", tmp_path / "run", "--json")
    assert murmur(*words).code == 0
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (manifest["folds"]["count"], manifest["groups"], len(manifest["folds"]["members"])) == (3, 3, 6)
    assert murmur("predict", tmp_path / "run", tmp_path / "t.csv", "--out", tmp_path / "p.csv").code == 0
