"""One cell of the record: an ensemble trained and scored on clean and corrupted images, or on a toy.

Scores by example go into an `.npz` beside the record, so that intervals are paired.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from murmuration.data import Data, ImagePreparation, Split, open_data
from murmuration.data.preparation import before_features
from murmuration.evaluation.eval_set import eval_set_of, predict_split
from murmuration.evaluation.metrics import columns
from murmuration.evaluation.metrics.calibration_error import confidence_bins, gap
from murmuration.evaluation.shift import ShiftSuite, shift_suite
from murmuration.prediction.ensemble import Ensemble
from murmuration.studies.papers import Show
from murmuration.studies.papers.forde.settings import GROUPS, Setting
from murmuration.studies.papers.forde.toys import TOYS
from murmuration.studies.papers.record import cpu_seconds
from murmuration.studies.papers.runs import trained
from murmuration.system.errors import Misuse
from murmuration.system.files import write_bytes
from murmuration.training.tuning import validation_inputs

COLUMNS = "columns"  # folder of scores by example
CACHED = 1 << 31  # bytes of corrupted test images that are kept in memory, at most
Columns = Mapping[str, NDArray[Any]]  # "clean.nll" -> (N,)


@dataclass(frozen=True)
class Scores:
    """Scores of one or several corruptions of the same N examples."""

    nll: NDArray[Any]  # (N,)
    correct: NDArray[Any]  # (N,)
    ece: float

    @classmethod
    def mean(cls, parts: list["Scores"]) -> "Scores":
        """Return the mean of scores of the same examples; the calibration error too is a mean over corruptions."""
        nll, correct = (np.mean([getattr(part, name) for part in parts], axis=0) for name in ("nll", "correct"))
        return cls(nll, correct, float(np.mean([part.ece for part in parts])))

    def summary(self) -> dict[str, float]:
        return {"accuracy": float(self.correct.mean()), "nll": float(self.nll.mean()), "ece": self.ece}


def score_split(ensemble: Ensemble, split: Split) -> Scores:
    """Return scores of the members as trained; the calibration error has 15 bins of equal width."""
    chunks = [columns(*chunk) for chunk in predict_split(ensemble, split)]
    values = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in ("log_prob", "correct", "confidence")}
    bins, gaps = confidence_bins(values["confidence"]), gap(values)
    ece = float(np.abs(np.bincount(bins, weights=gaps)).sum() / len(gaps))
    return Scores(-values["log_prob"], values["correct"].astype(float), ece)


class Laboratory:
    """The data of a reproduction, its corrupted test images, and the cells."""

    def __init__(self, setting: Setting, out: Path, show: Show) -> None:
        self.setting, self.out, self.show = setting, out, show
        self.corrupted: dict[tuple[str, int], Split] = {}

    @cached_property
    def data(self) -> Data:
        setting = self.setting
        data = open_data(setting.data, val=setting.val_share)
        if data.task != "classification" or not isinstance(before_features(data.preparation), ImagePreparation):
            kind = f"{data.task} of inputs {data.input_shape}"
            raise Misuse(f"--data {setting.data}: got {kind}, expected images with classes, such as digits")
        return replace(data, train=data.train[: setting.train], val=data.val[: setting.val])

    @cached_property
    def test(self) -> Split:
        return self.data.test[: self.setting.examples]

    @cached_property
    def suite(self) -> ShiftSuite:
        setting = self.setting
        selection: Any = {"severities": setting.severities, "examples": setting.examples}
        return shift_suite(eval_set_of(self.data), setting.corruptions or None, official=setting.cifar_c, **selection)

    @cached_property
    def validation(self) -> list[Split]:
        """Clean and corrupted validation images, by which alpha is chosen; corruptions reserved for choosing."""
        return [Split(None, self.data.val.y, inputs) for inputs in validation_inputs(self.data)]

    def about(self) -> dict[str, Any]:
        """Return name, fingerprint, sizes and corruptions of the data; refuse corrupted images of other data."""
        test, corrupted = self.test, self.corrupt(*self.suite.cells[0])
        if not torch.equal(test.y, corrupted.y):
            advice = f"expected the corrupted test images of {self.setting.data}, in the same order"
            raise Misuse(f"{self.setting.cifar_c} has other labels than the {len(test)} test images: {advice}")
        sizes = {
            part: len(split) for part, split in (("train", self.data.train), ("val", self.data.val), ("test", test))
        }
        about = {"name": self.data.name, "fingerprint": self.data.fingerprint, "examples": sizes}
        classes, shape = len(self.data.classes), list(self.data.input_shape)
        return {**about, "classes": classes, "inputs": shape, "corruptions": list(self.suite.names)}

    def corrupt(self, name: str, severity: int) -> Split:
        """Return the test images under one corruption; all are kept if they fit into memory."""
        if (name, severity) in self.corrupted:
            return self.corrupted[name, severity]
        split = self.suite.split(eval_set_of(self.data), name, severity)
        if len(self.suite.cells) * split.prepared.nbytes <= CACHED:
            self.corrupted[name, severity] = split
        return split

    def train(self, arm: str, seed: int) -> Ensemble:
        """Return the trained ensemble of a cell, continued if it was begun."""
        path, recipe = self.out / "runs" / f"{arm}-{seed}", self.setting.recipe(arm, len(self.data.classes))
        return trained(path, self.setting.net, self.data, recipe, self.setting.plan(seed), self.show)

    def measure(self, arm: str, seed: int) -> dict[str, Any]:
        """Return the entry of one ensemble in the record, and store its scores by example."""
        start = cpu_seconds()
        ensemble = self.train(arm, seed)
        parts = {"clean": [score_split(ensemble, self.test)]}
        parts |= {"corrupted": [], **{group: [] for group in GROUPS}}
        for turn, (name, severity) in enumerate(self.suite.cells):
            self.show(f"{arm}, seed {seed}, {name} {severity}", turn, len(self.suite.cells))
            scores = score_split(ensemble, self.corrupt(name, severity))
            parts["corrupted"].append(scores)
            parts[next(group for group, severities in GROUPS.items() if severity in severities)].append(scores)
        means = {part: Scores.mean(scores) for part, scores in parts.items() if scores}
        arrays = {f"{part}.{name}": getattr(s, name) for part, s in means.items() for name in ("nll", "correct")}
        save_columns(self.out, f"{arm}-{seed}", arrays)
        validation = [score_split(ensemble, split).nll.mean() for split in self.validation]
        interaction = ensemble.history[-1].get("coupling", {})
        return {
            "arm": arm,
            "seed": seed,
            **{part: scores.summary() for part, scores in means.items()},
            "validation_nll": float(np.mean(validation)),
            "push_to_loss": interaction.get("push_to_loss"),
            "cpu_seconds": {
                "training": round(ensemble.manifest.cpu_seconds, 1),
                "all": round(cpu_seconds() - start, 1),
            },
        }

    def measure_toy(self, toy_name: str, recipe: str, seed: int) -> dict[str, Any]:
        """Return the entry of one ensemble of a toy in the record, and store its predictions on the grid."""
        start, toy, setting = cpu_seconds(), TOYS[toy_name](), self.setting
        epochs = setting.toy_epochs or toy.epochs
        predictive = toy.fit(recipe, setting.toy_members, epochs, seed, setting.device)
        uncertainty = toy.uncertainty(predictive)
        means = {"mean": predictive.mean[:, 0].cpu().numpy()} if toy.noise else {}
        save_columns(self.out, f"{toy_name}-{recipe}-{seed}", {"uncertainty": uncertainty, **means})
        entry = {"toy": toy_name, "recipe": recipe, "seed": seed, **toy.by_place(uncertainty)}
        return {**entry, "cpu_seconds": {"all": round(cpu_seconds() - start, 1)}}


def save_columns(out: Path, name: str, arrays: Columns) -> None:
    """Store the arrays of one cell in single precision."""
    content, folder = io.BytesIO(), out / COLUMNS
    folder.mkdir(parents=True, exist_ok=True)
    single: dict[str, Any] = {key: np.asarray(values, dtype=np.float32) for key, values in arrays.items()}
    np.savez_compressed(content, **single)
    write_bytes(folder / f"{name}.npz", content.getvalue())


def load_columns(out: Path, name: str) -> Columns:
    """Return the arrays of one cell in double precision."""
    with np.load(out / COLUMNS / f"{name}.npz", allow_pickle=False) as archive:
        return {key: archive[key].astype(float) for key in archive.files}
