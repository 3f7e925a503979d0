"""Requests about trust that cannot be met end with the right code and one line, before anything is written."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from cli_fixtures import SMALL, assert_refused, tree

pytest_plugins = ["cli_fixtures"]


def official_arrays(folder: Path) -> str:
    """A folder as that of CIFAR-10-C, but small."""
    (folder / "c").mkdir()
    np.save(folder / "c" / "labels.npy", np.zeros(10, dtype=np.uint8))
    np.save(folder / "c" / "fog.npy", np.zeros((10, 32, 32, 3), dtype=np.uint8))
    return "c"


BAD_TRIALS = [
    (("--corruptions", "--severities", "0"), ("--severities names '0'", "some of 1,2,3,4,5")),
    (("--corruptions", "--severities", "1,9"), ("--severities names '9'", "some of 1,2,3,4,5")),
    (("--corruptions", "--severities", "x"), ("--severities names 'x'", "some of 1,2,3,4,5")),
    (("--corruptions", "--severities", ","), ("no severity given", "some of 1, 2, 3, 4, 5")),
    (("--severities", "2"), ("--severities 2", "add --corruptions")),
    (("--shift-examples", "5"), ("--shift-examples 5", "add --corruptions")),
    (("--corruptions", "--shift-examples", "0"), ("--shift-examples 0", "at least 1")),
    (("--only", "feature_nois"), ("unknown corruption 'feature_nois'", "did you mean 'feature_noise'")),
    (("--only", "fogg"), ("unknown corruption 'fogg'", "Known: covariate_drift, feature_noise")),
    (("--only", ""), ("--only '' is empty", "leave the option out")),
    (("--ood", "missing.npz"), ("no file or folder 'missing.npz'",)),
    (("--ood", "digits"), ("--ood digits: examples have the shape (1, 8, 8)", "expected (2,)")),
    (("--ood", "two-moons", "--ood", "two-moons"), ("--ood names 'two-moons' twice", "once")),
    (("--cifar-c", "missing"), ("no folder 'missing'", "labels.npy")),
    (("--cifar-c", "."), ("no labels.npy in '.'", "CIFAR-10-C")),
    (("--cifar-c", "c"), ("'c' holds images", "a run that was trained on images")),
]


@pytest.mark.parametrize(("more", "words"), BAD_TRIALS)
def test_shift_options_that_make_no_sense(murmur, moons_run, tmp_path, monkeypatch, more, words):
    monkeypatch.chdir(tmp_path)
    official_arrays(tmp_path)
    before = tree(tmp_path), tree(moons_run)
    assert_refused(murmur("evaluate", moons_run, *more), 2, words)
    assert_refused(murmur("compare", "two-moons", *SMALL, "--out", "cmp", *more), 2, words)
    assert (tree(tmp_path), tree(moons_run)) == before


def test_tables_are_no_pictures(murmur, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given.csv").write_text("a,b\n1,2\n3,4\n")
    official_arrays(tmp_path)
    words = ("compare", "digits", *SMALL, "--out", "cmp")
    assert_refused(murmur(*words, "--ood", "given.csv"), 2, ("--ood given.csv: a table", "expected images"))
    assert_refused(murmur(*words, "--cifar-c", "c"), 2, ("--cifar-c c: examples have the shape (32, 32, 3)",))
    assert_refused(murmur(*words, "--cifar-c", "c", "--only", "frog"), 2, ("'frog'", "did you mean 'fog'"))
    assert not (tmp_path / "cmp").exists()


WISHES = [
    ("two-moons", ("--coverage", "2"), ("--coverage 2.0", "between 0 and 1")),
    ("two-moons", ("--coverage", "most"), ("--coverage most",)),
    ("two-moons", ("--max-error-rate", "0"), ("--max-error-rate 0.0", "between 0 and 1")),
    ("two-moons", ("--error-cost", "0"), ("--error-cost 0.0", "positive")),
    ("two-moons", ("--abstain-cost", "-1"), ("--abstain-cost -1.0", "positive")),
    ("two-moons", ("--calibrate", "vektor"), ("'vektor'", "did you mean 'vector'")),
    ("two-moons", ("--conformal", "quantile"), ("--conformal quantile", "Known: aps, lac, mondrian, raps")),
    (
        "x-sin-x",
        ("--calibrate", "vector"),
        ("regression 'vector'", "Known: member_temperature, moment_matching, noise_scaling, none, temperature"),
    ),
    ("x-sin-x", ("--conformal", "lac"), ("--conformal lac", "Known: absolute, normalised, quantile")),
]


@pytest.mark.parametrize(("data", "more", "words"), WISHES)
def test_posthoc_options_that_make_no_sense(murmur, moons_run, sine_run, tmp_path, data, more, words):
    run = {"two-moons": moons_run, "x-sin-x": sine_run}[data]
    before = tree(run)
    assert_refused(murmur("calibrate", run, *more), 2, words)
    for command in ("train", "compare"):
        assert_refused(murmur(command, data, *SMALL, "--out", tmp_path / "run", *more), 2, words)
    assert tree(tmp_path) == {}
    assert tree(run) == before


def test_too_few_validation_examples(murmur, tmp_path):
    text = "x,y\n" + "\n".join(f"{i},{i * i}" for i in range(40))
    (tmp_path / "few.csv").write_text(text)
    words = ("train", tmp_path / "few.csv", "--target", "y", "--task", "regression", *SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ended = murmur(*words, "--out", tmp_path / "run")
    assert ended.code == 0
    assert "note: not calibrated: 4 validation examples, and it takes 20" in ended.err
    assert_refused(murmur("calibrate", tmp_path / "run"), 2, ("4 validation examples", "at least 20", "train it again"))
