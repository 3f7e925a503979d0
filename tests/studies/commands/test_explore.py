"""`murmur explore` says what the library finds, before and after training, on the screen, as JSON and as a page."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from check_report import elements, report_check
from cli_fixtures import SMALL, assert_refused, tree, write_table

import murmuration as mm
from murmuration.cli import main
from murmuration.studies.kernels import kernel_diagnosis, kernels_at_infinite_width, kernels_before
from murmuration.system.files import write_record

pytest_plugins = ["cli_fixtures"]

KEYS = {
    *("stage", "regime", "verdict", "advice", "members", "inputs", "shares", "tangent_ratio", "pull", "gamma"),
    *("covariance_ratio", "initialisations", "correlation", "own_fraction", "capacity", "slowest", "layer", "width"),
    "alignment",
}


@pytest.fixture(scope="module")
def collective_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("collective") / "run"
    words = ["train", "two-moons", "--recipe", "batch-ensemble", "--net", "mlp", "--members", "6", "--epochs", "1"]
    assert main([*words, "--engine", "loop", "--out", str(path), "--json"]) == 0
    return path


def figure_data(page: str) -> dict[str, list]:
    found = (each for each in elements(page) if "data-figure" in each.attributes)
    return {each.attributes["data-figure"]: json.loads(each.text)["data"][0]["z"] for each in found}


def test_a_run_is_shown_before_and_after(murmur, collective_run, moons):
    ended = murmur("explore", collective_run, "kernels", "--examples", 16, "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert found.keys() == {"run", "what", "recipe", "answers", "before", "after"}
    assert found["before"].keys() == found["after"].keys() == KEYS
    after = kernel_diagnosis(mm.load(collective_run), moons.test.prepared, inputs=16)
    before = kernels_before("mlp", moons, recipe="batch-ensemble", members=6, inputs=16)
    assert found["after"] == json.loads(json.dumps(after.to_json()))
    assert found["before"] == json.loads(json.dumps(before.to_json()))
    assert found["before"]["regime"] == "collective"
    assert found["after"]["covariance_ratio"] is None  # it belongs to the start


def test_the_limit_of_infinite_width_stands_beside_the_measured_kernels(murmur, collective_run, moons, tmp_path):
    ended = murmur("explore", collective_run, "kernels", "--infinite-width", "--out", tmp_path / "k.html", "--json")
    assert (ended.code, ended.err) == (0, "")
    limit = kernels_at_infinite_width("mlp", moons, recipe="batch-ensemble", members=6)
    assert json.loads(ended.out)["limit"]["tangent_ratio"] == limit.regime.tangent_ratio
    assert "At infinite width it is collective" in (tmp_path / "k.html").read_text()
    words = ("--recipe", "batch-ensemble", "--net", "mlp", "--members", 6, "--infinite-width")
    shown = murmur("explore", "two-moons", "kernels", *words).out
    assert "Infinite width" in shown
    assert f"At infinite width it is {limit.verdict}." in shown
    ended = murmur("explore", "digits", "kernels", "--recipe", "batch-ensemble", "--infinite-width")
    assert_refused(ended, 2, ("known for chains of Linear and ReLU layers",))


def test_screen_and_page_say_what_the_record_says(murmur, collective_run):
    ended = murmur("explore", collective_run, "kernels")
    path, found = (
        collective_run / "kernels.html",
        json.loads(murmur("explore", collective_run, "kernels", "--json").out),
    )
    page, room = path.read_text(), "N = 128, the channels that head.weight takes"
    assert ended.out.splitlines()[-1] == f"written: {path}"
    assert report_check(path) == []  # complete in itself
    row = next(line for line in ended.out.splitlines() if line.startswith(" T_o / T_d")).split()
    off = ~np.eye(6, dtype=bool)
    for stage, text in (("before", row[-2]), ("after", row[-1])):
        assert float(text) == pytest.approx(found[stage]["tangent_ratio"], rel=0.005)  # three digits
        drawn = np.array(figure_data(page)[f"kernel-{stage}"], dtype=float)
        assert np.isnan(drawn.diagonal()).all()
        np.testing.assert_allclose(drawn[off], np.array(found[stage]["alignment"])[off], rtol=1e-5)  # six digits
        told = f"{stage.capitalize()} training it is {found[stage]['verdict']}."
        assert told in ended.out
        assert told in page
    assert "- gamma=1 is right" in ended.out
    assert room in ended.out
    assert room in page


def test_data_is_looked_at_before_anything_is_trained(murmur, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("explore", "two-moons", "kernels", "--recipe", "batch-ensemble", "--net", "mlp", "--members", 4)
    signs = ("--sharing", "rank-one:init=rademacher", "--optimiser", "sgd", "--seed", 3)
    ended = murmur(*words, *signs)
    assert ended.code == 0
    assert "Before training it is independent: a step of one member" in ended.out
    assert "- use gamma=M: with gamma=1 shared weights learn 4 times slower than alone" in ended.out
    assert "adam" not in ended.out
    assert ended.out.splitlines()[-1] == "add --out FILE.html for a page with figures"
    assert tree(tmp_path) == {}
    found = json.loads(murmur(*words, *signs, "--json", "--out", "k.html").out)
    assert found.keys() == {"data", "what", "recipe", "answers", "before"}
    assert report_check(tmp_path / "k.html") == []


def test_who_shares_nothing_is_told_so(murmur, moons_run):
    ended = murmur("explore", moons_run, "kernels")
    assert "After training it is independent by construction: members share nothing that is trained" in ended.out
    assert report_check(moons_run / "kernels.html") == []


def test_a_run_on_other_examples(murmur, collective_run, tmp_path):
    test = mm.open_data("two-moons").test
    np.savez(tmp_path / "same.npz", x=test.prepared.numpy(), y=test.y.numpy())
    other = murmur("explore", collective_run, "kernels", "--on", tmp_path / "same.npz", "--json")
    assert json.loads(other.out) == json.loads(murmur("explore", collective_run, "kernels", "--json").out)


def unfinished(run: Path, folder: Path) -> Path:
    copied = Path(shutil.copytree(run, folder / "copy"))
    manifest = json.loads((copied / "run.json").read_text())
    write_record(copied / "run.json", {**manifest, "status": "training"})
    return copied


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("RUN", "kernel"), ("unknown thing to explore 'kernel': did you mean 'kernels'?",)),
        ((), ("RUN|DATA is missing",)),
        (("RUN", "kernels", "--examples", "0"), ("--examples 0: expected at least 1",)),
        (("RUN", "kernels", "--recipe", "forde"), ("--recipe forde is for DATA: ", " is a run and has its own")),
        (("RUN", "kernels", "--target", "y"), ("--target y is for DATA",)),
        (("RUN", "kernels", "--out", "k.png"), ("--out k.png has the suffix '.png'", ".html")),
        (("two-moons", "kernels", "--on", "digits"), ("--on digits is for a run: two-moons is data",)),
        (("two-moons", "kernels", "--recipe", "single"), ("1 member: kernels between members need at least 2",)),
        (("two-moons", "kernels", "--members", "0"), ("--members 0",)),
        (("two-moons", "kernels", "--recipe", "batch"), ("unknown recipe 'batch'",)),
        (("runs/none", "kernels"), ("no file or folder 'runs/none'",)),
        (("runs/none", "plane"), ("no run at runs/none: the directory does not exist",)),
        (("COMPARISON", "plane"), ("it holds several, as a comparison does; name one of them: ", "single/seed-0")),
        (("COMPARISON", "kernels"), ("it holds several, as a comparison does",)),
        (("UNFINISHED", "kernels"), ("is not finished: continue it with murmur resume",)),
    ],
)
def test_bad_requests_end_in_one_line(murmur, moons_run, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    places = {"RUN": moons_run}
    if "UNFINISHED" in words:
        places["UNFINISHED"] = unfinished(moons_run, tmp_path)
    if "COMPARISON" in words:
        places["COMPARISON"] = tmp_path / "comparison"
        (tmp_path / "comparison" / "single" / "seed-0").mkdir(parents=True)
        write_record(tmp_path / "comparison" / "single" / "seed-0" / "run.json", {})
    before = tree(moons_run)
    assert_refused(murmur("explore", *(places.get(word, word) for word in words)), 2, told)
    assert tree(moons_run) == before


def test_help_opens_with_examples(murmur):
    text = murmur("explore", "--help").out
    assert text.index("murmur explore runs/digits kernels") < text.index("Explore a trained ensemble")
    assert "explore" in murmur("--help").out
    assert SMALL[0] in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--net", "ridge"), "has a ridge among its members: this command is for networks alone"),
        (("--folds", 3, *SMALL), "has members of 3 folds"),
    ],
)
def test_other_models_and_folds_are_refused(murmur, tmp_path: Path, words, told):
    write_table(tmp_path / "t.csv")
    train = ("train", tmp_path / "t.csv", "--target", "y", *words, "--out", tmp_path / "run", "--json")
    assert murmur(*train).code == 0
    assert_refused(murmur("explore", tmp_path / "run", "similarity"), 2, (told,))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("explore runs/nowhere plane", "error: no run at runs/nowhere: the directory does not exist"),
        ("explore runs/nowhere", "error: no file or folder 'runs/nowhere'"),
    ],
)
def test_a_missing_run_is_named_before_torch_is_imported(words: str, told: str) -> None:
    program = "import sys; from murmuration.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program, *words.split()], capture_output=True, text=True)
    assert ended.stdout == "2 False\n"
    assert told in ended.stderr
