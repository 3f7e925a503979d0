"""`mm.compare`: the same runs, tests and files as `murmur compare`; resumption; refusals."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from check_report import report_check
from torch import nn

import murmuration as mm
from murmuration.cli import main
from murmuration.reports import comparison

SMALL = {"net": "mlp:hidden=4", "members": 2, "epochs": 1, "engine": "loop"}
WORDS = ("--net", "mlp:hidden=4", "--members", "2", "--epochs", "1", "--engine", "loop", "--json")
RECIPES = ["single", "deep-ensemble:coupling=outputs"]


def without_times(record: dict) -> dict:
    """Drop what differs between two runs of the same comparison: times, paths and the command."""
    results = {name: {**result, "run": "", "cost": {}} for name, result in record["results"].items()}
    return {**record, "results": results, "command": "", "report": ""}


def test_a_comparison_in_python_equals_the_command(tmp_path: Path, capsys):
    assert main(["compare", "two-moons", "--recipes", ",".join(RECIPES), *WORDS, "--out", str(tmp_path / "c")]) == 0
    expected = json.loads(capsys.readouterr().out)
    compared = mm.compare("two-moons", RECIPES, out=tmp_path / "p", **SMALL)
    assert json.loads((tmp_path / "p" / "results.json").read_text()) == json.loads(json.dumps(compared.to_json()))
    assert without_times(json.loads(json.dumps(compared.to_json()))) == without_times(expected)
    settings = [json.loads((tmp_path / name / "compare.json").read_text()) for name in ("c", "p")]
    assert settings[0] == settings[1]
    assert report_check(tmp_path / "p" / "report.html") == []


def test_a_table_gets_its_defaults_and_baselines_as_by_the_command(tmp_path: Path, capsys):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=200), "b": rng.choice(["x", "y"], 200)})
    table["y"] = 5 * table.a + (table.b == "x") + rng.normal(size=200)
    table.to_csv(tmp_path / "t.csv", index=False)
    words = ["compare", str(tmp_path / "t.csv"), "--target", "y", "--recipes", "single", "--steps", "20", "--json"]
    assert main([*words, "--out", str(tmp_path / "c")]) == 0
    expected = json.loads(capsys.readouterr().out)
    compared = mm.compare(tmp_path / "t.csv", ["single"], target="y", steps=20)
    names = ["single", "ridge (baseline)", "hist-gradient-boosting (baseline)"]
    assert [evaluation.name for evaluation in compared.evaluations] == names
    for name, result in compared.to_json()["results"].items():
        assert result["metrics"] == expected["results"][name]["metrics"]
    assert "report" not in compared.to_json()
    assert compared.out is None


def test_the_table_and_the_text_show_every_recipe(tmp_path: Path):
    compared = mm.compare("two-moons", RECIPES, ood=["two-moons"], **SMALL)
    assert compared.table.index.tolist() == RECIPES
    assert compared.table.loc["single", "nll"] == float(compared.evaluations[0].scores["nll"])
    assert compared.table.members.tolist() == [1, 2]
    lines = repr(compared).splitlines()
    assert lines[0] == "Comparison on 500 examples of two-moons"
    assert [line.split()[0] for line in lines[2:4]] == RECIPES
    assert lines[4].startswith("no input: the class frequencies ")
    assert lines[5:] == list(compared.verdict)
    assert compared.recommended in RECIPES
    assert {test.test.name for test in compared.tests} == {"accuracy", "nll"}
    assert [ood.name for ood in compared.evaluations[0].ood] == ["two-moons"]
    compared.report(tmp_path / "new" / "report.html")
    assert report_check(tmp_path / "new" / "report.html") == []


def test_a_killed_comparison_continues(tmp_path: Path, monkeypatch):
    out, whole = tmp_path / "c", comparison.Trainer.train_or_resume

    def stop(*given, **named):
        raise KeyboardInterrupt

    def second_is_killed(trainer, recipe, path):
        if recipe.name != "single":
            monkeypatch.setattr("murmuration.training.fitting.ProgressCallback.after_step", stop)
        return whole(trainer, recipe, path)

    with monkeypatch.context() as patch:
        patch.setattr(comparison.Trainer, "train_or_resume", second_is_killed)
        with pytest.raises(KeyboardInterrupt):
            mm.compare("two-moons", RECIPES, out=out, **SMALL)
    monkeypatch.undo()
    finished = (out / "single" / "members.safetensors").stat().st_mtime_ns
    continued = mm.compare("two-moons", RECIPES, out=out, **SMALL)
    assert (out / "single" / "members.safetensors").stat().st_mtime_ns == finished
    straight = mm.compare("two-moons", RECIPES, **SMALL)
    assert [e.scores for e in continued.evaluations] == [e.scores for e in straight.evaluations]
    with pytest.raises(mm.Misuse, match=r"other settings \(seed differs\): repeat them, or choose another out="):
        mm.compare("two-moons", RECIPES, out=out, seed=3, **SMALL)


def test_objects_of_the_user_are_compared_and_continued(tmp_path: Path):
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    recipes = [mm.make_recipe("single"), replace(mm.make_recipe("function-rde"), name="own")]
    settings = {**SMALL, "net": net, "likelihood": mm.Categorical(2), "out": tmp_path / "c"}
    first = mm.compare("two-moons", recipes, **settings)
    again = mm.compare("two-moons", recipes, **settings)
    assert [e.name for e in first.evaluations] == ["single", "own"]
    assert [e.scores for e in first.evaluations] == [e.scores for e in again.evaluations]


@pytest.mark.parametrize(
    ("recipes", "settings", "words"),
    [
        (["single"], {}, "recipes='single' alone: need two names"),
        ([], {}, "no recipes: need two names"),
        ("single", {}, "recipes='single': expected a list"),
        (["single", "single"], {}, "recipes= names 'single' twice"),
        (["single", "deep"], {}, "unknown recipe 'deep'"),
        (["single", "forde:lr=3"], {}, "unknown setting of the recipe 'forde:lr=3'"),
        (RECIPES, {"learning_rate": 1}, "write lr="),
        (RECIPES, {"ood": ["digits"]}, r"ood='digits': examples have the shape \(1, 8, 8\)"),
        (RECIPES, {"ood": ["two-moons", "two-moons"]}, "ood= names 'two-moons' twice"),
        (RECIPES, {"shift": "fog"}, "shift='fog'"),
        (RECIPES, {"baselines": "ridge"}, "baselines='ridge': expected a list"),
        (RECIPES, {"baselines": ["forest"]}, "unknown model 'forest'"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_written(tmp_path: Path, recipes, settings, words):
    with pytest.raises(mm.Misuse, match=words):
        mm.compare("two-moons", recipes, out=tmp_path / "c", **SMALL, **settings)
    assert not list(tmp_path.iterdir())


def test_keywords_of_data_beside_a_data_and_directories_with_other_files_are_refused(tmp_path: Path):
    with pytest.raises(mm.Misuse, match="target= with a Data"):
        mm.compare(mm.open_data("two-moons"), RECIPES, target="y", **SMALL)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(mm.Misuse, match=str(tmp_path)):
        mm.compare("two-moons", RECIPES, out=tmp_path, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
