"""`mm.audit`: the record of `murmur audit`, from files, arrays, tables and predictives."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from check_report import report_check

import murmuration as mm
from murmuration.cli import main

RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=120)
PROBS = RNG.dirichlet(np.ones(3), size=(2, 120)) * 0.4 + 0.6 * np.eye(3)[Y]
SIZES = np.where(np.arange(120) % 3 == 0, "small", "large")


def metrics(report) -> list[dict]:
    return [result["metrics"] for result in report.to_json()["results"].values()]


def test_an_audit_in_python_equals_the_command(tmp_path: Path, capsys):
    for name, probs in (("a", PROBS), ("b", PROBS[:1])):
        np.savez(tmp_path / f"{name}.npz", probs=probs, y=Y, size=SIZES)
    files = [str(tmp_path / f"{name}.npz") for name in "ab"]
    assert main(["audit", *files, "--group", "size", "--json", "--out", str(tmp_path / "c.json")]) == 0
    expected = json.loads(capsys.readouterr().out)
    report = mm.audit(files, groups=["size"], out=tmp_path / "p.json")
    assert json.loads((tmp_path / "c.json").read_text()) == expected
    stored = json.loads((tmp_path / "p.json").read_text())
    assert {**stored, "report": ""} == {**expected, "report": ""}
    assert report.table.index.tolist() == ["a", "b"]
    report.save(tmp_path / "p.html")
    assert report_check(tmp_path / "p.html") == []


def test_arrays_tables_and_predictives_give_the_scores_of_files(tmp_path: Path):
    np.savez(tmp_path / "a.npz", probs=PROBS, y=Y)
    expected = metrics(mm.audit(tmp_path / "a.npz"))
    assert metrics(mm.audit(PROBS, Y)) == expected
    assert metrics(mm.audit(mm.Predictive.from_probs(PROBS), pd.Series(Y))) == expected
    table = pd.DataFrame(PROBS[0], columns=[f"prob_{name}" for name in "xyz"]).assign(label=np.array(list("xyz"))[Y])
    alone = metrics(mm.audit(PROBS[0], Y))
    assert metrics(mm.audit(table)) == alone
    table.to_csv(tmp_path / "t.csv", index=False)
    assert metrics(mm.audit(table.drop(columns="label"), tmp_path / "t.csv")) == alone


def test_predictions_by_name_are_compared_and_grouped():
    report = mm.audit({"two": PROBS, "one": PROBS[0]}, Y, groups={"size": SIZES})
    assert [(test.a, test.b) for test in report.differences] == [("two", "one")] * 2
    assert [group.value for group in report.evaluations[1].groups["size"]] == ["large", "small"]


def test_a_regression_is_audited_from_memory():
    mean = RNG.normal(size=(3, 60, 1))
    report = mm.audit(mm.Predictive.from_moments(mean, 0.5), mean[0, :, 0])
    assert report.task == "regression"
    assert report.evaluations[0].scores["rmse"] > 0


@pytest.mark.parametrize(
    ("source", "y", "settings", "words"),
    [
        (PROBS, None, {}, "no labels"),
        (PROBS, Y[:5], {}, "predictions of 120 rows, but y has 5"),
        (PROBS, Y + 1, {}, "label '3'"),
        (2 * PROBS, Y, {}, "sum"),
        (PROBS, Y, {"task": "regression"}, "predictions of classification: expected regression"),
        (PROBS, Y, {"task": "ranking"}, "unknown task 'ranking'"),
        (["a.csv", PROBS], Y, {}, "a list of files with ndarray in it"),
        (["a.csv", "a.csv"], Y, {}, "'a.csv' is given twice"),
        ("missing.csv", None, {}, "no file 'missing.csv'"),
        ({"a": PROBS, "b": PROBS[:, :7]}, Y, {}, "predictions of 7 rows"),
        (PROBS, Y, {"groups": {"size": SIZES[:4]}}, "size"),
    ],
)
def test_predictions_that_cannot_be_audited_are_refused(source, y, settings, words):
    with pytest.raises(mm.Misuse, match=words):
        mm.audit(source, y, **settings)
