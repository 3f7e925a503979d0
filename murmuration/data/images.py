"""Folders of pictures: class folders, idx files (MNIST), CIFAR binaries."""

import gzip
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from murmuration.data.names import in_order, listed
from murmuration.data.raw import Part, Raw, Request
from murmuration.errors import Failure, Misuse

PICTURE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16L", "I;16B")
PART_FOLDERS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}

IDX_FILE = re.compile(r".*?(train|t10k|test).*?(images|labels)[-.]idx\d-ubyte(\.gz)?")
IDX_BYTES = 0x08  # the idx code for unsigned bytes

CIFAR_PIXELS = (3, 32, 32)
CIFAR_FILE = re.compile(r"data_batch_\d+\.bin|test_batch\.bin|train\.bin|test\.bin")


# Pictures in class folders


def is_picture(path: Path) -> bool:
    """Whether a file is a picture by its name."""
    return path.suffix.lower() in PICTURE_SUFFIXES and not path.name.startswith(".")


def pictures_in(folder: Path) -> list[Path]:
    """All picture files below a folder, sorted by path."""
    return sorted(path for path in folder.rglob("*") if is_picture(path) and path.is_file())


def folders_in(folder: Path) -> list[Path]:
    """The visible folders directly inside a folder, sorted."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def load_picture_folder(folder: Path, request: Request) -> Raw:
    """The pictures (N, C, H, W) of class folders, of train/ val/ test/ folders of them, or flat ones."""
    named = {PART_FOLDERS.get(path.name.lower()): path for path in folders_in(folder)}
    has_parts = None not in named and named and all(folders_in(path) for path in named.values())
    places = named if has_parts else {"all": folder}
    files = {part: labelled_files(place, request.labelled) for part, place in places.items()}
    paths = [path for found in files.values() for path, _ in found]
    if not paths:
        raise Misuse(f"no pictures in '{folder}': expected class folders of {listed(sorted(PICTURE_SUFFIXES))}")
    planes = stack_pictures([str(path) for path in paths], lambda i: open_picture(paths[i]), request.size)
    parts, start = {}, 0
    for part, found in files.items():
        labels = np.array([label for _, label in found], dtype=object) if request.labelled else None
        parts[str(part)] = Part(planes[start : start + len(found)], labels)
        start += len(found)
    names = in_order(label for found in files.values() for _, label in found)
    return Raw(with_indices(parts, names), "classification", names if request.labelled else None, peak=255.0)


def with_indices(parts: dict[str, Part], names: tuple[str, ...]) -> dict[str, Part]:
    """The parts with labels given as places in `names` instead of texts."""
    place = {name: i for i, name in enumerate(names)}
    return {
        key: part
        if part.targets is None
        else Part(part.inputs, np.array([place[label] for label in part.targets], dtype=np.int64))
        for key, part in parts.items()
    }


def labelled_files(folder: Path, labelled: bool) -> list[tuple[Path, str]]:
    """Every picture with the name of its class folder; flat folders are fine when no labels are wanted."""
    if not labelled:
        return [(path, "") for path in pictures_in(folder)]
    classes = folders_in(folder)
    if not classes and any(is_picture(path) for path in folder.iterdir()):
        raise Misuse(f"'{folder}' holds pictures but no class folders: expected one folder for each class")
    return [(path, place.name) for place in classes for path in pictures_in(place)]


def open_picture(path: Path) -> Any:
    """The PIL image in a file; its pixels are not read yet."""
    from PIL import Image

    try:
        return Image.open(path)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise Failure(f"cannot read the picture '{path}': {one_line(error)}") from None


def one_line(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error) or type(error).__name__).splitlines()[0]


def stack_pictures(
    names: Sequence[str], opened: Callable[[int], Any], size: tuple[int, int] | None = None
) -> np.ndarray:
    """Pictures (N, C, H, W) uint8, C = 1 if all are grey and 3 otherwise; `opened(i)` gives the PIL image i.

    Sizes and modes are looked at first, so that the pixels are decoded straight into one array. All must have one
    size, unless `size` (H, W) says to which they are to be resized.
    """
    grey, found = True, None
    for i, name in enumerate(names):
        with opened(i) as picture:
            found = found or picture.size
            grey = grey and picture.mode in GREY_MODES
            if size is None and picture.size != found:
                raise Misuse(
                    f"'{names[0]}' has {found[0]}x{found[1]} pixels but '{name}' has"
                    f" {picture.size[0]}x{picture.size[1]}: expected one size for all"
                )
    width, height = found or (0, 0)
    size = size or (height, width)
    out = np.empty((len(names), 1 if grey else 3, *size), dtype=np.uint8)
    for i, name in enumerate(names):
        with opened(i) as picture:
            out[i] = resized(decoded(picture, grey, name)[None], size)[0]
    return out


def resized(planes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Pictures (N, C, *size) from ones (N, C, H, W), bilinear and smoothed where they shrink; bytes stay bytes.

    Pictures of that size already are returned as they are; others are stretched to it.
    """
    if planes.shape[2:] == size:
        return planes
    whole = planes.dtype == np.uint8
    values = torch.from_numpy(planes.astype(np.float32 if whole else np.float64))
    out = F.interpolate(values, size, mode="bilinear", antialias=True)
    return (out.round().clamp(0, 255).to(torch.uint8) if whole else out).numpy()


def decoded(picture: Any, grey: bool, name: str) -> np.ndarray:
    """Pixels (C, H, W) uint8 of one PIL image; 16-bit greys keep their upper byte."""
    from PIL import Image

    try:
        if picture.mode.startswith("I"):
            upper = np.clip(np.asarray(picture).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
            return upper[None] if grey else np.repeat(upper[None], 3, axis=0)
        pixels = np.asarray(picture.convert("L" if grey else "RGB"))
    except (OSError, SyntaxError, ValueError, zlib.error, Image.DecompressionBombError) as error:
        raise Failure(f"cannot read the picture '{name}': {one_line(error)}") from None
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


# idx files


def is_idx_folder(folder: Path) -> bool:
    """Whether a folder holds idx files by their names."""
    return any(IDX_FILE.fullmatch(path.name) for path in folder.iterdir())


def load_idx_folder(folder: Path, request: Request) -> Raw:
    """The pictures (N, 1, H, W) of `train-images-idx3-ubyte[.gz]` and its three companions."""
    files: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir()):
        match = IDX_FILE.fullmatch(path.name)
        if match:
            key = ("train" if match[1] == "train" else "test", match[2])
            if key in files and path.name != files[key].name + ".gz":
                raise Misuse(f"'{folder}' holds both {files[key].name} and {path.name}: expected one of them")
            files.setdefault(key, path)
    parts = {part: idx_part(files, part, request.labelled) for part, what in files if what == "images"}
    if not parts:
        raise Misuse(f"no images among the idx files of '{folder}': expected train-images-idx3-ubyte[.gz]")
    return Raw(parts, "classification", peak=255.0)


def idx_part(files: dict[tuple[str, str], Path], part: str, labelled: bool) -> Part:
    """Pictures and labels of one part of an idx folder."""
    images = read_idx(files[part, "images"], rank=3)[:, None]
    if not labelled:
        return Part(images)
    if (part, "labels") not in files:
        raise Misuse(f"'{files[part, 'images']}' has no labels beside it: expected a labels-idx1-ubyte file")
    labels = read_idx(files[part, "labels"], rank=1)
    if len(labels) != len(images):
        raise Failure(f"{files[part, 'images']} has {len(images)} images but {len(labels)} labels")
    return Part(images, labels.astype(np.int64))


def read_idx(path: Path, rank: int) -> np.ndarray:
    """The bytes of one idx file as an array of the given rank: 0 0 type rank, sizes (big-endian), data."""
    content = read_bytes(path)
    head = 4 + 4 * rank
    if len(content) < head or content[:4] != bytes((0, 0, IDX_BYTES, rank)):
        raise Failure(f"'{path}' is not an idx file of bytes with {rank} axes: it begins {content[:4].hex(' ')}")
    shape = struct.unpack(f">{rank}I", content[4:head])
    expected = head + int(np.prod(shape, dtype=object))
    if len(content) != expected:
        raise Failure(f"'{path}' is damaged: expected {expected} bytes, got {len(content)}")
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz."""
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise Failure(f"cannot read '{path}' ({path.stat().st_size} bytes): {one_line(error)}") from None


# CIFAR binaries


def is_cifar_folder(folder: Path) -> bool:
    """Whether a folder holds CIFAR binary files by their names."""
    return any(CIFAR_FILE.fullmatch(path.name) for path in folder.iterdir())


def load_cifar_folder(folder: Path, request: Request) -> Raw:
    """The pictures (N, 3, 32, 32) of CIFAR-10 (`data_batch_1.bin` ...) or CIFAR-100 (`train.bin`)."""
    found = sorted(path for path in folder.iterdir() if CIFAR_FILE.fullmatch(path.name))
    hundred = any(path.name in ("train.bin", "test.bin") for path in found)
    if hundred and any("batch" in path.name for path in found):
        raise Misuse(f"'{folder}' mixes CIFAR-10 and CIFAR-100 files: {listed(p.name for p in found)}")
    groups = {
        "train": [path for path in found if not path.name.startswith("test")],
        "test": [path for path in found if path.name.startswith("test")],
    }
    parts = {part: cifar_part(paths, 2 if hundred else 1) for part, paths in groups.items() if paths}
    names = class_names(folder / ("fine_label_names.txt" if hundred else "batches.meta.txt"))
    return Raw(parts, "classification", names, peak=255.0)


def cifar_part(paths: list[Path], labels: int) -> Part:
    """Pictures and their last (fine) label from CIFAR files of records: `labels` bytes, then 3072 pixels."""
    record = labels + int(np.prod(CIFAR_PIXELS))
    counts = []
    for path in paths:
        size = path.stat().st_size
        if size == 0 or size % record:
            expected = (size // record + 1) * record
            raise Failure(f"'{path}' is damaged: expected {expected} bytes (records of {record}), got {size}")
        counts.append(size // record)
    planes = np.empty((sum(counts), *CIFAR_PIXELS), dtype=np.uint8)
    targets = np.empty(sum(counts), dtype=np.int64)
    start = 0
    for path, count in zip(paths, counts, strict=True):
        rows = np.fromfile(path, dtype=np.uint8).reshape(count, record)
        planes[start : start + count] = rows[:, labels:].reshape(count, *CIFAR_PIXELS)
        targets[start : start + count] = rows[:, labels - 1]
        start += count
    return Part(planes, targets)


def class_names(path: Path) -> tuple[str, ...] | None:
    """The names in a file of one a line, or None if there is no such file."""
    if not path.is_file():
        return None
    return tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
