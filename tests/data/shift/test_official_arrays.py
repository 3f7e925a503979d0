"""Official arrays: small files of the published layout, cut at the right rows and refused when they are not right."""

from pathlib import Path

import numpy as np
import pytest
import torch

from murmuration.data import ArrayPreparation, ImagePreparation
from murmuration.data.preparation import fit_images
from murmuration.data.shift import official_names, official_split
from murmuration.system.errors import Failure, Misuse

EACH = 20
CLASSES = tuple("abcdefghij")


def pixels_like(seed: int, count: int = 5 * EACH) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, name in enumerate(("fog", "brightness")):
        np.save(tmp_path / f"{name}.npy", pixels_like(seed))
    np.save(tmp_path / "labels.npy", np.tile(np.arange(EACH) % 10, 5).astype(np.uint8))
    return tmp_path


PREPARATION = fit_images(pixels_like(7), 255.0, "standardise")


@pytest.mark.parametrize("severity", range(1, 6))
def test_each_severity_is_one_block_of_rows(folder: Path, severity: int) -> None:
    split = official_split(folder, "fog", severity, PREPARATION, classes=CLASSES)
    rows = pixels_like(0)[(severity - 1) * EACH : severity * EACH]
    assert torch.equal(split.prepared, PREPARATION.apply(rows))
    assert np.array_equal(PREPARATION.pixels_of(split.prepared), rows)
    assert split.y.dtype == torch.int64
    assert split.y.tolist() == [*range(10), *range(10)]


def test_labels_are_those_of_the_same_rows(folder: Path) -> None:
    labels = np.arange(5 * EACH) % 7
    np.save(folder / "labels.npy", labels)
    assert official_split(str(folder), "brightness", 3, PREPARATION).y.tolist() == labels[40:60].tolist()


def test_white_is_that_of_bytes_whatever_training_had(folder: Path) -> None:
    unit = fit_images(pixels_like(7) / 255.0, 1.0, "unit")
    split = official_split(folder, "fog", 1, unit)
    assert torch.allclose(split.prepared, torch.from_numpy(pixels_like(0)[:EACH] / 255.0).permute(0, 3, 1, 2).float())


def test_the_names_are_those_of_the_files(folder: Path) -> None:
    assert official_names(folder) == ["brightness", "fog"]
    with pytest.raises(Misuse, match=r"^unknown corruption 'fogg': did you mean 'fog'"):
        official_split(folder, "fogg", 1, PREPARATION)
    with pytest.raises(Misuse, match=r"^unknown corruption 'labels': Known: brightness, fog$"):
        official_split(folder, "labels", 1, PREPARATION)


def test_only_the_rows_asked_for_are_read(folder: Path) -> None:
    found = np.lib.format.open_memmap(folder / "fog.npy", mode="r+")
    expected = official_split(folder, "fog", 2, PREPARATION).prepared
    found[:EACH] = 0  # another severity changes, this one does not
    found.flush()
    assert torch.equal(official_split(folder, "fog", 2, PREPARATION).prepared, expected)
    assert torch.equal(
        official_split(folder, "fog", 1, PREPARATION).prepared, PREPARATION.apply(np.zeros((EACH, 32, 32, 3)))
    )


def test_missing_files_are_refused(folder: Path) -> None:
    with pytest.raises(
        Misuse, match=r"^no folder '.*nowhere': expected one that holds labels.npy and <corruption>.npy"
    ):
        official_names(folder / "nowhere")
    (folder / "labels.npy").unlink()
    with pytest.raises(Misuse, match=r"^no labels.npy in '.*': expected it beside <corruption>.npy"):
        official_split(folder, "fog", 1, PREPARATION)
    for name in ("fog", "brightness"):
        (folder / f"{name}.npy").unlink()
    np.save(folder / "labels.npy", np.arange(5))
    with pytest.raises(Misuse, match=r"^no images in '.*': expected <corruption>.npy beside labels.npy"):
        official_names(folder)


BAD_PICTURES = [
    (np.zeros((100, 3, 32, 32), np.uint8), r"has the shape \(100, 3, 32, 32\) of uint8: expected \(50000, 32, 32, 3\)"),
    (np.zeros((100, 3072), np.uint8), r"has the shape \(100, 3072\) of uint8: expected"),
    (np.zeros((100, 32, 32, 3), np.float32), r"of float32: expected \(50000, 32, 32, 3\) of uint8"),
    (pixels_like(0, 99), "has 99 images: expected a multiple of five"),
    (pixels_like(0, 0), "has 0 images: expected a multiple of five"),
    (pixels_like(0, 50), r"has 50 images but labels.npy has 100 labels: expected as many"),
    (np.zeros((100, 16, 16, 3), np.uint8), r"^examples have the shape \(16, 16, 3\): expected \(3, 32, 32\), as in"),
]


@pytest.mark.parametrize(("pixels", "message"), BAD_PICTURES)
def test_wrong_images_are_refused(folder: Path, pixels: np.ndarray, message: str) -> None:
    np.save(folder / "fog.npy", pixels)
    with pytest.raises(Misuse, match=message):
        official_split(folder, "fog", 1, PREPARATION)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.arange(100) % 11, "^label 10 in '.*labels.npy': expected 0 to 9, as in training$"),
        (np.arange(100) % 3 - 1, "^label -1 in "),
        (np.zeros((100, 1), int), r"has the shape \(100, 1\) of int64: expected \(N,\) integers"),
        (np.zeros(100), r"has the shape \(100,\) of float64: expected \(N,\) integers"),
    ],
)
def test_wrong_labels_are_refused(folder: Path, labels: np.ndarray, message: str) -> None:
    np.save(folder / "labels.npy", labels)
    with pytest.raises(Misuse, match=message):
        official_split(folder, "fog", 1, PREPARATION, classes=CLASSES)


def test_wrong_requests_are_refused(folder: Path) -> None:
    with pytest.raises(Misuse, match=r"^severity 0: expected an integer from 1 to 5$"):
        official_split(folder, "fog", 0, PREPARATION)
    with pytest.raises(Misuse, match=r"holds images: expected a run that was trained on images$"):
        official_split(folder, "fog", 1, ArrayPreparation((2,), (0.0, 0.0), (1.0, 1.0)))
    grey = ImagePreparation((1, 32, 32), 255.0, (0.0,), (1.0,))
    with pytest.raises(Misuse, match=r"^examples have the shape \(3, 32, 32\): expected \(1, 32, 32\), as in training"):
        official_split(folder, "fog", 1, grey)


def test_damaged_files_fail_in_one_line(folder: Path) -> None:
    whole = (folder / "fog.npy").read_bytes()
    for content in (b"", whole[:5000], b"not an array at all, only text"):
        (folder / "fog.npy").write_bytes(content)
        with pytest.raises(Failure, match=r"^cannot read '.*fog.npy' as an array: .+$") as caught:
            official_split(folder, "fog", 1, PREPARATION)
        assert "\n" not in str(caught.value)
    np.save(folder / "fog.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(Failure, match="cannot read"):
        official_split(folder, "fog", 1, PREPARATION)
