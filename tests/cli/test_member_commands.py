"""`murmur add-members`, `drop-members` and `merge` write a new run with its report, and refuse on one line."""

import json
from pathlib import Path

import pytest
from check_report import report_check
from cli_fixtures import SMALL, assert_refused, tree

import murmuration as mm
from murmuration.cli import main

pytest_plugins = ["cli_fixtures"]


def test_members_are_added_dropped_and_merged(murmur, moons_run: Path, tmp_path: Path):
    before, added = tree(moons_run), tmp_path / "added"
    ended = murmur("add-members", moons_run, 1, "--out", added)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == f"report: {added / 'report.html'}"
    assert report_check(added / "report.html") == []
    assert mm.load(added).members == 3
    ended = murmur("drop-members", added, "0,2", "--out", tmp_path / "dropped", "--json")
    assert json.loads(ended.out) == json.loads((tmp_path / "dropped" / "metrics.json").read_text())
    assert mm.load(tmp_path / "dropped").members == 1
    other = tmp_path / "other"
    assert main(["train", "two-moons", *SMALL, "--first-member", "2", "--out", str(other), "--json"]) == 0
    ended = murmur("merge", moons_run, other, "--out", tmp_path / "merged")
    assert (ended.code, ended.err) == (0, "")
    assert report_check(tmp_path / "merged" / "report.html") == []
    assert mm.load(tmp_path / "merged").members == 4
    assert tree(moons_run) == before


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("add-members", "RUN", 0), ("N 0", "at least 1")),
        (("drop-members", "RUN", "x"), ("'x' is not the number", "1,3")),
        (("drop-members", "RUN", "5"), ("has 2", "0 to 1")),
        (("drop-members", "RUN", "0,1"), ("not all",)),
        (("merge", "RUN", "RUN", "--out", "NEW"), ("both hold the member of seed 0 and number 0", "--first-member")),
        (("merge", "RUN", "--out", "NEW"), ("two or more",)),
        (("merge", "RUN", "SINE", "--out", "NEW"), ("cannot be merged", "data fingerprint")),
        (("add-members", "NEW", 1), ("no run at",)),
    ],
)
def test_requests_that_do_not_fit_are_refused(words, expected, murmur, moons_run: Path, sine_run: Path, tmp_path: Path):
    places = {"RUN": moons_run, "SINE": sine_run, "NEW": tmp_path / "new"}
    assert_refused(murmur(*(places.get(word, word) for word in words)), 2, expected)
    assert not (tmp_path / "new").exists()
