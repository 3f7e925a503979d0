"""The example of a DCGAN with a Bayesian discriminator, on tiny pictures: what it leaves, and that it can be killed."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from murmuration.applications.gan import training as gan_training
from murmuration.runs import directory as runs
from murmuration.system import files
from murmuration.system.errors import Failure, Misuse

PATH = Path(__file__).parents[3] / "examples" / "bayesian_gan.py"
TINY = ["--size", "8", "--width", "2", "--latent", "4", "--examples", "96", "--batch", "32", "--every", "1"]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bayesian_gan", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bayesian_gan"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    module.LESSONS = 2
    return module


@pytest.fixture(scope="module")
def whole(example: ModuleType, tmp_path_factory) -> Path:
    """An undisturbed run of two epochs, on one core as in the tests: sums over threads round otherwise."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("gan") / "whole"
    example.main([*TINY, "--epochs", "2", "--out", str(out)])
    return out


def left(out: Path) -> dict[str, bytes]:
    """All that a run leaves, but for the classifier, whose manifest tells how long it took."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and "classifier" not in path.parts]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def test_a_run_leaves_sheets_history_summary_and_one_state(whole: Path):
    sheets = {f"sheets/{name}.png" for name in ("real", "epoch-0001", "epoch-0002", "last")}
    assert left(whole).keys() == {"gan.json", "history.jsonl", "summary.json", "state-00002.safetensors", *sheets}
    history = runs.read_history(whole)
    assert [record["epoch"] for record in history] == [1, 2]
    assert all(record["complexity"] > 0 and record["frechet"] > 0 for record in history)
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["scores"]["generated"] == {name: history[-1][name] for name in ("frechet", "precision", "recall")}
    assert summary["scores"]["training"]["frechet"] < summary["scores"]["generated"]["frechet"]
    assert all(told["mutual_information"] > 0 for told in summary["discriminator"].values())


def test_a_sheet_shows_pictures_as_they_are(example: ModuleType, whole: Path):
    data = example.open_images("digits", 8, 96)
    assert data.train.prepared.min() == -1
    assert data.train.prepared.max() == 1
    sheet = np.asarray(Image.open(whole / "sheets" / "real.png"))
    assert sheet.shape == (82 * 8, 82 * 8, 3)  # eight pictures of eight pixels and nine gaps of two, eight times larger
    pixels = ((data.train.prepared[9, 0] + 1) * 127.5).round().numpy()
    corner = slice(8 * 12, 8 * 20, 8)  # the second picture of the second row
    assert np.abs(sheet[corner, corner, 0].astype(float) - pixels).max() <= 1
    same = (whole / "sheets" / f"{name}.png" for name in ("epoch-0002", "last"))
    assert len({path.read_bytes() for path in same}) == 1


@pytest.mark.slow
def test_a_run_that_stopped_after_an_epoch_ends_with_the_same_bits(example: ModuleType, whole: Path, tmp_path, capsys):
    out = tmp_path / "parts"
    example.main([*TINY, "--epochs", "1", "--out", str(out)])
    example.main([*TINY, "--epochs", "2", "--out", str(out)])
    assert "continues after epoch 1" in capsys.readouterr().out
    assert left(out) == left(whole)


def test_the_classifier_shows_signs_of_life(example: ModuleType, tmp_path, capsys):
    example.feature_scores(example.open_images("digits", 8, 96), tmp_path / "classifier", seed=0)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("first trains a classifier of the real images")
    assert said[1:] == ["classifier: epoch 1", "classifier: epoch 2"]


@pytest.mark.slow
def test_a_run_killed_anywhere_ends_with_the_same_bits(example: ModuleType, whole: Path, tmp_path, monkeypatch):
    """In the middle of either epoch, and between the tensors of a state and the file that names them."""
    out, arguments = tmp_path / "killed", [*TINY, "--epochs", "2", "--out", str(tmp_path / "killed")]
    turns, write_json = gan_training.train_step, files.write_json

    def killed_at(step: int):
        def turn(game, real, now):
            if now == step:
                raise KeyboardInterrupt
            return turns(game, real, now)

        return turn

    def unwritten(path, record):
        if len(record.get("history", ())) == 2:
            raise KeyboardInterrupt
        write_json(path, record)

    for where, what in (("train_step", killed_at(1)), ("train_step", killed_at(5)), ("write_json", unwritten)):
        monkeypatch.setattr(gan_training if where == "train_step" else files, where, what)
        with pytest.raises(KeyboardInterrupt):
            example.main(arguments)
        monkeypatch.undo()
        (out / ".gan.json.1.partial").touch()
    assert (out / "state-00002.safetensors").exists()  # the last of the three left it, and nothing names it yet
    example.main(arguments)
    assert left(out) == left(whole)


def test_a_plain_discriminator_has_no_doubt(example: ModuleType, tmp_path):
    summary = example.main([*TINY, "--epochs", "1", "--weights", "point", "--out", str(tmp_path / "point")])
    assert all(told["logit_deviation"] == 0 for told in summary["discriminator"].values())
    assert runs.read_history(tmp_path / "point")[0]["complexity"] == 0


def test_pictures_in_colour_and_foreign_ones(example: ModuleType, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (80, 3, 9, 9), dtype=np.uint8)
    np.savez(tmp_path / "colour.npz", x=pixels, y=np.arange(80) % 2)
    arguments = [str(tmp_path / "colour.npz"), "--foreign", "digits", *TINY, "--epochs", "1"]
    summary = example.main([*arguments, "--out", str(tmp_path / "colour")])
    assert list(summary["discriminator"]) == ["real", "generated", "negatives", "foreign"]
    assert np.ptp(np.asarray(Image.open(tmp_path / "colour" / "sheets" / "last.png")), axis=-1).max() > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "30"], "size=30: need 8, 16, 32, 64 or another power of two"),
        (["--epochs", "0"], "epochs=0: need at least 1"),
        (["--epochs", "many"], "argument --epochs: invalid int value: 'many'; see --help"),
        (["--epoch", "3"], "unrecognized arguments: --epoch; see --help"),
        (["--every", "0"], "--every 0: need at least 1"),
        (["--examples", "1"], "--examples 1: need at least 2"),
        (["--weights", "gaussian:betta=1"], "'betta': did you mean 'beta'?"),
        (["two-moons"], "prepare='unit' is for images"),
        (["nothing/here"], "no file or folder 'nothing/here'"),
    ],
)
def test_wrong_options_are_refused_in_one_line(example: ModuleType, arguments: list[str], message: str, tmp_path):
    with pytest.raises(Misuse) as refusal:
        example.main([*arguments, "--out", str(tmp_path / "none")])
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "none").exists()


def test_a_run_goes_on_only_as_it_began(example: ModuleType, whole: Path, tmp_path):
    before = left(whole)
    for change, message in (
        (["--lr", "0.001"], "was begun with lr=0.0002, now 0.001: choose another --out, or the same settings"),
        (["--weights", "point"], "was begun with weights=gaussian, now point"),
        (["--weights", "gaussian:estimator=draw,beta=0.01"], "was begun with kl_warmup=0"),
    ):
        with pytest.raises(Misuse, match=message):
            example.main([*TINY, *change, "--epochs", "2", "--out", str(whole)])
    assert left(whole) == before
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(Misuse, match="exists and is not an empty directory"):
        example.main([*TINY, "--out", str(tmp_path)])


def test_a_damaged_state_is_refused(example: ModuleType, whole: Path, tmp_path):
    out = tmp_path / "damaged"
    out.mkdir()
    for name in ("gan.json", "state-00002.safetensors"):
        (out / name).write_bytes((whole / name).read_bytes()[: -1 if name == "gan.json" else 100])
    with pytest.raises(Failure, match=r"state-00002\.safetensors"):
        example.main([*TINY, "--epochs", "2", "--out", str(out)])
