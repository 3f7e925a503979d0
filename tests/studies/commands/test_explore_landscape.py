"""`murmur explore RUN WHAT`: every study of the loss landscape leaves a page and its numbers, and can continue."""

import json
import warnings
from pathlib import Path

import pandas as pd
import pytest
from check_report import report_check
from cli_fixtures import assert_refused

from murmuration.cli import main
from murmuration.studies.commands.explore import WHATS
from murmuration.studies.pages.studies import STUDIES

pytest_plugins = ["cli_fixtures"]
FAST = {
    "plane": ("--grid", "4", "--samples", "2"),
    "subspaces": ("--samples", "3", "--samplers", "diagonal,dropout"),
    "trade-off": ("--samples", "4", "--samplers", "diagonal,dropout"),
    "tsne": ("--samples", "2", "--samplers", "diagonal"),
    "sizes": ("--samples", "2", "--samplers", "diagonal", "--severities", "1", "--ood", "two-moons"),
    "factorial": ("--runs", "1", "--rates", "0.001", "--epochs", "1"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("landscape") / "run"
    words = ["train", "two-moons", "--net", "mlp", "--members", "3", "--epochs", "4", "--engine", "loop"]
    assert main([*words, "--trajectory", "every-epoch", "--out", str(path), "--json"]) == 0
    return path


def test_the_help_names_every_study():
    assert list(WHATS) == list(STUDIES)


@pytest.mark.parametrize("what", [name for name in STUDIES if name != "tunnel"])
def test_a_study_leaves_page_and_numbers(murmur, run, what):
    ended = murmur("explore", run, what, "--examples", 40, *FAST.get(what, ()), "--json")
    assert (ended.code, ended.err) == (0, "")
    found, page = json.loads(ended.out), run / "explore" / f"{what}.html"
    assert found["written"] == [str(page), str(page.with_suffix(".json")), str(page.with_suffix(".parquet"))]
    assert found["sentences"] or what == "trade-off"  # two moons are too easy to compare at equal accuracy
    assert report_check(page) == []
    assert len(pd.read_parquet(page.with_suffix(".parquet"))) > 0
    stored = json.loads(page.with_suffix(".json").read_text())
    assert stored == {name: value for name, value in found.items() if name not in ("sentences", "written")}


@pytest.mark.slow
def test_a_tunnel_leaves_page_and_numbers(murmur, run):
    ended = murmur("explore", run, "tunnel", "--examples", 40)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("estimated time on 40 examples")
    assert "the tunnel path connects the optima at low loss: " in ended.out
    assert report_check(run / "explore" / "tunnel.html") == []


def test_a_second_call_computes_nothing_anew(murmur, run, monkeypatch):
    words = ("explore", run, "plane", "--examples", 30, "--grid", 3, "--samples", 2, "--json")
    first = murmur(*words)
    monkeypatch.setattr("murmuration.studies.landscape.Landscape.__call__", lambda *arguments: 1 / 0)
    assert murmur(*words).out == first.out


def test_a_run_without_a_trajectory_has_planes_but_no_paths(murmur, tmp_path):
    words = ["train", "two-moons", "--net", "mlp", "--members", "2", "--epochs", "1", "--engine", "loop", "--json"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    ended = murmur("explore", tmp_path / "run", "plane", "--examples", 20, "--grid", 3)
    assert (ended.code, ended.err) == (0, "")
    assert_refused(murmur("explore", tmp_path / "run", "tsne"), 2, ("no trajectory", "--trajectory every-epoch"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("plane", "--anchors", "0,7"), ("--anchors 0,7", "3 members")),
        (("plane", "--anchors", "a"), ("--anchors a", "such as 0,1")),
        (("plane", "--anchors", "0"), ("1 anchors", "two members and the origin")),
        (("tunnel", "--anchors", "0,1,2"), ("3 anchors", "two members")),
        (("similarity", "--grid", "3"), ("--grid is for plane", "not for similarity")),
        (("trade-off", "--samplers", "gauss"), ("unknown sampler 'gauss'", "diagonal")),
        (("plane", "--image", "gif"), ("--image gif", "png or svg")),
        (("plane", "--infinite-width"), ("--infinite-width is for kernels",)),
        (("kernels", "--grid", "3"), ("--grid is not for kernels",)),
        (("plane", "--grid", "0"), ("--grid 0", "at least 1")),
        (("sizes", "--severities", "x"), ("--severities x", "1,3,5")),
        (("plan",), ("unknown thing to explore 'plan'", "did you mean 'plane'")),
        (("plane", "--recipe", "forde"), ("--recipe forde is for DATA",)),
    ],
)
def test_what_does_not_fit_is_refused(murmur, run, words, told):
    assert_refused(murmur("explore", run, *words), 2, told)


def test_data_is_no_run(murmur):
    assert_refused(murmur("explore", "two-moons", "plane"), 2, ("no run at two-moons: the directory does not exist",))


def test_means_stand_for_random_weights_and_one_member_has_no_plane(murmur, tmp_path):
    words = ["train", "two-moons", "--net", "mlp", "--recipe", "bayes", "--epochs", "1", "--engine", "loop", "--json"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ended = murmur("explore", tmp_path / "run", "similarity", "--examples", 20, "--json")
    assert ended.code == 0
    assert "networks with their means are explored" in ended.err
    refused = murmur("explore", tmp_path / "run", "plane")
    assert refused.code == 2
    assert "the ensemble has 1" in refused.err
