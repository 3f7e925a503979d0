"""Made against real features: closed forms, a second derivation, and cases small enough to draw."""

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from murmuration.applications.gan.metrics import frechet_distance, gaussian_frechet, precision_recall
from murmuration.system.errors import Misuse

GENERATOR = np.random.default_rng(0)


def covariance(width: int) -> torch.Tensor:
    root = torch.from_numpy(GENERATOR.normal(size=(width, width + 2)))
    return root @ root.T


def rotation(width: int) -> torch.Tensor:
    return torch.linalg.qr(torch.from_numpy(GENERATOR.normal(size=(width, width))))[0]


def test_equal_gaussians_are_no_distance_apart():
    mean, spread = torch.randn(6, dtype=torch.float64), covariance(6)
    assert gaussian_frechet(mean, spread, mean, spread) < 1e-12 * spread.trace()
    features = GENERATOR.normal(size=(50, 6))
    assert frechet_distance(features, features[::-1].copy()) < 1e-12


def test_in_one_dimension_it_is_the_distance_of_means_and_deviations():
    found = gaussian_frechet(*(torch.full(shape, value).double() for shape, value in CASE))
    assert found == pytest.approx((1.0 + 2.0) ** 2 + (0.5 - 1.5) ** 2, rel=1e-14)


CASE = (((1,), 1.0), ((1, 1), 0.25), ((1,), -2.0), ((1, 1), 2.25))


def test_covariances_with_the_same_axes_differ_by_their_deviations_along_them():
    axes = rotation(5)
    ours, theirs = (torch.from_numpy(GENERATOR.uniform(0, 4, 5)) for _ in range(2))
    mean, other = torch.arange(5.0).double(), torch.ones(5).double()
    spreads = [(axes * values) @ axes.T for values in (ours, theirs)]
    expected = (mean - other).square().sum() + (ours.sqrt() - theirs.sqrt()).square().sum()
    assert gaussian_frechet(mean, spreads[0], other, spreads[1]) == pytest.approx(expected.item(), rel=1e-12)


def test_a_matrix_root_gives_the_same():
    ours, theirs = covariance(7), covariance(7)
    root = np.trace(sqrtm((ours @ theirs).numpy()).real)
    expected = ours.trace().item() + theirs.trace().item() - 2 * root
    zero = torch.zeros(7).double()
    assert gaussian_frechet(zero, ours, zero, theirs) == pytest.approx(expected, rel=1e-9)


def test_it_is_symmetric_and_knows_no_axes_and_no_origin():
    ours, theirs = GENERATOR.normal(size=(40, 4)), GENERATOR.normal(size=(30, 4)) @ np.diag([1, 2, 3, 4.0]) + 1
    expected = frechet_distance(ours, theirs)
    turn = rotation(4).numpy()
    assert frechet_distance(theirs, ours) == pytest.approx(expected, rel=1e-12)
    assert frechet_distance(ours @ turn + 5, theirs @ turn + 5) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(3 * ours, 3 * theirs) == pytest.approx(9 * expected, rel=1e-12)


def test_fewer_examples_than_features_are_enough():
    """Two examples along x, two along y: covariances diag(2, 0, 0) and diag(0, 2, 0), whose product is zero."""
    ours, theirs = [[1.0, 0, 0], [-1, 0, 0]], [[0, 1.0, 0], [0, -1, 0]]
    assert frechet_distance(ours, theirs) == pytest.approx(4.0, rel=1e-14)


REAL = [[0.0], [1.0], [3.0], [6.0]]  # distances to the nearest other: 1, 1, 2, 3


@pytest.mark.parametrize(
    ("made", "precision", "recall"),
    [
        ([[0.5], [0.5], [0.5]], 1.0, 0.0),  # one picture again and again: its ball has no size
        ([[0.0], [1.0], [3.0], [6.0]], 1.0, 1.0),
        ([[-1.0], [9.0]], 1.0, 1.0),  # on the edges of balls; their own balls reach over everything
        ([[-1.1], [-2.0], [20.0], [21.0]], 0.0, 0.0),
        ([[0.2], [0.9], [10.0], [10.5]], 0.5, 0.5),  # balls 0.2 +- 0.7 and 0.9 +- 0.7 hold 0 and 1
    ],
)
def test_balls_that_can_be_drawn(made, precision, recall):
    assert precision_recall(REAL, made, neighbours=1) == (precision, recall)
    assert precision_recall(made, REAL, neighbours=1) == (recall, precision)


def test_more_neighbours_make_larger_balls():
    made = [[4.9], [5.0], [30.0], [31.0]]
    assert precision_recall(REAL, made, neighbours=1) == (0.5, 0.0)
    assert precision_recall(REAL, made, neighbours=3) == (0.5, 1.0)


def test_rows_are_taken_a_few_at_a_time(monkeypatch):
    ours, theirs = GENERATOR.normal(size=(50, 3)), GENERATOR.normal(size=(40, 3)) + 0.5
    whole = precision_recall(ours, theirs)
    monkeypatch.setattr("murmuration.applications.gan.metrics.ROWS", 7)
    assert precision_recall(ours, theirs) == whole
    assert 0 < whole[0] < 1


@pytest.mark.parametrize(
    ("real", "made", "message"),
    [
        ([[1.0]], REAL, r"real features of shape \(1, 1\): expected \(N, D\), and at least two examples"),
        (REAL, [1.0, 2.0], r"generated features of shape \(2,\): expected \(N, D\)"),
        (REAL, [[1.0, 2.0], [1.0, 2.0]], "1 real and 2 generated features: expected those of one network"),
        (REAL, [[1.0], [float("nan")]], "generated features are not all finite"),
    ],
)
def test_what_cannot_be_compared_is_refused(real, made, message):
    for score in (frechet_distance, precision_recall):
        with pytest.raises(Misuse, match=message):
            score(real, made)


def test_too_many_neighbours_are_refused():
    with pytest.raises(Misuse, match="neighbours=4 for 4 examples: need at least 1 and fewer than the examples"):
        precision_recall(REAL, REAL, neighbours=4)
