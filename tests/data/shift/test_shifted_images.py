"""Prepared images: corrupted as bytes and prepared again, whatever batch they come in."""

import numpy as np
import pytest
import torch

from murmuration.data.preparation import fit_images
from murmuration.data.shift import CORRUPTIONS, corrupt, select_corruptions, shift_inputs
from murmuration.system.errors import Misuse

GREY = ("saturate", 1)  # has no colour to change, and is not offered


def images(channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (6, 32, 32, channels)).astype(np.uint8)


@pytest.mark.parametrize(
    ("name", "channels"), [(name, channels) for name in CORRUPTIONS for channels in (1, 3) if (name, channels) != GREY]
)
def test_images_are_corrupted_as_bytes_and_prepared_again(name: str, channels: int) -> None:
    pixels = images(channels)
    preparation = fit_images(pixels, 255.0, "standardise")
    x = preparation.apply(pixels)
    expected = preparation.apply(corrupt(pixels, name, 4, seed=2, first=9), peak=255.0)
    assert torch.equal(shift_inputs(x, preparation, name, 4, seed=2, first=9), expected)
    assert not torch.equal(expected, x)


def test_names_of_other_collections_mean_ours() -> None:
    preparation = fit_images(images(3), 255.0, "unit")
    assert select_corruptions(preparation, ["frost", "frosted_glass_blur", "frost"]) == [
        "frost_approximate",
        "glass_blur",
    ]
    x = preparation.apply(images(3))
    frost = shift_inputs(x, preparation, "frost", 2)
    assert torch.equal(frost, shift_inputs(x, preparation, "frost_approximate", 2))
    assert not torch.equal(frost, x)


def test_fractions_are_corrupted_as_the_bytes_they_stand_for() -> None:
    pixels = images(3)
    bytes_, unit = (fit_images(p, peak, "standardise") for p, peak in ((pixels, 255.0), (pixels / 255.0, 1.0)))
    ours = shift_inputs(unit.apply(pixels / 255.0), unit, "gaussian_noise", 3)
    assert torch.allclose(ours, shift_inputs(bytes_.apply(pixels), bytes_, "gaussian_noise", 3), atol=1e-5)


def test_opacity_stays_and_images_do_not_know_their_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = images(4)
    preparation = fit_images(pixels, 255.0, "unit")
    x = preparation.apply(pixels)
    out = shift_inputs(x, preparation, "gaussian_noise", 5, first=3)
    assert torch.equal(out[:, 3], x[:, 3])
    assert np.array_equal(
        preparation.pixels_of(out)[..., :3], corrupt(pixels[..., :3], "gaussian_noise", 5, seed=0, first=3)
    )
    assert torch.equal(out[4:], shift_inputs(x[4:], preparation, "gaussian_noise", 5, first=7))
    monkeypatch.setattr("murmuration.data.shift.AT_ONCE", 1)  # an image at a time
    assert torch.equal(out, shift_inputs(x, preparation, "gaussian_noise", 5, first=3))


def test_misuse_with_images() -> None:
    preparation = fit_images(images(3), 255.0, "unit")
    x = preparation.apply(images(3))
    with pytest.raises(Misuse, match=r"^unknown corruption 'gausian_noise': did you mean 'gaussian_noise'"):
        shift_inputs(x, preparation, "gausian_noise", 1)
    with pytest.raises(Misuse, match=r"^severity 7: expected an integer from 1 to 5"):
        shift_inputs(x, preparation, "gaussian_noise", 7)
    with pytest.raises(Misuse, match=r"^examples have the shape \(3, 8, 8\): expected \(3, 32, 32\), as in training"):
        shift_inputs(x[..., :8, :8], preparation, "gaussian_noise", 1)
