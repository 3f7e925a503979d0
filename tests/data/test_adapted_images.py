"""Images adapted to an earlier run: resized as PIL does, grey by luma, unchanged if they fit already."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from test_images import bytes_like, cifar_folder, idx_folder, write_classes, write_idx

from murmuration.data import ImagePreparation, open_data, open_inputs
from murmuration.data.images import resize, resize_and_crop
from murmuration.data.preparation import fit_array, fit_images, fit_table
from murmuration.system.errors import Misuse

COLOUR = ImagePreparation((3, 32, 32), 255.0, (125.0, 123.0, 114.0), (63.0, 62.0, 67.0))
GREY = ImagePreparation((1, 28, 28), 255.0, (33.3,), (78.6,))
PLAIN = ImagePreparation((1, 4, 4), 255.0, (0.0,), (1.0,))  # raw pixels as they are


def mnist_like(folder: Path) -> np.ndarray:
    """Test images (20, 28, 28) of an idx folder that has 30 others to train on."""
    for part, count in (("train", 30), ("t10k", 20)):
        write_idx(folder / f"{part}-images-idx3-ubyte", bytes_like(count, 28, 28, seed=count), packed=False)
    return bytes_like(20, 28, 28, seed=20)


@pytest.mark.parametrize(("before", "after"), [((28, 28), (32, 32)), ((32, 32), (28, 28)), ((60, 45), (8, 9))])
def test_resizing_is_pillows_within_a_level(before: tuple[int, int], after: tuple[int, int]) -> None:
    pixels = bytes_like(3, 1, *before)
    theirs = [np.asarray(Image.fromarray(p[0]).resize(after[::-1], Image.Resampling.BILINEAR)) for p in pixels]
    ours = resize(pixels, after)
    assert ours.dtype == np.uint8
    assert np.abs(ours[:, 0].astype(int) - np.stack(theirs).astype(int)).max() <= 1  # theirs rounds after each axis
    fractions = resize(pixels / 255.0, after)
    assert np.abs(fractions * 255 - ours).max() <= 0.501  # the same before rounding


def test_grey_idx_images_for_a_run_on_colour(tmp_path: Path) -> None:
    pixels = mnist_like(tmp_path)
    x = open_inputs(tmp_path, preparation=COLOUR, adapt=True)
    assert torch.equal(x, COLOUR.apply(resize(pixels[:, None], (32, 32))))  # the test part alone
    levels = COLOUR.pixels_of(x)
    assert (levels == levels[..., :1]).all()  # all three channels show the same grey
    assert levels.shape == (20, 32, 32, 3)


def test_colour_images_for_a_run_on_grey(tmp_path: Path) -> None:
    planes = cifar_folder(tmp_path)["test_batch.bin"]
    small = resize(planes, (28, 28)).astype(np.float64)
    luma = 0.299 * small[:, 0] + 0.587 * small[:, 1] + 0.114 * small[:, 2]
    expected = (luma - 33.3) / 78.6
    assert np.allclose(open_inputs(tmp_path, preparation=GREY, adapt=True)[:, 0], expected, atol=1e-6)


@pytest.mark.parametrize("layout", ["first", "last", "opaque"])
def test_a_constant_colour_becomes_its_luma(layout: str) -> None:
    colour = np.array([200, 100, 50], dtype=np.uint8)
    pixels = np.broadcast_to(colour, (2, 9, 7, 3))
    if layout == "first":
        pixels = pixels.transpose(0, 3, 1, 2)
    if layout == "opaque":
        pixels = np.concatenate([pixels, np.full((2, 9, 7, 1), 255, np.uint8)], axis=3)
    x = open_inputs(pixels, preparation=PLAIN, adapt=True)
    assert x.shape == (2, 1, 4, 4)
    assert (x - 124.2).abs().max() < 1e-4  # 59.8 + 58.7 + 5.7


def test_opacity_is_dropped_for_a_run_on_colour() -> None:
    pixels = bytes_like(4, 32, 32, 4)
    assert torch.equal(open_inputs(pixels, preparation=COLOUR, adapt=True), COLOUR.apply(pixels[..., :3]))


@pytest.mark.parametrize("layout", [(6, 5, 3), (3, 6, 5), (6, 5), (1, 6, 5), (6, 5, 1)])
def test_images_that_fit_are_opened_as_ever(layout: tuple[int, ...]) -> None:
    pixels = bytes_like(8, *layout)
    preparation = fit_images(bytes_like(20, 3, 6, 5, seed=1), 255.0, "standardise")
    for source in (pixels, pixels / 255.0, torch.from_numpy(pixels), (pixels, np.arange(8))):
        assert torch.equal(
            open_inputs(source, preparation=preparation, adapt=True), open_inputs(source, preparation=preparation)
        )


def test_folders_and_built_in_names_that_fit_are_opened_as_ever(tmp_path: Path) -> None:
    digits = open_data("digits")
    for source in ("digits", digits):
        foreign = open_inputs(source, preparation=digits.preparation, adapt=True)
        assert torch.equal(foreign, open_inputs(source, preparation=digits.preparation))
    idx_folder(tmp_path)
    preparation = open_data(tmp_path).preparation
    assert torch.equal(
        open_inputs(tmp_path, preparation=preparation, adapt=True), open_inputs(tmp_path, preparation=preparation)
    )


def test_white_becomes_the_runs_white() -> None:
    digits = open_data("digits").preparation
    assert isinstance(digits, ImagePreparation)
    assert digits.peak == 16
    white = digits.apply(np.full((1, 8, 8), 16.0))
    for source in (np.full((1, 28, 28, 3), 255, np.uint8), np.full((1, 28, 28), 255.0), np.ones((1, 28, 28))):
        assert torch.allclose(open_inputs(source, preparation=digits, adapt=True), white, atol=1e-5)
    own = np.random.default_rng(0).integers(0, 17, (5, 8, 8)).astype(np.float64)  # in the run's units
    assert torch.equal(open_inputs(own, preparation=digits, adapt=True), digits.apply(own))


def test_a_data_set_opened_before_gives_its_test_images() -> None:
    digits = open_data("digits")
    pixels = digits.preparation.pixels_of(digits.test.prepared)  # type: ignore[union-attr]
    x = open_inputs(digits, preparation=COLOUR, adapt=True)
    assert torch.equal(x, open_inputs(pixels, preparation=COLOUR, adapt=True))
    assert torch.equal(x, COLOUR.apply(resize(pixels.transpose(0, 3, 1, 2), (32, 32))))


def test_folders_of_images_of_all_sizes(tmp_path: Path) -> None:
    small = write_classes(tmp_path, 1, ("a",), (9, 7, 3))[0]
    large = bytes_like(50, 40, 3)
    Image.fromarray(large).save(tmp_path / "b.png")
    x = open_inputs(tmp_path, preparation=COLOUR, adapt=True)
    each = [resize_and_crop(p.transpose(2, 0, 1)[None], (32, 32)) for p in (small, large)]
    assert torch.equal(x, COLOUR.apply(np.concatenate(each)))
    with pytest.raises(Misuse, match="expected one size for all"):
        open_inputs(tmp_path, preparation=COLOUR)


def test_blocks_of_images_do_not_show() -> None:
    pixels = bytes_like(300, 40, 40)  # 480 000 values, two blocks
    x = open_inputs(pixels, preparation=PLAIN, adapt=True)
    assert torch.equal(
        x, torch.cat([open_inputs(pixels[i : i + 7], preparation=PLAIN, adapt=True) for i in range(0, 300, 7)])
    )


def test_tables_and_arrays_need_the_columns_of_training() -> None:
    table = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": ["u", "v", "u"]})
    columns = fit_table(table)
    wider = table.assign(c=0.0)
    turned = open_inputs(table[["b", "a"]], preparation=columns, adapt=True)
    assert torch.equal(turned, columns.apply(table))  # columns are found by name
    with pytest.warns(UserWarning, match="the table has columns that training did not have, which are ignored: c"):
        open_inputs(wider, preparation=columns)
    with pytest.raises(Misuse, match="no column 'b' in the table: expected it; found a"):
        open_inputs(table[["a"]], preparation=columns, adapt=True)
    array = fit_array(np.arange(12.0).reshape(6, 2), (), prepare="standardise")
    rows = np.arange(4.0).reshape(2, 2)
    assert torch.equal(open_inputs(rows, preparation=array, adapt=True), array.apply(rows))
    with pytest.raises(Misuse, match=r"examples have the shape \(3,\): expected \(2,\), as in training"):
        open_inputs(np.zeros((5, 3)), preparation=array, adapt=True)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros((5, 12)), r"^examples of shape \(12,\) for a run trained on images: expected images, of any size"),
        (pd.DataFrame({"a": [1.0]}), "^a table for a run trained on images: expected images"),
        (bytes_like(5, 2, 8, 8), "^images of 2 channels for a run trained on 3: expected 1, 3 or 4$"),
        (np.linspace(-2, 3, 75).reshape(1, 5, 5, 3), "^images with values from -2 to 3: expected pixels in 0..1 or 0"),
        (np.full((1, 5, 5), 60000.0), "values from 60000 to 60000: expected pixels"),
    ],
)
def test_what_is_no_image_is_refused(source: object, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        open_inputs(source, preparation=COLOUR, adapt=True)


def test_a_run_on_four_channels_needs_them() -> None:
    preparation = ImagePreparation((4, 8, 8), 255.0, (0.0,) * 4, (1.0,) * 4)
    with pytest.raises(Misuse, match=r"^images of 3 channels for a run trained on 4: expected 1 or 4$"):
        open_inputs(bytes_like(2, 3, 9, 9), preparation=preparation, adapt=True)
