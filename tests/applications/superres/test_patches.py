"""Patches of photographs: which are held out, how they are downscaled, that small and large belong together."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from murmuration.applications.subpixel import enlarged
from murmuration.applications.superres import train, training
from murmuration.applications.superres.training import (
    Patches,
    cut_patches,
    downscaled,
    luma_of,
    open_patches,
    patches_named,
    photographs,
    split_photographs,
    trimmed,
)
from murmuration.system.errors import Misuse
from murmuration.training.plan import Plan


def write(folder: Path, names: list[str], side: int = 30) -> Path:
    """Grey pictures, each of a level of its own with a ramp on it."""
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        ramp = np.linspace(0, 8, side)[:, None] + np.linspace(0, 4, side)[None]
        Image.fromarray((20 * i + ramp).astype(np.uint8)).save(folder / name)
    return folder


def test_shrinking_is_that_of_pil():
    picture = torch.rand(24, 18, generator=torch.Generator().manual_seed(0))
    by_pil = Image.fromarray(picture.numpy()).resize((6, 8), Image.Resampling.BICUBIC)
    expected = (torch.from_numpy(np.array(by_pil)).clamp(0, 1) * 255).round() / 255
    torch.testing.assert_close(downscaled(picture, 3), expected, atol=1.01 / 255, rtol=0)
    assert (downscaled(picture, 3) == expected).float().mean() > 0.95  # the rest rounds the other way
    assert downscaled(torch.full((255, 255), 0.2), 3).shape == (85, 85)


def test_odd_sides_are_trimmed():
    assert trimmed(torch.zeros(256, 257), 3).shape == (255, 255)


def test_a_patch_and_its_small_one_show_the_same_place(monkeypatch):
    """Shrinking a large patch gives the small one, away from the edge, in every turn and mirror."""
    picture = torch.nn.functional.avg_pool2d(torch.rand(1, 66, 66, generator=torch.Generator().manual_seed(1)), 5, 1)[0]
    monkeypatch.setattr(training, "luma_of", lambda path: picture)
    part = cut_patches([Path("a")], Patches(scale=2, size=12), 40, np.random.default_rng(0))
    for small, large in zip(part.inputs[:, 0], part.targets.reshape(-1, 24, 24), strict=True):
        again = downscaled(torch.from_numpy(large), 2)[2:-2, 2:-2]
        torch.testing.assert_close(again, torch.from_numpy(small)[2:-2, 2:-2], atol=1.01 / 255, rtol=0)
    assert len({patch.tobytes() for patch in part.inputs}) > 35


def test_whole_photographs_are_held_out(tmp_path: Path):
    """Pictures differ in level by more than their ramps: every patch tells its photograph."""
    folder = write(tmp_path, [f"p{i}.png" for i in range(10)])
    data = open_patches(Patches(size=5, count=60, folder=str(folder)))
    sources = {
        part: set((getattr(data, part).prepared.amin((1, 2, 3)) * 255 / 20).floor().int().tolist())
        for part in ("train", "val", "test")
    }
    found = photographs(str(folder), 0)
    expected = {part: {int(path.stem[1:]) for path in paths} for part, paths in found.items()}
    assert [len(expected[part]) for part in ("train", "val", "test")] == [7, 1, 2]
    assert sources["train"] == expected["train"]
    assert sources["val"] <= expected["val"]
    assert sources["test"] <= expected["test"]
    assert not expected["train"] & (expected["val"] | expected["test"])
    assert data.train.y.shape == (60, 100)
    assert data.preparation.mean == (0.0,)
    assert data.preparation.std == (1.0,)


def test_a_folder_may_say_itself_what_is_held_out(tmp_path: Path):
    folder = write(tmp_path, ["train/a.png", "train/b.png", "val/c.png", "test/d.png"])
    found = photographs(str(folder), 0)
    assert {part: [path.name for path in paths] for part, paths in found.items()} == {
        "train": ["a.png", "b.png"],
        "val": ["c.png"],
        "test": ["d.png"],
    }
    (folder / "val" / "c.png").rename(folder / "train" / "c.png")
    (folder / "val").rmdir()
    found = photographs(str(folder), 0)  # then one of those that train validates, and what tests is left alone
    assert [len(found[part]) for part in ("train", "val", "test")] == [2, 1, 1]
    assert [path.name for path in found["test"]] == ["d.png"]


def test_data_is_opened_again_the_same(tmp_path: Path):
    folder = str(write(tmp_path, ["a.png", "b.png", "c.png"]))
    first, other = (open_patches(Patches(scale=3, size=5, count=20, seed=seed, folder=folder)) for seed in (3, 4))
    again = open_patches(patches_named(first.name))
    assert again.fingerprint == first.fingerprint != other.fingerprint
    assert torch.equal(again.train.y, first.train.y)


def test_photographs_of_the_dependencies_are_there():
    found = photographs("", 0)
    names = [path.name for paths in found.values() for path in paths]
    assert len(names) == len(set(names)) == 15
    assert all(path.is_file() for paths in found.values() for path in paths)
    camera = luma_of(found["test"][1])
    assert camera.shape == (512, 512)
    assert 0.3 < camera.mean() < 0.7
    by_bicubic = enlarged(downscaled(camera, 2)[None, None], 2)[0, 0]
    assert 29 < -10 * (by_bicubic - camera).square().mean().log10() < 31


def test_without_scikit_image_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    with pytest.raises(Misuse, match=r"pip install 'torch-murmuration\[images\]', or give a folder of your own"):
        open_patches(Patches())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"scale": 5}, "scale=5: expected 2, 3 or 4"),
        ({"size": 2}, "size=2, count=4000: expected a size of at least 4"),
        ({"folder": "/nowhere"}, "no folder '/nowhere': expected a folder of photographs"),
    ],
)
def test_bad_requests_are_one_line(settings: dict, told: str):
    with pytest.raises(Misuse, match=told):
        open_patches(Patches(**settings))


def test_photographs_that_are_too_few_or_too_small(tmp_path: Path):
    with pytest.raises(Misuse, match="holds 2 images to train on: expected at least 3"):
        split_photographs([Path("a"), Path("b")], {}, "some", 0)
    with pytest.raises(Misuse, match="expected at least 2, and some in every part"):
        split_photographs([Path("a"), Path("b")], {"test": []}, "some", 0)
    folder = write(tmp_path, ["a.png", "b.png", "c.png"])
    with pytest.raises(Misuse, match="has 30x30 pixels: expected at least 40x40 for patches of size=20"):
        open_patches(Patches(folder=str(folder)))


def test_images_as_targets_keep_their_units_and_their_noise_is_given(tmp_path: Path):
    folder = write(tmp_path, ["a.png", "b.png", "c.png"])
    data = open_patches(Patches(size=5, count=20, folder=str(folder)))
    with pytest.raises(Misuse, match="noise_std=0: expected a positive number"):
        train(data, noise_std=0.0, members=1, epochs=1)
    with pytest.raises(Misuse, match="augment=flip changes inputs, and targets are images here"):
        train(data, plan=Plan(epochs=1, augment=("flip",)))
    likelihood = train(data, recipe="single", epochs=1, noise_std=0.1).likelihood
    assert likelihood.noise_std == 0.1
    assert (likelihood.width, likelihood.shift, likelihood.scale) == (100, (0.0,), (1.0,))
