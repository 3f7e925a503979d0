"""Drops of water and mud, and the steps that shape them: edges, distances, ranks."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import ndimage

from murmuration.data.shift import weather
from murmuration.data.shift.images import SPATTER, corrupt
from murmuration.data.shift.randomness import draws_for

GENERATOR = np.random.default_rng(0)
X = GENERATOR.random((4, 32, 32, 3))
ROUNDING = 3e-6  # of numbers in 0..1 in single precision after a few dozen operations


@pytest.mark.parametrize("severity", [4, 5])
def test_mud_hides_what_is_behind_it(severity: int) -> None:
    m, s, sigma, t, w, _ = SPATTER[severity - 1]
    noise = draws_for(0, "spatter", severity, range(len(X))).normals((32, 32))
    for image, row, out in zip(X, noise, corrupt(X, "spatter", severity), strict=True):
        liquid = ndimage.gaussian_filter(m + s * row.astype(float), sigma, mode="nearest")
        mask = ndimage.gaussian_filter((liquid > t).astype(float), w, mode="nearest")
        mask = np.where(mask < 0.8, 0, mask)[..., None]
        assert_allclose(out, image * (1 - mask) + mask * np.array([63, 42, 20]) / 255, atol=ROUNDING)


@pytest.mark.parametrize("severity", [1, 2, 3])
def test_water_adds_turquoise_where_there_is_liquid(severity: int) -> None:
    m, s, sigma, t, w, _ = SPATTER[severity - 1]
    black = np.zeros((len(X), 32, 32, 3))
    out = corrupt(black, "spatter", severity)
    noise = draws_for(0, "spatter", severity, range(len(X))).normals((32, 32)).astype(float)
    liquid = ndimage.gaussian_filter(m + s * noise, (0, sigma, sigma), mode="nearest") > t
    assert not out[~liquid].any()
    assert_allclose(out.max((1, 2)), w * np.tile([175, 238, 238], (len(X), 1)) / 255, atol=ROUNDING)
    assert_allclose(out[..., 0] * 238, out[..., 2] * 175, atol=1e-4)


def test_edges_of_a_step_are_one_pixel_wide_and_weak_ones_need_a_strong_neighbour() -> None:
    step = np.zeros((2, 8, 8), np.float32)
    step[0, :, 4:], step[1, :, 4:] = 200, 20  # gradients 800 and 80
    found = weather.edges(step)
    assert [np.flatnonzero(row).tolist() for row in found[0]] == [[3]] * 8
    assert not found[1].any()
    step[1, :2, 4:] = 200  # now the weak edge hangs on a strong one
    assert weather.edges(step)[1, 5:].sum(1).tolist() == [1, 1, 1]


def test_distances_are_the_shortest_walks_of_a_chess_board() -> None:
    marked = GENERATOR.random((3, 12, 9)) < 0.04
    marked[2] = False
    y, x = np.abs(np.mgrid[-11:12, -8:9])
    long, short = np.maximum(x, y), np.minimum(x, y)
    steps = np.where(
        2 * short <= long, (long - 2 * short) + 2.1969 * short, 2.1969 * (long - short) + 1.4 * (2 * short - long)
    )
    for image, out in zip(marked[:2], weather.chamfer(marked), strict=False):
        near = [steps[11 - r : 23 - r, 8 - c : 17 - c] for r, c in np.argwhere(image)]
        assert_allclose(out, np.minimum.reduce(near), atol=1e-4)
    assert weather.chamfer(marked)[2].min() >= weather.FAR


def test_equalised_levels_are_ranks() -> None:
    levels = np.array([[[0, 0], [3, 20]], [[7, 7], [7, 7]]])
    assert weather.equalise(levels).tolist() == [[[0, 0], [128, 255]], [[7, 7], [7, 7]]]
