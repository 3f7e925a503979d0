"""Ensembles of a pretrained network on a few hundred images: EfficientNet-Lite0, its ImageNet weights, six recipes.

python examples/fine_tuning.py cifar-100-binary

Ten classes of CIFAR-100 with 40 training images each, enlarged to 96 pixels. `heads` and `forde heads` train dense
layers on the features of the frozen body, which are computed once; the others train the body too, at a fraction of the
heads' learning rate. That fraction, and the spread of a batch ensemble's factors, are chosen by the NLL of 100
validation images. Images of ten other classes are out of distribution. The weights come with
`pip install 'torch-murmuration[pretrained]'`. The script writes benchmarks/results/fine-tuning.json; recipes that are
in it are not trained again.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import murmuration as mm
from murmuration.models.nets import build_net
from murmuration.runs.directory import versions
from murmuration.system.files import read_json, write_json, write_tensors

RECORD = Path(__file__).parents[1] / "benchmarks" / "results" / "fine-tuning.json"
SIZE, TRAIN, VAL, TEST = 96, 40, 10, 30  # pixels, images of every class
KNOWN, OTHER = range(10), range(50, 60)  # classes: apple to bottle; mouse to pear
UNCERTAINTIES = ("entropy", "mutual_information")
BODY_RATES, FACTOR_STDS = (0.01, 0.03), (0.02, 0.1)  # of the heads' learning rate; candidates, the first by default
HEADS = {"epochs": 30, "lr": 5e-3}  # on features, which cost next to nothing


def recipes(rate: float, std: float) -> dict[str, tuple[mm.Recipe, dict[str, Any]]]:
    """Recipes and their settings by name, with the learning rate of the body and the spread of the factors."""
    whole = {"epochs": 4, "lr": 1e-2, "lr_multipliers": (("body.*", rate),)}
    last = mm.make_recipe("bayes-last-layer", weights="gaussian:where=last,beta=0.1,draws=10")
    return {
        "single": (mm.make_recipe("single"), whole),
        "heads": (mm.make_recipe("last-layer-ensemble", sharing="backbone:frozen=yes"), HEADS),
        "forde heads": (mm.make_recipe("forde", sharing="backbone:frozen=yes"), HEADS),
        "deep-ensemble": (mm.make_recipe("deep-ensemble"), whole),
        "batch-ensemble": (mm.make_recipe("batch-ensemble", sharing=f"rank-one:init=normal_1_{std:g}"), whole),
        "bayes-last-layer": (last, whole),
    }


def choose(data: mm.Data) -> dict[str, dict[str, float]]:
    """The NLL of the validation images for every candidate of the two settings."""

    def nll(name: str, rate: float, std: float) -> float:
        recipe, settings = recipes(rate, std)[name]
        fitted = mm.fit(
            "efficientnet-lite0",
            data,
            recipe=recipe,
            pretrained=True,
            posthoc=None,
            members=recipe.members or 3,
            **settings,
        )
        found = float(mm.score(fitted.predict(data.val.x), data.val.y)["nll"])
        print(f"{name}, rate {rate:g}, std {std:g}: validation NLL {found:.3f}")
        return found

    rates = {f"{rate:g}": nll("single", rate, FACTOR_STDS[0]) for rate in BODY_RATES}
    best = float(min(rates, key=rates.__getitem__))
    return {"rate": rates, "std": {f"{std:g}": nll("batch-ensemble", best, std) for std in FACTOR_STDS}}


def main(folder: str = "", quick: bool = False) -> dict[str, dict[str, Any]]:
    """The scores of every recipe; `quick` takes generated images, random weights (in `folder`) and one epoch."""
    data, other = generated() if quick else enlarged(Path(folder))
    record: dict[str, Any] = {"runs": {}} if quick or not RECORD.exists() else read_json(RECORD)
    weights = random_weights(Path(folder), data) if quick else True
    rate, std = BODY_RATES[0], FACTOR_STDS[0]
    if not quick:
        if "chosen" not in record:
            write_json(RECORD, record := {**record, "chosen": choose(data)})
        rate, std = (float(min(found, key=found.get)) for found in record["chosen"].values())
    for name, (recipe, settings) in recipes(rate, std).items():
        if name in record["runs"]:
            continue
        fixed = {"members": recipe.members or (2 if quick else 3), "epochs": 1 if quick else settings["epochs"]}
        began = time.process_time()
        ensemble = mm.fit(
            "efficientnet-lite0", data, recipe=recipe, pretrained=weights, posthoc=None, **{**settings, **fixed}
        )
        seconds, predicted = time.process_time() - began, ensemble.predict(data.test.x)
        scores = {key: mm.score(predicted, data.test.y)[key] for key in ("accuracy", "nll", "ece", "brier")}
        foreign = ensemble.predict(other)
        record["runs"][name] = {
            **{key: {"value": float(each), "low": each.low, "high": each.high} for key, each in scores.items()},
            "auroc": {key: auroc(getattr(predicted, key), getattr(foreign, key)) for key in UNCERTAINTIES},
            "members": len(predicted.outputs),
            "parameters": ensemble.groups[0].population.parameters_stored(),
            "cpu_seconds": seconds,
            "recipe": str(recipe),
            "settings": {**{key: value for key, value in settings.items() if key != "lr_multipliers"}, **fixed},
        }
        print(f"{name:18} accuracy {scores['accuracy']:.3f}, NLL {scores['nll']:.3f}, {seconds:.0f} s of CPU")
        if not quick:
            about = {"train": len(data.train), "val": len(data.val), "test": len(data.test), "pixels": SIZE}
            write_json(RECORD, {**record, **about, "other": len(other), "versions": versions()})
    return record["runs"]


def auroc(known: torch.Tensor, unknown: torch.Tensor) -> float:
    """The probability that an unknown image has a higher uncertainty than a known one; ties count half."""
    difference = unknown[:, None] - known[None, :]
    return float((difference > 0).double().mean() + 0.5 * (difference == 0).double().mean())


def enlarged(folder: Path) -> tuple[mm.Data, np.ndarray]:
    """The first images of ten classes, split, and images of ten other classes, (N, 96, 96, 3) bytes."""
    train = images(folder / "train.bin", KNOWN, 0, TRAIN)
    val, test = images(folder / "train.bin", KNOWN, TRAIN, VAL), images(folder / "test.bin", KNOWN, TEST, TEST)
    return mm.open_data(train, val=val, test=test), images(folder / "test.bin", OTHER, 0, TEST // 2)[0]


def images(file: Path, classes: range, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images `first` to `first + count` of each class, enlarged (bicubic), and their classes; see the file's format."""
    rows = np.fromfile(file, np.uint8).reshape(-1, 3074)  # coarse class, class, 3 x 32 x 32 pixels
    chosen = np.concatenate([rows[rows[:, 1] == each][first : first + count] for each in classes])
    small = chosen[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    large = [np.asarray(Image.fromarray(each).resize((SIZE, SIZE), Image.Resampling.BICUBIC)) for each in small]
    return np.stack(large), chosen[:, 1].astype(np.int64)


def generated() -> tuple[mm.Data, np.ndarray]:
    """Small images whose brightness is their class, and noise."""
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    x = rng.integers(0, 60, (24, 16, 16, 3)) + 80 * y[:, None, None, None]
    return mm.open_data((x.astype(np.uint8), y)), rng.integers(0, 256, (6, 16, 16, 3)).astype(np.uint8)


def random_weights(folder: Path, data: mm.Data) -> Path:
    """A file with random weights of the network."""
    write_tensors(folder / "random.safetensors", build_net("efficientnet-lite0", data.input_shape, 3).state_dict())
    return folder / "random.safetensors"


if __name__ == "__main__":
    main(*sys.argv[1:2])
