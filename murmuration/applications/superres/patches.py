"""Training data: small patches of photographs and the same patches at a larger scale.

Inputs are brightness (luma) shrunk by the scale, in bytes over 255 as cameras store them; targets are the original
pixels, made flat. Photographs are divided before they are cut: no patch of a test photograph is trained on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.data import Data, Split
from murmuration.data.images import PART_FOLDERS, decode, folders_in, image_files, open_image
from murmuration.data.preparation import fit_images
from murmuration.data.raw import RawData, RawPart, fingerprint
from murmuration.errors import Misuse
from murmuration.nets.subpixel import SCALES

LUMA = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)
SHARES = {"test": 0.2, "val": 0.1}  # of the photographs of a folder
HELD_OUT = 0.1  # patches that validate, and that test, for each that trains
PHOTOGRAPHS = {  # what scikit-learn and scikit-image carry in their wheels
    "train": (
        *("sklearn.datasets.images/china.jpg", "skimage.data/motorcycle_left.png", "skimage.data/rocket.jpg"),
        *("skimage.data/brick.png", "skimage.data/grass.png", "skimage.data/gravel.png", "skimage.data/coins.png"),
        *("skimage.data/hubble_deep_field.jpg", "skimage.data/ihc.png", "skimage.data/page.png"),
    ),
    "val": ("sklearn.datasets.images/flower.jpg",),
    "test": tuple(f"skimage.data/{name}.png" for name in ("astronaut", "camera", "chelsea", "coffee")),
}


@dataclass(frozen=True)
class Patches:
    """Patches of photographs to train on."""

    scale: int = 2
    size: int = 20  # side of the small patches, in pixels
    count: int = 4000  # training patches
    seed: int = 0
    folder: str = ""  # of the user's own photographs; if empty, those that scikit-learn and scikit-image ship

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise Misuse(f"scale={self.scale}: expected 2, 3 or 4")
        if self.size < 4 or self.count < 1:
            raise Misuse(f"size={self.size}, count={self.count}: expected a size of at least 4 and at least 1 patch")

    @property
    def name(self) -> str:
        """The settings as text: the name of the data set, from which `patches_named` reads them back."""
        folder = f",folder={Path(self.folder).expanduser().resolve()}" if self.folder else ""
        return f"patches:scale={self.scale},size={self.size},count={self.count},seed={self.seed}{folder}"


def patches_named(name: str) -> Patches:
    """The settings of a data set from its name.

    >>> patches_named("patches:scale=3,size=20,count=100,seed=0")
    Patches(scale=3, size=20, count=100, seed=0, folder='')
    """
    settings, _, folder = name.removeprefix("patches:").partition(",folder=")
    numbers = dict(setting.split("=") for setting in settings.split(","))
    return Patches(**{key: int(value) for key, value in numbers.items()}, folder=folder)


def open_patches(patches: Patches) -> Data:
    """Small patches x (N, 1, s, s), from 0 to 1, and targets y (N, r^2 s^2): the same patches at r times the scale.

    Whole photographs are held out for validation and for the test.
    """
    rng = np.random.default_rng(np.random.SeedSequence([patches.seed, 0x9A7C]))
    parts = {}
    for part, paths in photographs(patches.folder, patches.seed).items():
        count = patches.count if part == "train" else max(1, round(HELD_OUT * patches.count))
        parts[part] = cut(paths, patches, count, rng)
    preparation = fit_images(parts["train"].inputs, 1.0, "unit")

    def split(part: str) -> Split:
        return Split(preparation.apply(parts[part].inputs), torch.as_tensor(parts[part].targets))

    return Data(
        patches.name,
        "regression",
        split("train"),
        split("val"),
        split("test"),
        classes=(),
        preparation=preparation,
        fingerprint=fingerprint(RawData(parts)),
    )


def photographs(folder: str, seed: int) -> dict[str, list[Path]]:
    """The files of each part: the dependencies' own, or a folder's, which may hold train, val and test folders."""
    if not folder:
        return {part: [shipped(name) for name in names] for part, names in PHOTOGRAPHS.items()}
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise Misuse(f"no folder '{folder}': expected a folder of photographs")
    named = {PART_FOLDERS.get(path.name.lower()): path for path in folders_in(place)}
    given = {part: image_files(named[part]) for part in SHARES if part in named} if "train" in named else {}
    return divided(image_files(named["train"] if given else place), given, folder, seed)


def divided(paths: Sequence[Path], given: dict[str, list[Path]], folder: str, seed: int) -> dict[str, list[Path]]:
    """Whole photographs for each part: a tenth, at least one, validates and a fifth tests, where none are given."""
    need = 3 - len(given)
    if len(paths) < need or not all(given.values()):
        raise Misuse(
            f"'{folder}' holds {len(paths)} pictures to train on: expected at least {need}, and some in every part"
        )
    order = np.random.default_rng(np.random.SeedSequence([seed, 0xF01D])).permutation(len(paths))
    shuffled, found = [paths[i] for i in order], dict(given)
    for part, share in SHARES.items():
        if part not in given:
            count = max(1, round(share * len(paths)))
            found[part], shuffled = sorted(shuffled[:count]), shuffled[count:]
    return {"train": sorted(shuffled), **found}


def shipped(name: str) -> Path:
    """The file of a photograph that a dependency carries."""
    package, _, file = name.partition("/")
    if find_spec(package.partition(".")[0]) is None:
        raise Misuse(
            "the photographs of scikit-image are not here: pip install 'murmuration[images]', or give a folder of"
            " your own"
        )
    return Path(str(files(package).joinpath(file)))


def luma_of(path: Path) -> Tensor:
    """The brightness (H, W) of a picture file, 0 for black to 1 for white."""
    with open_image(path) as picture:
        return luma(torch.from_numpy(decode(picture, False, str(path)) / np.float32(255)))


def luma(colours: Tensor) -> Tensor:
    """Brightness (H, W) of red, green and blue (3, H, W)."""
    return torch.einsum("chw,c->hw", colours, colours.new_tensor(LUMA))


def shrunk(picture: Tensor, scale: int) -> Tensor:
    """A picture (H, W) as (H / r, W / r), bicubic and smoothed before it is thinned out, rounded to bytes over 255."""
    small = F.interpolate(picture[None, None], scale_factor=1 / scale, mode="bicubic", antialias=True)[0, 0]
    return (small.clamp(0, 1) * 255).round() / 255


def trimmed(picture: Tensor, scale: int) -> Tensor:
    """The picture (H, W) without the last rows and columns that are too few for a whole small pixel."""
    height, width = picture.shape
    return picture[: height - height % scale, : width - width % scale]


def cut(paths: Sequence[Path], asked: Patches, count: int, rng: np.random.Generator) -> RawPart:
    """Random patches, each photograph's as often as another's, turned and mirrored at random.

    One photograph is open at a time, so that a folder of any size can be learned from.
    """
    need = asked.size * asked.scale
    x, y = np.empty((count, 1, asked.size, asked.size), np.float32), np.empty((count, need**2), np.float32)
    chosen = rng.integers(len(paths), size=count)
    for place, path in enumerate(paths):
        large = trimmed(luma_of(path), asked.scale)
        if min(large.shape) < need:
            raise Misuse(
                f"'{path}' has {large.shape[1]}x{large.shape[0]} pixels: expected at least {need}x{need} for"
                f" patches of size={asked.size}, or a smaller size"
            )
        small = shrunk(large, asked.scale)
        for row in (chosen == place).nonzero()[0]:
            few, many = one_patch(small, large, asked, rng)
            x[row, 0], y[row] = few, many.flatten()
    return RawPart(x, y)


def one_patch(small: Tensor, large: Tensor, asked: Patches, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """The same random window (s, s) of a small picture and (r s, r s) of the large one, moved alike."""
    size, scale = asked.size, asked.scale
    top, left = (int(rng.integers(side - size + 1)) for side in small.shape)
    turns, mirrored = int(rng.integers(4)), bool(rng.integers(2))

    def window(picture: Tensor, each: int) -> Tensor:
        there = picture[each * top : each * (top + size), each * left : each * (left + size)].rot90(turns)
        return there.flip(1) if mirrored else there

    return window(small, 1), window(large, scale)
