"""Commands do what the library does, and write it down where they say."""

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest
import torch
from check_report import report_check
from cli_fixtures import SMALL

import murmuration as mm
from murmuration.cli import lists, main, options, program
from murmuration.cli.selftest_checks import CHECKS
from murmuration.core.recipe import parse_recipe
from murmuration.reports import comparison
from murmuration.system.progress import training_bar
from murmuration.system.settings import settings_of
from murmuration.training.plan import ENGINES, Plan

pytest_plugins = ["cli_fixtures"]
ROOT = Path(__file__).parents[2]


def predicted(path: Path) -> mm.Predictive:
    return mm.load(path).predict(mm.open_data("two-moons").test)


def test_train_leaves_what_the_library_computes(moons_run):
    data = mm.open_data("two-moons")
    expected = mm.fit("mlp", data, plan=mm.Plan(members=2, epochs=1, engine="loop", posthoc=mm.PostHocConfig()))
    assert torch.equal(predicted(moons_run).outputs, expected.predict(data.test.x).outputs)
    stored = json.loads((moons_run / "metrics.json").read_text())
    scores = mm.score(expected.predict(data.test.x), data.test.y)
    assert stored["metrics"] == {name: score.to_json() for name, score in scores.items()}
    assert stored["cost"]["members"] == 2
    assert stored["cost"]["parameters"] == 2 * (2 * 128 + 128 + 128 * 128 + 128 + 128 * 2 + 2)
    assert report_check(moons_run / "report.html") == []


def test_train_shows_the_ensemble_beside_a_member_alone(murmur, tmp_path):
    ended = murmur("train", "two-moons", *SMALL, "--out", tmp_path / "run")
    scores = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]
    row = next(line for line in ended.out.splitlines() if line.startswith(" Accuracy"))
    assert (ended.code, ended.err) == (0, "")
    assert "engine" not in ended.out
    assert row.split()[1] == f"{scores['accuracy']['value']:.3f}"
    assert f"{scores['member_accuracy']['value']:.3f}" in row.split()
    assert str(tmp_path / "run" / "report.html") in ended.out.splitlines()[-1]


@pytest.mark.slow
def test_default_directories_are_numbered(murmur, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for n in (1, 2):
        ended = murmur("train", "two-moons", *SMALL[:-2], "--recipe", "single", "--members", "1", "--json")
        assert json.loads(ended.out)["run"] == f"runs/two-moons-single-{n}"


def test_evaluate_on_the_same_examples_from_a_file(murmur, moons_run, tmp_path):
    test = mm.open_data("two-moons").test
    np.savez(tmp_path / "same.npz", x=test.prepared.numpy(), y=test.y.numpy())
    before = {file.name: file.stat().st_mtime_ns for file in moons_run.iterdir()}
    ended = murmur("evaluate", moons_run, "--on", tmp_path / "same.npz", "--json", "--out", tmp_path / "found.html")
    own = json.loads((moons_run / "metrics.json").read_text())
    assert json.loads(ended.out)["metrics"] == own["metrics"]
    assert {file.name: file.stat().st_mtime_ns for file in moons_run.iterdir()} == before
    assert report_check(tmp_path / "found.html") == []


def test_evaluate_writes_its_own_files_again(murmur, moons_run):
    before = json.loads((moons_run / "metrics.json").read_text())
    (moons_run / "metrics.json").unlink()
    ended = murmur("evaluate", moons_run, "--json")
    after = json.loads((moons_run / "metrics.json").read_text())
    assert json.loads(ended.out) == after
    assert after["metrics"] == before["metrics"]


def test_resume_goes_on_where_ctrl_c_stopped(murmur, moons_run, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("murmuration.training.fitting.ProgressCallback.after_step", interrupt)
        ended = murmur("train", "two-moons", *SMALL, "--out", tmp_path / "run")
    assert ended.code == 130
    assert ended.err == f"interrupted: continue with murmur resume {tmp_path / 'run'}\n"
    resumed = murmur("resume", tmp_path / "run", "--json")
    assert resumed.code == 0
    assert torch.equal(predicted(tmp_path / "run").outputs, predicted(moons_run).outputs)


def interrupt(*anything: object) -> None:
    raise KeyboardInterrupt


def test_tables_hold_the_predictions_in_order(murmur, moons_run, tmp_path):
    pred = predicted(moons_run)
    for name in ("p.csv", "p.parquet"):
        assert murmur("predict", moons_run, "two-moons", "--out", tmp_path / name).code == 0
    table, same = pd.read_csv(tmp_path / "p.csv", dtype={"predicted": str}), pd.read_parquet(tmp_path / "p.parquet")
    split = ["aleatoric", "epistemic", "aleatoric_predicted", "epistemic_predicted"]
    known = ["predicted", "confidence", "entropy", "expected_entropy", "mutual_information", *split]
    assert list(table) == [*known, "prob_0", "prob_1", "set_90", "answered"]
    assert table["predicted"].tolist() == same["predicted"].tolist() == [str(k) for k in pred.predicted.tolist()]
    for column, values in {
        "confidence": pred.confidence,
        "entropy": pred.entropy,
        "mutual_information": pred.mutual_information,
        "aleatoric_predicted": pred.aleatoric_var.gather(1, pred.predicted[:, None])[:, 0],
        "prob_1": pred.mean[:, 1],
    }.items():
        np.testing.assert_array_equal(same[column], values)
        np.testing.assert_allclose(table[column], values, rtol=1e-8)  # nine digits


def test_npz_streams_members(murmur, moons_run, tmp_path, monkeypatch):
    monkeypatch.setattr("murmuration.prediction.ensemble.stream_size", lambda inputs: 77)
    ended = murmur("predict", moons_run, "two-moons", "--out", tmp_path / "p.npz", "--per-member", "--json")
    found, pred = np.load(tmp_path / "p.npz"), predicted(moons_run)
    assert json.loads(ended.out)["rows"] == 500
    assert found["names"].tolist() == ["0", "1"]
    np.testing.assert_array_equal(found["predicted"], pred.predicted)
    np.testing.assert_allclose(found["probs"], pred.mean, atol=1e-6)  # float32 outputs of other batch sizes
    np.testing.assert_allclose(found["member_probs"], pred.probs, atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.npz"]


def test_numbers_come_with_their_spreads(murmur, tmp_path):
    assert murmur("train", "x-sin-x", *SMALL, "--out", tmp_path / "run").code == 0
    assert murmur("predict", tmp_path / "run", "x-sin-x", "--out", tmp_path / "p.csv").code == 0
    table = pd.read_csv(tmp_path / "p.csv")
    pred = mm.load(tmp_path / "run").predict(mm.open_data("x-sin-x").test)
    assert list(table)[:6] == ["mean", "aleatoric_std", "epistemic_std", "total_std", "low_90", "high_90"]
    assert list(table)[6:] == ["conformal_low_90", "conformal_high_90"]
    np.testing.assert_allclose(table["mean"], pred.mean[:, 0], rtol=1e-7)
    np.testing.assert_allclose(table["total_std"] ** 2, table["aleatoric_std"] ** 2 + table["epistemic_std"] ** 2, 1e-7)
    inside = pred.cdf(table[["high_90"]].to_numpy()) - pred.cdf(table[["low_90"]].to_numpy())
    np.testing.assert_allclose(inside, 0.9, atol=1e-6)
    assert "Input space" in (tmp_path / "run" / "report.html").read_text()


def test_predictions_are_not_overwritten_unasked(murmur, moons_run, tmp_path):
    (tmp_path / "p.csv").write_text("mine")
    refused = murmur("predict", moons_run, "two-moons", "--out", tmp_path / "p.csv")
    assert (refused.code, (tmp_path / "p.csv").read_text()) == (2, "mine")
    assert "--force" in refused.err
    assert murmur("predict", moons_run, "two-moons", "--out", tmp_path / "p.csv", "--force").code == 0
    assert (tmp_path / "p.csv").read_text().startswith("predicted,")


COMPARE = ("compare", "two-moons", "--recipes", "single,deep-ensemble", *SMALL)


def test_compare_survives_being_killed(murmur, tmp_path, monkeypatch):
    out = tmp_path / "cmp"
    whole = comparison.Trainer.train_or_resume

    def second_is_killed(trainer, recipe, path):
        if recipe.name == "deep-ensemble":
            monkeypatch.setattr("murmuration.training.fitting.ProgressCallback.after_step", interrupt)
        return whole(trainer, recipe, path)

    with monkeypatch.context() as patch:
        patch.setattr(comparison.Trainer, "train_or_resume", second_is_killed)
        killed = murmur(*COMPARE, "--out", out)
    monkeypatch.undo()
    assert killed.code == 130
    assert killed.err == "interrupted: the same command continues from here\n"
    finished = (out / "single" / "members.safetensors").stat().st_mtime_ns
    ended = murmur(*COMPARE, "--out", out, "--json")
    assert (out / "single" / "members.safetensors").stat().st_mtime_ns == finished
    assert ended.out == (out / "results.json").read_text()
    data, record = mm.open_data("two-moons"), json.loads(ended.out)
    for name, settings in (("single", {"recipe": "single"}), ("deep-ensemble", {"members": 2})):
        again = mm.fit("mlp", data, epochs=1, plan=mm.Plan(posthoc=mm.PostHocConfig()), **settings)
        found = record["results"][name]["metrics"]["nll"]["value"]
        assert found == pytest.approx(float(mm.score(again.predict(data.test.x), data.test.y)["nll"]), abs=1e-5)
    assert {test["name"] for test in record["tests"]} == {"accuracy", "nll"}
    assert all(test["sentence"] in record["notes"] for test in record["tests"] if test["name"] == "accuracy")
    assert report_check(out / "report.html") == []


def test_compare_takes_answers_and_members_of_a_recipe(murmur, tmp_path):
    words = "deep-ensemble:members=3,deep-ensemble:coupling=weights:every=2,members=1"
    ended = murmur("compare", "two-moons", "--recipes", words, *SMALL, "--out", tmp_path, "--json")
    assert ended.code == 0, ended.err
    results = json.loads(ended.out)["results"]
    assert {name: found["cost"]["members"] for name, found in results.items()} == {
        "deep-ensemble:members=3": 3,
        "deep-ensemble:coupling=weights:every=2,members=1": 1,
    }
    recipe = json.loads((tmp_path / "deep-ensemble-coupling-weights-every-2-members-1" / "run.json").read_text())
    assert recipe["recipe"]["coupling"] == "weights:every=2"


def test_compare_refuses_other_settings(murmur, tmp_path):
    out = tmp_path / "cmp"
    assert murmur(*COMPARE, "--out", out).code == 0
    before = (out / "results.json").read_bytes()
    refused = murmur(*COMPARE, "--seed", "7", "--out", out)
    assert refused.code == 2
    assert "seed differs" in refused.err
    assert (out / "results.json").read_bytes() == before


def test_small_differences_are_called_noise(tmp_path):
    from murmuration.evaluation import evaluate_ensemble
    from murmuration.reports.findings import differences

    data = mm.open_data("two-moons")
    ensemble = mm.fit("mlp", data, members=1, epochs=1, posthoc=None)
    accuracy, nll = differences([evaluate_ensemble(ensemble, data, "a"), evaluate_ensemble(ensemble, data, "b")])
    assert accuracy.sentence == "a and b have the same Accuracy."
    assert nll.by_chance
    far = mm.fit("mlp", data, members=1, epochs=12, posthoc=None)
    better = differences([evaluate_ensemble(ensemble, data, "short"), evaluate_ensemble(far, data, "long")])[1]
    assert better.sentence.startswith("long has the better NLL: ")
    assert better.sentence.endswith("lower than short, more than the noise of the examples (p < 0.001).")


@pytest.mark.parametrize("what", lists.LISTS)
def test_list(murmur, what):
    entries = json.loads(murmur("list", what, "--json").out)
    printed = murmur("list", what).out
    assert entries
    assert all(name.split()[0] in printed for name in entries)


def test_lists_are_complete():
    assert set(lists.ENGINES) == set(ENGINES)
    assert lists.recipes()["single"]["sharing"] == "own"
    assert {"cosine", "halve"} <= set(lists.LISTS["schedules"]())


def test_help_lists_every_answer_to_the_four_questions():
    text = {name: hint.__metadata__[0].help for name, hint in options.RecipeOptions.__annotations__.items()}
    for name, answers in (("sharing", "sharing"), ("weights", "weights"), ("dynamics", "dynamics")):
        for answer in lists.LISTS[answers]():
            assert re.search(rf"\b{re.escape(answer)}\b", text[name]), f"--{name} does not name {answer}"
    for answer in ("none", "weights", "outputs", "features", "input-gradients"):
        assert answer in text["coupling"]


def test_help_of_train_has_the_words_of_the_field(murmur):
    text = murmur("train", "--help").out.lower()
    for word in ("conformal", "coverage", "early stopping", "epistemic", "aleatoric", "temperature", "random seed"):
        assert word in " ".join(text.replace("│", " ").split()), word
    assert "<bool>" not in text


@pytest.mark.parametrize(
    ("message", "words", "told"),
    [
        ("which? Write target=..., one of a, b", ["train", "t.csv"], "which? Write --target NAME, one of a, b"),
        ("device='gpu' is no device: write device='cpu'", ["train"], "--device gpu is no device: write --device cpu"),
        ("weight_decay=-0.1: too small", ["train"], "--weight-decay -0.1: too small"),
        ("schedule=halve:x: expected halve:10", ["train"], "--schedule halve:x: expected halve:10"),
        ("momentum=2.0: too large", ["train", "--dynamics", "ivon:momentum=2"], "momentum=2.0: too large"),
        ("give the net= it was made of", ["train"], "give the --net it was made of"),
        ("val= and test=, or out=...", ["train"], "--val and --test, or --out DIR"),
        ("continue it with mm.resume('runs/a b')", ["train"], "continue it with murmur resume 'runs/a b'"),
        ("device='gpu' is no device", ["list"], "device='gpu' is no device"),
        ("write mm.load('runs/x', net=...)", ["predict"], "write mm.load('runs/x', net=...)"),
        ("net=7: write mm.load('x', net=...)", ["predict"], "--net 7: write mm.load('x', net=...)"),
        ("likelihood='focl' is unknown", ["train"], "--loss focl is unknown"),
        ("give it again in Python, likelihood=Own(...)", ["predict"], "give it again in Python, likelihood=Own(...)"),
        ("seeds=[0, 0]: write each once", ["compare"], "--seeds 0,0: write each once"),
        ("seed=3 and seeds=(0, 1): give one", ["compare"], "--seed 3 and --seeds 0,1: give one"),
        ("drop=['a', 'b']: leave them", ["train"], "--drop a,b: leave them"),
        ("reset='head' or init_from=[one net each]", ["train"], "--reset head or init_from=[one net each]"),
        ("label=NAME or labels=FILE", ["audit", "p.csv"], "--label-column NAME or --label-file FILE"),
    ],
)
def test_errors_of_the_library_are_told_in_flags(message, words, told):
    assert program.in_flags(message, words) == told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("train", "--batch", "3"), "did you mean --batch-size or --batch-order?"),
        (("compare", "--coupling", "outputs"), "such as --recipes single,deep-ensemble:coupling=..."),
        (("compare", "--recipe", "forde"), "did you mean --recipes?"),
        (("predict", "--epochs", "3"), "it is an option of murmur train and murmur plan and murmur compare"),
        (("train", "--membrs", "3"), "did you mean --members?"),
    ],
)
def test_unknown_options_are_suggested(murmur, words, told):
    assert told in murmur(*words).err


def test_lists_take_commas_and_repetition(murmur, tmp_path):
    assert options.listed(["a,b", "c"]) == options.listed(["a", "b,c"]) == ["a", "b", "c"]
    ended = murmur("compare", "two-moons", "--recipes", "single", "--recipes", "deep", "--out", tmp_path / "c")
    assert "unknown recipe 'deep'" in ended.err


def test_options_have_the_values_of_a_plan():
    assert Plan(**options.TrainingOptions().settings(options.PostHocOptions().config())) == Plan()


@pytest.mark.slow
def test_selftest(murmur, monkeypatch):
    ended = murmur("selftest", "--json")
    found = json.loads(ended.out)
    assert (ended.code, found["passed"]) == (0, True)
    assert [check["name"] for check in found["checks"]] == list(CHECKS)
    for name in CHECKS:
        monkeypatch.setitem(CHECKS, name, lambda: "as before")
    monkeypatch.setitem(CHECKS, "report", lambda: 1 / 0)
    broken = murmur("selftest")
    assert broken.code == 1
    assert "✗" in next(line for line in broken.out.splitlines() if "ZeroDivisionError" in line)


def test_version_and_help(murmur):
    assert murmur("--version").out == f"murmur {mm.__version__}\n"
    for words in ([], ["--help"], *([name, "--help"] for name in ("train", "predict", "compare"))):
        ended = murmur(*words)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.split("Examples:")[1].strip().startswith("murmur ")


@pytest.mark.parametrize("command", ["train", "compare", "plan"])
def test_help_shows_the_common_options_and_help_all_every_option(murmur, command):
    brief, full = (murmur(command, flag) for flag in ("--help", "--help-all"))
    assert brief.code == full.code == 0
    options_of = {name for p in program.typer.main.get_command(program.app).commands[command].params for name in p.opts}
    flags = {name for name in options_of if name.startswith("--")}
    assert {name for name in flags if not re.search(rf"{name}\b", full.out)} == set()
    in_brief = {name for name in flags if re.search(rf"│ {name}\b(?!-)", brief.out)}
    assert {"--help-all", "--net", "--members", "--epochs", "--seed", "--lr", "--batch-size", "--device"} <= in_brief
    assert len(in_brief) <= 20


def test_options_are_those_of_a_plan_and_a_posthoc_config():
    hints = get_type_hints(options.TrainingOptions, include_extras=True)
    for setting in settings_of(Plan):
        if setting.name not in ("members", "posthoc", "checkpoint_seconds"):
            assert hints[setting.name].__metadata__[0].help == setting.doc
    assert {field.name for field in fields(options.PostHocOptions)} == {
        field.name for field in fields(mm.PostHocConfig)
    }


def test_help_needs_no_torch():
    code = "import sys; from murmuration.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.parametrize(("typed", "names"), [("murmur tra", ["train"]), ("murmur train --batch", ["size", "order"])])
def test_the_shell_completes_commands_and_options(typed, names):
    asked = {"_MURMUR_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    ended = subprocess.run(
        [sys.executable, "-m", "murmuration"], cwd=ROOT, env={**os.environ, **asked}, capture_output=True, text=True
    )
    assert [word.removeprefix("--batch-") for word in ended.stdout.split()] == names, ended.stderr


@pytest.mark.slow
def test_broken_pipe_is_silent():
    command = [sys.executable, "-m", "murmuration", "list", "nets"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""


def test_details_are_printed_when_asked_for(murmur, tmp_path):
    ended = murmur("train", "two-moons", *SMALL, "--out", tmp_path / "run", "--verbose")
    assert (ended.code, ended.err) == (0, "engine loop: as requested\n")
    again = murmur("train", "two-moons", *SMALL, "--out", tmp_path / "again")
    assert (again.code, again.err) == (0, "")


def test_bars_say_epoch_and_nll(monkeypatch, capsys):

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with training_bar(4, quiet=False, name="single") as show:
        show("engine loop: there is one member", 0, 0, None)
        show("", 10, 40, {"epoch": 1, "ensemble": {"val_nll": 0.5}})
    printed = capsys.readouterr()
    assert printed.out == "engine loop: there is one member\n"
    assert "single epoch 2/4" in printed.err
    assert "10/40" in printed.err
    assert "val NLL 0.5" in printed.err


def test_unexpected_errors_are_one_line(murmur, monkeypatch):
    monkeypatch.setattr(lists, "LISTS", {"nets": lambda: 1 / 0})
    ended = murmur("list", "nets")
    assert ended.code == 1
    assert ended.err == "error: ZeroDivisionError: division by zero (run again with MURMUR_DEBUG=1 for the traceback)\n"
    monkeypatch.setenv("MURMUR_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        program.main(["list", "nets"])


def test_the_link_is_a_setting_of_a_run(murmur, tmp_path):
    assert murmur("train", "two-moons", *SMALL, "--link", "softplus", "--out", tmp_path / "run").code == 0
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (manifest["likelihood"]["kind"], manifest["likelihood"]["link"]) == ("categorical", "softplus")
    assert murmur("evaluate", tmp_path / "run", "--json").code == 0
    for arguments, said in (
        (("two-moons", "--link", "softpuls"), "link 'softpuls'"),
        (("x-sin-x", "--link", "softplus"), "--link softplus is for classification"),
    ):
        ended = murmur("train", *arguments, *SMALL, "--out", tmp_path / "no")
        assert (ended.code, said in ended.err) == (2, True)
        assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(("recipe", "trained"), [("single", 1), ("bayes", 1), ("bayes:members=2", 2), ("forde", 3)])
def test_compare_says_where_members_does_not_apply(monkeypatch, capsys, tmp_path, recipe, trained):
    members = []
    monkeypatch.setattr(comparison, "fit", lambda *given, **settings: members.append(settings["members"]))
    settings = {"training": {"members": 3}, "base": Plan(members=3), "quiet": False, "checkpoint_seconds": 60}
    missing = dict.fromkeys(("data", "net", "plan", "noise_std", "link", "likelihood"))
    comparison.Trainer(**missing, **settings).train_or_resume(parse_recipe(recipe), tmp_path / "run")
    assert members == [trained]
    line = f"{recipe} is trained with its own number of members, {trained} instead of 3\n"
    assert capsys.readouterr().out == (line if trained != 3 else "")


def test_idle_threads_sleep_unless_the_caller_says_otherwise(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert main(["--version"]) == 0
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert main(["--version"]) == 0
    assert os.environ["GOMP_SPINCOUNT"] == "20000"
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert main(["--version"]) == 0
    assert os.environ["GOMP_SPINCOUNT"] == "7"
