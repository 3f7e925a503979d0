"""Preparations: parity with scikit-learn's scaler, exact inverses, and the same result after JSON."""

import json

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from murmuration.data import ArrayPreparation, ImagePreparation, open_data, preparation_from_json
from murmuration.data.preparation import fit_array, fit_images, image_shape, pixel_peak
from murmuration.data.scaling import Scaling, mean_std
from murmuration.system.errors import Misuse


def bytes_like(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def test_features_are_standardised_as_scikit_learn_does() -> None:
    x = np.random.default_rng(0).normal(3.0, 7.0, (200, 4))
    x[:, 2] = 0.1  # constant
    ours = fit_array(x, (), prepare="standardise").apply(x)
    theirs = StandardScaler().fit_transform(x)
    assert np.allclose(ours, theirs, atol=1e-6)
    assert ours[:, 2].abs().max() < 1e-6


def test_moments_of_three_values_by_hand_and_without_cancellation() -> None:
    mean, std = mean_std(np.array([[1.0], [2.0], [6.0]]), "x")
    assert mean[0] == 3
    assert std[0] == pytest.approx(np.sqrt(14 / 3))
    shifted = mean_std(np.array([[1.0], [2.0], [6.0]]) + 1e9, "x")[1]
    assert shifted[0] == pytest.approx(np.sqrt(14 / 3), rel=1e-12)


def test_blocks_do_not_show() -> None:
    values = bytes_like(700, 3, 20, 20)  # 840 000 values, more than three blocks
    mean, std = mean_std(values, "x")
    assert np.allclose(mean, values.mean(axis=(0, 2, 3)), rtol=1e-12)
    assert np.allclose(std, values.std(axis=(0, 2, 3)), rtol=1e-12)
    whole = (values - mean.reshape(1, 3, 1, 1)) / std.reshape(1, 3, 1, 1)
    assert np.array_equal(Scaling(tuple(mean), tuple(std)).apply(values), whole.astype(np.float32))


def test_images_have_mean_zero_and_deviation_one_in_each_channel() -> None:
    x = bytes_like(50, 3, 6, 5)
    out = fit_images(x, 255.0, "standardise").apply(x).double()
    assert out.mean((0, 2, 3)).abs().max() < 1e-6
    assert (out.var((0, 2, 3), unbiased=False) - 1).abs().max() < 1e-6


def test_unit_and_raw_pixels() -> None:
    x = bytes_like(4, 3, 6, 5)
    assert np.array_equal(fit_images(x, 255.0, "unit").apply(x), (x / 255).astype(np.float32))
    assert np.array_equal(fit_images(x, 255.0, "raw").apply(x), x.astype(np.float32))


@pytest.mark.parametrize("pixels", ["standardise", "unit", "raw"])
def test_pixels_of_undoes_the_preparation_exactly(pixels: str) -> None:
    x = bytes_like(20, 3, 6, 5)
    prepared = fit_images(x, 255.0, pixels)
    assert np.array_equal(prepared.pixels_of(prepared.apply(x)), x.transpose(0, 2, 3, 1))


def test_every_layout_gives_the_same_planes() -> None:
    first = bytes_like(7, 3, 6, 5)
    preparation = fit_images(first, 255.0, "standardise")
    last = first.transpose(0, 2, 3, 1)
    assert fit_images(last, 255.0, "standardise") == preparation
    assert torch.equal(preparation.apply(last), preparation.apply(first))
    grey = bytes_like(7, 6, 5)
    prepared = fit_images(grey, 255.0, "unit")
    assert torch.equal(prepared.apply(grey), prepared.apply(grey[:, None]))
    assert torch.equal(preparation.apply(grey), preparation.apply(np.repeat(grey[:, None], 3, axis=1)))


def test_white_of_another_scale() -> None:
    x = bytes_like(9, 3, 4, 4)
    preparation = fit_images(x, 255.0, "standardise")
    assert torch.allclose(preparation.apply(x / 255, peak=1.0), preparation.apply(x), atol=1e-5)


def test_what_looks_like_images() -> None:
    assert pixel_peak(bytes_like(2, 4, 4)) == 255
    assert pixel_peak(np.full((2, 4, 4), 0.5)) is None  # may be a series (N, C, L)
    assert pixel_peak(np.full((2, 4, 4), 0.5), asked=True) == 1
    assert pixel_peak(np.full((2, 3, 4, 4), 7.0)) == 255
    assert pixel_peak(np.full((2, 3, 4, 4), -0.1)) is None
    assert pixel_peak(np.full((2, 3), 0.5)) is None
    assert image_shape(np.zeros((2, 3, 32, 3))) == (3, 32, 3)  # colours first where both would do


def test_float_planes_outside_pixels_are_standardised_by_channel() -> None:
    x = torch.randn(60, 2, 4, 5, generator=torch.Generator().manual_seed(0)) * 5
    data = open_data((x, torch.arange(60) % 3))
    assert isinstance(data.preparation, ArrayPreparation)
    assert data.train.prepared.mean((0, 2, 3)).abs().max() < 1e-5
    raw = open_data((x, torch.arange(60) % 3), prepare="none")
    assert all(any(torch.equal(row, given) for given in x) for row in raw.test.prepared)


def test_statistics_come_from_the_training_split_alone() -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    parts = {"x_train": x, "x_test": x + 100.0}
    preparation = fit_array(parts["x_train"], (), prepare="standardise")
    assert np.allclose(preparation.mean, x.mean(0))
    assert preparation.apply(parts["x_test"]).mean() > 50


@pytest.mark.parametrize("name", ["digits", "iris", "gaps-1d"])
def test_json_round_trip_prepares_the_same(name: str) -> None:
    preparation = open_data(name).preparation
    again = preparation_from_json(json.loads(json.dumps(preparation.to_json())))
    assert again == preparation
    raw = np.random.default_rng(0).integers(0, 16, (5, *preparation.shape))
    assert torch.equal(again.apply(raw), preparation.apply(raw))


def test_misuse() -> None:
    image = ImagePreparation((3, 4, 5), 255.0, (0.0,) * 3, (1.0,) * 3)
    with pytest.raises(Misuse, match=r"the shape \(4, 4\): expected \(3, 4, 5\), as in training"):
        image.apply(np.zeros((2, 4, 4)))
    features = ArrayPreparation((3,), (0.0,) * 3, (1.0,) * 3)
    with pytest.raises(Misuse, match=r"the shape \(2,\): expected \(3,\)"):
        features.apply(np.zeros((5, 2)))
    with pytest.raises(Misuse, match=r"x\[1, 2\] is nan \(1 such values\): expected finite"):
        features.apply(np.array([[0, 0, 0], [0, 0, np.nan]]))
    with pytest.raises(Misuse, match="x has type <U1"):
        features.apply(np.array([["a", "b", "c"]]))
    with pytest.raises(Misuse, match="unknown preparation 'imge': did you mean 'image'"):
        preparation_from_json({"kind": "imge"})
    with pytest.raises(Misuse, match="unknown prepare 'units': did you mean 'unit'"):
        open_data("digits", prepare="units")
    with pytest.raises(Misuse, match=r"colours last and values outside 0..255"):
        open_data((np.full((9, 5, 5, 3), -1.0), np.arange(9) % 2))
    with pytest.raises(Misuse, match="too large to standardise"):
        fit_array(np.array([[1e300], [-1e300]]), (), prepare="standardise")
