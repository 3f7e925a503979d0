"""`murmur superres`, as a user would: train, look, enlarge; and every wish that cannot be granted."""

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from check_report import report_check
from PIL import Image

import murmuration as mm
from murmuration.cli import main

SMALL = ["--patches", "40", "--size", "6", "--epochs", "1", "--weights", "gaussian:draws=3"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for i in range(4):
        Image.fromarray(rng.integers(0, 255, (32, 40, 3), dtype=np.uint8)).save(folder / f"p{i}.png")
    return folder


@pytest.fixture(scope="module")
def run(photos: Path) -> Path:
    path = photos.parent / "run"
    assert main(["superres", "train", str(photos), "--out", str(path), *SMALL]) == 0
    return path


def test_training_leaves_an_ordinary_run_with_a_page(run: Path):
    ensemble = mm.load(run)
    assert ensemble.recipe.name == "bayes"
    assert ensemble.manifest.net == {"name": "subpixel"}
    assert report_check(run / "report.html") == []
    found = json.loads((run / "metrics.json").read_text())
    (photograph,) = found["photographs"]
    assert photograph["gain"] == pytest.approx(photograph["psnr"] - photograph["psnr_bicubic"])
    page = (run / "report.html").read_text()
    assert page.count("<img ") == 6
    assert f"{photograph['psnr']:.2f}" in page


def test_evaluating_judges_photographs_again(run: Path, capsys):
    before = (run / "report.html").read_bytes()
    assert main(["evaluate", str(run)]) == 0
    assert (run / "report.html").read_bytes() == before
    capsys.readouterr()
    assert main(["evaluate", str(run), "--corruptions"]) == 2
    assert "evaluated on its own photographs" in capsys.readouterr().err


def test_pictures_are_enlarged(run: Path, photos: Path, tmp_path: Path, capsys):
    out = tmp_path / "larger"
    assert main(["superres", "apply", str(run), str(photos / "p0.png"), "--out", str(out)]) == 0
    assert "p0-x2.png" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {"p0-x2.png", "p0-x2-std.png", "numbers.json"}
    assert Image.open(out / "p0-x2.png").size == (80, 64)
    (numbers,) = json.loads((out / "numbers.json").read_text())["images"]
    assert numbers["std"]["max"] >= numbers["white_std"] > 0
    assert main(["superres", "apply", str(run), str(photos / "p0.png"), "--out", str(out)]) == 2
    assert "exists and is not an empty directory" in capsys.readouterr().err


def test_a_killed_run_is_resumed_and_judged(photos: Path, run: Path, tmp_path: Path, capsys):
    """`murmur resume` finishes it as if nothing had been, and ends with the same table."""
    from murmuration.applications.superres import Patches, open_patches, train
    from murmuration.core.recipe import make_recipe
    from murmuration.training.plan import Plan

    def kill(text, done, total, record):
        if done >= 2:
            raise KeyboardInterrupt

    data = open_patches(Patches(scale=2, count=96, size=6, folder=str(photos)))
    plan, bayes = Plan(epochs=2, lr=1e-3), make_recipe("bayes", weights="gaussian:draws=3")
    with suppress(KeyboardInterrupt):
        train(data, recipe=bayes, plan=plan, out=tmp_path / "killed", progress=kill, checkpoint_seconds=0)
    assert main(["resume", str(tmp_path / "killed"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["mean"]["psnr"] > 0
    x = torch.rand(2, 1, 6, 6)
    undisturbed = train(data, recipe=bayes, plan=plan)
    assert torch.equal(
        mm.load(tmp_path / "killed").predict(x, prepared=True).outputs, undisturbed.predict(x, prepared=True).outputs
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "PHOTOS", "--scale", "5"], "--scale 5: expected 2, 3 or 4"),
        (["train", "PHOTOS", "--net", "mlp"], "mlp does not make images: write subpixel or subpixel-plain"),
        (["train", "PHOTOS", "--size", "6", "--noise-std", "-1"], "--noise-std -1: expected a positive number"),
        (["train", "/nowhere"], "no folder '/nowhere'"),
        (["train", "PHOTOS", "--out", "RUN"], "already holds a run"),
        (["train", "PHOTOS"], "has 40x32 pixels: expected at least 40x40"),
        (["apply", "RUN", "PHOTOS/none.png", "--out", "OUT"], "no image 'PHOTOS/none.png'"),
        (["apply", "PHOTOS", "PHOTOS/p0.png", "--out", "OUT"], "no run at PHOTOS"),
        (["apply", "RUN", "PHOTOS/p0.png", "--out", "OUT", "--draws", "0"], "--draws 0"),
        (["enlarge"], "no such command 'enlarge'"),
    ],
)
def test_bad_wishes_end_in_one_line(words: list[str], told: str, photos: Path, run: Path, tmp_path: Path, capsys):
    def named(word: str) -> str:
        return word.replace("PHOTOS", str(photos)).replace("RUN", str(run)).replace("OUT", str(tmp_path / "out"))

    assert main(["superres", *map(named, words)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert named(told).lower() in lines[0].lower()
    assert not (tmp_path / "out").exists()
