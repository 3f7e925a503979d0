"""`murmur prune` writes a run, shows the curve, and refuses on one line."""

import json
from pathlib import Path

import pytest
from check_report import report_check
from cli_fixtures import SMALL, assert_refused, tree
from feature_fixtures import NET, write_photos, write_weights

import murmuration as mm
from murmuration.cli import main
from murmuration.models.features import BACKBONE
from murmuration.runs.directory import read_run

pytest_plugins = ["cli_fixtures"]


@pytest.fixture(autouse=True)
def _few_levels(monkeypatch):
    monkeypatch.setattr("murmuration.applications.pruning.runs.LEVELS", (0.0, 0.5, 0.9))


@pytest.fixture(scope="module")
def bayes_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bayes") / "run"
    assert (
        main(["train", "two-moons", "--recipe", "bayes", *SMALL, "--members", "1", "--out", str(path), "--json"]) == 0
    )
    return path


@pytest.mark.slow
def test_a_run_is_pruned_fine_tuned_and_told(murmur, bayes_run: Path, tmp_path: Path):
    before, out = tree(bayes_run), tmp_path / "pruned"
    ended = murmur("prune", bayes_run, "--rule", "snr", "--sparsity", 0.9, "--finetune", 1, "--out", out)
    assert (ended.code, ended.err) == (0, "")
    assert tree(bayes_run) == before
    lines = ended.out.splitlines()
    assert next(line for line in lines if "weights gone" in line).split()[-2:] == ["Accuracy", "NLL"]
    assert any(line.split()[:2] == ["90.0", "%"] for line in lines)
    assert "90.0 % of the kernels' weights are gone: weights by abs(mean) / std, global." in lines
    record = read_run(out).entries["pruning"]
    left, dense = record["counts"]["nonzero"], record["counts"]["dense"]
    assert f"Of {dense:,} parameters, {left:,} are not zero;" in ended.out
    assert lines[-1] == f"report: {out / 'report.html'}"
    page = (out / "report.html").read_text()
    assert report_check(out / "report.html") == []
    assert 'id="pruning"' in page
    assert "after 1 epoch of fine-tuning" in page
    assert 'id="pruning"' not in (bayes_run / "report.html").read_text()
    assert mm.load(out).manifest.entries["pruning"] == record


def test_json_holds_scores_and_pruning(murmur, moons_run: Path, tmp_path: Path):
    ended = murmur("prune", moons_run, "--tolerance", 0.9, "--out", tmp_path / "out", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert found["pruning"]["chosen"]
    assert found["pruning"]["sparsity"] == 0.9
    assert found["pruning"]["of"] == str(moons_run)
    assert found == json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert 0 < found["pruning"]["reached"] < 1


def test_channels_are_taken_out_of_the_net(murmur, bayes_run: Path, tmp_path: Path):
    words = ("--structured", "--sparsity", 0.5, "--compact", "--out", tmp_path / "small")
    ended = murmur("prune", bayes_run, *words)
    assert ended.code == 0, ended.err
    assert "channels gone" in ended.out
    small = sum(p.numel() for p in mm.load(tmp_path / "small").member(0).parameters())
    assert f"The network was rebuilt without them: {small:,} parameters are left" in ended.out


def test_without_out_the_run_stands_beside_the_old_one(murmur, moons_run: Path):
    first, second = (murmur("prune", moons_run, "--sparsity", 0.5) for _ in range(2))
    for ended, n in ((first, 1), (second, 2)):
        assert ended.out.splitlines()[-1] == f"report: {moons_run}-pruned-{n}/report.html"


def test_training_with_an_l1_norm_leaves_zeros_to_prune(murmur, tmp_path: Path):
    trained = murmur("train", "two-moons", *SMALL, "--l1", 0.3, "--out", tmp_path / "run", "--json")
    assert trained.code == 0, trained.err
    ended = murmur("prune", tmp_path / "run", "--threshold", 0, "--out", tmp_path / "out", "--json")
    assert json.loads(ended.out)["pruning"]["reached"] > 0.01
    run, out = (mm.load(tmp_path / name, posthoc=False) for name in ("run", "out"))
    x = mm.open_data("two-moons").test.prepared
    assert run.predict(x, calibrated=False, prepared=True).outputs.equal(
        out.predict(x, calibrated=False, prepared=True).outputs
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--sparsity", 1.5), ("--sparsity 1.5", "such as 0.8")),
        (("--sparsity", 0.5, "--threshold", 0.1), ("give one",)),
        (("--rule", "srn"), ("did you mean 'snr'",)),
        (("--rule", "snr", "--sparsity", 0.5), ("write --rule magnitude",)),
        (("--scope", "net"), ("unknown scope 'net'",)),
        (("--sparsity", 0.5, "--lr", 0.1), ("without finetune",)),
        (("--sparsity", 0.5, "--compact"), ("add structured",)),
        (("--structured", "--sparsity", 0.5, "--compact"), ("members keep different channels",)),
    ],
    ids=str,
)
def test_bad_requests_are_one_line(murmur, moons_run: Path, tmp_path: Path, words, told):
    assert_refused(murmur("prune", moons_run, *words, "--out", tmp_path / "out"), 2, told)
    assert not (tmp_path / "out").exists()


def test_no_run_and_no_room_are_told(murmur, moons_run: Path, tmp_path: Path):
    assert_refused(murmur("prune", tmp_path / "none", "--sparsity", 0.5), 2, ("no run at",))
    assert_refused(murmur("prune", moons_run, "--sparsity", 0.5, "--out", moons_run), 2, ("already holds a run",))


def test_a_run_on_features_is_pruned_with_its_backbone(murmur, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos", 40)
    write_weights(tmp_path / "net.safetensors")
    words = ("train", "photos", "--features", NET, "--features-from", "net.safetensors", "--size", "8", "--val", "0.3")
    fast = ("--members", "2", "--epochs", "1", "--engine", "loop", "--batch-size", "16", "--out", "run", "--json")
    assert murmur(*words, *fast).code == 0
    ended = murmur("prune", "run", "--sparsity", "0.5", "--out", "pruned")
    assert ended.code == 0, ended.err
    assert (tmp_path / "pruned" / BACKBONE).exists()
