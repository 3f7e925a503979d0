"""Folders of images (class folders, idx files, CIFAR binaries), and images adapted to an earlier run."""

import contextlib
import gzip
import math
import multiprocessing
import os
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.data.file_rows import FileRows, blocks, extremes, is_streamed, require_unpacked, rows_of
from murmuration.data.preparation import Preparation, before_features, image_shape, pixel_peak, to_planes, with_features
from murmuration.data.raw import LoadOptions, RawData, RawPart, is_table, take
from murmuration.data.targets import sort_names
from murmuration.system.errors import Failure, Misuse, first_line, listed, warn
from murmuration.system.files import require_regular

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
UNREADABLE = (  # errors of Pillow about damaged files, whose decoders each raise their own
    *(OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, OverflowError, AssertionError, MemoryError),
    *(struct.error, zlib.error),
)
GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16L", "I;16B")
PART_FOLDERS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}

MAX_WORKERS = 4  # processes that decode images
KEPT_BYTES = 2**30  # of streamed images that are decoded once and kept as bytes; more are decoded when needed
MOST_DAMAGED = 0.01  # share of the files of a folder
LONGEST_SIDE = 16  # times the length that is left after cropping: more of an image is not scaled
USUAL_SIDE = 64  # pixels, of images that have different sizes
EXIF_ORIENTATION = 0x0112

IDX_FILE = re.compile(r".*?(train|t10k|test).*?(images|labels)[-.]idx\d-ubyte(\.gz)?")
IDX_BYTES = 0x08  # the idx code for unsigned bytes

LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue (ITU-R BT.601)

CIFAR_PIXELS = (3, 32, 32)
CIFAR_FILE = re.compile(r"data_batch_\d+\.bin|test_batch\.bin|train\.bin|test\.bin")


# Images in class folders


def is_image_file(path: Path) -> bool:
    """Return whether a file is an image by its name."""
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


def image_files(folder: Path, left_out: list[Path] | None = None) -> list[Path]:
    """Return all image files below a folder, sorted by path; what is named like one but is no file joins `left_out`."""
    named = sorted(path for path in folder.rglob("*") if is_image_file(path) and not path.is_dir())
    files = [path for path in named if path.is_file()]
    if left_out is not None and len(files) < len(named):
        left_out += [path for path in named if not path.is_file()]
    return files


def folders_in(folder: Path) -> list[Path]:
    """Return the visible folders directly inside a folder, sorted."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def load_image_folder(folder: Path, options: LoadOptions) -> RawData:
    """Load images (N, C, H, W) from class folders, from train/ val/ test/ folders of these, or from a flat folder."""
    named = {PART_FOLDERS.get(path.name.lower()): path for path in folders_in(folder)}
    has_parts = None not in named and named and all(folders_in(path) for path in named.values())
    part_folders = named if has_parts else {"all": folder}
    left_out: list[Path] = []
    files = {part: labelled_files(path, options.labelled, left_out) for part, path in part_folders.items()}
    paths = [path for labelled in files.values() for path, _ in labelled]
    if not paths and (folder / "run.json").exists():
        raise Misuse(f"'{folder}' is a run: expected data, such as images or a table")
    if not paths:
        raise Misuse(f"no images in '{folder}': expected class folders of {listed(sorted(IMAGE_SUFFIXES))}")
    if left_out:
        what = f"{len(left_out)} of {len(paths) + len(left_out)} images are links to nothing, pipes or sockets"
        warn(f"'{folder}': {what}, such as '{left_out[0].relative_to(folder)}': they are left out")
    try:
        planes, resized = stack_images([str(path) for path in paths], lambda i: open_image(paths[i]), options)
    except Failure:
        if options.strict or not may_be_damaged(len(paths)):
            raise
        damaged = damaged_images(paths, folder, "; write strict=True to refuse them" if options.labelled else "")
        files = {part: [pair for pair in labelled if pair[0] not in damaged] for part, labelled in files.items()}
        paths = [path for path in paths if path not in damaged]
        planes, resized = stack_images([str(path) for path in paths], lambda i: open_image(paths[i]), options)
    classes = sort_names(label for labelled in files.values() for _, label in labelled)
    index = {name: i for i, name in enumerate(classes)}
    parts, start = {}, 0
    for part, labelled in files.items():
        labels = np.array([index[label] for _, label in labelled], dtype=np.int64) if options.labelled else None
        names = np.array([path.relative_to(folder).as_posix() for path, _ in labelled])
        parts[str(part)] = RawPart(take(planes, slice(start, start + len(labelled))), labels, keys={"file": names})
        start += len(labelled)
    return RawData(parts, "classification", classes if options.labelled else None, peak=255.0, resized=resized)


def damaged_images(paths: Sequence[Path], folder: Path, choice: str) -> set[Path]:
    """Return the image files that cannot be decoded, with a note that ends in `choice`; refuse too many of them."""
    with ThreadPoolExecutor(min(MAX_WORKERS, os.cpu_count() or 1)) as pool:
        damages = list(pool.map(damage_of, paths))
    damaged = {path: damage for path, damage in zip(paths, damages, strict=True) if damage}
    name, damage = next(iter(damaged.items()))
    count = f"{len(damaged)} of {len(paths)} images are damaged, such as '{name.relative_to(folder)}' ({damage})"
    if len(damaged) > (most := may_be_damaged(len(paths))):
        rule = f"up to {most} ({100 * MOST_DAMAGED:g} %) would be left out; remove or replace them"
        raise Failure(f"cannot read '{folder}': {count}; {rule}")
    warn(f"'{folder}': {count}: they are left out{choice}")
    return set(damaged)


def may_be_damaged(files: int) -> int:
    """Return how many of some files may be damaged: `MOST_DAMAGED`, rounded, so one of 50.

    >>> [may_be_damaged(files) for files in (49, 61, 1000)]
    [0, 1, 10]
    """
    return math.floor(MOST_DAMAGED * files + 0.5)


def damaged_image(name: str, error: Exception) -> Failure:
    """Return the refusal of an image that cannot be decoded."""
    return Failure(f"damaged image '{name}' ({first_line(error)}): remove or replace the file")


def damage_of(path: Path) -> str:
    """Return why an image file cannot be decoded; empty if it can."""
    try:
        with open_image(path) as image:
            image.load()
    except UNREADABLE as error:
        return first_line(error)
    except Failure as error:
        return "too large to decode" if "too large" in str(error) else "not an image"
    return ""


def is_image(source: Any) -> bool:
    """Return whether an object is a PIL image, or the path of an image file by its name."""
    if isinstance(source, str | Path):
        return is_image_file(Path(source))
    return all(hasattr(source, name) for name in ("mode", "size", "convert", "getexif"))


def is_image_list(source: Any) -> bool:
    """Return whether an object is a list of PIL images and of paths of image files."""
    return isinstance(source, tuple | list) and len(source) > 0 and all(map(is_image, source))


def load_image_list(source: Sequence[Any], options: LoadOptions) -> RawData:
    """Load images (N, C, H, W) from a list of paths and PIL images, for prediction only."""
    if options.labelled:
        raise Misuse(f"a list of {len(source)} images without labels: give a folder of class folders, or a CSV file")
    paths = {i: Path(item) for i, item in enumerate(source) if isinstance(item, str | Path)}
    if missing := [path for path in paths.values() if not path.is_file()]:
        raise Misuse(f"no file '{missing[0]}': {len(missing)} of {len(source)} images are missing")
    names = [str(source[i]) if i in paths else f"image {i}" for i in range(len(source))]
    # a copy of a PIL image: it is closed after use
    planes, resized = stack_images(names, lambda i: open_image(paths[i]) if i in paths else source[i].copy(), options)
    keys = {"file": np.array(names)} if len(paths) == len(source) else {}
    return RawData({"all": RawPart(planes, keys=keys)}, peak=255.0, resized=resized)


def labelled_files(folder: Path, labelled: bool, left_out: list[Path]) -> list[tuple[Path, str]]:
    """List all image files with the name of their class folder, or with "" if labels are not needed."""
    if not labelled:
        return [(path, "") for path in image_files(folder, left_out)]
    classes = folders_in(folder)
    if not classes and any(is_image_file(path) for path in folder.iterdir()):
        raise Misuse(f"'{folder}' holds images but no class folders: expected one folder for each class")
    refuse_shared_folders(folder, classes)
    return [(path, subfolder.name) for subfolder in classes for path in image_files(subfolder, left_out)]


def refuse_shared_folders(folder: Path, classes: list[Path]) -> None:
    """Refuse class folders that are links to a folder above them, or to a folder of another class."""
    owners: dict[Path, Path] = {}
    for subfolder in sorted(classes, key=lambda path: (path.is_symlink(), len(path.resolve().parts))):
        place = subfolder.resolve()
        if folder.resolve().is_relative_to(place):
            raise Misuse(f"the class folder '{subfolder}' is a link to '{place}', which holds it: remove the link")
        owner = next((owners[part] for part in (place, *place.parents) if part in owners), None)
        if owner is not None:
            raise Misuse(f"the class folder '{subfolder}' is a link into that of class '{owner.name}': remove the link")
        owners[place] = subfolder


def open_image(path: Path) -> Any:
    """Open an image file with PIL; its pixels are not read yet."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            return Image.open(path)
        except UNREADABLE as error:
            raise damaged_image(str(path), error) from None
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise Failure(f"the image '{path}' is too large to decode: {first_line(error)}") from None


def stack_images(names: Sequence[str], opened: Callable[[int], Any], options: LoadOptions) -> tuple[Any, bool]:
    """Decode images to (N, C, H, W) uint8, C = 1 if all are grey and 3 otherwise, and return whether they were resized.

    `opened(i)` returns the PIL image i. Sizes and modes are read first, so that pixels are decoded into one array, by
    worker processes if there are many. Streamed images are kept as this array if it is small enough, and otherwise
    decoded whenever they are read. Images are resized and cropped to the size (H, W) of the options. Without one they
    keep their size if it is the same for all, and become 64 x 64 otherwise, with a warning.
    """
    sizes, grey, size = dict[tuple[int, int], str](), True, options.size
    for i, name in enumerate(names):
        with opened(i) as image:
            sizes.setdefault(upright_size(image), name)
            grey = grey and image.mode in GREY_MODES
    resized = size is not None or len(sizes) > 1
    if size is None and len(sizes) > 1:
        if not options.mixed_sizes:
            (a, name_a), (b, name_b) = list(sizes.items())[:2]
            problem = f"'{name_a}' has {a[1]}x{a[0]} pixels but '{name_b}' has {b[1]}x{b[0]}"
            raise Misuse(f"{problem}: expected one size for all, as in training")
        size = (USUAL_SIDE, USUAL_SIDE)
        change = f"all are resized and cropped to {USUAL_SIDE}x{USUAL_SIDE}; write size=... for another"
        warn(f"the images have {len(sizes)} sizes: {change}")
    shape = (1 if grey else 3, *(size or next(iter(sizes), (0, 0))))
    read, places = partial(decode_images, names, opened, shape), np.arange(len(names))
    workers = min(MAX_WORKERS, os.cpu_count() or 1) if "fork" in multiprocessing.get_all_start_methods() else 0
    images = FileRows(read, shape, np.dtype(np.uint8), places, workers)
    if not is_streamed(options.in_memory, images.size):
        return images[:], resized
    return images if images.size > KEPT_BYTES else rows_of(images[:]), resized


def decode_images(
    names: Sequence[str], opened: Callable[[int], Any], shape: tuple[int, int, int], places: np.ndarray
) -> np.ndarray:
    """Decode the images (n, *shape) uint8 at these indices, resized and cropped."""
    out = np.empty((len(places), *shape), dtype=np.uint8)
    for row, i in enumerate(places.tolist()):
        with opened(i) as image:
            out[row] = resize_and_crop(decode(image, shape[0] == 1, names[i])[None], shape[1:])[0]
    return out


def upright_size(image: Any) -> tuple[int, int]:
    """Return height and width of a PIL image as its EXIF orientation shows it."""
    turned = False
    with contextlib.suppress(*UNREADABLE):  # a damaged file, which is refused when its pixels are read
        turned = image.getexif().get(EXIF_ORIENTATION, 1) in (5, 6, 7, 8)
    return image.size if turned else image.size[::-1]


def resize_and_crop(planes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Scale images (N, C, H, W) until they cover the size and crop them around the centre, to (N, C, *size).

    Only the middle of an image that is much longer than the size, such as 1 x 3000 pixels, is scaled.
    """
    planes = middle(planes, size)
    factor = max(want / have for want, have in zip(size, planes.shape[2:], strict=True))
    height, width = (max(want, round(have * factor)) for want, have in zip(size, planes.shape[2:], strict=True))
    scaled = resize(planes, (height, width))
    row, column = ((have - want) // 2 for have, want in zip(scaled.shape[2:], size, strict=True))
    return scaled[:, :, row : row + size[0], column : column + size[1]]


def middle(planes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Crop images (N, C, H, W) to their middle, at most `LONGEST_SIDE` times as long as the crop to `size` needs.

    >>> middle(np.zeros((1, 3, 1, 3000)), (8, 8)).shape, middle(np.zeros((1, 3, 40, 100)), (8, 8)).shape
    ((1, 3, 1, 16), (1, 3, 40, 100))
    """
    factor = max(size[0] / planes.shape[2], size[1] / planes.shape[3])
    most = [max(1, math.ceil(want / factor)) * LONGEST_SIDE for want in size]
    first = [max(0, (have - want) // 2) for have, want in zip(planes.shape[2:], most, strict=True)]
    return planes[:, :, first[0] : first[0] + most[0], first[1] : first[1] + most[1]]


def resize(planes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize images (N, C, H, W) to (N, C, *size) by bilinear interpolation with antialiasing; uint8 stays uint8.

    The aspect ratio is not kept. Images that have this size already are returned unchanged.
    """
    if planes.shape[2:] == size:
        return planes
    is_bytes = planes.dtype == np.uint8
    values = torch.from_numpy(planes.astype(np.float32 if is_bytes else np.float64))
    out = F.interpolate(values, size, mode="bilinear", antialias=True)
    return (out.round().clamp(0, 255).to(torch.uint8) if is_bytes else out).numpy()


def decode(image: Any, grey: bool, name: str) -> np.ndarray:
    """Decode one PIL image to pixels (C, H, W) uint8; 16-bit greys keep their upper byte."""
    from PIL import ImageOps

    try:
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):
            upper = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
            return upper[None] if grey else np.repeat(upper[None], 3, axis=0)
        pixels = np.asarray(image.convert("L" if grey else "RGB"))
    except UNREADABLE as error:
        raise damaged_image(name, error) from None
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


# idx files


def is_idx_folder(folder: Path) -> bool:
    """Return whether a folder holds idx files by their names."""
    return any(IDX_FILE.fullmatch(path.name) for path in folder.iterdir())


def load_idx_folder(folder: Path, options: LoadOptions) -> RawData:
    """Load the images (N, 1, H, W) of `train-images-idx3-ubyte[.gz]` and its three companions."""
    files: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir()):
        if match := IDX_FILE.fullmatch(path.name):
            key = ("train" if match[1] == "train" else "test", match[2])
            if key in files and path.name != files[key].name + ".gz":
                raise Misuse(f"'{folder}' holds both {files[key].name} and {path.name}: expected one of them")
            files.setdefault(key, path)
    parts = {}
    for part, file in [(part, file) for (part, content), file in files.items() if content == "images"]:
        parts[part] = RawPart(images := read_idx(file, rank=3)[:, None])
        if options.labelled:
            if (part, "labels") not in files:
                raise Misuse(f"'{file}' has no labels beside it: expected a labels-idx1-ubyte file")
            labels = read_idx(files[part, "labels"], rank=1)
            if len(labels) != len(images):
                raise Failure(f"{file} has {len(images)} images but {len(labels)} labels")
            parts[part] = RawPart(images, labels.astype(np.int64))
    if not parts:
        raise Misuse(f"no images among the idx files of '{folder}': expected train-images-idx3-ubyte[.gz]")
    return RawData(parts, "classification", peak=255.0)


def read_idx(path: Path, rank: int) -> np.ndarray:
    """Read one idx file of bytes as an array of this rank: 0 0 type rank, sizes (big-endian), data."""
    head = 4 + 4 * rank
    require_regular(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            begin = file.read(head)
            if len(begin) < head or begin[:4] != bytes((0, 0, IDX_BYTES, rank)):
                raise Failure(f"'{path}' is not an idx file of bytes with {rank} axes: it begins {begin[:4].hex(' ')}")
            shape = struct.unpack(f">{rank}I", begin[4:])
            count = math.prod(shape)
            if not count:
                raise Misuse(f"'{path}' has the shape {shape}: expected at least one value")
            if path.suffix == ".gz":
                require_unpacked(f"'{path}'", count)
            elif path.stat().st_size != head + count:
                raise Failure(f"'{path}' is damaged: expected {head + count} bytes, got {path.stat().st_size}")
            content = file.read(count + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Failure(f"cannot read '{path}' ({path.stat().st_size} bytes): {first_line(error)}") from None
    if len(content) != count:
        size = head + len(content) if len(content) < count else "more"
        raise Failure(f"'{path}' is damaged: expected {head + count} bytes, got {size}")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


# CIFAR binaries


def is_cifar_folder(folder: Path) -> bool:
    """Return whether a folder holds CIFAR binary files by their names."""
    return any(CIFAR_FILE.fullmatch(path.name) for path in folder.iterdir())


def load_cifar_folder(folder: Path, options: LoadOptions) -> RawData:
    """Load the images (N, 3, 32, 32) of CIFAR-10 (`data_batch_1.bin` ...) or CIFAR-100 (`train.bin`)."""
    files = sorted(path for path in folder.iterdir() if CIFAR_FILE.fullmatch(path.name))
    hundred = any(path.name in ("train.bin", "test.bin") for path in files)
    if hundred and any("batch" in path.name for path in files):
        raise Misuse(f"'{folder}' mixes CIFAR-10 and CIFAR-100 files: {listed(p.name for p in files)}")
    tests = [path for path in files if path.name.startswith("test")]
    groups = {"train": [path for path in files if path not in tests], "test": tests}
    parts = {part: cifar_part(paths, 2 if hundred else 1) for part, paths in groups.items() if paths}
    names = class_names(folder / ("fine_label_names.txt" if hundred else "batches.meta.txt"))
    return RawData(parts, "classification", names, peak=255.0)


def cifar_part(paths: list[Path], labels: int) -> RawPart:
    """Load images and their last (fine) labels from CIFAR files of records: `labels` bytes, then 3072 pixels."""
    record = labels + int(np.prod(CIFAR_PIXELS))
    for path in paths:
        require_regular(path)
        size = path.stat().st_size
        if size == 0 or size % record:
            whole = (size // record + 1) * record
            raise Failure(f"'{path}' is damaged: expected {whole} bytes (records of {record}), got {size}")
    files = [np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, record) for path in paths]
    planes = np.concatenate([rows[:, labels:] for rows in files]).reshape(-1, *CIFAR_PIXELS)
    return RawPart(planes, np.concatenate([rows[:, labels - 1] for rows in files]).astype(np.int64))


def class_names(path: Path) -> tuple[str, ...] | None:
    """Read class names from a file, one per line; None if the file does not exist."""
    if not path.is_file():
        return None
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise Failure(f"'{path}' is not text in UTF-8 (byte {error.start}): expected one class name a line") from None
    except OSError as error:
        raise Failure(f"cannot read '{path}': {first_line(error)}") from None
    return tuple(line.strip() for line in lines if line.strip())


# Images of other sizes and colours than a run was trained on


def adaptation(inputs: Any, peak: float | None, preparation: Preparation) -> Callable[[np.ndarray], Tensor]:
    """Return the function that prepares raw images of any size and colour as (N, C, H, W), or their features.

    Images are resized to the shape of the preparation; grey is repeated over colour channels, colour becomes its luma,
    white becomes the white of training, and opacity is dropped. `peak` is the white of the `inputs`. If their source
    does not state it: the white of training if no value exceeds it, else 1 or 255 by the largest value.
    """
    first: Any = before_features(preparation)
    channels, *size = first.shape
    if is_table(inputs) or inputs.ndim not in (3, 4):
        kind = "a table" if is_table(inputs) else f"examples of shape {inputs.shape[1:]}"
        raise Misuse(f"{kind} for a run trained on images: expected images, of any size")
    guess, (low, high) = pixel_peak(inputs, asked=True), extremes(inputs)
    white = 1.0 if inputs.dtype.kind == "f" and guess == 1.0 else peak
    if white is None and not 0 <= low <= high <= first.peak:
        if guess is None:
            raise Misuse(f"images with values from {low:g} to {high:g}: expected pixels in 0..1 or 0..255")
        white = guess

    def adapted(images: np.ndarray) -> Tensor:
        if images.shape[1:] in {(*size,), first.shape, (*size, channels), (1, *size), (*size, 1)}:
            return with_features(first.apply(images, peak=white), preparation)  # takes this layout without resizing
        planes = to_planes(images, image_shape(images))  # (N, c, h, w)
        resized = (resize(planes[rows], (size[0], size[1])) for rows in blocks(planes))
        x = torch.cat([first.apply(recolour(part, channels), peak=white) for part in resized])
        return with_features(x, preparation)

    return adapted


def recolour(planes: np.ndarray, channels: int) -> np.ndarray:
    """Convert images (N, c, H, W) to this number of channels, or to one grey channel.

    >>> recolour(np.array([10.0, 20.0, 30.0]).reshape(1, 3, 1, 1), 1).item()
    18.15
    """
    count = planes.shape[1]
    if count in (1, channels):
        return planes
    if (count, channels) == (4, 3):
        return planes[:, :3]
    if count in (3, 4) and channels == 1:
        red, green, blue = (planes[:, k].astype(np.float64) * weight for k, weight in enumerate(LUMA))
        return (red + green + blue)[:, None]
    expected = "1, 3 or 4" if channels in (1, 3) else f"1 or {channels}"
    raise Misuse(f"images of {count} channels for a run trained on {channels}: expected {expected}")
