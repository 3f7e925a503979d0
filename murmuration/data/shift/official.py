"""The published arrays of CIFAR-10-C and CIFAR-100-C (Hendrycks & Dietterich 2019), read from a local folder.

A folder holds `labels.npy` (5n,) and, for each corruption, `<name>.npy` (5n, H, W, 3) of bytes: all n test images at
severity 1, then the same at severity 2, and so on; n is 10 000. Files are memory-mapped.
"""

from pathlib import Path

import numpy as np
import torch

from murmuration.data.dataset import Split
from murmuration.data.inputs import prepare_raw
from murmuration.data.preparation import ImagePreparation, Preparation, before_features
from murmuration.data.shift.randomness import SEVERITIES, check_arguments
from murmuration.system.errors import Failure, Misuse, first_line, unknown

LABELS = "labels"


def official_names(folder: str | Path) -> list[str]:
    """List the corruptions in a folder of official arrays.

    Args:
        folder: Path of the folder.

    Returns:
        Their names, sorted.

    Raises:
        Misuse: If the folder does not exist or lacks labels or images.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise Misuse(f"no folder '{folder}': expected one that holds labels.npy and <corruption>.npy")
    stems = {file.stem for file in path.glob("*.npy")}
    if LABELS not in stems:
        raise Misuse(f"no labels.npy in '{folder}': expected it beside <corruption>.npy, as in CIFAR-10-C")
    if stems == {LABELS}:
        raise Misuse(f"no images in '{folder}': expected <corruption>.npy beside labels.npy")
    return sorted(stems - {LABELS})


def official_split(
    folder: str | Path, name: str, severity: int, preparation: Preparation, *, classes: tuple[str, ...] = ()
) -> Split:
    """Load the n images of one corruption and severity with their labels, prepared as in training.

    Args:
        folder: Folder of official arrays.
        name: Name of the corruption, see `official_names`.
        severity: 1 to 5.
        preparation: Preparation of the run that predicts.
        classes: Its classes; if given, labels outside them are refused. Labels are indices into these, as in CIFAR,
            whose official order is alphabetical.

    Returns:
        Raw and prepared images with their labels.

    Raises:
        Misuse: For an unknown name, arrays of another shape or type, or a run that was not trained on images.
        Failure: For damaged files.
    """
    if not isinstance(before_features(preparation), ImagePreparation):
        raise Misuse(f"'{folder}' holds images: expected a run that was trained on images")
    names = official_names(folder)
    if name not in names:
        raise unknown("corruption", name, names, see="murmur list corruptions")
    check_arguments(severity, 0, 0)
    path, label_path = (Path(folder).expanduser() / f"{stem}.npy" for stem in (name, LABELS))
    pixels, labels = load_array(path), load_array(label_path)
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8:
        raise Misuse(f"'{path}' has the shape {pixels.shape} of {pixels.dtype}: expected (50000, 32, 32, 3) of uint8")
    if len(pixels) % len(SEVERITIES) or not len(pixels):
        raise Misuse(f"'{path}' has {len(pixels)} images: expected a multiple of five, one block for each severity")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        layout = f"the shape {labels.shape} of {labels.dtype}"
        raise Misuse(f"labels.npy beside '{path}' has {layout}: expected (N,) integers")
    if len(labels) != len(pixels):
        raise Misuse(f"'{path}' has {len(pixels)} images but labels.npy has {len(labels)} labels: expected as many")
    count = len(pixels) // len(SEVERITIES)
    rows = slice((severity - 1) * count, severity * count)
    low, high = int(labels[rows].min()), int(labels[rows].max())
    if classes and not 0 <= low <= high < len(classes):
        label = high if high >= len(classes) else low
        raise Misuse(f"label {label} in '{label_path}': expected 0 to {len(classes) - 1}, as in training")
    prepared = prepare_raw(pixels[rows], 255.0, preparation)
    return Split(pixels[rows], torch.from_numpy(labels[rows].astype(np.int64)), prepared)


def load_array(path: Path) -> np.ndarray:
    """Map the array of a `.npy` file into memory."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise Failure(f"cannot read '{path}' as an array: {first_line(error)}") from None
    if not isinstance(array, np.ndarray):
        raise Misuse(f"'{path}' is an archive of arrays: expected a single one, as np.save writes it")
    return array
