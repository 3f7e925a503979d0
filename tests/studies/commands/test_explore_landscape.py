"""`murmur explore RUN WHAT`: every study of the loss landscape leaves a page and its numbers, and can continue."""

import json
import warnings
from pathlib import Path

import numpy as np
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


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on tiny random images, beside a folder of the official layout."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    pixels = lambda count: rng.integers(256, size=(count, 32, 32, 3), dtype=np.uint8)  # noqa: E731
    np.savez(folder / "data.npz", x=pixels(150), y=np.arange(150) % 10)
    (folder / "CIFAR-10-C").mkdir()
    for name in ("fog", "brightness"):
        np.save(folder / "CIFAR-10-C" / f"{name}.npy", pixels(100))
    np.save(folder / "CIFAR-10-C" / "labels.npy", np.tile(np.arange(20) % 10, 5).astype(np.uint8))
    words = ["train", str(folder / "data.npz"), "--net", "small-cnn", "--members", "2", "--epochs", "1", "--json"]
    assert main([*words, "--trajectory", "every-epoch", "--out", str(folder / "run")]) == 0
    return folder


def test_sizes_take_the_official_corrupted_images(murmur, images):
    command = ("explore", images / "run", "sizes", "--samplers", "dropout", "--samples", 2, "--examples", 12)
    ended = murmur(*command, "--cifar-c", images / "CIFAR-10-C", "--severities", "1,5", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert {(at["name"], at["severity"]) for at in found["conditions"]} == {
        *(("", 0), ("fog", 1), ("fog", 5), ("brightness", 1), ("brightness", 5))
    }
    refused = murmur(*command, "--cifar-c", images / "missing")
    assert_refused(refused, 2, ("missing",))


def test_a_sampler_without_accepted_samples_is_left_out(murmur, images, monkeypatch):
    never = {"random": {"threshold": 1.1}, "pca-random": {"threshold": 1.1, "rank": 1}}
    monkeypatch.setattr("murmuration.studies.pages.studies.sampler_settings", lambda subject: never)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        command = ("explore", images / "run", "sizes", "--samplers", "random,dropout,pca-random", "--samples", 2)
        ended = murmur(*command, "--examples", 12, "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["methods"] == ["original", "average", "trajectory", "dropout"]
    assert "random is left out" in ended.err
    assert "pca-random is left out" in ended.err


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
