"""Jensen-Shannon divergence on SVHN along training: does it depend on how far networks fit their training images?

    python benchmarks/landscape_ood.py CIFAR SVHN --out benchmarks/results/landscape-ood.json

Networks, each on the same first images of CIFAR-10 (`--train`), with a checkpoint every epoch. At some of them:
training accuracy, test accuracy and mean entropy on SVHN, means over networks, and the divergence of five of them on
SVHN with its interval over networks (jackknife) and images. `gain` compares the end with the checkpoints at which 40 to
60 % of the training images are right, on the same images. Each call adds a run to the file; one core:
OMP_NUM_THREADS=1.
"""

import argparse
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import murmuration as mm
from murmuration.data import Split
from murmuration.studies.divergence import entropies, mean_divergence
from murmuration.studies.pages.studies import ood_splits
from murmuration.studies.trajectory import Trajectory, open_trajectory
from murmuration.studies.verdicts import jackknife_estimate
from murmuration.studies.weight_space import labelled_outputs
from murmuration.system.files import read_json, write_json
from murmuration.system.records import plain_json

PLAN: dict[str, Any] = {"batch_size": 32, "lr": 1e-3, "schedule": "halve:10", "drop_last": True, "posthoc": None}

TOGETHER = 5  # networks of a divergence, as published
CHECKPOINTS = 14  # that are measured, closer at the beginning


def probabilities(trajectory: Trajectory, index: int, split: Split) -> torch.Tensor:
    """Class probabilities (M, N, K) of all members at one checkpoint."""
    outputs, _ = labelled_outputs(trajectory.points, split)
    vectors = [trajectory.at(member, index) for member in range(trajectory.members)]
    return torch.stack([logits.double().softmax(-1) for logits in outputs(vectors)])


def divergence(probs: torch.Tensor) -> Any:
    """The divergence (N,) of five of some networks, mean over subsets; of four scaled as its expectation, 1 - 1/M."""

    def mean(rows: list[int]) -> Any:
        size = min(TOGETHER, len(rows))
        return (mean_divergence(probs[rows], size) * (1 - 1 / TOGETHER) / (1 - 1 / size)).numpy()

    return mean


def measure(net: str, data: mm.Data, source: str, images: int, epochs: int, members: int) -> dict[str, Any]:
    """All checkpoints of one architecture, and the gain from half of the training images right to the end."""
    rows, kept = [], []
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        ensemble = mm.fit(net, data, members=members, epochs=epochs, trajectory="every-epoch", out=run, **PLAN)
        trajectory, (svhn,) = open_trajectory(run), ood_splits([source], ensemble).values()
        svhn, test = svhn[:images], data.test[:images]
        for index in sorted({round(place) - 1 for place in np.geomspace(1, epochs, CHECKPOINTS)}):
            train, clean, ood = (probabilities(trajectory, index, split) for split in (data.train, test, svhn))
            estimate = jackknife_estimate("", divergence(ood), {"networks": members}, 0.0, math.inf, "images")
            right = [float((p.argmax(-1) == s.y).double().mean()) for p, s in ((train, data.train), (clean, test))]
            numbers = {"epoch": trajectory.epochs[index], "train_accuracy": right[0], "test_accuracy": right[1]}
            numbers |= {"entropy": float(entropies(ood, 0.0).mean()), "divergence": estimate.value}
            rows.append(numbers | {"low": estimate.low, "high": estimate.high})
            kept.append(divergence(ood))
            print(net, {name: round(value, 3) for name, value in rows[-1].items()}, flush=True)
    nearest = min(rows, key=lambda row: abs(row["train_accuracy"] - 0.5))
    half = [i for i, row in enumerate(rows) if row is nearest or abs(row["train_accuracy"] - 0.5) <= 0.1]
    gain = lambda chosen: kept[-1](chosen) - np.mean([kept[i](chosen) for i in half], axis=0)  # noqa: E731
    estimate = jackknife_estimate("gain", gain, {"networks": members}, 0.0, math.inf, "images")
    return {"half": half, "gain": estimate, "path": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("svhn")
    parser.add_argument("--nets", default="medium-cnn,small-cnn")
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    opened = mm.open_data(options.data, prepare="unit")
    data = replace(opened, train=opened.train[: options.train])
    setting = {name: getattr(options, name) for name in ("train", "images", "epochs", "members")}
    record: dict[str, Any] = {"setting": {**setting, **PLAN, "prepare": "unit"}, "nets": {}}
    before = read_json(Path(options.out))["runs"] if Path(options.out).exists() else []
    for net in options.nets.split(","):
        record["nets"][net] = measure(net, data, options.svhn, options.images, options.epochs, options.members)
        write_json(Path(options.out), plain_json({"runs": [*before, record]}))


if __name__ == "__main__":
    main()
