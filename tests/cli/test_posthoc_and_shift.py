"""Commands do what the library does: post-hoc steps, corruptions and out-of-distribution inputs."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from check_report import report_check
from cli_fixtures import SMALL, assert_refused, tree

import murmuration as mm
from murmuration.evaluation import ShiftSuite, eval_set_of, evaluate_ood, evaluate_shift, in_distribution
from murmuration.prediction.posthoc import fit_posthoc, to_json
from murmuration.runs import directory as runs
from murmuration.system.files import write_record
from murmuration.system.records import plain_json

pytest_plugins = ["cli_fixtures"]
SHIFT = ("--only", "feature_noise,scale_drift", "--severities", "2,5", "--shift-examples", "120")


@pytest.fixture
def copied(moons_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(moons_run, tmp_path / "run"))


def stored(path: Path, name: str) -> dict:
    return json.loads((path / name).read_text())


def scores(pred: mm.Predictive, y: object) -> dict:
    return {name: score.to_json() for name, score in mm.score(pred, y).items()}


def as_written(record: object) -> object:
    return json.loads(json.dumps(plain_json(record)))


def test_train_keeps_posthoc_steps_and_scores_calibrated_predictions(moons_run):
    data, ensemble = mm.open_data("two-moons"), mm.load(moons_run)
    plain = mm.load(moons_run, posthoc=False)
    assert plain.posthoc is None
    assert stored(moons_run, "posthoc.json") == as_written(
        to_json(plain.fit_posthoc(data.val, config=mm.PostHocConfig()).posthoc)
    )
    found = stored(moons_run, "metrics.json")
    assert found["metrics"] == scores(ensemble.predict(data.test.x), data.test.y)
    assert found["calibration"]["before"] == scores(plain.predict(data.test.x), data.test.y)
    kept = found["calibration"]["choice"]["kept"]
    assert kept == (found["calibration"]["before"]["nll"] != found["metrics"]["nll"])


def test_predicted_classes_come_with_sets_and_abstention(murmur, moons_run, tmp_path):
    for name in ("p.csv", "p.npz", "p.parquet"):
        assert murmur("predict", moons_run, "two-moons", "--out", tmp_path / name).code == 0
    ensemble = mm.load(moons_run)
    pred, posthoc = ensemble.predict(mm.open_data("two-moons").test), ensemble.posthoc
    sets, answered = posthoc.conformal[0].regions(pred), posthoc.answered(pred)["answered_cost"]
    table = pd.read_csv(tmp_path / "p.csv", dtype={"set_90": str}, keep_default_na=False)
    assert table["set_90"].tolist() == ["|".join(np.array(["0", "1"])[row]) for row in sets]
    assert table["answered"].astype(bool).tolist() == answered.tolist()
    assert 0 < answered.mean() < 1
    with np.load(tmp_path / "p.npz") as found:
        np.testing.assert_array_equal(found["set_90"], sets)
        np.testing.assert_array_equal(found["answered"], answered)
    same = pd.read_parquet(tmp_path / "p.parquet")
    assert same["set_90"].tolist() == table["set_90"].tolist()
    assert same["answered"].tolist() == answered.tolist()


def test_regressions_come_with_intervals_and_abstention(murmur, sine_run, tmp_path):
    assert murmur("predict", sine_run, "x-sin-x", "--out", tmp_path / "p.csv").code == 0
    ensemble = mm.load(sine_run)
    pred, posthoc = ensemble.predict(mm.open_data("x-sin-x").test), ensemble.posthoc
    low, high = posthoc.conformal[0].regions(pred)
    table = pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(table["conformal_low_80"], low[:, 0], rtol=1e-8)  # nine digits
    np.testing.assert_allclose(table["conformal_high_80"], high[:, 0], rtol=1e-8)
    assert table["answered"].astype(bool).tolist() == posthoc.answered(pred)["answered_cost"].tolist()
    assert stored(sine_run, "metrics.json")["metrics"] == scores(pred, mm.open_data("x-sin-x").test.y)


def test_uncalibrated_predictions_are_those_of_the_members(murmur, moons_run, tmp_path):
    words = ("--uncalibrated", "--per-member", "--out", tmp_path / "raw.npz")
    assert murmur("predict", moons_run, "two-moons", *words).code == 0
    pred = mm.load(moons_run).predict(mm.open_data("two-moons").test, calibrated=False)
    with np.load(tmp_path / "raw.npz") as found:
        np.testing.assert_array_equal(found["probs"], pred.mean)
        np.testing.assert_array_equal(found["member_probs"], pred.probs)
        assert not {"set_90", "answered"} & set(found.files)


def test_calibrate_changes_posthoc_steps_and_scores(murmur, copied):
    data, plain = mm.open_data("two-moons"), mm.load(copied, posthoc=False)
    ended = murmur("calibrate", copied, "--calibrate", "vector", "--conformal", "raps", "--coverage", "0.8", "--json")
    fitted = plain.fit_posthoc(data.val, config=mm.PostHocConfig(calibrate="vector", conformal="raps", coverage=0.8))
    assert (ended.code, ended.err) == (0, "")
    assert stored(copied, "posthoc.json") == as_written(to_json(fitted.posthoc))
    assert stored(copied, "metrics.json")["metrics"] == scores(fitted.predict(data.test.x), data.test.y)
    assert json.loads(ended.out) == stored(copied, "metrics.json")
    assert report_check(copied / "report.html") == []


def test_calibrate_says_once_what_it_replaced(murmur, copied):
    vector = ("calibrate", copied, "--calibrate", "vector", "--coverage", "0.8")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        notes = [murmur(*words).err for words in (vector, vector, ("calibrate", copied, "--coverage", "0.8"))]
    begin = "note: these post-hoc steps replace those of before: calibrator "
    assert notes[0] == f"{begin}none (identity kept), conformal lac of coverage 0.9\n"
    assert notes[1] == ""  # the same steps
    assert notes[2].startswith(f"{begin}none (identity kept)")
    assert notes[2].endswith("conformal lac of coverage 0.8\n")


def test_calibrate_none_removes_the_calibrator(murmur, copied):
    assert murmur("calibrate", copied, "--calibrate", "none").code == 0
    data, ensemble = mm.open_data("two-moons"), mm.load(copied)
    assert ensemble.posthoc.calibrator is None
    assert ensemble.posthoc.conformal[0].method == "lac"
    pred = ensemble.predict(data.test.x)
    assert torch.equal(pred.outputs, ensemble.predict(data.test.x, calibrated=False).outputs)
    found = stored(copied, "metrics.json")
    assert found["metrics"] == scores(pred, data.test.y)
    assert "calibration" not in found


def test_calibrate_interrupted_leaves_the_run_as_it_was(murmur, copied, monkeypatch):
    def interrupt(*anything: object) -> None:
        raise KeyboardInterrupt

    before = tree(copied)
    monkeypatch.setattr("murmuration.evaluation.evaluate_ensemble", interrupt)
    ended = murmur("calibrate", copied, "--calibrate", "none")
    assert (ended.code, ended.err) == (130, "interrupted: nothing was written\n")
    assert tree(copied) == before


def test_shift_is_that_of_the_library(murmur, copied):
    ended = murmur("evaluate", copied, *SHIFT, "--json")
    ensemble, eval_set = mm.load(copied), eval_set_of(mm.open_data("two-moons"))
    suite = ShiftSuite(("feature_noise", "scale_drift"), (2, 5), examples=120)
    expected = evaluate_shift(ensemble, eval_set, suite, posthoc=ensemble.posthoc, calibrated=True)
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["shift"] == as_written(expected.to_json())
    assert stored(copied, "metrics.json")["shift"] == as_written(expected.to_json())
    assert report_check(copied / "report.html") == []


def test_shift_of_another_file(murmur, moons_run, tmp_path):
    test, before = mm.open_data("two-moons").test, tree(moons_run)
    np.savez(tmp_path / "same.npz", x=test.prepared.numpy(), y=test.y.numpy())
    found = json.loads(murmur("evaluate", moons_run, "--on", tmp_path / "same.npz", *SHIFT, "--json").out)
    ensemble, eval_set = mm.load(moons_run), eval_set_of(mm.open_data("two-moons"))
    suite = ShiftSuite(("feature_noise", "scale_drift"), (2, 5), examples=120)
    expected = evaluate_shift(ensemble, eval_set, suite, posthoc=ensemble.posthoc, calibrated=True)
    assert found["shift"]["pooled"] == as_written(expected.to_json()["pooled"])
    assert tree(moons_run) == before


def test_shift_in_the_table(murmur, copied):
    lines = murmur("evaluate", copied, *SHIFT).out.splitlines()
    start = lines.index("deep-ensemble: means over 2 corruptions, 2 severities, 120 examples")
    shift = stored(copied, "metrics.json")["shift"]
    rows = {line.rsplit(maxsplit=5)[0].strip(): line.split()[-5:] for line in lines[start + 4 : start + 8]}
    assert list(rows) == ["clean", "severity 2", "severity 5", "all severities"]
    assert float(rows["severity 5"][1]) == pytest.approx(shift["by_severity"]["5"]["nll"]["value"], rel=5e-3)
    assert float(rows["all severities"][0]) == pytest.approx(shift["pooled"]["accuracy"]["value"], rel=5e-3)


def test_foreign_inputs_are_those_of_the_library(murmur, copied, tmp_path):
    x = np.random.default_rng(0).normal(size=(80, 2)) + 3
    np.savez(tmp_path / "far.npz", x=x)
    ended = murmur("evaluate", copied, "--ood", tmp_path / "far.npz", "--json")
    ensemble, data = mm.load(copied), mm.open_data("two-moons")
    inputs = mm.data.open_inputs(tmp_path / "far.npz", preparation=data.preparation, adapt=True)
    expected = evaluate_ood(ensemble, in_distribution(ensemble, eval_set_of(data)), "far.npz", inputs)
    assert json.loads(ended.out)["ood"] == [as_written(expected.to_json())]
    assert report_check(copied / "report.html") == []
    printed = murmur("evaluate", copied, "--ood", tmp_path / "far.npz").out
    auroc = expected.detections["entropy"].auroc
    assert "deep-ensemble: 80 of far.npz against 500 in-distribution inputs" in printed
    assert any(line.split()[:2] == ["Entropy", f"{float(auroc):.3g}"] for line in printed.splitlines())


def test_compare_evaluates_both_recipes_under_shift(murmur, tmp_path):
    words = ("compare", "two-moons", "--recipes", "single,deep-ensemble", *SMALL, *SHIFT, "--out", tmp_path / "cmp")
    record = json.loads(murmur(*words, "--json").out)
    eval_set = eval_set_of(mm.open_data("two-moons"))
    suite = ShiftSuite(("feature_noise", "scale_drift"), (2, 5), examples=120)
    for name in ("single", "deep-ensemble"):
        ensemble = mm.load(tmp_path / "cmp" / name)
        expected = evaluate_shift(ensemble, eval_set, suite, posthoc=ensemble.posthoc, calibrated=True)
        assert record["results"][name]["shift"] == as_written(expected.to_json())
    assert report_check(tmp_path / "cmp" / "report.html") == []


def test_a_resumed_run_has_the_posthoc_steps_of_an_undisturbed_one(murmur, moons_run, tmp_path, monkeypatch):
    def interrupt(*anything: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("murmuration.training.fitting.ProgressCallback.after_step", interrupt)
        killed = murmur("train", "two-moons", *SMALL, "--out", path)
    assert (killed.code, killed.err) == (130, f"interrupted: continue with murmur resume {path}\n")
    assert not (path / "posthoc.json").exists()
    assert murmur("resume", path, "--json").code == 0
    assert (path / "posthoc.json").read_bytes() == (moons_run / "posthoc.json").read_bytes()


def test_runs_without_posthoc_steps(murmur, copied, tmp_path):
    (copied / "posthoc.json").unlink()
    manifest = stored(copied, "run.json")
    manifest["plan"].pop("posthoc")
    manifest["files"].pop("posthoc.json")
    write_record(copied / "run.json", manifest)
    data, plain = mm.open_data("two-moons"), mm.load(copied)
    found = json.loads(murmur("evaluate", copied, "--json").out)
    assert found["metrics"] == scores(plain.predict(data.test.x), data.test.y)
    assert not found["calibration"]["applied"]
    assert murmur("predict", copied, "two-moons", "--out", tmp_path / "p.csv").code == 0
    assert list(pd.read_csv(tmp_path / "p.csv"))[-1] == "prob_1"
    assert murmur("calibrate", copied).code == 0
    assert mm.load(copied).posthoc.calibrator.name == "temperature"


def of_another_run(run: Path, other: Path) -> None:
    (run / "posthoc.json").write_bytes((other / "posthoc.json").read_bytes())


def of_more_classes(run: Path, other: Path) -> None:
    pred = mm.Predictive.from_probs(np.random.default_rng(0).dirichlet(np.ones(3), 60))
    posthoc = fit_posthoc(pred, np.arange(60) % 3)
    (run / "posthoc.json").write_text(json.dumps(to_json(posthoc)))


def cut(run: Path, other: Path) -> None:
    (run / "posthoc.json").write_text((run / "posthoc.json").read_text()[:200])


def without_rules(run: Path, other: Path) -> None:
    record = stored(run, "posthoc.json")
    record.pop("conformal")
    (run / "posthoc.json").write_text(json.dumps(record))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, ("not valid JSON",)),
        (without_rules, ("damaged post-hoc record", "field 'conformal' of PostHoc is missing")),
        (of_more_classes, ("is not this run's", "2 classes", "3")),
        (of_another_run, ("is not this run's", "regression")),
    ],
)
def test_damaged_posthoc_records_name_the_way_out(murmur, copied, sine_run, tmp_path, damage, words):
    damage(copied, sine_run)
    manifest = stored(copied, "run.json")
    manifest["files"] |= runs.digests_of(copied, ["posthoc.json"])  # as if it had been written so
    write_record(copied / "run.json", manifest)
    before, out = tree(tmp_path), tmp_path / "p.csv"
    way_out = f"fit them again with murmur calibrate {copied}"
    for command in (("evaluate", copied), ("resume", copied), ("predict", copied, "two-moons", "--out", out)):
        assert_refused(murmur(*command), 1, ("posthoc.json", *words, way_out))
    assert tree(tmp_path) == before
    assert murmur("predict", copied, "two-moons", "--uncalibrated", "--out", out).code == 0
    assert murmur("calibrate", copied).code == 0
    assert murmur("evaluate", copied).code == 0


def test_a_sheet_of_corruptions(murmur, tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    ended = murmur("list", "corruptions", "--sheet", "all.png")
    assert ended.out.splitlines()[-1] == "sheet: all.png"
    with Image.open("all.png") as picture:
        assert picture.size[0] > 8 * 5
    for words, told in (
        (("corruptions", "--sheet", "all.png"), ("--sheet all.png exists already", "--force")),
        (("corruptions", "--sheet", "all.jpg"), ("--sheet all.jpg", ".png")),
        (("corruptions", "--sheet", "b.png", "--of", "two-moons"), ("--of two-moons holds no images", "digits")),
        (("corruptions", "--of", "digits"), ("--of digits", "add --sheet")),
        (("conformal", "--sheet", "b.png"), ("murmur list corruptions --sheet b.png",)),
    ):
        assert_refused(murmur("list", *words), 2, told)
    assert list(tree(tmp_path)) == ["all.png"]


def test_json_is_alone_on_the_output(murmur, copied, tmp_path):
    np.savez(tmp_path / "far.npz", x=np.ones((20, 2)))
    for words in (
        ("evaluate", copied, *SHIFT, "--ood", tmp_path / "far.npz"),
        ("calibrate", copied, "--conformal", "aps"),
        ("predict", copied, "two-moons", "--out", tmp_path / "p.csv"),
        ("list", "corruptions", "--sheet", tmp_path / "s.png"),
    ):
        ended = murmur(*words, "--json")
        assert (ended.code, ended.err) == (0, "")
        assert isinstance(json.loads(ended.out), dict)


def test_infinite_intervals_are_told_of(murmur, tmp_path):
    table = pd.DataFrame({"a": np.arange(120.0), "y": np.sin(np.arange(120.0))})
    table.to_csv(tmp_path / "t.csv", index=False)
    run = tmp_path / "run"
    words = ("--target", "y", "--net", "ridge", "--val", "0.2", "--coverage", "0.99", "--out", run)
    assert murmur("train", tmp_path / "t.csv", *words).code == 0
    few = "conformal intervals are infinite: 12 validation examples are too few for a coverage of 99 %"
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ended = murmur("predict", run, tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    assert (ended.code, ended.err.startswith(f"note: {few}")) == (0, True)
    repeated = murmur("calibrate", run, "--coverage", "0.8")
    assert repeated.code == 0
    assert "calibrate" in (run / "report.html").read_text()
