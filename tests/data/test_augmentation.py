"""Augmented images are windows and mirror images of their originals, drawn from the generator alone."""

import math

import numpy as np
import pytest
import scipy.ndimage
import torch

from murmuration.data.augmentation import augment, flip, pad_crop, shift
from murmuration.system.errors import Misuse


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int = 40, side: int = 5) -> torch.Tensor:
    return torch.randn(count, 3, side, side + 1, generator=generator(9))


def test_every_crop_is_a_window_of_its_padded_image() -> None:
    x, p = images(), 2
    out = pad_crop(x, generator(), padding=p)
    big = torch.zeros(len(x), 3, 5 + 2 * p, 6 + 2 * p)
    big[:, :, p:-p, p:-p] = x
    corners = set()
    for i in range(len(x)):
        found = [
            (top, left)
            for top in range(2 * p + 1)
            for left in range(2 * p + 1)
            if torch.equal(out[i], big[i, :, top : top + 5, left : left + 6])
        ]
        assert len(found) == 1
        corners.add(found[0])
    assert {top for top, _ in corners} == {left for _, left in corners} == set(range(5))


def test_no_padding_changes_nothing() -> None:
    assert torch.equal(pad_crop(images(), generator(), padding=0), images())


def test_a_flip_undoes_itself() -> None:
    x = images()
    once = flip(x, generator(3))
    assert not torch.equal(once, x)
    assert torch.equal(flip(once, generator(3)), x)


def test_half_of_the_images_are_mirrored() -> None:
    x = torch.arange(2.0).view(1, 1, 1, 2).repeat(4000, 1, 1, 1)
    share = flip(x, generator())[:, 0, 0, 0].mean().item()
    assert abs(share - 0.5) < 4 * math.sqrt(0.25 / 4000)


def test_a_shift_is_that_of_scipy_with_nearest_fill() -> None:
    x, size = images(count=12, side=20).double(), (20, 21)
    out, draws = shift(x, generator(4)), generator(4)
    moved = [0.1 * side * (2 * torch.rand(len(x), generator=draws) - 1) for side in size]
    for i in range(len(x)):
        by = (0, -moved[0][i].item(), -moved[1][i].item())
        expected = scipy.ndimage.shift(x[i].numpy(), by, order=1, mode="nearest")
        np.testing.assert_allclose(out[i].numpy(), expected, atol=1e-5)
    assert max(float(one.abs().max()) for one in moved) > 1.5  # up to a tenth of the sides
    assert torch.equal(shift(x, generator(), fraction=0.0), x)


def test_same_generator_same_images_and_inputs_untouched() -> None:
    x = images()
    before = x.clone()
    names = ("pad-crop", "shift", "flip")
    first, again, other = (augment(x, names, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(x, before)
    assert augment(x, (), generator()) is x


def test_augment_is_its_changes_in_order() -> None:
    x, draws = images(), generator(5)
    expected = flip(pad_crop(x, draws), draws)
    assert torch.equal(augment(x, ("pad-crop", "flip"), generator(5)), expected)


def test_misuse() -> None:
    with pytest.raises(Misuse, match="unknown augmentation 'flp': did you mean 'flip'"):
        augment(images(), ("flp",), generator())
    with pytest.raises(Misuse, match=r"shape \(4, 2\): expected images"):
        augment(torch.zeros(4, 2), ("flip",), generator())
