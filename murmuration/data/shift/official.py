"""The published arrays of CIFAR-10-C and CIFAR-100-C, where the user has them (Hendrycks & Dietterich 2019).

A folder holds `labels.npy` (5n,) and, for each corruption, `<name>.npy` (5n, H, W, 3) of bytes: all n test pictures at
severity 1, then the same at severity 2, and so on; n is 10 000. Files are mapped, not read whole.
"""

from pathlib import Path

import numpy as np
import torch

from murmuration.data.images import one_line
from murmuration.data.preparation import ImagePreparation, Preparation
from murmuration.data.records import Split
from murmuration.data.shift.severities import SEVERITIES, check_place
from murmuration.errors import Failure, Misuse, unknown

LABELS = "labels"


def official_names(folder: str | Path) -> list[str]:
    """The corruptions in a folder of official arrays, sorted."""
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise Misuse(f"no folder '{folder}': expected one that holds labels.npy and <corruption>.npy")
    stems = {path.stem for path in place.glob("*.npy")}
    if LABELS not in stems:
        raise Misuse(f"no labels.npy in '{folder}': expected it beside <corruption>.npy, as in CIFAR-10-C")
    if stems == {LABELS}:
        raise Misuse(f"no pictures in '{folder}': expected <corruption>.npy beside labels.npy")
    return sorted(stems - {LABELS})


def official_split(
    folder: str | Path, name: str, severity: int, preparation: Preparation, *, classes: tuple[str, ...] = ()
) -> Split:
    """The n pictures of one corruption and severity with their labels, prepared as in training.

    Labels mean places in the training classes, as those of CIFAR do: its official order is alphabetical. Give `classes`
    to have them checked against their number.
    """
    if not isinstance(preparation, ImagePreparation):
        raise Misuse(f"'{folder}' holds pictures: expected a run that was trained on pictures")
    known = official_names(folder)
    if name not in known:
        raise unknown("corruption", name, known)
    check_place(severity, 0, 0)
    place = Path(folder).expanduser()
    pixels, labels = mapped(place / f"{name}.npy"), mapped(place / f"{LABELS}.npy")
    check_arrays(pixels, labels, place / f"{name}.npy")
    count = len(pixels) // len(SEVERITIES)
    rows = slice((severity - 1) * count, severity * count)
    check_labels(labels[rows], classes, place / f"{LABELS}.npy")
    return Split(preparation.apply(pixels[rows], peak=255.0), torch.from_numpy(labels[rows].astype(np.int64)))


def mapped(path: Path) -> np.ndarray:
    """The array in a `.npy` file, whose values are read when they are used."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise Failure(f"cannot read '{path}' as an array: {one_line(error)}") from None
    if not isinstance(found, np.ndarray):
        raise Misuse(f"'{path}' is an archive of arrays: expected a single one, as np.save writes it")
    return found


def check_arrays(pixels: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Refuse arrays that are not five severities of colour pictures in bytes with a label each."""
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8:
        raise Misuse(f"'{path}' has the shape {pixels.shape} of {pixels.dtype}: expected (50000, 32, 32, 3) of uint8")
    if len(pixels) % len(SEVERITIES) or not len(pixels):
        raise Misuse(f"'{path}' has {len(pixels)} pictures: expected a multiple of five, one block for each severity")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise Misuse(
            f"labels.npy beside '{path}' has the shape {labels.shape} of {labels.dtype}: expected (N,) integers"
        )
    if len(labels) != len(pixels):
        raise Misuse(f"'{path}' has {len(pixels)} pictures but labels.npy has {len(labels)} labels: expected as many")


def check_labels(labels: np.ndarray, classes: tuple[str, ...], path: Path) -> None:
    """Refuse labels (n,) that are not places in the classes, where these are given."""
    low, high = int(labels.min()), int(labels.max())
    if classes and not 0 <= low <= high < len(classes):
        wrong = high if high >= len(classes) else low
        raise Misuse(f"label {wrong} in '{path}': expected 0 to {len(classes) - 1}, as in training")
