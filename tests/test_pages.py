"""Pages and help texts are true: tables are those of the records, and every command they show runs."""

import json
import re

import documented_commands as documented
import pages
import pytest
import ranks_figure
from markdown_tables import table_rows
from table_text import markdown

import murmuration as mm
from murmuration.cli import main

COMMANDS = list(filter(documented.is_first_floor, documented.all_commands()))
HUB = "hf:"  # data of the hub would need the network


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda p: p.name)
def test_tables_are_those_of_the_records(page):
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
    scores = "accuracy 0.5 (0.4 to 0.6), nll 0.5 (0.4 to 0.6), ece 0.5"
    assert table_rows(pages.runs_table({"a": record}))[1:] == [
        ["a", "mlp", "2", "3", scores, "accuracy 0.45", "1.5 min"]
    ]


def test_the_record_of_a_finished_run_has_a_row(tmp_path):
    ensemble = mm.fit("mlp", "two-moons", members=2, epochs=1, out=tmp_path, progress=False)
    mm.evaluate(ensemble, "two-moons", out=tmp_path)
    record = json.loads(json.dumps(pages.run_record(tmp_path)))
    (row,) = table_rows(pages.runs_table({"moons": record}))[1:]
    assert row[:4] == ["moons", "mlp", "2", "1"]
    assert str(tmp_path) not in json.dumps(record)


def test_every_table_has_its_place_on_one_page():
    text = "".join(page.read_text() for page in pages.PAGES)
    places = re.findall("<!-- table ([^ ]+) -->", text)
    assert len(places) == len(set(places))
    assert set(pages.tables()) <= set(places)


def test_cells_are_written_as_they_are():
    assert table_rows(markdown([["0.50", -1, ""], ["1e-3", "", "+2"]], ["a", "b", "b"])) == [
        ["a", "b", "b"],
        ["0.50", "-1", ""],
        ["1e-3", "", "+2"],
    ]
    assert table_rows(markdown([{"a": "x"}, {"b": "1.0"}])) == [["a", "b"], ["x", ""], ["", "1.0"]]


def test_wide_tables_are_not_padded():
    lines = markdown([["x" * 300, "1"], ["y", "2"]], ["a", "b"]).splitlines()
    assert lines[2:] == [f"| {'x' * 300} | 1 |", "| y | 2 |"]
    assert max(map(len, lines)) == len(lines[2])


def test_the_record_of_the_toys_says_what_the_page_says_of_it():
    runs = json.loads((pages.RESULTS / "repulsion-toys.json").read_text())["runs"]
    found = {(run["toy"], run["seed"], run["recipe"]): run for run in runs}
    for (toy, seed, recipe), run in found.items():
        if recipe in ("function-rde", "forde-identity"):
            plain = found[toy, seed, "deep-ensemble"]
            assert all(run[place] > plain[place] for place in run if place not in ("toy", "seed", "recipe"))


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_commands_parse(command):
    documented.parse(command)


@pytest.mark.parametrize("page", documented.PAGES, ids=lambda p: p.name)
def test_commands_in_the_text_have_options_that_exist(page):
    for command in filter(documented.is_first_floor, documented.inline_commands(page)):
        documented.check_options(command)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workspace")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        documented.make_workspace(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("program", documented.page_programs(documented.README))
def test_programs_of_the_readme_run(program, workspace, monkeypatch):
    monkeypatch.chdir(workspace)
    found: dict = {}
    exec(re.sub("members=(5|10)", "members=2, epochs=2", program).replace("runs/prices", "runs/readme"), found)
    if "sklearn" in program:
        assert (found["low"] < found["high"]).all()
        return
    few = "photos/" in program  # too few here to validate
    assert few or found["ensemble"].posthoc is not None  # calibrated, as the page says
    assert found["predictive"].mean.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_documented_commands_run(command, workspace, monkeypatch, capsys):
    if HUB in command:
        return
    monkeypatch.chdir(workspace)
    number = len(list(workspace.glob("out-*")))
    code = main(documented.quick(command, number))
    assert code == 0, capsys.readouterr().err


def test_the_figure_and_the_sentence_of_the_readme_are_those_of_the_record():
    rows = ranks_figure.rows_of_record()
    assert ranks_figure.figure(rows) == ranks_figure.FIGURE.read_text(), "run python benchmarks/ranks_figure.py"
    text = documented.README.read_text()
    claims = {"`mixed` recipe has the mean rank": "ours:mixed", "our default": "default", "CatBoost": "catboost"}
    for words, name in claims.items():
        assert f"{words} {rows.rank_nll[name]:.1f}" in text
    assert 0.4 < rows.seconds["default"] / rows.seconds["catboost"] < 0.6  # "about half"


def test_the_readme_is_short():
    assert len(documented.README.read_text().splitlines()) <= 120
