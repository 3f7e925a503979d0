"""Extensions: a package that adds a row to a table is found by the command line and by `mm.load`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import murmuration as mm

PACKAGE = """
from dataclasses import dataclass
from typing import ClassVar

from murmuration.prediction.posthoc import CALIBRATORS
from murmuration.prediction.posthoc.calibration import CalibrationMethod
from murmuration.prediction.posthoc.calibrator import Calibrator


@dataclass(frozen=True)
class Halved(Calibrator):
    factor: float
    name: ClassVar[str] = "halved"
    about: ClassVar[str] = "logits times a factor"

    def __call__(self, pred):
        return pred.with_logits(pred.logits * self.factor)

    @classmethod
    def identity(cls, pred):
        return cls(1.0)


def fit(pred, y, factor: float = 0.5):
    return Halved(factor)


CALIBRATORS["halved"] = CalibrationMethod("half of the logits", {"classification": (Halved, fit)}, ("factor",))
"""


def install(site: Path, points: str) -> None:
    """Write the metadata of a distribution with these entry points."""
    info = site / "halving-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: halving\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)


WRONG = """
[murmuration.extensions]
broken = halving_broken
missing = halving_missing
[murmuration.commands]
number = halving_good:NUMBER
[murmuration.lists]
number = halving_good:NUMBER
[murmuration.nets]
number = halving_good:NUMBER
[murmuration.run_kinds]
number = halving_good:NUMBER
[murmuration.report_sections]
number = halving_good:NUMBER
"""


def test_a_wrong_entry_point_is_left_out_with_one_note(tmp_path: Path):
    install(tmp_path, WRONG)
    (tmp_path / "halving_broken.py").write_text("raise ValueError('first\\nsecond')\n")
    (tmp_path / "halving_good.py").write_text("NUMBER = 3\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "murmuration", "list", "nets"]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "resnet18" in ended.stdout
    notes = ended.stderr.splitlines()
    assert {line.partition("=")[0] for line in notes} == {
        f"note: entry point '{name} " for name in ("broken", "missing", "number")
    }
    assert len(notes) == 5  # of two extensions, commands, lists and nets
    assert "'broken = halving_broken' of halving in murmuration.extensions is left out: ValueError: first" in notes[1]
    assert any("murmuration.commands is left out: it is an int, expected Callable" in line for line in notes)
    assert any("murmuration.nets is left out: it is an int, expected NetEntry" in line for line in notes)


@pytest.mark.slow
def test_a_calibrator_of_an_installed_package_is_fitted_and_loaded_in_fresh_processes(tmp_path: Path):
    site, run = tmp_path / "site", tmp_path / "run"
    install(site, "[murmuration.extensions]\nhalving = halving\n")
    (site / "halving.py").write_text(PACKAGE)
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])

    def python(*words: str) -> str:
        command = [sys.executable, *words]
        result = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    murmur = ("-m", "murmuration")
    train = ("--net", "mlp", "--members", "1", "--epochs", "1", "--calibrate", "halved:factor=0.5", "--out", str(run))
    python(*murmur, "train", "two-moons", *train)
    assert json.loads((run / "posthoc.json").read_text())["calibrator"]["factor"] == 0.5
    assert "halved" in python(*murmur, "list", "calibrators")
    assert "calibrator halved," in python("-c", f"import murmuration as mm; print(mm.load({str(run)!r}))")


def test_a_warning_points_to_the_line_of_the_user():
    with pytest.warns(UserWarning, match="one member") as record:
        mm.fit("mlp", "two-moons", recipe="forde", members=1, epochs=1, posthoc=None)
    assert {Path(warning.filename).name for warning in record} == {Path(__file__).name}
