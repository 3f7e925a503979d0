"""The toys have the geometry they claim, within standard errors; scikit-learn's sets arrive unchanged."""

import numpy as np
import pytest
import torch
from sklearn import datasets

from murmuration.data import builtin_names, open_data
from murmuration.data.builtin import BUILTINS, GAPS, GAPS_NOISE, gaps_function


def test_every_builtin_has_one_line_and_opens() -> None:
    for name, line in builtin_names().items():
        data = open_data(name)
        assert "\n" not in line
        assert len(line) > 10
        assert data.name == name
        assert all(torch.isfinite(split.prepared).all() for split in (data.train, data.val, data.test))


@pytest.mark.parametrize("name", ["two-moons", "five-gaussians", "gaps-1d", "x-sin-x"])
def test_toys_follow_their_seed_and_stay_in_their_own_units(name: str) -> None:
    first, again, other = (open_data(name, seed=seed) for seed in (4, 4, 5))
    assert torch.equal(first.train.prepared, again.train.prepared)
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint
    raw = BUILTINS[name].load(4).parts["test"].inputs
    assert np.array_equal(first.test.prepared.numpy(), raw.astype(np.float32))
    assert len(first.feature_names) == first.train.prepared.shape[1]


def test_five_gaussians_sit_on_the_circle() -> None:
    data = open_data("five-gaussians")
    assert torch.bincount(data.train.y).tolist() == [40] * 5
    assert torch.bincount(data.test.y).tolist() == [20] * 5
    for k in range(5):
        angle = np.pi / 2 + 2 * np.pi * k / 5
        centre = torch.tensor([5 * np.cos(angle), 5 * np.sin(angle)])
        points = data.train.prepared[data.train.y == k]
        assert (points.mean(0) - centre).abs().max() < 4 / np.sqrt(40)  # the mean's standard error is 1/sqrt(40)
    # the standard error of a variance over 400 values is sqrt(2/400)
    means = torch.stack([data.train.prepared[data.train.y == k].mean(0) for k in range(5)])
    residual = data.train.prepared - means[data.train.y]
    assert abs(residual.square().sum().item() / (2 * 195) - 1) < 4 * np.sqrt(2 / 390)


def test_gaps_function_has_the_published_cluster_means() -> None:
    for (low, high, _), mean in zip(GAPS, (-0.48, 0.63, 0.69), strict=True):
        grid = np.linspace(low, high, 20001)
        integral = np.trapezoid(gaps_function(grid), grid) / (high - low)
        assert integral == pytest.approx(mean, abs=1e-6)


def test_gaps_points_lie_in_the_clusters_with_noise() -> None:
    data = open_data("gaps-1d")
    half = data.train.prepared[:, 0].double()
    assert torch.allclose(data.train.prepared[:, 1].double(), half.square(), rtol=1e-6)
    x = 2 * half.numpy()
    counts = [int(((x > low - 1e-5) & (x < high + 1e-5)).sum()) for low, high, _ in GAPS]
    assert counts == [115, 136, 149]
    noise = data.train.y[:, 0].numpy() - gaps_function(x)
    assert abs(noise.std() / GAPS_NOISE - 1) < 4 / np.sqrt(2 * 400)
    assert abs(noise.mean()) < 4 * GAPS_NOISE / np.sqrt(400)


def test_x_sin_x() -> None:
    data = open_data("x-sin-x")
    x, y = data.train.prepared[:, 0].numpy(), data.train.y[:, 0].numpy()
    assert ((x >= 1.5) & (x <= 2.5)).sum() == ((x >= 4.5) & (x <= 6)).sum() == 45
    assert abs((y - x * np.sin(x)).std() / 0.25 - 1) < 4 / np.sqrt(2 * 90)
    assert np.allclose(data.test.prepared[:, 0], np.linspace(0, 7, 100))


def test_two_moons_are_two_arcs() -> None:
    data = open_data("two-moons")
    upper = data.train.prepared[data.train.y == 0]
    lower = data.train.prepared[data.train.y == 1]
    assert abs(upper.norm(dim=1).mean().item() - 1) < 0.02  # radius 1 about the origin, noise 0.1
    assert abs((lower - torch.tensor([1.0, 0.5])).norm(dim=1).mean().item() - 1) < 0.02
    assert (len(data.train), len(data.val), len(data.test)) == (1350, 150, 500)


def test_digits_are_scikit_learns() -> None:
    data = open_data("digits")
    assert (len(data.train), len(data.val), len(data.test)) == (1258, 180, 359)
    assert data.classes == tuple("0123456789")
    theirs = datasets.load_digits()
    known = {image.tobytes(): label for image, label in zip(theirs.images, theirs.target, strict=True)}
    ours = data.preparation.pixels_of(data.test.prepared)[..., 0].astype(float) * 16 / 255
    for image, label in zip(ours.round(), data.test.y.tolist(), strict=True):
        assert known[image.tobytes()] == label


def test_breast_cancer_keeps_the_order_of_its_names() -> None:
    data = open_data("breast-cancer")
    assert data.classes == ("malignant", "benign")
    total = sum(int((split.y == 0).sum()) for split in (data.train, data.val, data.test))
    assert total == int((datasets.load_breast_cancer().target == 0).sum())


def test_diabetes_keeps_its_targets_in_their_units() -> None:
    data = open_data("diabetes")
    ys = torch.cat([data.train.y, data.val.y, data.test.y]).flatten()
    assert torch.equal(ys.sort().values, torch.from_numpy(datasets.load_diabetes().target).float().sort().values)
    assert data.classes == ()
