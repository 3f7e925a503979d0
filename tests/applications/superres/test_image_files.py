"""Picture files of every kind: what is read, what is written, what is refused in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from superres_factories import waves

from murmuration.applications.subpixel import enlarged
from murmuration.applications.superres import upscale_files
from murmuration.applications.superres.training import luma
from murmuration.applications.superres.upscale import compose, read_image
from murmuration.system.errors import Failure, Misuse


def saved(path: Path, picture: Image.Image) -> Path:
    picture.save(path)
    return path


def test_colours_come_back_as_they_were(tmp_path: Path):
    """Brightness and two differences hold all of a picture, at scale 1 bit for bit."""
    pixels = waves(0)
    planes = read_image(saved(tmp_path / "a.png", Image.fromarray(pixels)))
    assert np.array_equal(compose(planes, planes.luma, 1), pixels)
    assert planes.alpha is None


def test_brightness_and_differences_are_those_of_pil(tmp_path: Path):
    picture = Image.fromarray(waves(1))
    planes = read_image(saved(tmp_path / "a.png", picture))
    y, cb, cr = (torch.from_numpy(np.asarray(part) / 255.0) for part in picture.convert("YCbCr").split())
    assert (planes.luma - y).abs().max() <= 1.01 / 255  # PIL rounds or cuts to bytes
    assert (planes.chroma[0] + 0.5 - cb).abs().max() <= 1.5 / 255
    assert (planes.chroma[1] + 0.5 - cr).abs().max() <= 1.5 / 255
    assert luma(torch.ones(3, 1, 1)).item() == pytest.approx(1.0)


KINDS = {
    "grey": (lambda p: p.convert("L"), "L"),
    "colour": (lambda p: p, "RGB"),
    "clear": (lambda p: p.convert("RGBA"), "RGBA"),
    "grey and clear": (lambda p: p.convert("LA"), "LA"),
    "palette": (lambda p: p.convert("P"), "RGB"),
    "black and white": (lambda p: p.convert("1"), "L"),
    "16 bits": (lambda p: Image.fromarray(np.asarray(p.convert("L")).astype(np.uint16) * 257), "L"),
    "tiny": (lambda p: p.resize((1, 1)), "RGB"),
    "odd": (lambda p: p.resize((13, 7)), "RGB"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_picture_is_upscaled(kind: str, upscaler, tmp_path: Path):
    make, mode = KINDS[kind]
    picture = make(Image.fromarray(waves(2)))
    path = saved(tmp_path / "some.png", picture)
    (numbers,) = upscale_files(upscaler, [path], tmp_path / "out", draws=2)
    made, map_ = (Image.open(tmp_path / "out" / numbers[key]) for key in ("upscaled", "map"))
    assert (made.mode, map_.mode) == (mode, "L")
    assert made.size == map_.size == (2 * picture.width, 2 * picture.height)
    assert numbers["upscaled_width"] == made.width
    assert json.loads(json.dumps(numbers)) == numbers
    assert numbers["std"]["mean"] > 0
    near = np.asarray(picture.convert("L").resize(made.size, Image.Resampling.BICUBIC), dtype=float)
    if kind not in ("black and white", "16 bits"):  # of the latter PIL's own conversion cuts
        assert np.abs(np.asarray(made.convert("L"), dtype=float) - near).mean() < 40


def test_transparency_is_upscaled_bicubically(upscaler, tmp_path: Path):
    picture = Image.fromarray(waves(3)).convert("RGBA")
    alpha = np.linspace(0, 255, picture.width * picture.height).reshape(picture.height, -1).astype(np.uint8)
    picture.putalpha(Image.fromarray(alpha))
    upscale_files(upscaler, [saved(tmp_path / "a.png", picture)], tmp_path / "out", draws=2)
    made = np.asarray(Image.open(tmp_path / "out" / "a-x2.png"))[..., 3]
    expected = enlarged(torch.from_numpy(alpha / np.float32(255))[None, None], 2)[0, 0] * 255
    assert np.abs(made - expected.clamp(0, 255).numpy()).max() <= 0.51


def test_a_photograph_is_held_upright(tmp_path: Path):
    picture = Image.fromarray(waves(4))
    exif = picture.getexif()
    exif[0x0112] = 6  # the camera was turned: width and height change places
    picture.save(tmp_path / "a.jpg", exif=exif)
    assert read_image(tmp_path / "a.jpg").luma.shape == (picture.width, picture.height)


def test_what_is_no_picture_is_refused_before_anything_is_written(upscaler, tmp_path: Path):
    (tmp_path / "text.png").write_text("no picture")
    good = saved(tmp_path / "good.png", Image.fromarray(waves(0)))
    with pytest.raises(Failure, match=r"damaged image '.*text.png'"):
        upscale_files(upscaler, [good, tmp_path / "text.png"], tmp_path / "out")
    (tmp_path / "cut.png").write_bytes(good.read_bytes()[:900])
    with pytest.raises(Failure, match=r"damaged image '.*cut.png'"):
        upscale_files(upscaler, [tmp_path / "cut.png"], tmp_path / "out")
    with pytest.raises(Misuse, match=r"no image '.*none.png': expected a file"):
        upscale_files(upscaler, [tmp_path / "none.png"], tmp_path / "out")
    with pytest.raises(Misuse, match="holds fractions without a known white"):
        upscale_files(
            upscaler, [saved(tmp_path / "f.tiff", Image.fromarray(np.zeros((4, 4), np.float32)))], tmp_path / "out"
        )
    assert not (tmp_path / "out").exists()


def test_two_pictures_of_one_name_are_refused(upscaler, tmp_path: Path):
    (tmp_path / "b").mkdir()
    paths = [saved(tmp_path / place, Image.fromarray(waves(0))) for place in ("a.png", "b/a.png")]
    with pytest.raises(Misuse, match=r"two of the images would be written as a-x2.png"):
        upscale_files(upscaler, paths, tmp_path / "out")
