"""Training of a super-resolution ensemble on small patches of photographs and the same patches at a larger scale.

Inputs are luma downscaled by the scale, rounded to bytes over 255 as cameras store them; targets are the original
pixels, flattened. Photographs are split before patches are cut: no patch of a test photograph is trained on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import murmuration as mm
from murmuration.applications.subpixel import SCALES
from murmuration.data import Data, Split
from murmuration.data.images import PART_FOLDERS, decode, folders_in, image_files, open_image
from murmuration.data.preparation import fit_images
from murmuration.data.raw import RawData, RawPart
from murmuration.runs.manifest import Manifest
from murmuration.system.errors import Misuse

LUMA = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)
FRACTIONS = {"test": 0.2, "val": 0.1}  # of the photographs of a folder
HELD_OUT = 0.1  # validation patches, and test patches, for each training patch
PHOTOGRAPHS = {  # shipped in the wheels of scikit-learn and scikit-image
    "train": (
        *("sklearn.datasets.images/china.jpg", "skimage.data/motorcycle_left.png", "skimage.data/rocket.jpg"),
        *("skimage.data/brick.png", "skimage.data/grass.png", "skimage.data/gravel.png", "skimage.data/coins.png"),
        *("skimage.data/hubble_deep_field.jpg", "skimage.data/ihc.png", "skimage.data/page.png"),
    ),
    "val": ("sklearn.datasets.images/flower.jpg",),
    "test": tuple(f"skimage.data/{name}.png" for name in ("astronaut", "camera", "chelsea", "coffee")),
}
NETS = ("subpixel", "subpixel-plain")


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
    """Return the settings of a data set from its name.

    >>> patches_named("patches:scale=3,size=20,count=100,seed=0")
    Patches(scale=3, size=20, count=100, seed=0, folder='')
    """
    settings, _, folder = name.removeprefix("patches:").partition(",folder=")
    numbers = dict(setting.split("=") for setting in settings.split(","))
    return Patches(**{key: int(value) for key, value in numbers.items()}, folder=folder)


def open_patches(patches: Patches) -> Data:
    """Return small patches x (N, 1, s, s), from 0 to 1, and targets y (N, r^2 s^2).

    The same patches at r times the scale.

    Whole photographs are held out for validation and for the test.
    """
    rng = np.random.default_rng(np.random.SeedSequence([patches.seed, 0x9A7C]))
    parts = {}
    for part, paths in photographs(patches.folder, patches.seed).items():
        count = patches.count if part == "train" else max(1, round(HELD_OUT * patches.count))
        parts[part] = cut_patches(paths, patches, count, rng)
    preparation = fit_images(parts["train"].inputs, 1.0, "unit")
    splits: dict[str, Any] = {
        name: Split(part.inputs, torch.as_tensor(part.targets), preparation.apply(part.inputs))
        for name, part in parts.items()
    }
    digest = RawData(parts).fingerprint()
    return Data(patches.name, "regression", **splits, classes=(), preparation=preparation, fingerprint=digest)


def photographs(folder: str, seed: int) -> dict[str, list[Path]]:
    """Return the files of each part.

    Those of the dependencies, or of a folder, which may hold train, val and test folders.
    """
    if not folder:
        return {part: [shipped(name) for name in names] for part, names in PHOTOGRAPHS.items()}
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise Misuse(f"no folder '{folder}': expected a folder of photographs")
    named = {PART_FOLDERS.get(path.name.lower()): path for path in folders_in(place)}
    by_folder = {part: image_files(named[part]) for part in FRACTIONS if part in named} if "train" in named else {}
    return split_photographs(image_files(named["train"] if by_folder else place), by_folder, folder, seed)


def split_photographs(
    paths: Sequence[Path], fixed_parts: dict[str, list[Path]], folder: str, seed: int
) -> dict[str, list[Path]]:
    """Return whole photographs for each part.

    By default a tenth, at least one, for validation and a fifth for the test.
    """
    need = 3 - len(fixed_parts)
    if len(paths) < need or not all(fixed_parts.values()):
        expected = f"expected at least {need}, and some in every part"
        raise Misuse(f"'{folder}' holds {len(paths)} images to train on: {expected}")
    order = np.random.default_rng(np.random.SeedSequence([seed, 0xF01D])).permutation(len(paths))
    shuffled, parts = [paths[i] for i in order], dict(fixed_parts)
    for part, fraction in FRACTIONS.items():
        if part not in fixed_parts:
            count = max(1, round(fraction * len(paths)))
            parts[part], shuffled = sorted(shuffled[:count]), shuffled[count:]
    return {"train": sorted(shuffled), **parts}


def shipped(name: str) -> Path:
    """Return the file of a photograph that a dependency ships."""
    package, _, file = name.partition("/")
    if find_spec(package.partition(".")[0]) is None:
        remedy = "pip install 'torch-murmuration[images]', or give a folder of your own"
        raise Misuse(f"the photographs of scikit-image are not here: {remedy}")
    return Path(str(files(package).joinpath(file)))


def luma_of(path: Path) -> Tensor:
    """Return the luma (H, W) of an image file, 0 for black to 1 for white."""
    with open_image(path) as picture:
        return luma(unit_pixels(picture, False, path))


def unit_pixels(picture: Any, grey: bool, path: Path) -> Tensor:
    """Return the pixels (C, H, W) of an open image file, from 0 to 1."""
    return torch.from_numpy(decode(picture, grey, str(path)) / np.float32(255))


def luma(colours: Tensor) -> Tensor:
    """Return luma (H, W) of red, green and blue (3, H, W)."""
    return torch.einsum("chw,c->hw", colours, colours.new_tensor(LUMA))


def downscaled(image: Tensor, scale: int) -> Tensor:
    """Return an image (H, W) downscaled to (H / r, W / r), bicubic with antialiasing, rounded to bytes over 255."""
    small = F.interpolate(image[None, None], scale_factor=1 / scale, mode="bicubic", antialias=True)[0, 0]
    return (small.clamp(0, 1) * 255).round() / 255


def trimmed(image: Tensor, scale: int) -> Tensor:
    """Return the image (H, W) without the last rows and columns that make no whole small pixel."""
    height, width = image.shape
    return image[: height - height % scale, : width - width % scale]


def cut_patches(paths: Sequence[Path], patches: Patches, count: int, rng: np.random.Generator) -> RawPart:
    """Return random patches, every photograph equally likely, rotated and mirrored at random.

    One photograph is open at a time, so that a folder of any size fits into memory.
    """
    need = patches.size * patches.scale
    x, y = np.empty((count, 1, patches.size, patches.size), np.float32), np.empty((count, need, need), np.float32)
    source = rng.integers(len(paths), size=count)
    for place, path in enumerate(paths):
        large = trimmed(luma_of(path), patches.scale)
        if min(large.shape) < need:
            expected = f"expected at least {need}x{need} for patches of size={patches.size}, or a smaller size"
            raise Misuse(f"'{path}' has {large.shape[1]}x{large.shape[0]} pixels: {expected}")
        small = downscaled(large, patches.scale)
        for patch in (source == place).nonzero()[0]:
            row, column = (int(rng.integers(side - patches.size + 1)) for side in small.shape)
            turns, mirrored = int(rng.integers(4)), bool(rng.integers(2))
            for picture, factor, target in ((small, 1, x[patch, 0]), (large, patches.scale, y[patch])):
                top, left, side = factor * row, factor * column, factor * patches.size
                window = picture[top : top + side, left : left + side].rot90(turns)
                target[:] = window.flip(1) if mirrored else window
    return RawPart(x, y.reshape(count, -1))


def train(data: mm.Data, *, net: str = "subpixel", noise_std: float = 0.02, **settings: Any) -> mm.Ensemble:
    """Return an ensemble that maps small images to larger ones, from the data of `open_patches`.

    Targets keep their units (0 black, 1 white) and their noise is given: `noise_std`, of one pixel. `settings` are
    those of `mm.fit`: recipe, members, epochs, plan, out and so on; there are no post-hoc steps unless asked for.
    """
    check_net(net)
    plan = settings.get("plan")
    if plan is not None and plan.augment:
        raise Misuse(f"augment={','.join(plan.augment)} changes inputs, and targets are images here: leave it out")
    likelihood = mm.Gaussian(noise_std, targets=data.train.y.shape[1])
    return mm.fit(net, data, likelihood=likelihood, **{"posthoc": None, **settings})


def check_net(net: str) -> None:
    """Refuse a network that does not map images to images."""
    if net not in NETS:
        raise Misuse(f"{net} does not make images: write {' or '.join(NETS)}")


def is_patches(manifest: Manifest) -> bool:
    """Return whether a run was trained on data of `open_patches`."""
    return str(manifest.data.get("name", "")).startswith("patches:")


def patches_of(manifest: Manifest) -> Patches:
    """Return the settings of a run's training data; refused if it was not trained on patches of photographs."""
    if not is_patches(manifest):
        raise Misuse("the run was not trained on patches of photographs: train one with murmur superres train")
    return patches_named(manifest.data["name"])


def reopen(manifest: Manifest) -> mm.Data:
    """Return the training data of a run, as `mm.resume` needs it again."""
    return open_patches(patches_of(manifest))
