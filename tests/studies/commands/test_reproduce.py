"""`murmur reproduce`: files, tables, JSON and refusals."""

import json
import signal

import pytest
from check_report import report_check
from cli_fixtures import assert_refused

pytest_plugins = ["cli_fixtures"]
SMALL = ("--data", "two-moons", "--widths", "0.25,0.5", "--models", "1,2", "--arms", "independent,naive")
ONCE = (*SMALL, "--seeds", "0", "--epochs", "1", "--parts", "panels")


def test_a_small_grid_leaves_record_report_and_tables(murmur, tmp_path):
    ended = murmur("reproduce", "embedded", *ONCE, "--out", tmp_path / "x")
    assert (ended.code, ended.err) == (0, "")
    record = json.loads((tmp_path / "x" / "record.json").read_text())
    assert len(record["cells"]) == 2 + 2 * 2
    assert report_check(tmp_path / "x" / "report.html") == []
    row = next(line for line in ended.out.splitlines() if "naive, N=16" in line)
    accuracy = next(c for c in record["cells"] if (c["arm"], c["width"], c["models"]) == ("naive", 0.5, 2))["accuracy"]
    assert f"{accuracy:.3f}" in row.split()
    assert "cannot tell" in ended.out
    assert ended.out.splitlines()[-1] == f"report: {tmp_path / 'x' / 'report.html'}"
    again = murmur("reproduce", "embedded", *ONCE, "--out", tmp_path / "x", "--json")
    told = json.loads(again.out)
    assert told["cells"] == record["cells"]
    assert [each["name"] for each in told["verdicts"]] == [
        *(f"P{n}" for n in range(1, 8)),
        "theorem 1.1",
        "theorem 1.2",
        "theorem 2.1",
        "theorem 2.2",
        "assumption A3",
    ]
    record["cells"][0]["accuracy"] = 0.99
    (tmp_path / "x" / "record.json").write_text(json.dumps(record))
    assert_refused(murmur("reproduce", "embedded", *ONCE, "--out", tmp_path / "x"), 1, ("record.json has changed",))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("embeded",), ("unknown experiment 'embeded'", "did you mean 'embedded'")),
        (("embedded", "--arms", "naiv"), ("unknown arm 'naiv'", "naive")),
        (("embedded", "--models", "1,two"), ("--models 1,two", "1,2,4")),
        (("embedded", "--models", ""), ("--models", "is empty")),
        (("embedded", "--epochs", "0"), ("--epochs 0", "at least 1")),
        (("embedded", "--examples", "9"), ("--examples 9", "does not use it", "--widths")),
        (("landscape", "--profile", "gpu"), ("unknown profile 'gpu'", "laptop")),
    ],
)
def test_bad_requests_are_one_line(murmur, tmp_path, words, told):
    ended = murmur("reproduce", *words, "--out", tmp_path / "x")
    assert_refused(ended, 2, told)
    assert not (tmp_path / "x").exists()


def test_experiments_are_listed(murmur):
    ended = murmur("list", "experiments", "--json")
    assert list(json.loads(ended.out)) == ["bayes-cnn", "embedded", "forde", "hcl", "longtail", "landscape"]


def test_an_interrupt_after_the_report_is_written(murmur, tmp_path, monkeypatch):
    command = (
        "reproduce",
        "embedded",
        *SMALL[:-1],
        "independent",
        "--seeds",
        "0",
        "--epochs",
        "1",
        "--parts",
        "panels",
    )
    command = (*command, "--out", tmp_path / "x")
    with monkeypatch.context() as patch:
        end = lambda *_, **__: signal.raise_signal(signal.SIGTERM)  # noqa: E731
        patch.setattr("murmuration.studies.commands.reproduce.print_table", end)
        ended = murmur(*command)
    assert (ended.code, ended.err) == (143, "interrupted: the same command continues from here\n")
    assert (tmp_path / "x" / "report.html").exists()
    assert murmur(*command).code == 0
